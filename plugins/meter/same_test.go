package meter_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	wt "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/meter"
)

// author writes valid, terminating modules; a byte string determines its choices. Each call and
// each iteration of a loop takes from global 0, and nothing continues once that is used up.
type author struct {
	choices []byte
	labels  []byte // of the open frames: 'f' the function's, 'l' a loop's, 'b' another's
	size    int
}

// All functions are (i32)->i32 with three more i32 locals.
const (
	authorFuncs = 3
	authorMoves = 150
)

// n returns a choice from 0 to most-1.
func (a *author) n(most int) int {
	if len(a.choices) == 0 {
		return 0
	}
	c := a.choices[0]
	a.choices = a.choices[1:]
	return int(c) % most
}

func (a *author) module() []byte {
	m := wt.New()
	m.Memory(3, 4)
	m.Table(authorFuncs, -1)
	m.Global(wt.I32, true, wt.I32Const(authorMoves))
	m.Global(wt.I32, true, wt.I32Const(7))
	m.Data(100, "some data, some more")
	m.PassiveData("passive")
	for i := range authorFuncs {
		a.labels, a.size = []byte{'f'}, 0
		guard := wt.GlobalGet(0) + wt.I32Const(0) + wt.I32LeS + wt.If(wt.Void, wt.I32Const(-1)+"\x0f") + a.move()
		m.Func(fmt.Sprintf("f%d", i), wt.Sig(wt.I32, wt.I32), wt.I32+wt.I32+wt.I32, guard, a.block(4), a.value(3))
	}
	m.Elem(0, 0, 1, 2)
	return m.Bytes()
}

func (a *author) move() wt.Code {
	return wt.GlobalGet(0) + wt.I32Const(1) + wt.I32Sub + wt.GlobalSet(0)
}

// block writes some statements.
func (a *author) block(depth int) (c wt.Code) {
	for range a.n(4) + 1 {
		c += a.statement(depth)
	}
	return c
}

// inside writes statements in a frame.
func (a *author) inside(kind byte, depth int) wt.Code {
	a.labels = append(a.labels, kind)
	c := a.block(depth - 1)
	a.labels = a.labels[:len(a.labels)-1]
	return c
}

func (a *author) statement(depth int) wt.Code {
	if a.size++; a.size > 200 || depth == 0 {
		return wt.Nop
	}
	switch a.n(14) {
	case 1:
		return a.value(3) + wt.LocalSet(uint32(a.n(4)))
	case 2:
		return a.value(2) + wt.GlobalSet(1)
	case 3:
		return a.address() + a.value(2) + wt.I32Store
	case 4:
		return wt.Block(wt.Void, a.inside('b', depth))
	case 5:
		return wt.Loop(wt.Void, a.inside('l', depth))
	case 6:
		return a.value(2) + wt.If(wt.Void, a.inside('b', depth))
	case 7:
		return a.value(2) + wt.If(wt.Void, a.inside('b', depth), wt.Else, a.inside('b', depth))
	case 8:
		return a.branch()
	case 9:
		return a.value(2) + wt.If(wt.Void, a.deeper(func() wt.Code { return a.branch() }))
	case 10:
		d, s := a.address(), a.address()
		return d + s + a.length() + wt.MemoryCopy
	case 11:
		return a.address() + a.value(1) + a.length() + wt.MemoryFill
	case 12:
		return a.address() + wt.I32Const(int32(a.n(4))) + wt.I32Const(int32(a.n(6))) + wt.MemoryInit(1)
	case 13:
		return a.value(2) + wt.If(wt.Void, a.deeper(func() wt.Code { return a.value(1) + wt.Return }))
	default:
		return a.value(2) + wt.Drop
	}
}

// deeper writes code within one more frame.
func (a *author) deeper(f func() wt.Code) wt.Code {
	a.labels = append(a.labels, 'b')
	c := f()
	a.labels = a.labels[:len(a.labels)-1]
	return c
}

