// Package worker runs plugins in separate processes. That is a second line of defense behind
// package plugins.
//
// A Host starts copies of the program (ckptd plugin-worker) that give up everything a plugin does
// not need: files, network, other processes, core dumps, and memory beyond a limit. Each does one
// call at a time, so killing a worker fails only its current operation; a new worker replaces it.
// The parent trusts nothing that a worker sends. Workers serve all users in turn: their data is
// separated by resetting a plugin's memory after every call, as within a single process.
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

// Options configures New. The zero value works for a program with a command plugin-worker.
type Options struct {
	Command   []string      // a program that calls Main, with its arguments; nil: this program with the argument plugin-worker
	Processes int           // number of workers and so of concurrent calls; 0: the number of processors, at most 8
	Memory    int64         // bytes for the guests of one process; 0: 1 GiB
	Grace     time.Duration // how long after a plugin's time limit to kill a worker that did not stop it; 0: 1 s

	// Replaced, if not nil, is called each time a worker died or could not be started, with the
	// reason in one line. It must not call the Host.
	Replaced func(reason string)
}

// overhead is the memory that a worker needs on top of its guests: its own code, modules being
// compiled, input and output.
const overhead = 1 << 30

// Host runs workers. Methods are safe for concurrent use.
type Host struct {
	o       Options
	idle    chan *process
	closing chan struct{}
	work    sync.WaitGroup // goroutines that replace workers

	mu     sync.Mutex
	all    map[*process]bool
	live   map[uint64]*Plugin
	last   uint64 // latest handle
	walls  string
	closed bool
}

// New starts the workers and returns as soon as the first is ready. Close the Host to end them.
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

// Walls names the means by which the workers confined themselves, for a log: "rlimits, seccomp".
func (h *Host) Walls() string { return h.walls }

// Load compiles a plugin in every worker and returns when it can be called without delay. The Host
// keeps the binary for future workers until the Plugin is closed.
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
				break // one worker has it; the others load it on first use
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

// load loads a plugin into a worker.
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

// acquire waits for a worker. The caller must release it.
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

// release returns a worker, or replaces it if it is dead.
func (h *Host) release(p *process) {
	for _, handle := range h.stale(p) {
		if p.unload(handle) != nil {
			break // it is dead; the next holder will notice
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

// stale lists the plugins that a worker has loaded but no longer needs.
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

// replace starts a worker in the background, and retries until it succeeds.
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

// fresh starts a worker and loads all plugins except those that recently killed theirs.
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

// forget unloads a plugin from the workers: from idle ones now, from the others once they are idle.
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

// Close kills the workers. Running calls fail.
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

// self returns the path of the running program, even if its file has been replaced since.
func self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
