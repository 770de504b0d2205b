package plugins

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/meter"
)

// How much grown memory an instance may keep after a call: a multiple of its image, and a fixed
// amount in any case. An instance that grew further is discarded to give the memory back.
const (
	keepTimes = 4
	keepBytes = 4 << 20
)

// deepCall is the fuel above which a call may have grown the stack that the runtime keeps for a
// function (up to about 32 MiB, which no budget counts). After such a call the function is looked
// up again. Doing so every time would cost 1 µs per call.
const deepCall = 10_000

// instance is one guest. Only one call uses it at a time.
type instance struct {
	plugin  *Plugin
	module  api.Module
	memory  api.Memory
	linear  *linear
	depth   api.Global // of the meter: below zero after a trap caused by a full call stack
	globals []api.MutableGlobal
	hooks   [len(hooks)]api.Function // looked up on first use
	env     *env
	stack   [2]uint64
}

// instantiate creates a guest that has not run any code yet.
func (p *Plugin) instantiate() (inst *instance, err error) {
	l, err := newLinear(&p.host.budget, uint64(p.limits.Memory))
	if err != nil {
		return nil, p.spec.fail(hook.ErrUnavailable, "%v", err)
	}
	defer func() {
		if r := recover(); r != nil {
			err = p.outOfBudget(l, r)
		}
		if err != nil {
			inst = nil
			l.Free()
		}
	}()
	ctx := experimental.WithMemoryAllocator(context.Background(), l)
	// A module without a name can be instantiated any number of times.
	m, err := p.host.runtime.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, p.spec.fail(hook.ErrInvalid, "it cannot be instantiated: %s", trapReason(err))
	}
	inst = &instance{plugin: p, module: m, memory: m.Memory(), linear: l}
	// The meter exports the fuel and every mutable global.
	inst.env = &env{plugin: p, memory: inst.memory, fuel: m.ExportedGlobal(meter.FuelExport).(api.MutableGlobal), linear: l}
	inst.depth = m.ExportedGlobal(meter.StackExport)
	for _, name := range p.globals {
		inst.globals = append(inst.globals, m.ExportedGlobal(name).(api.MutableGlobal))
	}
	return inst, nil
}

const usedUp = "the memory of all plugins, %d bytes, is used up: raise the budget or lower the limits"

// outOfBudget turns a panic about exhausted memory outside a call into an error; it passes other
// panics on.
func (p *Plugin) outOfBudget(l *linear, r any) error {
	if !l.exhausted {
		panic(r)
	}
	return p.failCall(&Call{}, hook.ErrUnavailable, usedUp, p.host.budget.max)
}

// fresh creates a guest that equals the image.
func (p *Plugin) fresh() (inst *instance, err error) {
	inst, err = p.instantiate()
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = p.outOfBudget(inst.linear, r)
		}
		if err != nil {
			inst.close()
		}
	}()
	if more := p.image.size - inst.linear.size; more > 0 {
		if _, ok := inst.memory.Grow(uint32(more >> 16)); !ok {
			return nil, p.spec.fail(hook.ErrUnavailable, "its memory cannot grow to the %d bytes that it needs", p.image.size)
		}
	}
	inst.restore()
	return inst, nil
}

// reset sets the guest back to the image. It returns false if the guest must be discarded instead.
func (inst *instance) reset() bool {
	want, have := inst.plugin.image.size, inst.linear.size
	if have > max(keepTimes*want, keepBytes) {
		return false
	}
	if have > want {
		wipe(inst.linear.space.bytes(have)[want:])
		// The runtime cannot shrink a memory, but takes the length of the slice that the allocator
		// returns as the new size.
		inst.linear.shrinkTo = want
		if _, ok := inst.memory.Grow(1); !ok { // already as large as the module allows
			return false
		}
	}
	inst.restore()
	return true
}

func (inst *instance) restore() {
	m := inst.plugin.image
	m.restore(inst.linear.space.bytes(m.size))
	for i, g := range inst.globals {
		g.Set(m.globals[i])
	}
	inst.env.clock = m.clock
}

// image takes an image of the guest's current state.
func (inst *instance) image() *image {
	globals := make([]uint64, len(inst.globals))
	for i, g := range inst.globals {
		globals[i] = g.Get()
	}
	return takeImage(inst.linear.space.bytes(inst.linear.size), globals, inst.env.clock)
}

// function returns the guest's function for a hook.
func (inst *instance) function(s hook.Stage) api.Function {
	if inst.hooks[s] == nil {
		inst.hooks[s] = inst.module.ExportedFunction(hooks[s].name)
	}
	return inst.hooks[s]
}

// run calls a function with the arguments on the stack and returns its result. After an error the
// instance must not be used again.
func (inst *instance) run(f api.Function) (code int32, err error) {
	e := inst.env
	e.linear.check = e.check
	err = f.CallWithStack(e, inst.stack[:])
	e.linear.check = nil
	switch {
	case err == nil:
		return int32(inst.stack[0]), nil
	case e.stopped != nil && e.stopped.as != nil:
		return 0, e.stopped.as
	case e.linear.exhausted:
		return 0, inst.plugin.failCall(e.call, hook.ErrUnavailable, usedUp, inst.plugin.host.budget.max)
	case e.stopped != nil && (e.stopped.kind != hook.ErrTrap || !e.linear.refused):
		return 0, because(inst.plugin.failCall(e.call, e.stopped.kind, "%s", e.stopped.reason), e.stopped.cause)
	case e.linear.refused:
		return 0, inst.plugin.failCall(e.call, hook.ErrLimit, "it needs more than its %d bytes of memory", e.linear.limit)
	}
	if int32(inst.depth.Get()) < 0 {
		return 0, inst.plugin.failCall(e.call, hook.ErrTrap, "stack overflow")
	}
	return 0, inst.plugin.failCall(e.call, hook.ErrTrap, "%s", trapReason(err))
}

func (inst *instance) close() {
	_ = inst.module.Close(context.Background()) // nothing in the module can make this fail
	inst.linear.Free()
}
