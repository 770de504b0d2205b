package meter_test

import (
	"testing"

	"github.com/tetratelabs/wazero"

	wt "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/meter"
)

// vector is a function f (i32)->i32 from docs/metering.md, with one i32 local besides its
// parameter, in a module with a memory of 4 to 8 pages.
type vector struct {
	name string
	body wt.Code
	runs []run
}

type run struct {
	arg, want uint64
	fuel      int64
}

// adds is n additions to local 1, which cost n.
func adds(n int) wt.Code {
	return wt.Repeat(n, wt.LocalGet(1)+wt.I32Const(1)+wt.I32Add+wt.LocalSet(1))
}

func vectors() []vector {
	less := wt.LocalGet(0) + wt.I32Const(1) + wt.I32Sub
	result := wt.LocalGet(1)
	return []vector{
		{"constant", wt.I32Const(1), []run{{0, 1, 2}}},
		{"sum", adds(5) + result, []run{{0, 5, 7}}},
		{"division", wt.LocalGet(0) + wt.I32Const(3) + wt.I32Div, []run{{9, 3, 10}}},
		{"short arm", wt.LocalGet(0) + wt.If(wt.Void, adds(16)) + result, []run{{0, 0, 19}, {1, 16, 19}}},
		{"long arm", wt.LocalGet(0) + wt.If(wt.Void, adds(17)) + result, []run{{0, 0, 3}, {1, 17, 20}}},
		{"two short arms", wt.LocalGet(0) + wt.If(wt.Void, adds(10), wt.Else, adds(6)) + result, []run{{0, 6, 19}, {1, 10, 19}}},
		{"arms that are short alone", wt.LocalGet(0) + wt.If(wt.Void, adds(10), wt.Else, adds(7)) + result,
			[]run{{0, 7, 20}, {1, 10, 13}}},
		{"after a join", wt.LocalGet(0) + wt.If(wt.Void, adds(17)) + adds(20) + result, []run{{0, 20, 23}, {1, 37, 40}}},
		{"joined, and slack left", wt.LocalGet(0) + wt.If(wt.Void, adds(17)) + adds(10) + wt.LocalGet(0) + wt.If(wt.Void, adds(16)) + result,
			[]run{{0, 10, 30}, {1, 43, 47}}},
		{"left early", wt.Block(wt.Void, wt.LocalGet(0)+wt.BrIf(0)+adds(20)) + adds(3) + result,
			[]run{{0, 23, 26}, {1, 3, 6}}},
		{"returned early", wt.LocalGet(0) + wt.If(wt.Void, result+wt.Return) + adds(20) + result,
			[]run{{0, 20, 24}, {1, 0, 4}}},
		{"loop", wt.Loop(wt.Void, less+wt.LocalTee(0)+wt.BrIf(0)) + result, []run{{1, 0, 5}, {10, 0, 32}}},
		{"after a loop", wt.Loop(wt.Void, less+wt.LocalTee(0)+wt.BrIf(0)) + adds(20) + result, []run{{10, 20, 52}}},
		{"after a loop that leaves more", wt.Block(wt.Void, wt.Loop(wt.Void, wt.LocalGet(0)+wt.BrIf(1))+adds(20)) + adds(3) + result,
			[]run{{0, 23, 27}, {1, 3, 7}}},
		{"loop left from its middle", wt.Block(wt.Void, wt.Loop(wt.Void,
			wt.LocalGet(0)+wt.I32Eqz+wt.BrIf(1)+adds(20)+less+wt.LocalSet(0)+wt.Br(0))) + result,
			[]run{{0, 0, 5}, {3, 60, 80}}},
		{"switch", wt.Block(wt.Void, wt.Block(wt.Void, wt.Block(wt.Void, wt.LocalGet(0)+wt.BrTable(0, 1, 2))+
			adds(20)+wt.Br(1))+adds(30)) + adds(2) + result, []run{{0, 22, 27}, {1, 32, 36}, {2, 2, 6}}},
		{"call", wt.LocalGet(0) + wt.I32Eqz + wt.If(wt.I32, wt.I32Const(0), wt.Else, less+wt.Call(0)+wt.I32Const(2)+wt.I32Add),
			[]run{{0, 0, 9}, {1, 2, 18}, {10, 20, 99}}},
		{"fill", wt.I32Const(0) + wt.I32Const(1) + wt.LocalGet(0) + wt.MemoryFill + result,
			[]run{{0, 0, 12}, {100, 0, 18}, {65536, 0, 4108}, {200_000, 0, 12512}}},
		{"copy", wt.I32Const(9) + wt.I32Const(1) + wt.LocalGet(0) + wt.MemoryCopy + result, []run{{15, 0, 12}, {200_000, 0, 12512}}},
		{"grow", wt.LocalGet(0) + wt.MemoryGrow, []run{{0, 4, 102}, {2, 4, 8294}, {7, 1<<32 - 1, 28774}, {1 << 20, 1<<32 - 1, 32870}}},
	}
}

