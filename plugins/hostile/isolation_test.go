package hostile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// stash is a row with a plugin that keeps part of user A's payload and outputs it for user B. The
// code keep stores it, and the code give puts its 64 bytes at address 0 of the memory.
func stash(name string, prepare func(p *Plugin), keep, give func(p *Plugin) Code) row {
	return row{name: name, run: func(b *bed) {
		p := NewPlugin(-1)
		prepare(p)
		p.Hook("on_pre_save", I32+I32, p.ReadAll(0), keep(p), I32Const(Unchanged))
		p.Hook("on_load", I32+I32, give(p), I32Const(0)+I32Const(64)+Call(p.OutputWrite)+Drop+I32Const(Output))
		pl := b.load(spec(p.Bytes()))
		if pl == nil {
			return
		}
		for range 8 { // more than there are workers
			a := b.call()
			a.Payload = bytes.Repeat([]byte("A"), 300_000)
			if r, err := pl.Call(context.Background(), a); err != nil || !r.Unchanged {
				b.errorf("keeping: %+v, %v", r, err)
			}
			r, err := pl.Call(context.Background(), &plugins.Call{Stage: hook.Load, Payload: []byte("B")})
			if err != nil || !bytes.Equal(r.Output, make([]byte, 64)) {
				b.errorf("user B was given %.100q, %v", r.Output, err)
			}
		}
	}}
}

func isolationRows() []row {
	nothing := func(*Plugin) {}
	none := func(*Plugin) Code { return "" }
	copied := func(from int32) func(*Plugin) Code {
		return func(*Plugin) Code { return I32Const(0) + I32Const(from) + I32Const(64) + MemoryCopy }
	}
	const g = 0
	return []row{
		stash("state in memory", nothing,
			func(*Plugin) Code { return I32Const(512) + I32Const(Buffer) + I32Const(64) + MemoryCopy }, copied(512)),
		stash("payload left in memory", nothing, none, copied(Buffer)),
		stash("state in memory that grew", nothing,
			func(*Plugin) Code { // in the new page, which is the first after growing
				return MemorySize + LocalSet(1) + I32Const(1) + MemoryGrow + Drop +
					LocalGet(1) + I32Const(16) + "\x74" + I32Const('A') + I32Const(65536) + MemoryFill
			},
			func(*Plugin) Code {
				return I32Const(100) + MemoryGrow + Drop + // over all of its memory
					Loop(Void, I32Const(0)+LocalGet(0)+I32Const(65536)+I32Add+LocalTee(0)+I32Const(64)+MemoryCopy+
						I32Const(0)+I32Load+I32Eqz+LocalGet(0)+I32Const(90*65536)+I32LtU+I32And+BrIf(0))
			}),
		stash("state in globals", func(p *Plugin) { p.Global(I32, true, I32Const(0)); p.Global(I64, true, I64Const(0)) },
			func(*Plugin) Code {
				return I32Const(Buffer) + I32Load + GlobalSet(g) + I32Const(Buffer) + I64Load + GlobalSet(g+1)
			},
			func(*Plugin) Code {
				return I32Const(0) + GlobalGet(g) + I32Store + I32Const(8) + GlobalGet(g+1) + I64Store
			}),
		refusal("state in tables", func() []byte { // a reset would miss it
			p := NewPlugin(-1)
			p.Table(4, 4)
			p.Hook("on_pre_save", "", I32Const(0)+"\xd0"+FuncRef+"\x26\x00"+I32Const(Unchanged))
			return p.Bytes()
		}, hook.ErrInvalid, "table.set"),
		refusal("state in element segments", func() []byte {
			p := NewPlugin(-1)
			p.Table(4, 4)
			p.Hook("on_pre_save", "", "\xfc\x0d\x00"+I32Const(Unchanged))
			return p.Bytes()
		}, hook.ErrInvalid, "changes tables"),
		{name: "state in data segments", run: func(b *bed) { // dropping one is refused or undone
			p := NewPlugin(-1)
			seg := p.PassiveData("data")
			p.Hook("on_pre_save", "", I32Const(0)+I32Const(0)+I32Const(4)+MemoryInit(seg)+DataDrop(seg)+
				I32Const(0)+I32Const(4)+Call(p.OutputWrite)+Drop+I32Const(Output))
			pl, err := b.loads(context.Background(), spec(p.Bytes()))
			if err != nil {
				b.typed(err, []error{hook.ErrInvalid})
				return
			}
			for range 8 {
				b.gives(pl, "data")
			}
		}},
		{name: "state in WASI", run: wasiState},
		{name: "same input, same output and fuel", run: determinism},
	}
}

