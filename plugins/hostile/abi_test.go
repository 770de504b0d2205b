package hostile

import (
	"context"
	"fmt"
	"math"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
)

// beyond returns ranges outside a memory of one page, some of which would be inside if their sum
// wrapped.
func beyond() [][2]int32 {
	const high = math.MinInt32 // 2^31 unsigned
	return [][2]int32{{65530, 100}, {65536, 1}, {-1, 1}, {-1, 2}, {1, -1}, {-16, -1}, {high, high}, {high, math.MaxInt32}, {0, high}}
}

// argument is an argument of a host function: a constant or the range.
type argument struct {
	code Code
	what byte // 'p' and 'l': pointer and length of the range
}

func constant(v int32) argument { return argument{code: I32Const(v)} }

var (
	pointer = argument{what: 'p'}
	length  = argument{what: 'l'}
)

func (a argument) in(span [2]int32) Code {
	switch a.what {
	case 'p':
		return I32Const(span[0])
	case 'l':
		return I32Const(span[1])
	}
	return a.code
}

// outside is a row that calls a host function of the ABI with each range beyond the memory.
func outside(name string, function func(*Plugin) uint32, drop Code, arguments ...argument) row {
	return row{name: name + " out of bounds", run: func(b *bed) {
		for _, span := range beyond() {
			p := NewPlugin(-1)
			var args Code
			for _, a := range arguments {
				args += a.in(span)
			}
			p.Hook("on_pre_save", "", args+Call(function(p))+drop+I32Const(Unchanged))
			b.fails(spec(p.Bytes()), hook.ErrTrap)
		}
	}}
}

// outsideWASI is the same for WASI, which has an error number for it; the guest continues.
func outsideWASI(name string, params Code, arguments ...argument) row {
	return row{name: "WASI " + name + " out of bounds", run: func(b *bed) {
		for _, span := range beyond() {
			p, f := guest(-1, wasiFunc{name, params})
			var args Code
			for _, a := range arguments {
				args += a.in(span)
			}
			p.Hook("on_pre_save", "", args+Call(f[0])+I32Const(21)+I32Ne+If(Void, Unreachable)+I32Const(Unchanged))
			if pl := b.load(spec(p.Bytes())); pl != nil {
				if r, err := pl.Call(context.Background(), b.call()); err != nil || !r.Unchanged {
					b.errorf("range %v: %+v, %v", span, r, err)
				}
				pl.Close()
			}
		}
	}}
}

func abiRows() []row {
	zero, i64 := constant(0), argument{code: I64Const(0)}
	at := constant(128)
	return append([]row{
		outside("input_read", func(p *Plugin) uint32 { return p.InputRead }, Drop, zero, i64, pointer, length),
		outside("output_write", func(p *Plugin) uint32 { return p.OutputWrite }, Drop, pointer, length),
		outside("error_set", func(p *Plugin) uint32 { return p.ErrorSet }, "", constant(16), pointer, length),
		outside("log", func(p *Plugin) uint32 { return p.Log }, "", zero, pointer, length),
		outside("finding, its rule", func(p *Plugin) uint32 { return p.Finding }, "", pointer, length, zero, zero, constant(1)),
		outside("finding, its path", func(p *Plugin) uint32 { return p.Finding }, "", zero, zero, pointer, length, constant(1)),
		outside("redact_builtin, its set", func(p *Plugin) uint32 { return p.RedactBuiltin }, Drop, pointer, length, zero, zero, zero, zero),
		outside("redact_builtin, its data", func(p *Plugin) uint32 { return p.RedactBuiltin }, Drop, zero, zero, pointer, length, zero, zero),
		outside("redact_builtin, its output", func(p *Plugin) uint32 { return p.RedactBuiltin }, Drop, zero, zero, zero, constant(4), pointer, length),
		outside("pseudonym, its data", func(p *Plugin) uint32 { return p.Pseudonym }, Drop, zero, pointer, length, at),
		{name: "pseudonym, its output out of bounds", run: func(b *bed) { b.output32(true) }},
		outside("blob_put, its data", func(p *Plugin) uint32 { return p.BlobPut }, Drop, pointer, length, at),
		{name: "blob_put, its output out of bounds", run: func(b *bed) { b.output32(false) }},
		outsideWASI("random_get", I32+I32, pointer, length),
		outsideWASI("fd_read", I32+I32+I32+I32, zero, zero, zero, constant(-2)),
		outsideWASI("fd_write", I32+I32+I32+I32, constant(1), pointer, constant(200_000_000), at),
		outsideWASI("poll_oneoff", I32+I32+I32+I32, pointer, pointer, constant(100_000), at),
		outsideWASI("clock_time_get", I32+I64+I32, zero, i64, constant(-4)),
		outsideWASI("args_sizes_get", I32+I32, constant(-2), at),
		outsideWASI("fd_fdstat_get", I32+I32, constant(1), constant(65530)),
	}, outputRows()...)
}

