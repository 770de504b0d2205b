package plugins

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/ckptd/ckptd/hook"
)

// Spec describes a plugin to load.
type Spec struct {
	Name         string // NAME@VERSION, for errors
	Binary       []byte // the module as its author built it
	Config       []byte // canonical JSON, or nil
	Limits       Limits
	Capabilities Capabilities
}

// Capabilities are the host functions that a plugin may call. Any other host function returns an
// error code.
type Capabilities struct {
	RedactBuiltin, Pseudonym, PutBlob bool
}

// Call is one run of a hook on one item. The Plugin neither keeps nor changes the data it points
// to.
type Call struct {
	Stage   hook.Stage
	Item    string // kind and name, for errors
	Payload []byte
	Meta    []byte // JSON that describes the item

	Time time.Time // the time on the guest's clock
	Seed [32]byte  // of the guest's random numbers

	// PseudonymKey derives the pseudonyms; a zero key disables them. Redact and PutBlob implement
	// host functions and may be nil. They run in the goroutine of Call, with bytes that are valid
	// until they return. If one of them fails, the call fails with its error if that is a
	// *hook.Error. The exception is a PutBlob that fails with hook.ErrLimit: the guest gets that as
	// an error code. The context of Redact ends at the call's deadline.
	PseudonymKey [32]byte
	PutBlob      func(data []byte) (id [32]byte, err error)
	Redact       func(ctx context.Context, set string, data []byte) ([]byte, error)

	From, To uint64 // schema versions, for the stage Migrate
}

// Result is the outcome of a Call. Logs and Error are the guest's own text and can contain parts of
// the payload. They are meant for someone who runs a plugin by hand; a daemon passes them to a log
// or caller only if its operator asks for that.
type Result struct {
	Output    []byte // owned by the caller; nil when Unchanged
	Unchanged bool
	Fuel      uint64
	Findings  []hook.Finding
	Logs      []LogLine
	Dropped   int    // log lines above the limit
	Error     string // the guest's own error text
}

// Plugin is a module that is ready to be called. Its methods are safe for concurrent use.
type Plugin struct {
	host     *Host
	spec     Spec // without the binary
	digest   [32]byte
	limits   Limits
	stages   []hook.Stage
	globals  []string
	compiled wazero.CompiledModule
	image    *image

	mu     sync.Mutex
	idle   []*instance // equal to the image
	closed bool
	calls  sync.WaitGroup
}

// Stages returns the stages for which the plugin has hooks.
func (p *Plugin) Stages() []hook.Stage { return slices.Clone(p.stages) }

// Digest returns the SHA-256 of the binary.
func (p *Plugin) Digest() [32]byte { return p.digest }

// Call runs a hook. It waits for one of the host's call slots, at most for its time limit and until
// ctx is done.
//
// The Result is never nil: even after an error it holds the fuel used and the guest's log. Errors
// are *hook.Error of these kinds: ErrInvalid (no such hook), ErrLimit (input, output, memory),
// ErrFuel, ErrTimeout (which also wraps the error of ctx if that was the cause), ErrTrap,
// ErrRejected, ErrFailed (with the Code) and ErrUnavailable (closed, no slot, no memory). Their
// text contains nothing from the guest.
func (p *Plugin) Call(ctx context.Context, c *Call) (*Result, error) {
	if !slices.Contains(p.stages, c.Stage) {
		return &Result{}, p.failCall(c, hook.ErrInvalid, "it has no such hook")
	}
	if int64(len(c.Payload)) > p.limits.Input {
		return &Result{}, p.failCall(c, hook.ErrLimit, "%d bytes of input, more than the limit of %d", len(c.Payload), p.limits.Input)
	}
	if !p.enter() {
		return &Result{}, p.failCall(c, hook.ErrUnavailable, "it was closed")
	}
	defer p.calls.Done()
	if err := p.host.slots.acquire(ctx, p.limits.Call); err != nil {
		return &Result{}, because(p.failCall(c, hook.ErrUnavailable, "too many calls in progress"), err)
	}
	defer p.host.slots.release()
	if err := ctx.Err(); err != nil {
		return &Result{}, because(p.failCall(c, hook.ErrTimeout, gaveUp), context.Cause(ctx))
	}
	inst, err := p.acquire()
	if err != nil {
		return &Result{}, err
	}
	return p.run(ctx, inst, c)
}

// enter counts a running call. It returns false if the plugin is closed.
func (p *Plugin) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// run calls the hook and returns the instance to the pool if it is still usable.
func (p *Plugin) run(ctx context.Context, inst *instance, c *Call) (*Result, error) {
	e := inst.env
	e.begin(ctx, c, p.limits.Call)
	inst.stack = [2]uint64{c.From, c.To}
	code, err := inst.run(inst.function(c.Stage))
	r := &Result{Fuel: e.used(), Findings: e.findings, Logs: e.log.all(), Dropped: e.log.dropped, Error: e.errorText}
	output, wrote, over := e.output, e.wrote, e.over
	if r.Fuel > deepCall {
		inst.hooks[c.Stage] = nil
	}
	p.release(inst, err == nil)
	if err != nil {
		return r, err
	}
	switch {
	case code == 0 && over:
		return r, p.failCall(c, hook.ErrLimit, "more than %d bytes of output", e.outputMax)
	case code == 0 && !wrote:
		return r, p.failCall(c, hook.ErrFailed, "it returned 0 and wrote no output")
	case code == 0:
		if r.Output = output; output == nil {
			r.Output = []byte{}
		}
		return r, nil
	case code == 1:
		r.Unchanged = true
		return r, nil
	case code == 2:
		return r, p.failCall(c, hook.ErrRejected, "")
	}
	failed := p.failCall(c, hook.ErrFailed, "it returned %d", code)
	if failed.Code = code; code < 16 {
		failed.Reason += ", which has no meaning"
	}
	return r, failed
}

// acquire takes an idle instance or creates one.
func (p *Plugin) acquire() (*instance, error) {
	if inst := p.pop(); inst != nil {
		return inst, nil
	}
	return p.fresh()
}

func (p *Plugin) pop() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	inst := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return inst
}

// release resets an instance and returns it to the pool, or discards it.
func (p *Plugin) release(inst *instance, ended bool) {
	if !ended || !inst.reset() {
		inst.close()
		return
	}
	e := inst.env
	*e = env{plugin: p, memory: e.memory, fuel: e.fuel, linear: e.linear, clock: e.clock} // keep nothing of the call
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, inst)
}

// Close waits for running calls and frees the plugin's resources. Later calls fail.
func (p *Plugin) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	p.calls.Wait()
	for inst := p.pop(); inst != nil; inst = p.pop() {
		inst.close()
	}
	p.host.forget(p)
	return p.compiled.Close(context.Background())
}
