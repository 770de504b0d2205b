package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// A plugin that kills its worker this many times in a row is refused for a while, because each new
// worker has to compile all plugins, which would delay the others.
const (
	freeStrikes = 3
	firstBan    = time.Second
	longestBan  = time.Minute
)

// Plugin is a loaded plugin. Methods are safe for concurrent use.
type Plugin struct {
	host   *Host
	handle uint64
	spec   plugins.Spec
	limits plugins.Limits // all fields nonzero
	digest [32]byte

	mu      sync.Mutex
	stages  []hook.Stage // nil until the first worker has loaded it
	closed  bool
	strikes int // in a row
	banned  time.Time
}

// Stages returns the stages for which the plugin has hooks.
func (pl *Plugin) Stages() []hook.Stage {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return slices.Clone(pl.stages)
}

// Digest returns the SHA-256 of the binary.
func (pl *Plugin) Digest() [32]byte { return pl.digest }

// Close unloads the plugin from the workers. Running calls finish; later ones fail.
func (pl *Plugin) Close() error {
	pl.mu.Lock()
	pl.closed = true
	pl.mu.Unlock()
	pl.host.forget(pl)
	return nil
}

// Call runs a hook, as plugins.Plugin does. PutBlob and Redact are called in this process, not in
// the worker. It waits for a worker at most as long as the plugin may run. If a worker dies, its
// call fails with hook.ErrUnavailable, or with hook.ErrTimeout if the worker was killed for taking
// too long. The Result is never nil.
func (pl *Plugin) Call(ctx context.Context, c *plugins.Call) (*plugins.Result, error) {
	r, err := pl.call(ctx, c)
	if r == nil {
		r = &plugins.Result{}
	}
	if err != nil {
		r.Output, r.Unchanged = nil, false
		return r, pl.explain(ctx, err, c.Stage, c.Item)
	}
	return r, nil
}

func (pl *Plugin) call(ctx context.Context, c *plugins.Call) (*plugins.Result, error) {
	if err := pl.usable(); err != nil {
		return nil, err
	}
	if size := int64(len(c.Payload)); size > pl.limits.Input {
		return nil, &hook.Error{Kind: hook.ErrLimit, Reason: fmt.Sprintf("%d bytes of input, more than the limit of %d", size, pl.limits.Input)}
	}
	p, err := pl.host.acquire(ctx, pl.limits.Call)
	if err != nil {
		return nil, err
	}
	defer pl.host.release(p)
	if err := pl.host.load(ctx, p, pl); err != nil {
		pl.judge(ctx, p)
		return nil, err
	}
	inTime, cancel := context.WithTimeout(ctx, pl.limits.Call)
	defer cancel()
	x := exchange{ctx: inTime, plugin: pl, call: call{number: p.next(), handle: pl.handle, Call: *c}, limits: pl.limits}
	if pl.spec.Limits.Output == 0 {
		x.limits.Output = min(x.limits.Output, 4*int64(len(c.Payload))+64<<10)
	}
	err = p.operate(ctx, x.operation())
	pl.judge(ctx, p)
	switch {
	case x.refused != nil: // no matter how the worker reacted
		return x.result, x.refused
	case err != nil:
		return nil, err
	case x.failed != nil:
		return x.result, x.failed
	}
	return x.result, nil
}

func (pl *Plugin) loadLimit() time.Duration { return pl.limits.Compile + pl.limits.Init }

// learn stores the facts that a worker reports about the plugin. All workers must report the same.
func (pl *Plugin) learn(digest [32]byte, stages []hook.Stage) error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if digest != pl.digest || pl.stages != nil && !slices.Equal(stages, pl.stages) {
		return errFrame
	}
	pl.stages = stages
	return nil
}

// effective fills in the defaults.
func effective(l plugins.Limits) plugins.Limits {
	def := plugins.DefaultLimits()
	defaults := limitFields(&def)
	for i, v := range limitFields(&l) {
		if *v == 0 {
			*v = *defaults[i]
		}
	}
	l.Fuel = cmp.Or(l.Fuel, def.Fuel)
	l.LogLines, l.LogLine = cmp.Or(l.LogLines, def.LogLines), cmp.Or(l.LogLine, def.LogLine)
	return l
}

func (pl *Plugin) usable() error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	switch {
	case pl.closed:
		return &hook.Error{Kind: hook.ErrUnavailable, Reason: "it was closed"}
	case time.Now().Before(pl.banned):
		return &hook.Error{Kind: hook.ErrUnavailable, Reason: fmt.Sprintf("it killed %d workers in a row and is suspended for a while", pl.strikes)}
	default:
		return nil
	}
}

// judge counts workers that died while running the plugin, except those whose caller gave up.
func (pl *Plugin) judge(ctx context.Context, p *process) {
	if p.alive() {
		pl.mu.Lock()
		pl.strikes = 0
		pl.mu.Unlock()
	} else if ctx.Err() == nil {
		pl.strike()
	}
}

func (pl *Plugin) strike() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.strikes++
	if n := pl.strikes - freeStrikes; n >= 0 {
		pl.banned = time.Now().Add(min(firstBan<<min(n, 10), longestBan))
	}
}

func (pl *Plugin) struck() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.strikes >= freeStrikes
}

// explain adds the plugin, stage and item to an error that doesn't have them.
func (pl *Plugin) explain(ctx context.Context, err error, stage hook.Stage, item string) error {
	var e *hook.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%w: %w", &hook.Error{Kind: hook.ErrFailed, Plugin: pl.spec.Name, Stage: stage, Item: item, Reason: "the host refused"}, err)
	}
	if e.Plugin != "" {
		return err
	}
	full := *e
	full.Plugin, full.Stage, full.Item = pl.spec.Name, stage, item
	if cause := context.Cause(ctx); cause != nil && full.Kind == hook.ErrTimeout {
		return fmt.Errorf("%w: %w", &full, cause)
	}
	return &full
}
