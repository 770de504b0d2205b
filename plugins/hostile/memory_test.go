package hostile

import (
	"context"
	"sync"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
)

// failing is a row with a plugin whose call fails.
func failing(name string, bin func() []byte, kinds ...error) row {
	return row{name: name, run: func(b *bed) { b.fails(spec(bin()), kinds...) }}
}

// wide is a plugin whose on_pre_save recurses endlessly, with a thousand locals each time.
func wide() []byte {
	p := NewPlugin(-1)
	var touch Code
	for i := range uint32(1000) {
		touch += LocalGet(0) + I64Const(int64(i)) + I64Add + LocalSet(i+1)
	}
	self := uint32(10) // after nine imports and ckptd_abi_v1
	var use Code
	for i := range uint32(1000) {
		use += LocalGet(i+1) + I64Add
	}
	f := p.Func("", Sig(I64, I64), Repeat(1000, I64), touch, LocalGet(0)+I64Const(1)+I64Add+Call(self), use)
	if f != self {
		panic("the function has another index")
	}
	p.Hook("on_pre_save", "", I64Const(0)+Call(f)+Drop+I32Const(Unchanged))
	return p.Bytes()
}

func memoryRows() []row {
	refusedGrowth := I32Const(-1) + I32Ne + If(Void, Unreachable) // growing must have failed
	return []row{
		failing("grow by page", saving(-1, func(*Plugin) Code {
			return Loop(Void, I32Const(1)+MemoryGrow+I32Const(-1)+I32Ne+BrIf(0)) + Unreachable
		}), hook.ErrLimit),
		failing("grow at once", saving(-1, func(*Plugin) Code { return I32Const(65535) + MemoryGrow + refusedGrowth + Unreachable }), hook.ErrLimit),
		failing("grow and touch", saving(-1, func(*Plugin) Code {
			return Loop(Void, I32Const(64)+MemoryGrow+LocalTee(0)+I32Const(16)+"\x74"+I32Const(1)+I32Const(64*65536)+MemoryFill+ // shl
				LocalGet(0)+I32Const(-1)+I32Ne+BrIf(0))
		}), hook.ErrLimit, hook.ErrTrap),
		refusal("table.grow", func() []byte {
			p := NewPlugin(-1)
			p.Table(1, -1)
			p.Hook("on_pre_save", "", "\xd0"+FuncRef+I32Const(100_000_000)+"\xfc\x0f\x00"+Drop+I32Const(Unchanged))
			return p.Bytes()
		}, hook.ErrInvalid, "changes tables"),
		failing("infinite recursion", Recurse, hook.ErrTrap),
		failing("wide recursion", wide, hook.ErrTrap),
		{name: "recursion, many at a time", run: func(b *bed) { b.together(8, spec(Recurse()).Binary, hook.ErrTrap, hook.ErrUnavailable) }},
		{name: "memory, many at a time", run: func(b *bed) { // 8 × 64 MiB, where the limit for all is 256
			b.together(8, saving(-1, func(*Plugin) Code {
				return I32Const(1000) + MemoryGrow + Drop + I32Const(0) + I32Const(1) + I32Const(60*mebibyte) + MemoryFill + Unreachable
			})(), hook.ErrTrap, hook.ErrUnavailable)
		}},
		failing("guest OOM", func() []byte { // an allocator that gives up, like those of Rust and Go
			p := NewPlugin(-1)
			p.Hook("on_pre_save", I32, I32Const(40_000)+MemoryGrow+I32Const(-1)+"\x46"+If(Void, Unreachable)+I32Const(Unchanged))
			return p.Bytes()
		}, hook.ErrLimit),
	}
}

// together asserts that each of several concurrent calls fails with one of these kinds.
func (b *bed) together(n int, bin []byte, kinds ...error) {
	pl := b.load(spec(bin))
	if pl == nil {
		return
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range 4 {
				_, err := pl.Call(context.Background(), b.call())
				mu.Lock()
				if err == nil {
					b.errorf("a call succeeded")
				} else {
					b.typed(err, kinds)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