// branch writes a br_if or br_table. It repeats a loop only while there are moves left.
func (a *author) branch() wt.Code {
	d := a.n(len(a.labels))
	switch a.labels[len(a.labels)-1-d] {
	case 'f':
		return a.value(1) + a.value(2) + wt.BrIf(uint32(d)) + wt.Drop
	case 'l':
		return a.move() + wt.GlobalGet(0) + wt.I32Const(0) + "\x4a" + wt.BrIf(uint32(d)) // i32.gt_s
	}
	var blocks []uint32
	for i := range a.labels {
		if a.labels[len(a.labels)-1-i] == 'b' {
			blocks = append(blocks, uint32(i))
		}
	}
	if a.n(2) == 0 {
		return a.value(2) + wt.BrIf(uint32(d))
	}
	targets := []uint32{blocks[a.n(len(blocks))], blocks[a.n(len(blocks))], uint32(d)}
	return a.value(2) + wt.If(wt.Void, a.value(1)+wt.BrTable(shift(targets)...))
}

func shift(labels []uint32) (out []uint32) {
	for _, l := range labels {
		out = append(out, l+1)
	}
	return out
}

func (a *author) address() wt.Code { return a.value(1) + wt.I32Const(0x3ffff) + wt.I32And }
func (a *author) length() wt.Code {
	return a.value(1) + wt.I32Const([]int32{0xff, 0x1ffff, 0x3ffff}[a.n(3)]) + wt.I32And
}

// value writes an i32.
func (a *author) value(depth int) wt.Code {
	if a.size++; a.size > 300 || depth == 0 {
		return wt.LocalGet(uint32(a.n(4)))
	}
	switch a.n(11) {
	case 1:
		return wt.I32Const(int32(a.n(256)*a.n(256)*a.n(16) - 1))
	case 2:
		return a.value(depth-1) + a.value(depth-1) + wt.I32Add
	case 3:
		return a.value(depth-1) + a.value(depth-1) + wt.I32Mul
	case 4:
		return a.value(depth-1) + a.value(depth-1) + wt.I32Div
	case 5:
		return a.address() + wt.I32Load
	case 6:
		return wt.GlobalGet(1)
	case 7:
		return a.value(depth-1) + wt.Call(uint32(a.n(authorFuncs)))
	case 8:
		return a.value(depth-1) + wt.I32Const(int32(a.n(authorFuncs+1))) + wt.CallIndirect(0)
	case 9:
		return wt.I32Const(int32(a.n(3))) + wt.MemoryGrow
	case 10:
		return a.value(depth-1) + wt.If(wt.I32, a.deeper(func() wt.Code { return a.value(depth - 1) }), wt.Else,
			a.deeper(func() wt.Code { return a.value(depth - 1) }))
	default:
		return wt.LocalGet(uint32(a.n(4)))
	}
}

// outcome is the observable result of a run.
type outcome struct {
	result, global uint64
	trap           string
	memory         [32]byte
}

func (m *machine) outcome(t testing.TB, bin []byte, globals string, arg uint64) (o outcome, fuel int64) {
	mod := m.instantiate(t, bin)
	res, fuel, err := m.call(mod, "f0", arg)
	if err != nil {
		o.trap, _, _ = strings.Cut(err.Error(), "\n")
	} else {
		o.result = res[0]
	}
	if globals != "" {
		o.global = mod.ExportedGlobal(globals).Get()
	}
	o.memory = digest(mod)
	return o, fuel
}

func digest(mod api.Module) [32]byte {
	data, _ := mod.Memory().Read(0, mod.Memory().Size())
	return sha256.Sum256(data)
}

// after calls a function of a new instance and returns the digest of its memory afterwards.
func (m *machine) after(t testing.TB, bin []byte, name string, args []uint64) (memory [32]byte, fuel int64, err error) {
	mod := m.instantiate(t, bin)
	_, fuel, err = m.call(mod, name, args...)
	return digest(mod), fuel, err
}

