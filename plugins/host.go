package plugins

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/meter"
)

const maxPages = 1 << 16 // of one memory

// Options of a Host. The zero value works.
type Options struct {
	Memory int64 // bytes of all guests together, including the images of their state; 0: 1 GiB

	// CacheDir is the folder for compiled modules; "" disables the cache. It is created if missing,
	// and nobody else may have access to it. Its files are authenticated under CacheKey, which must
	// then not be zero, because they hold machine code.
	CacheDir string
	CacheKey [32]byte

	Concurrency int // concurrent calls; 0: GOMAXPROCS
}

// Host runs plugins. Methods are safe for concurrent use.
type Host struct {
	runtime wazero.Runtime
	budget  budget
	slots   slots
	cache   *cache // nil: none

	compiling chan struct{} // one at a time, because a compiler takes a lot of memory

	mu      sync.Mutex
	plugins map[*Plugin]struct{}
	closed  bool
}

// New creates a Host. It fails if the cache cannot be used.
func New(o Options) (*Host, error) {
	h := &Host{plugins: map[*Plugin]struct{}{}, compiling: make(chan struct{}, 1)}
	h.budget = budget{max: o.Memory, evict: h.evict}
	if o.Memory <= 0 {
		h.budget.max = 1 << 30
	}
	if o.Concurrency <= 0 {
		o.Concurrency = runtime.GOMAXPROCS(0)
	}
	h.slots = make(slots, o.Concurrency)
	config := wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2).WithDebugInfoEnabled(false)
	if o.CacheDir != "" {
		c, err := openCache(o.CacheDir, o.CacheKey)
		if err != nil {
			return nil, fmt.Errorf("opening the cache of compiled plugins: %w", err)
		}
		h.cache, config = c, config.WithCompilationCache(c.runtime)
	}
	h.runtime = wazero.NewRuntimeWithConfig(context.Background(), config)
	if err := instantiateHostFuncs(context.Background(), h.runtime); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Load prepares a plugin: it validates, meters, compiles, initializes and configures the module.
// Errors are *hook.Error of the kinds ErrInvalid, ErrLimit, ErrFuel, ErrTimeout, ErrTrap and
// ErrUnavailable. The Plugin keeps s.Config.
func (h *Host) Load(ctx context.Context, s Spec) (*Plugin, error) {
	if err := s.Limits.Check(); err != nil {
		return nil, s.named(err)
	}
	limits := s.Limits.orDefault()
	if h.isClosed() {
		return nil, s.fail(hook.ErrUnavailable, "the host was closed")
	}
	if int64(len(s.Binary)) > limits.Binary {
		return nil, s.fail(hook.ErrLimit, "its binary has %d bytes, more than the limit of %d", len(s.Binary), limits.Binary)
	}
	// The memory limit is enforced by the allocator, not by the module's own maximum, so that the
	// allocator sees how much the guest asked for.
	m, err := meter.Rewrite(s.Binary, meter.Limits{Binary: int(limits.Binary), Pages: maxPages})
	if err != nil {
		return nil, s.named(err)
	}
	if least := int64(m.MinPages) << 16; least > limits.Memory {
		return nil, s.fail(hook.ErrLimit, "it starts with %d bytes of memory, more than the limit of %d", least, limits.Memory)
	}
	if err := s.checkImports(m); err != nil {
		return nil, err
	}
	stages, err := s.checkExports(m)
	if err != nil {
		return nil, err
	}
	p := &Plugin{host: h, spec: s, digest: sha256.Sum256(s.Binary), limits: limits, stages: stages, globals: m.Globals}
	p.spec.Binary = nil
	select {
	case h.compiling <- struct{}{}:
		defer func() { <-h.compiling }()
	case <-ctx.Done():
		return nil, because(p.spec.fail(hook.ErrTimeout, "waiting for other plugins to be compiled"), context.Cause(ctx))
	}
	if err := p.compile(ctx, m.Binary); err != nil {
		return nil, err
	}
	if err := p.initialize(ctx); err != nil {
		_ = p.compiled.Close(context.Background())
		return nil, err
	}
	if !h.remember(p) {
		_ = p.Close()
		return nil, s.fail(hook.ErrUnavailable, "the host was closed")
	}
	return p, nil
}