// output32 asserts that 32 bytes are not written across the end of the memory.
func (b *bed) output32(pseudonym bool) {
	for _, at := range []int32{65536 - 31, 65536, -1, -32, math.MinInt32} {
		p := NewPlugin(-1)
		code := I32Const(0) + I32Const(4) + I32Const(at) + Call(p.BlobPut)
		if pseudonym {
			code = I32Const(0) + I32Const(0) + I32Const(4) + I32Const(at) + Call(p.Pseudonym)
		}
		p.Hook("on_pre_save", "", code+Drop+I32Const(Unchanged))
		b.fails(spec(p.Bytes()), hook.ErrTrap)
	}
}

func outputRows() []row {
	write := func(p *Plugin) Code { return I32Const(0) + I32Const(1000) + Call(p.OutputWrite) + Drop }
	returning := func(code int32) func() []byte {
		return func() []byte {
			p := NewPlugin(-1)
			p.Hook("on_pre_save", "", write(p), I32Const(code))
			return p.Bytes()
		}
	}
	return []row{
		failing("4 GiB output", func() []byte {
			p := NewPlugin(-1)
			p.Hook("on_pre_save", I32, Loop(Void,
				I32Const(0)+I32Const(65536)+Call(p.OutputWrite)+Drop+
					LocalGet(0)+I32Const(1)+I32Add+LocalTee(0)+I32Const(65536)+I32Ne+BrIf(0)), I32Const(Output))
			return p.Bytes()
		}, hook.ErrLimit),
		failing("output then error", returning(16), hook.ErrFailed),
		failing("output then rejection", returning(Rejected), hook.ErrRejected),
		failing("output then trap", func() []byte {
			p := NewPlugin(-1)
			p.Hook("on_pre_save", "", write(p), Unreachable)
			return p.Bytes()
		}, hook.ErrTrap),
		failing("0 without output", func() []byte { return Returns(Output) }, hook.ErrFailed),
		{name: "unknown code", run: func(b *bed) {
			for _, code := range []int32{3, 4, 15, -1, math.MinInt32, math.MaxInt32} {
				b.fails(spec(Returns(code)), hook.ErrFailed)
			}
		}},
		{name: "use after exit", run: func(b *bed) { // the next call finds an instance that has not exited
			p, f := guest(-1, wasiFunc{"proc_exit", I32})
			p.Hook("on_pre_save", "", I32Const(0)+Call(f[0])+I32Const(0)+I32Const(4)+Call(p.OutputWrite)+Drop+I32Const(Output))
			p.Hook("on_load", "", I32Const(Unchanged))
			pl := b.load(spec(p.Bytes()))
			if pl == nil {
				return
			}
			for range 3 {
				b.failing(pl, []error{hook.ErrTrap})
				c := b.call()
				c.Stage = hook.Load
				if r, err := pl.Call(context.Background(), c); err != nil || !r.Unchanged {
					b.errorf("after the exit: %+v, %v", r, err)
				}
			}
		}},
		{name: "no such slot, and offsets beyond", run: func(b *bed) {
			p := NewPlugin(-1)
			bad := func(call Code, want Code) Code { return call + want + If(Void, Unreachable) }
			p.Hook("on_pre_save", "",
				bad(I32Const(3)+Call(p.InputLen), I64Const(-2)+I64Ne),
				bad(I32Const(-1)+Call(p.InputLen), I64Const(-2)+I64Ne),
				bad(I32Const(9)+I64Const(0)+I32Const(0)+I32Const(9)+Call(p.InputRead), I32Const(-2)+I32Ne),
				bad(I32Const(0)+I64Const(1<<40)+I32Const(0)+I32Const(9)+Call(p.InputRead), ""),
				bad(I32Const(0)+I64Const(-1)+I32Const(0)+I32Const(9)+Call(p.InputRead), ""),
				bad(I32Const(0)+I64Const(math.MinInt64)+I32Const(0)+I32Const(9)+Call(p.InputRead), ""),
				I32Const(Unchanged))
			if pl := b.load(spec(p.Bytes())); pl != nil {
				if r, err := pl.Call(context.Background(), b.call()); err != nil || !r.Unchanged {
					b.errorf("%+v, %v", r, err)
				}
			}
		}},
	}
}