func TestVectors(t *testing.T) {
	for _, v := range vectors() {
		m := wt.New()
		m.Memory(4, 8)
		m.Func("f", wt.Sig(wt.I32, wt.I32), wt.I32, v.body)
		out, err := meter.Rewrite(m.Bytes(), meter.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for name, config := range map[string]wazero.RuntimeConfig{
			"interpreter": wazero.NewRuntimeConfigInterpreter(), "compiler": wazero.NewRuntimeConfigCompiler(),
		} {
			ma := newMachine(t, config)
			for _, r := range v.runs {
				got, fuel, err := ma.call(ma.instantiate(t, out.Binary), "f", r.arg)
				if err != nil {
					t.Fatal(err)
				}
				if got[0] != r.want || fuel != r.fuel {
					t.Errorf("%s, %s: f(%d) = %d for %d units, want %d for %d", v.name, name, r.arg, got[0], fuel, r.want, r.fuel)
				}
			}
		}
	}
}

// TestChecks counts the checks by granting no fuel at any of them.
func TestChecks(t *testing.T) {
	loop := wt.Loop(wt.Void, wt.LocalGet(0)+wt.I32Const(1)+wt.I32Sub+wt.LocalTee(0)+wt.BrIf(0))
	leaf := wt.I32Const(1) + wt.Call(1) + wt.Drop
	for _, c := range []struct {
		name   string
		body   wt.Code
		checks int
	}{
		{"straight", adds(3), 1},
		{"loop first", loop, 5},
		{"code before the loop", adds(30) + loop, 5},
		{"two loops", loop + wt.Loop(wt.Void, ""), 6},
		{"call before the loop", leaf + loop, 7},
		{"loop in an arm", wt.LocalGet(0) + wt.If(wt.Void, loop), 6},
		{"return before the loop", wt.Block(wt.Void, wt.LocalGet(1)+wt.BrIf(0)+loop), 6},
	} {
		m := wt.New()
		m.Memory(1, 1)
		m.Func("f", wt.Sig(wt.I32, wt.I32), wt.I32, c.body, wt.LocalGet(1))
		m.Func("", wt.Sig(wt.I32, wt.I32), wt.I32, wt.LocalGet(0))
		out, err := meter.Rewrite(m.Bytes(), meter.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		ma := newMachine(t, wazero.NewRuntimeConfigInterpreter())
		ma.slice = 0
		if _, _, err := ma.call(ma.instantiate(t, out.Binary), "f", 5); err != nil || ma.refills != c.checks {
			t.Errorf("%s: %d checks, want %d; error %v", c.name, ma.refills, c.checks, err)
		}
	}
}

// TestBulk compares long fills and copies, in and out of bounds, with the unmetered ones.
func TestBulk(t *testing.T) {
	m := wt.New()
	m.Memory(5, 5)
	m.Data(0, "the beginning")
	m.Data(70_000, "the middle")
	m.Func("fill", wt.Sig(wt.I32+wt.I32+wt.I32, ""), "", wt.LocalGet(0)+wt.LocalGet(1)+wt.LocalGet(2)+wt.MemoryFill)
	m.Func("copy", wt.Sig(wt.I32+wt.I32+wt.I32, ""), "", wt.LocalGet(0)+wt.LocalGet(1)+wt.LocalGet(2)+wt.MemoryCopy)
	bin := m.Bytes()
	out, err := meter.Rewrite(bin, meter.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	const size = 5 << 16
	ma := newMachine(t, wazero.NewRuntimeConfigInterpreter())
	for _, f := range []string{"fill", "copy"} {
		for _, args := range [][]uint64{
			{0, 3, 0}, {5, 3, 65536}, {5, 3, 65537}, {0, 7, size}, {0, 0, size}, {7, 0, size - 7}, {0, 7, size - 7},
			{0, 70_000, 131072}, {70_000, 0, 131072}, {70_000, 0, 200_000}, {1, 0, size}, {0, 1, size},
			{100, 200_000, 150_000}, {200_000, 100, 150_000}, {size, 0, 0}, {size + 1, 0, 0}, {1<<32 - 1, 0, 1<<32 - 1}, {0, 1<<32 - 1, 100_000},
		} {
			want, _, trap := ma.after(t, bin, f, args)
			got, fuel, trap2 := ma.after(t, out.Binary, f, args)
			if got != want || (trap == nil) != (trap2 == nil) {
				t.Errorf("%s%v: memory or error differ: %v, want %v", f, args, trap2, trap)
			}
			if want := 12 + int64(args[2])/16; trap == nil && fuel != want {
				t.Errorf("%s%v took %d units, want %d", f, args, fuel, want)
			}
		}
	}
}
