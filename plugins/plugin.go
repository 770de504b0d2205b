package plugins

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/ckptd/ckptd/hook"
)

// Spec is what a Plugin is made of.
type Spec struct {
	Name         string // NAME@VERSION, for errors
	Binary       []byte // the module, as its author built it
	Config       []byte // canonical JSON, or nil
	Limits       Limits
	Capabilities Capabilities
}

// Capabilities are the host functions that a plugin may call. The others tell it so.
type Capabilities struct {
	RedactBuiltin, Pseudonym, PutBlob bool
}

// Call is one run of a hook over one item. The Plugin does not keep what it points to, nor change it.
type Call struct {
	Stage   hook.Stage
	Item    string // kind and name, for errors
	Payload []byte
	Meta    []byte // JSON that tells what the item is

	Time time.Time // what the guest's clock says
	Seed [32]byte  // of its random numbers

	// PseudonymKey makes the pseudonyms; if it is zero there are none. Redact and PutBlob serve the host functions, and
	// may be nil. They are called in the goroutine of Call, with bytes that are valid until they return. If they fail,
	// so does the call, with their error if that is a *hook.Error; except that the guest is told of a PutBlob that fails
	// with hook.ErrLimit. The context of Redact ends with the time of the call.
	PseudonymKey [32]byte
	PutBlob      func(data []byte) (id [32]byte, err error)
	Redact       func(ctx context.Context, set string, data []byte) ([]byte, error)

	From, To uint64 // versions, in the stage Migrate
}

// Result is what came of a Call. Logs and Error are the guest's own words, and may hold what the payload held: they are
// for who runs a plugin by hand, and go to no log or caller of a daemon unless its operator wants that.
type Result struct {
	Output    []byte // the caller's; nil when Unchanged
	Unchanged bool
	Fuel      uint64
	Findings  []hook.Finding
	Logs      []LogLine
	Dropped   int    // log lines over the limit
	Error     string // what the guest gave as its error
}

// Plugin is a module that is ready to be called. Methods are safe for concurrent use.
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

// Stages returns the stages that the plugin has hooks for.
func (p *Plugin) Stages() []hook.Stage { return slices.Clone(p.stages) }

// Digest returns the SHA-256 of the binary.
func (p *Plugin) Digest() [32]byte { return p.digest }

// Call runs a hook. It waits for its place among the calls of the host no longer than its time limit, and than ctx.
//
// The Result is never nil: besides an error it has the fuel, and what the guest logged. Errors are *hook.Error, of
// these kinds: ErrInvalid (no such hook), ErrLimit (input, output, memory), ErrFuel, ErrTimeout (the error of ctx is
// wrapped too, if it was that), ErrTrap, ErrRejected, ErrFailed (with the Code) and ErrUnavailable (closed, no place, no
// memory). Their text has nothing of what the guest said.
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
	if err := p.host.places.take(ctx, p.limits.Call); err != nil {
		return &Result{}, because(p.failCall(c, hook.ErrUnavailable, "too many calls in progress"), err)
	}
	defer p.host.places.give()
	if err := ctx.Err(); err != nil {
		return &Result{}, because(p.failCall(c, hook.ErrTimeout, gaveUp), context.Cause(ctx))
	}
	inst, err := p.acquire()
	if err != nil {
		return &Result{}, err
	}
	return p.run(ctx, inst, c)
}

// enter counts a call that is under way, unless the plugin is closed.
func (p *Plugin) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// run calls the hook, and puts the instance back if it can be used again.
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

// acquire takes an idle instance, or makes one.
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

// release resets an instance and puts it back, or throws it away.
func (p *Plugin) release(inst *instance, ended bool) {
	if !ended || !inst.reset() {
		inst.close()
		return
	}
	e := inst.env
	*e = env{plugin: p, memory: e.memory, fuel: e.fuel, linear: e.linear, clock: e.clock} // keeps nothing of the call's
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, inst)
}

// Close frees what the plugin holds, when the calls under way have ended. Later calls fail.
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