func trapRows() []row {
	exits := func(text string, code int32) func() []byte {
		return func() []byte {
			p, f := guest(-1, wasiFunc{"fd_write", I32 + I32 + I32 + I32}, wasiFunc{"proc_exit", I32})
			p.Data(1024, text)
			p.Hook("on_pre_save", "",
				I32Const(0)+I32Const(1024)+I32Store+I32Const(4)+I32Const(int32(len(text)))+I32Store,
				I32Const(2)+I32Const(0)+I32Const(1)+I32Const(8)+Call(f[0])+Drop,
				I32Const(code)+Call(f[1])+I32Const(Unchanged))
			return p.Bytes()
		}
	}
	body := func(code Code) func() []byte { return saving(1, func(*Plugin) Code { return code }) }
	return []row{
		failing("unreachable", Trap, hook.ErrTrap),
		failing("division by zero", body(I32Const(1)+LocalGet(0)+I32Div+Drop), hook.ErrTrap),
		failing("null indirect call", func() []byte {
			p := NewPlugin(1)
			p.Table(4, 4)
			p.Hook("on_pre_save", "", I32Const(2)+CallIndirect(p.Type(Sig("", I32))))
			return p.Bytes()
		}, hook.ErrTrap),
		failing("indirect call of another type", func() []byte {
			p := NewPlugin(1)
			p.Table(1, 1)
			p.Elem(0, p.InputLen)
			p.Hook("on_pre_save", "", I32Const(0)+CallIndirect(p.Type(Sig("", I32))))
			return p.Bytes()
		}, hook.ErrTrap),
		failing("load out of bounds", body(I32Const(-4)+I32Load+Drop), hook.ErrTrap),
		failing("proc_exit(0) mid-hook", exits("bye\n", 0), hook.ErrTrap),
		failing("panic of Go", exits(fmt.Sprintf("panic: %s\n\ngoroutine 1 [running]:\n", secret), 2), hook.ErrTrap),
		{name: "the instance is never reused", run: neverReused},
	}
}

// neverReused ends calls in every way that fails, each after leaving a mark in a global and in the
// memory.
func neverReused(b *bed) {
	p, f := guest(-1, wasiFunc{"proc_exit", I32})
	g := p.Global(I32, true, I32Const(0))
	mark := GlobalGet(g) + I32Const(256) + I32Load + "\x72" + If(Void, Unreachable) + // or
		I32Const(1) + GlobalSet(g) + I32Const(256) + I32Const(1) + I32Store
	endings := []Code{I32Const(16), I32Const(Rejected), I32Const(77), I32Const(0) + Call(f[0]) + I32Const(1),
		I32Const(-1) + I32Load, I32Const(1) + I32Const(0) + I32Div}
	var choose Code // by the length of the payload
	for i, ending := range endings {
		choose += LocalGet(0) + I32Const(int32(i)) + I32Eq + If(Void, ending+Return)
	}
	p.Hook("on_pre_save", I32, mark, I32Const(0)+Call(p.InputLen)+I32WrapI64+LocalSet(0), choose, I32Const(Unchanged))
	pl := b.load(spec(p.Bytes()))
	if pl == nil {
		return
	}
	for range 3 {
		for i := range endings {
			c := b.call()
			c.Payload = make([]byte, i)
			_, err := pl.Call(context.Background(), c)
			want := []error{hook.ErrFailed, hook.ErrRejected, hook.ErrFailed, hook.ErrTrap, hook.ErrTrap, hook.ErrTrap}[i]
			if err == nil {
				b.errorf("ending %d succeeded", i)
				continue
			}
			b.typed(err, []error{want})
			c.Payload = make([]byte, len(endings))
			if r, err := pl.Call(context.Background(), c); err != nil || !r.Unchanged {
				b.errorf("after ending %d: %+v, %v", i, r, err)
			}
		}
	}
}