// observer is a plugin that outputs everything WASI reports: clocks, random numbers, and the result
// of a wait.
func observer() []byte {
	p, f := guest(-1, wasiFunc{"clock_time_get", I32 + I64 + I32}, wasiFunc{"random_get", I32 + I32}, wasiFunc{"poll_oneoff", I32 + I32 + I32 + I32})
	clock := func(id, at int32) Code { return I32Const(id) + I64Const(1) + I32Const(at) + Call(f[0]) + Drop }
	p.Hook("on_pre_save", I32, p.ReadAll(0),
		clock(0, 0), clock(1, 8), clock(1, 16), I32Const(24)+I32Const(32)+Call(f[1])+Drop,
		I32Const(256+16)+I32Const(1)+I32Store+I32Const(256+24)+I64Const(5000)+I64Store,
		I32Const(256)+I32Const(512)+I32Const(1)+I32Const(56)+Call(f[2])+Drop, clock(1, 64), I32Const(72)+I32Const(8)+Call(f[1])+Drop,
		I32Const(Buffer)+I32Const(0)+I32Const(80)+MemoryCopy,
		I32Const(0)+I32Const(Buffer)+I32Const(80)+MemoryCopy,
		I32Const(0)+I32Const(80)+Call(p.OutputWrite)+Drop, p.WriteAll(0), I32Const(Output))
	return p.Bytes()
}

func (b *bed) observed(pl plugin, seed byte) (string, uint64) {
	c := b.call()
	c.Time, c.Seed = time.Unix(1_700_000_000, 0), [32]byte{seed}
	r, err := pl.Call(context.Background(), c)
	if err != nil {
		b.errorf("observing: %v", err)
	}
	return string(r.Output), r.Fuel
}

// wasiState asserts that clocks and random numbers restart in every call and depend on the seed.
func wasiState(b *bed) {
	pl := b.load(spec(observer()))
	if pl == nil {
		return
	}
	first, _ := b.observed(pl, 1)
	if first == "" || strings.HasPrefix(first, strings.Repeat("\x00", 80)) {
		b.errorf("nothing was observed: %q", first)
	}
	for range 8 {
		if again, _ := b.observed(pl, 1); again != first {
			b.errorf("observed %q, and then %q", first, again)
		}
	}
	if other, _ := b.observed(pl, 2); other == first {
		b.errorf("two seeds gave the same random numbers")
	}
}

// determinism runs the same calls a thousand times: sequentially in one instance, concurrently in
// many, and in instances that replace a trapped one. The summary is compared between processes.
func determinism(b *bed) {
	summary := sha256.New()
	for _, bin := range [][]byte{Upper(), observer(), Echo()} {
		pl := b.load(spec(bin))
		if pl == nil {
			return
		}
		output, fuel := b.observed(pl, 1)
		fmt.Fprintf(summary, "%q %d\n", output, fuel)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 125 {
					o, f := b.observed(pl, 1)
					if o != output || f != fuel {
						mu.Lock()
						b.errorf("%d of fuel and %.50q, and then %d and %.50q", fuel, output, f, o)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
	}
	b.Summary = fmt.Sprintf("%x", summary.Sum(nil))
}

// All processes agree, in both modes.
func TestDeterminism(t *testing.T) {
	for _, r := range rows() {
		if !strings.HasPrefix(r.name, "same input") {
			continue
		}
		var all []string
		for _, mode := range []string{inProcess, inWorkers, inProcess} {
			got, _ := r.spawn(t, mode)
			for _, f := range got.Failures {
				t.Error(f)
			}
			all = append(all, got.Summary)
		}
		if all[0] == "" || all[1] != all[0] || all[2] != all[0] {
			t.Errorf("three processes got %q", all)
		}
	}
}
