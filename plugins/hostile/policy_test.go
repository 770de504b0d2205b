package hostile

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// policyRows test decisions of the host itself. internal/hostile tests decisions at the point where
// bytes are stored.
func policyRows() []row {
	return []row{
		{name: "secrets in logs, errors and findings", run: func(b *bed) {
			p := NewPlugin(-1)
			say := func(n Code) Code {
				return I32Const(3) + I32Const(Buffer) + n + Call(p.Log) + I32Const(16) + I32Const(Buffer) + n + Call(p.ErrorSet) +
					I32Const(Buffer) + n + I32Const(Buffer) + n + I32Const(1) + Call(p.Finding)
			}
			p.Hook("on_pre_save", I32, p.ReadAll(0), say(LocalGet(0)), I32Const(16))
			p.Hook("on_load", I32, p.ReadAll(0), say(LocalGet(0)), Unreachable)
			p.Hook("on_export", I32, p.ReadAll(0), say(LocalGet(0)), I32Const(Rejected))
			pl := b.load(spec(p.Bytes()))
			if pl == nil {
				return
			}
			for stage, kind := range map[hook.Stage]error{hook.PreSave: hook.ErrFailed, hook.Load: hook.ErrTrap, hook.Export: hook.ErrRejected} {
				c := b.call()
				c.Stage = stage
				r, err := pl.Call(context.Background(), c)
				if err == nil {
					b.errorf("%v succeeded", stage)
					continue
				}
				b.typed(err, []error{kind})
				for _, f := range r.Findings {
					if strings.Contains(f.Path, secret) || len(f.Rule) > 64*3 {
						b.errorf("the finding %+v", f)
					}
				}
			}
		}},
		{name: "log flood", run: func(b *bed) {
			p := NewPlugin(-1)
			p.Hook("on_pre_save", I32, Loop(Void, I32Const(0)+I32Const(0)+I32Const(60_000)+Call(p.Log)+
				LocalGet(0)+I32Const(1)+I32Add+LocalTee(0)+I32Const(100_000)+I32Ne+BrIf(0)), I32Const(Unchanged))
			pl := b.load(spec(p.Bytes()))
			if pl == nil {
				return
			}
			r, err := pl.Call(context.Background(), b.call())
			if err != nil || len(r.Logs) != 64 || r.Dropped != 100_000-64 {
				b.errorf("%d lines, %d dropped, %v", len(r.Logs), r.Dropped, err)
			}
			for _, l := range r.Logs {
				if len(l.Text) > 3<<10 {
					b.errorf("a line of %d bytes", len(l.Text))
				}
			}
		}},
		{name: "finding flood", run: func(b *bed) {
			p := NewPlugin(-1)
			p.Data(1, "/a")
			p.Hook("on_pre_save", I32, Loop(Void, I32Const(32)+LocalGet(0)+I32Store+ // a different rule each time
				I32Const(32)+I32Const(4)+I32Const(1)+I32Const(2)+I32Const(0x7fffffff)+Call(p.Finding)+
				LocalGet(0)+I32Const(1)+I32Add+LocalTee(0)+I32Const(20_000)+I32Ne+BrIf(0)), I32Const(Unchanged))
			if pl := b.load(spec(p.Bytes())); pl != nil {
				if r, err := pl.Call(context.Background(), b.call()); err != nil || len(r.Findings) > 1000 {
					b.errorf("%d findings, %v", len(r.Findings), err)
				}
			}
		}},
		{name: "10^6-deep JSON", run: func(b *bed) { // passes unread: only the redactor parses it, and has tests for it
			c := b.call()
			c.Payload = []byte(strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000))
			if pl := b.load(spec(Echo())); pl != nil {
				if r, err := pl.Call(context.Background(), c); err != nil || len(r.Output) != len(c.Payload) {
					b.errorf("%d bytes, %v", len(r.Output), err)
				}
			}
		}},
		{name: "non-deterministic migration", run: func(b *bed) { // has no source of nondeterminism
			p, f := guest(-1, wasiFunc{"random_get", I32 + I32})
			p.Func("on_migrate", Sig(I64+I64, I32), "", I32Const(0)+I32Const(64)+Call(f[0])+Drop+
				I32Const(64)+LocalGet(0)+I64Store+I32Const(72)+LocalGet(1)+I64Store+
				I32Const(0)+I32Const(80)+Call(p.OutputWrite)+Drop+I32Const(Output))
			pl := b.load(spec(p.Bytes()))
			if pl == nil {
				return
			}
			var first string
			for i := range 8 {
				r, err := pl.Call(context.Background(), &plugins.Call{Stage: hook.Migrate, From: 3, To: 4})
				if err != nil || len(r.Output) != 80 || r.Output[64] != 3 || r.Output[72] != 4 {
					b.errorf("%+v, %v", r, err)
					return
				}
				if i > 0 && string(r.Output) != first {
					b.errorf("%q, and then %q", first, r.Output)
				}
				first = string(r.Output)
			}
		}},
		{name: "disabled or missing plugin", run: func(b *bed) {
			if pl := b.load(spec(Echo())); pl != nil {
				if err := pl.Close(); err != nil {
					b.errorf("closing: %v", err)
				}
				b.failing(pl, []error{hook.ErrUnavailable})
			}
			b.fails(spec(func() []byte { // exports only another hook
				p := NewPlugin(-1)
				p.Hook("on_load", "", I32Const(Unchanged))
				return p.Bytes()
			}()), hook.ErrInvalid)
		}},
	}
}

