// Package worker runs plugins in processes of their own: the second wall behind the one that package plugins is.
//
// A Host starts copies of the program (ckptd plugin-worker) that give up what a plugin has no use for: files, network,
// other processes, more memory than a bound, core dumps. Each does one call at a time, so what kills one rejects the one
// operation in hand; another takes its place. The parent trusts nothing that a worker says. Workers serve all users in
// turn: between their data stands the reset of a plugin's memory after every call, as in one process.
package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/plugins"
)

// Options configures New. The zero value is usable by a program with a command plugin-worker.
type Options struct {
	Command   []string      // a program and its arguments, which call Main; nil: this program with the argument plugin-worker
	Processes int           // and so calls at a time, 0: as many as processors, at most 8
	Memory    int64         // bytes that the guests of one process may take, 0: 1 GiB
	Grace     time.Duration // how long after a limit of a plugin its worker is killed if it did not stop it, 0: 1 s

	// Replaced, if not nil, is told each time that a worker died or could not be started, with the reason in one line.
	// It must not call the Host.
	Replaced func(reason string)
}

// overhead is what a worker may take beside its guests: its own code, modules in the compiler, input and output.
const overhead = 1 << 30

// Host runs workers. Methods are safe for concurrent use.
type Host struct {
	o       Options
	idle    chan *process
	closing chan struct{}
	work    sync.WaitGroup // of replacing workers

	mu     sync.Mutex
	all    map[*process]bool
	live   map[uint64]*Plugin
	last   uint64 // handle
	walls  string
	closed bool
}

// New starts the workers; it returns as soon as the first is there. Close the Host to end them.
func New(o Options) (*Host, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if o.Processes < 0 || o.Memory < 0 || o.Grace < 0 {
		return nil, errors.New("plugin workers: processes, memory and grace must not be negative")
	}
	if o.Command == nil {
		program, err := self()
		if err != nil {
			return nil, fmt.Errorf("finding the plugin worker program: %w", err)
		}
		o.Command = []string{program, "plugin-worker"}
	}
	if o.Processes == 0 {
		o.Processes = min(runtime.GOMAXPROCS(0), 8)
	}
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	if o.Grace == 0 {
		o.Grace = time.Second
	}
	h := &Host{o: o, idle: make(chan *process, o.Processes), closing: make(chan struct{}),
		all: map[*process]bool{}, live: map[uint64]*Plugin{}}
	first, err := launch(o)
	if err != nil {
		return nil, fmt.Errorf("starting a plugin worker: %w", err)
	}
	h.walls = first.walls
	h.all[first] = true
	h.idle <- first
	for range o.Processes - 1 {
		h.replace()
	}
	return h, nil
}

// Walls says what the workers confined themselves with, for a log: "rlimits, seccomp".
func (h *Host) Walls() string { return h.walls }

// Load compiles a plugin in every worker and returns when it can be called without delay. The Host keeps the binary, for
// workers to come, until the Plugin is closed.
func (h *Host) Load(ctx context.Context, s plugins.Spec) (*Plugin, error) {
	pl := &Plugin{host: h, spec: s, limits: effective(s.Limits), digest: sha256.Sum256(s.Binary)}
	h.mu.Lock()
	h.last++
	pl.handle = h.last
	h.mu.Unlock()
	fail := func(err error) (*Plugin, error) {
		h.forget(pl)
		return nil, pl.explain(ctx, err, 0, "")
	}
	for i := range h.o.Processes {
		p, err := h.acquire(ctx, pl.loadLimit())
		if err != nil {
			if i > 0 && ctx.Err() == nil {
				break // it is there, and the others will load it when it is called
			}
			return fail(err)
		}
		err = h.load(ctx, p, pl)
		if i == 0 && err == nil {
			h.mu.Lock()
			h.live[pl.handle] = pl
			h.mu.Unlock()
		}
		h.release(p)
		if err != nil {
			return fail(err)
		}
	}
	return pl, nil
}

