package pluginset

import (
	"context"
	"sync"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/worker"
)

// loader starts the plugin runtime when the first plugin is loaded: the built-in redactor does not
// need it.
type loader struct {
	o        Options
	cacheKey [32]byte

	mu     sync.Mutex // guards the fields below
	load   pipeline.Loader
	end    func() error
	closed bool
}

// Load makes a plugin ready to be called.
func (l *loader) Load(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
	load, err := l.start()
	if err != nil {
		return nil, err
	}
	return load.Load(ctx, s)
}

func (l *loader) start() (pipeline.Loader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, &hook.Error{Kind: hook.ErrUnavailable, Reason: "the plugins were closed with the store"}
	}
	if l.load != nil {
		return l.load, nil
	}
	var err error
	if l.o.Workers {
		err = l.startWorkers()
	} else {
		err = l.startHost()
	}
	if err != nil {
		l.o.Log.Error("plugin workers cannot be started", "error", err)
		return nil, &hook.Error{Kind: hook.ErrUnavailable, Reason: "plugin workers cannot be started: " + err.Error()}
	}
	return l.load, nil
}

func (l *loader) startWorkers() error {
	h, err := worker.New(worker.Options{Processes: l.o.Calls, Memory: l.o.Memory, Replaced: func(reason string) {
		l.o.Log.Warn("a plugin worker was replaced", "reason", reason)
		if l.o.Metrics != nil {
			l.o.Metrics.PluginRestarted()
		}
	}})
	if err != nil {
		return err
	}
	l.o.Log.Info("plugins run in worker processes", "confined_by", h.Walls())
	l.end = h.Close
	l.load = pipeline.LoaderFunc(func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
		p, err := h.Load(ctx, s)
		if err != nil {
			return nil, err
		}
		return p, nil
	})
	return nil
}

func (l *loader) startHost() error {
	h, err := plugins.New(plugins.Options{Memory: l.o.Memory, Concurrency: l.o.Calls, CacheDir: l.o.cacheDir(), CacheKey: l.cacheKey})
	if err != nil {
		return err
	}
	l.end = h.Close
	l.load = pipeline.LoaderFunc(func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
		p, err := h.Load(ctx, s)
		if err != nil {
			return nil, err
		}
		return p, nil
	})
	return nil
}

func (l *loader) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.end == nil {
		return nil
	}
	return l.end()
}