// compile compiles the metered module. The runtime checks the context between functions only if it
// has several workers.
func (p *Plugin) compile(caller context.Context, bin []byte) (err error) {
	ctx, cancel := context.WithTimeout(caller, p.limits.Compile)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = p.spec.fail(hook.ErrInvalid, "the compiler gave up on it")
		}
	}()
	ctx = experimental.WithCompilationWorkers(ctx, max(2, runtime.GOMAXPROCS(0)))
	if p.host.cache != nil {
		p.compiled, err = p.host.cache.compile(ctx, p.host.runtime, bin)
	} else {
		p.compiled, err = p.host.runtime.CompileModule(ctx, bin)
	}
	switch {
	case caller.Err() != nil && err != nil:
		return because(p.spec.fail(hook.ErrTimeout, "the caller gave up while it was being compiled"), context.Cause(caller))
	case ctx.Err() != nil && err != nil:
		return p.spec.fail(hook.ErrTimeout, "compiling it took more than %v", p.limits.Compile)
	case err != nil:
		return p.spec.fail(hook.ErrInvalid, "%s", trapReason(err))
	}
	return nil
}

// initialize runs the initialization in a first instance, takes its image and keeps the instance
// for the first call.
func (p *Plugin) initialize(ctx context.Context) error {
	inst, err := p.instantiate()
	if err != nil {
		return err
	}
	inst.env.begin(ctx, &Call{}, p.limits.Init)
	if err := inst.initialize(); err != nil {
		inst.close()
		return err
	}
	p.image = inst.image()
	if !p.host.budget.take(int64(len(p.image.data))) {
		inst.linear.exhausted = true
		inst.close()
		return p.outOfBudget(inst.linear, nil)
	}
	p.release(inst, true)
	return nil
}

// initialize calls the exports that run once.
func (inst *instance) initialize() error {
	e, s := inst.env, &inst.plugin.spec
	for _, name := range []string{exportInitialize, exportABI, exportConfigure} {
		f := inst.module.ExportedFunction(name)
		if f == nil {
			continue
		}
		inst.stack[0] = 0
		code, err := inst.run(f)
		switch {
		case err != nil:
			return e.during(name, err)
		case name == exportABI && code != ABI:
			return s.fail(hook.ErrInvalid, "it is for version %d of the ABI, but this host has %d: rebuild it", code, ABI)
		case name == exportConfigure && code != 0:
			return s.fail(hook.ErrInvalid, "it rejects its configuration (%d) %s", code, e.errorText)
		}
	}
	return nil
}

// during adds the function in which the initialization failed and the guest's last words. Those are
// safe to include: the guest has not seen a payload yet.
func (e *env) during(function string, err error) error {
	var he *hook.Error
	if !errors.As(err, &he) {
		return err
	}
	he.Reason = function + ": " + he.Reason
	if lines := e.log.all(); len(lines) > 0 {
		he.Reason = oneLine(he.Reason + " (it said: " + lines[0].Text + ")")
	}
	return err
}

// evict discards an idle instance of any plugin. It reports whether there was one.
func (h *Host) evict() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.plugins {
		if inst := p.pop(); inst != nil {
			inst.close()
			return true
		}
	}
	return false
}

// remember registers a plugin. It returns false if the host is closed.
func (h *Host) remember(p *Plugin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.plugins[p] = struct{}{}
	}
	return !h.closed
}

func (h *Host) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

func (h *Host) forget(p *Plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.plugins, p)
	h.budget.give(int64(len(p.image.data)))
}

// Close waits for running calls, closes all plugins and frees the host's resources.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	var all []*Plugin
	for p := range h.plugins {
		all = append(all, p)
	}
	h.mu.Unlock()
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Close())
	}
	h.compiling <- struct{}{} // a Load under way will find the host closed and clean up
	defer func() { <-h.compiling }()
	errs = append(errs, h.runtime.Close(context.Background()))
	if h.cache != nil {
		errs = append(errs, h.cache.close())
	}
	return errors.Join(errs...)
}

// slots is a semaphore for concurrent calls.
type slots chan struct{}

var errNoSlot = errors.New("waited too long")

// acquire waits for a slot.
func (s slots) acquire(ctx context.Context, most time.Duration) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return errNoSlot
	}
}

func (s slots) release() { <-s }