// load makes a worker know a plugin.
func (h *Host) load(ctx context.Context, p *process, pl *Plugin) error {
	if p.loaded[pl.handle] {
		return nil
	}
	number := p.next()
	err := p.operate(ctx, operation{
		number: number, limit: pl.loadLimit(), kind: kindLoad, fields: buildLoad(number, pl.handle, pl.spec), data: pl.spec.Binary,
		want: kindLoaded, size: 4 * maxText, parse: func(body []byte) error {
			digest, stages, err := parseLoaded(body, number)
			if err != nil {
				return err
			}
			return pl.learn(digest, stages)
		},
	})
	if err == nil {
		p.loaded[pl.handle] = true
	}
	return err
}

// acquire waits for a worker, which the caller must release.
func (h *Host) acquire(ctx context.Context, wait time.Duration) (*process, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-h.closing:
			return nil, &hook.Error{Kind: hook.ErrUnavailable, Reason: "the plugin workers are closed"}
		default:
		}
		select {
		case p := <-h.idle:
			if p.alive() {
				return p, nil
			}
			h.release(p)
		case <-h.closing:
		case <-ctx.Done():
			return nil, &hook.Error{Kind: hook.ErrTimeout, Reason: "the caller gave up waiting for a worker"}
		case <-timer.C:
			return nil, &hook.Error{Kind: hook.ErrUnavailable, Reason: "all plugin workers are busy: allow more processes, or fewer parallel saves"}
		}
	}
}

// release gives a worker back, or replaces it if it is dead.
func (h *Host) release(p *process) {
	for _, handle := range h.stale(p) {
		if p.unload(handle) != nil {
			break // it is dead, and whoever takes it next notices
		}
	}
	if p.alive() {
		h.idle <- p
		return
	}
	p.close()
	h.mu.Lock()
	delete(h.all, p)
	h.mu.Unlock()
	h.tell(p.reason())
	h.replace()
}

// stale lists what a worker knows and has no more use for.
func (h *Host) stale(p *process) (handles []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for handle := range p.loaded {
		if h.live[handle] == nil {
			handles = append(handles, handle)
		}
	}
	return handles
}

// replace starts a worker beside what goes on, and again until there is one.
func (h *Host) replace() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.work.Go(func() {
		defer panics.To(func(err error) { h.tell(err.Error()) })
		for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
			p, err := h.fresh()
			if err == nil {
				h.release(p)
				return
			}
			h.tell(err.Error())
			select {
			case <-h.closing:
				return
			case <-time.After(pause):
			}
		}
	})
}

// fresh starts a worker that knows all plugins, but those of late that kill theirs.
func (h *Host) fresh() (*process, error) {
	p, err := launch(h.o)
	if err != nil {
		return nil, fmt.Errorf("starting a plugin worker: %w", err)
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		p.close()
		return nil, errors.New("the plugin workers are closed")
	}
	h.all[p] = true
	handles := slices.Sorted(maps.Keys(h.live))
	h.mu.Unlock()
	for _, handle := range handles {
		h.mu.Lock()
		pl := h.live[handle]
		h.mu.Unlock()
		if pl == nil || pl.struck() {
			continue
		}
		if err := h.load(context.Background(), p, pl); err != nil && !p.alive() {
			pl.strike()
			h.mu.Lock()
			delete(h.all, p)
			h.mu.Unlock()
			p.close()
			return nil, pl.explain(context.Background(), err, 0, "")
		}
	}
	return p, nil
}

func (h *Host) tell(reason string) {
	if h.o.Replaced != nil {
		h.o.Replaced(reason)
	}
}

// forget lets the workers drop a plugin: those that are idle now, the others when they are.
func (h *Host) forget(pl *Plugin) {
	h.mu.Lock()
	delete(h.live, pl.handle)
	h.mu.Unlock()
	for range h.o.Processes {
		select {
		case p := <-h.idle:
			h.release(p)
		default:
			return
		}
	}
}

// Close kills the workers. Calls under way fail.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.closing)
	for p := range h.all {
		p.end()
	}
	h.mu.Unlock()
	h.work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.all {
		p.close()
	}
	return nil
}

// self returns the program that runs, also when its file was replaced meanwhile.
func self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