// mutationRows change random bytes of valid plugins: any that still loads must still be harmless.
func mutationRows() []row {
	mutate := func(b *bed, seed uint64, change func(r *rand.Rand, bin []byte) []byte) {
		n := 150
		if long, err := strconv.Atoi(os.Getenv("CKPTD_LONG")); err == nil {
			n = max(n, min(long/100, 20_000))
		}
		random := rand.New(rand.NewPCG(seed, 1))
		loaded := 0
		for i := range n {
			sound := [][]byte{Echo(), Upper(), observer(), Explode(3), wide()}[i%5]
			s := spec(change(random, append([]byte(nil), sound...)))
			s.Limits.Fuel, s.Limits.Memory = 1_000_000, 4<<20
			pl, err := b.loads(context.Background(), s)
			var e *hook.Error
			if err != nil {
				if !errors.As(err, &e) {
					b.errorf("mutation %d of seed %d: %v", i, seed, err)
				}
				continue
			}
			loaded++
			r, err := pl.Call(context.Background(), b.call())
			again, err2 := pl.Call(context.Background(), b.call())
			if err != nil && !errors.As(err, &e) || (err == nil) != (err2 == nil) || r.Fuel != again.Fuel || string(r.Output) != string(again.Output) {
				b.errorf("mutation %d of seed %d: %d of fuel, %v, and then %d, %v", i, seed, r.Fuel, err, again.Fuel, err2)
			}
			pl.Close()
		}
		if loaded < n/50 {
			b.errorf("%d of %d mutations were loaded, which is no test", loaded, n)
		}
	}
	return []row{
		{name: "bits that flipped", run: func(b *bed) {
			mutate(b, 1, func(r *rand.Rand, bin []byte) []byte {
				bin[8+r.IntN(len(bin)-8)] ^= 1 << r.IntN(8)
				return bin
			})
		}},
		{name: "bytes that were replaced", run: func(b *bed) {
			mutate(b, 2, func(r *rand.Rand, bin []byte) []byte {
				for range 1 + r.IntN(3) {
					at := len(bin)/2 + r.IntN(len(bin)/2) // where the code is
					bin[at] = byte(r.IntN(256))
				}
				return bin
			})
		}},
	}
}
