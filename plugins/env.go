package plugins

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/ckptd/ckptd/hook"
)

// slice is the fuel that a guest gets at a time. Each slice ends in Go code, which checks the clock
// and the context, and where Go's garbage collector can stop the goroutine. 200,000 take 0.1 to 0.5
// ms; leaving the guest and coming back takes 0.1 µs.
const slice = 200_000

// env is the state that host functions share during the current call in one instance. It is also
// the context.Context that the runtime passes to them, so getting at it needs neither an allocation
// nor a lookup. As a context it has no deadline, because the runtime must not act on one by itself.
type env struct {
	plugin *Plugin
	memory api.Memory
	fuel   api.MutableGlobal
	linear *linear

	ctx      context.Context // the caller's
	deadline time.Time
	limit    uint64 // fuel the call may use
	granted  uint64 // fuel granted so far
	clock    uint64 // nanoseconds of the monotonic clock; reading and sleeping advance it

	call      *Call
	outputMax int64
	output    []byte
	wrote     bool
	over      bool // more output than outputMax
	findings  []hook.Finding
	log       logger
	errorText string

	random  *rand.ChaCha8
	stopped *stop // why the host ended the guest
}

func (e *env) Deadline() (time.Time, bool) { return time.Time{}, false }
func (e *env) Done() <-chan struct{}       { return nil }
func (e *env) Err() error                  { return nil }
func (e *env) Value(any) any               { return nil }

// begin prepares for a call or for the initialization. The deadline is the earlier of the caller's
// and the limit's.
func (e *env) begin(ctx context.Context, c *Call, most time.Duration) {
	l := &e.plugin.limits
	*e = env{plugin: e.plugin, memory: e.memory, fuel: e.fuel, linear: e.linear, clock: e.clock,
		ctx: ctx, call: c, limit: l.Fuel, deadline: time.Now().Add(most), outputMax: l.output(len(c.Payload)),
		log: logger{lines: l.LogLines, size: l.LogLine}}
	if d, ok := ctx.Deadline(); ok && d.Before(e.deadline) {
		e.deadline = d
	}
	e.linear.refused, e.linear.exhausted = false, false
	e.granted = min(slice, e.limit)
	e.fuel.Set(e.granted)
}

// used returns the fuel used so far, never more than the limit.
func (e *env) used() uint64 {
	left := int64(e.fuel.Get())
	if left < 0 {
		return min(e.granted+uint64(-left), e.limit)
	}
	return e.granted - uint64(left)
}

// charge takes fuel for the work of a host function.
func (e *env) charge(n uint64) {
	left := int64(e.fuel.Get())
	if n > uint64(left) || left < 0 {
		// A charge is below 2^40 and the remainder above -2^40: see the limits.
		left -= int64(min(n, 1<<40))
		e.fuel.Set(uint64(left))
		e.refill()
		return
	}
	e.fuel.Set(uint64(left) - n)
}

// refill runs when the fuel is below zero. It either ends the call or returns with more fuel.
func (e *env) refill() {
	e.check()
	left := int64(e.fuel.Get())
	if left >= 0 {
		return
	}
	grant := min(uint64(-left)+slice, e.limit-e.granted)
	if grant <= uint64(-left) {
		e.granted = e.limit
		e.fuel.Set(0)
		e.stop(hook.ErrFuel, "it used up its limit of %d", e.limit)
	}
	e.granted += grant
	e.fuel.Set(uint64(left) + grant)
}

const gaveUp = "the caller gave up"

// check ends the call once its deadline has passed.
func (e *env) check() {
	if err := e.ctx.Err(); err != nil {
		e.end(&stop{kind: hook.ErrTimeout, reason: gaveUp, cause: context.Cause(e.ctx)})
	}
	if !time.Now().Before(e.deadline) {
		if d, ok := e.ctx.Deadline(); ok && d.Equal(e.deadline) {
			e.end(&stop{kind: hook.ErrTimeout, reason: gaveUp, cause: context.DeadlineExceeded})
		}
		e.end(&stop{kind: hook.ErrTimeout, reason: "it reached its time limit"})
	}
}