// checkSame runs the module made from choices, metered and not, compiled and not, in slices of
// several sizes.
func checkSame(t *testing.T, choices []byte) (trapped bool) {
	bin := (&author{choices: choices}).module()
	out, err := meter.Rewrite(bin, meter.Limits{Pages: 4})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := meter.Rewrite(bin, meter.Limits{Pages: 4})
	if !bytes.Equal(out.Binary, again.Binary) {
		t.Fatal("the same module was rewritten in two ways")
	}
	interpreter := newMachine(t, wazero.NewRuntimeConfigInterpreter())
	compiler := newMachine(t, wazero.NewRuntimeConfigCompiler())
	want, _ := interpreter.outcome(t, bin, "", 3)
	first := int64(-1)
	for _, ma := range []*machine{interpreter, compiler} {
		for _, slice := range []int64{1, 100, 1 << 40} {
			ma.slice = slice
			got, fuel := ma.outcome(t, out.Binary, out.Globals[1], 3)
			want.global = got.global
			if got != want {
				t.Fatalf("slices of %d: got %+v, want %+v", slice, got, want)
			}
			if first < 0 {
				first = fuel
			}
			if fuel != first {
				t.Fatalf("slices of %d: %d units, and before %d", slice, fuel, first)
			}
		}
	}
	checkStops(t, compiler, out.Binary, first)
	return want.trap != ""
}

// checkStops checks that any limit below the fuel used stops the module at the same point, whatever
// the slice.
func checkStops(t *testing.T, m *machine, bin []byte, used int64) {
	defer func(l int64) { m.limit = l }(m.limit)
	m.limit = used / 2
	var stopped int64
	for i, slice := range []int64{1, 1 << 40} {
		m.slice = slice
		o, fuel := m.outcome(t, bin, "", 3)
		if i == 0 {
			stopped = fuel
		}
		if fuel != stopped || strings.HasPrefix(o.trap, errFuel.Error()) && fuel <= m.limit {
			t.Fatalf("with a limit of %d, slices of %d: used %d, before %d: %s", m.limit, slice, fuel, stopped, o.trap)
		}
	}
}

func FuzzSame(f *testing.F) {
	for i := range 12 {
		f.Add(choices(uint64(i)))
	}
	f.Fuzz(func(t *testing.T, c []byte) { checkSame(t, c) })
}

func choices(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 4000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestSame(t *testing.T) {
	traps := 0
	const runs = 60
	for i := range uint64(runs) {
		if checkSame(t, choices(i+100)) {
			traps++
		}
	}
	if traps == 0 || traps == runs {
		t.Errorf("%d of %d modules trapped: the author is no good", traps, runs)
	}
}

// FuzzRewrite: any accepted module compiles or is refused cleanly by the compiler, and the meter is
// exported as documented.
func FuzzRewrite(f *testing.F) {
	f.Add(wt.Upper())
	f.Add(wt.Fill(2, 3))
	f.Add(wt.Explode(4))
	f.Add((&author{choices: choices(1)}).module())
	f.Add((&author{choices: choices(2)}).module())
	f.Fuzz(func(t *testing.T, bin []byte) {
		out, err := meter.Rewrite(bin, meter.Limits{Binary: 64 << 10, Pages: 16})
		if err != nil {
			return
		}
		ma := newMachine(t, wazero.NewRuntimeConfigInterpreter())
		compiled, err := ma.rt.CompileModule(t.Context(), out.Binary)
		_, plain := ma.rt.CompileModule(t.Context(), bin)
		if (err == nil) != (plain == nil) {
			t.Fatalf("metered: %v; as it came: %v", err, plain)
		}
		if err != nil {
			return
		}
		if n := len(compiled.ImportedFunctions()); n != len(out.Imports)+1 {
			t.Errorf("%d imports, want %d", n, len(out.Imports)+1)
		}
		compiler := newMachine(t, wazero.NewRuntimeConfigCompiler())
		if _, err := compiler.rt.CompileModule(t.Context(), out.Binary); err != nil {
			t.Fatal(err)
		}
	})
}
