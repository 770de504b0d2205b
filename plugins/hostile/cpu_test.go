package hostile

import (
	"context"
	"errors"
	"time"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// hasty is a spec whose time limits stop the guest.
func hasty(bin []byte) plugins.Spec {
	s := spec(bin)
	s.Limits.Fuel = plugins.HardLimits().Fuel
	s.Limits.Call, s.Limits.Init = timeLimit, timeLimit
	return s
}

// runaway is a row with a plugin that is stopped in its on_pre_save.
func runaway(name string, bin func() []byte) row {
	return row{name: name, runaway: true, run: func(b *bed) {
		pl := b.load(hasty(bin()))
		if pl == nil {
			return
		}
		if f := b.failing(pl, []error{hook.ErrTimeout}); f != nil && b.Took < timeLimit*9/10 {
			b.errorf("it was stopped after %v already: %v", b.Took, f)
		}
	}}
}

// saving is a plugin with the given body of on_pre_save, which has four i32 and four i64 locals.
func saving(maximum int64, body func(p *Plugin) Code) func() []byte {
	return func() []byte {
		p := NewPlugin(maximum)
		p.Hook("on_pre_save", Repeat(4, I32)+Repeat(4, I64), body(p), I32Const(Unchanged))
		return p.Bytes()
	}
}

// forever repeats code without end.
func forever(code Code) Code { return Loop(Void, code+Br(0)) }

const mebibyte = 1 << 20

func cpuRows() []row {
	large := I32Const(1023) + MemoryGrow + Drop // 64 MiB, including the existing page
	return []row{
		runaway("spin", Spin),
		runaway("loop-free recursion", func() []byte { return Explode(62) }),
		runaway("straight-line memory.fill", func() []byte { return Fill(1024, 20_000) }),
		runaway("looped memory.fill", saving(1024, func(*Plugin) Code {
			return large + forever(I32Const(0)+I32Const(1)+I32Const(64*mebibyte)+MemoryFill)
		})),
		runaway("looped memory.copy", saving(1024, func(*Plugin) Code {
			return large + forever(I32Const(0)+I32Const(mebibyte)+I32Const(60*mebibyte)+MemoryCopy)
		})),
		{name: "spin in _initialize", runaway: true, run: func(b *bed) {
			p := NewPlugin(-1)
			p.Hook("on_pre_save", "", I32Const(Unchanged))
			p.Func("_initialize", Sig("", ""), "", forever(""))
			b.refused(hasty(p.Bytes()), "_initialize", hook.ErrTimeout)
		}},
		{name: "spin in configure", runaway: true, run: func(b *bed) {
			p := NewPlugin(-1)
			p.Hook("on_pre_save", "", I32Const(Unchanged))
			p.Hook("ckptd_configure", "", forever(""), I32Const(0))
			b.refused(hasty(p.Bytes()), "ckptd_configure", hook.ErrTimeout)
		}},
		runaway("spin between host calls", saving(-1, func(p *Plugin) Code {
			return forever(I32Const(0) + Call(p.InputLen) + Drop + LocalGet(0) + I32Const(1) + I32Add + LocalTee(0) + I32Const(7) + I32And + I32Eqz + Drop)
		})),
		runaway("spin in host calls", saving(1024, func(p *Plugin) Code { // repeated redactions that take a lot of memory
			return large + forever(I32Const(0)+I32Const(0)+I32Const(0)+I32Const(4*mebibyte)+I32Const(0)+I32Const(0)+Call(p.RedactBuiltin)+Drop)
		})),
		{name: "sleep", runaway: true, run: func(b *bed) { b.fails(hasty(sleeper(3600)), hook.ErrFuel, hook.ErrTimeout) }},
		runaway("many short sleeps", func() []byte { return sleeper(0) }),
		{name: "out of fuel", run: func(b *bed) {
			for _, bin := range [][]byte{Spin(), Explode(62), Fill(64, 20_000)} {
				s := spec(bin)
				s.Limits.Fuel = 10_000_000
				b.fails(s, hook.ErrFuel)
			}
		}},
		{name: "caller cancels mid-call", run: func(b *bed) {
			s := hasty(Spin())
			s.Limits.Call = 20 * time.Second
			if pl := b.load(s); pl != nil {
				for range 3 {
					ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
					_, err := pl.Call(ctx, b.call())
					cancel()
					b.typed(err, []error{hook.ErrTimeout})
					if !errors.Is(err, context.DeadlineExceeded) {
						b.errorf("%v is not the error of the context", err)
					}
				}
			}
		}},
		{name: "caller has cancelled", run: func(b *bed) {
			if pl := b.load(spec(Spin())); pl != nil {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_, err := pl.Call(ctx, b.call())
				b.typed(err, []error{hook.ErrTimeout, hook.ErrUnavailable})
			}
		}},
	}
}

// guest is a plugin that also imports functions of WASI.
func guest(maximum int64, wasi ...wasiFunc) (*Plugin, []uint32) {
	p := &Plugin{Module: New()}
	p.InputLen = p.Import(ABI, "input_len", Sig(I32, I64))
	p.InputRead = p.Import(ABI, "input_read", Sig(I32+I64+I32+I32, I32))
	p.OutputWrite = p.Import(ABI, "output_write", Sig(I32+I32, I32))
	var indexes []uint32
	for _, f := range wasi {
		result := I32
		if f.name == "proc_exit" {
			result = ""
		}
		indexes = append(indexes, p.Import("wasi_snapshot_preview1", f.name, Sig(f.params, result)))
	}
	p.Memory(1, maximum)
	p.Func("ckptd_abi_v1", Sig("", I32), "", I32Const(1))
	return p, indexes
}

type wasiFunc struct {
	name   string
	params Code
}

// sleeper is a plugin that sleeps for the given seconds; for 0 it repeatedly sleeps for a
// microsecond.
func sleeper(seconds int64) []byte {
	p, f := guest(-1, wasiFunc{"poll_oneoff", I32 + I32 + I32 + I32})
	nap := I32Const(0) + I32Const(512) + I32Const(1) + I32Const(600) + Call(f[0]) + Drop
	wait := seconds * 1e9
	if seconds == 0 {
		wait, nap = 1000, forever(nap)
	}
	p.Hook("on_pre_save", "",
		I32Const(16)+I32Const(1)+I32Store, // the monotonic clock
		I32Const(24)+I64Const(wait)+I64Store,
		nap, I32Const(Unchanged))
	return p.Bytes()
}
