package meter_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	wt "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/meter"
)

func TestModule(t *testing.T) {
	m := wt.New()
	log := m.Import("host", "log", wt.Sig(wt.I32+wt.F64, ""))
	m.Memory(1, 3)
	m.Global(wt.I32, true, wt.I32Const(5))
	m.Global(wt.I64, false, wt.I64Const(6))
	m.Global(wt.F64, true, wt.F64Const(7))
	m.Global(wt.FuncRef, false, wt.RefFunc(log))
	m.Table(2, 2)
	f := m.Func("f", wt.Sig(wt.I32, wt.I32), "", wt.LocalGet(0)+wt.F64Const(1)+wt.Call(log)+wt.GlobalGet(0))
	m.Elem(0, f, log)
	m.Export("again", wt.KindFunc, f)
	m.Export("log", wt.KindFunc, log)
	m.Export("counter", wt.KindGlobal, 0)
	m.Custom("name", "what wazero would parse")
	out, err := meter.Rewrite(m.Bytes(), meter.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	typ := meter.FuncType{Params: "\x7f", Results: "\x7f"}
	logged := meter.FuncType{Params: "\x7f\x7c"}
	want := &meter.Module{
		Binary:  out.Binary,
		Imports: []meter.Import{{Module: "host", Name: "log", Type: logged}},
		Exports: []meter.Export{
			{Name: "memory", Kind: meter.Memory}, {Name: "f", Type: typ}, {Name: "again", Type: typ},
			{Name: "log", Type: logged}, {Name: "counter", Kind: meter.Global},
		},
		MinPages: 1, MaxPages: 3,
		Globals: []string{"ckptd_meter.global.0", "ckptd_meter.global.2"},
	}
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	if got := logged.String() + " " + typ.String(); got != "(i32,f64)->() (i32)->i32" {
		t.Error(got)
	}
	if strings.Contains(string(out.Binary), "wazero would parse") {
		t.Error("the custom section is still there")
	}

	ma := newMachine(t, wazero.NewRuntimeConfigInterpreter())
	logs := 0
	_, err = ma.rt.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(func(int32, float64) { logs++ }).
		Export("log").Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mod := ma.instantiate(t, out.Binary)
	for _, name := range []string{"f", "again"} {
		res, fuel, err := ma.call(mod, name, 1)
		if err != nil || res[0] != 5 || fuel != 53 {
			t.Errorf("%s: %v for %d units, error %v", name, res, fuel, err)
		}
	}
	if _, _, err := ma.call(mod, "log", 1, 2); err != nil || logs != 3 {
		t.Errorf("%d logs, error %v", logs, err)
	}
	for i, name := range out.Globals {
		if g, ok := mod.ExportedGlobal(name).(api.MutableGlobal); !ok {
			t.Errorf("global %d is %v", i, g)
		}
	}
}

// Nothing runs for more than a chunk of bytes or a few instructions without a check.
func TestStops(t *testing.T) {
	forever := func(body wt.Code) wt.Code { return wt.Loop(wt.Void, body+wt.Br(0)) }
	fill := wt.I32Const(0) + wt.I32Const(1) + wt.I32Const(4<<16) + wt.MemoryFill
	move := wt.I32Const(1) + wt.I32Const(0) + wt.I32Const(4<<16-1) + wt.MemoryCopy
	twice := wt.LocalGet(0) + wt.I32Const(1) + wt.I32Sub + wt.Call(0)
	for name, body := range map[string]wt.Code{
		"loop":                    forever(""),
		"loop that is not first":  wt.LocalGet(0) + wt.If(wt.Void, forever(wt.Nop)),
		"br_if":                   wt.Loop(wt.Void, wt.I32Const(1)+wt.BrIf(0)),
		"br_table":                wt.Loop(wt.Void, wt.I32Const(1)+wt.BrTable(1, 0)),
		"inner loop":              forever(wt.Loop(wt.Void, wt.LocalGet(0)+wt.I32Eqz+wt.BrIf(0))),
		"recursion without loops": wt.LocalGet(0) + wt.If(wt.Void, twice, twice),
		"recursion into a loop":   wt.LocalGet(0) + wt.If(wt.Void, twice, twice) + wt.Loop(wt.Void, ""),
		"straight fills":          wt.Repeat(1000, fill),
		"fills":                   forever(fill),
		"copies":                  forever(move),
		"growing":                 forever(wt.I32Const(1) + wt.MemoryGrow + wt.Drop),
		"init":                    forever(wt.I32Const(0) + wt.I32Const(0) + wt.I32Const(9) + wt.MemoryInit(0)),
	} {
		m := wt.New()
		m.Memory(4, 4)
		m.PassiveData("some bytes")
		m.Func("f", wt.Sig(wt.I32, ""), "", body)
		out, err := meter.Rewrite(m.Bytes(), meter.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		ma := newMachine(t, wazero.NewRuntimeConfigCompiler())
		ma.limit, ma.slice = 1_000_000, 10_000
		_, fuel, err := ma.call(ma.instantiate(t, out.Binary), "f", 40)
		if !errors.Is(err, errFuel) {
			t.Fatalf("%s: error %v", name, err)
		}
		// The straight fills are charged 10,000 at the entry, growing by a page 4,096.
		if ma.refills < 50 || ma.late > 11_000 || fuel <= ma.limit || fuel > ma.limit+20_000 {
			t.Errorf("%s: %d units, %d slices, at most %d more than a slice", name, fuel, ma.refills, ma.late)
		}
	}
}

// A recursion ends when the stack is full, whatever its frames look like, and the next call has the
// entire stack.
func TestStack(t *testing.T) {
	var wide, sum wt.Code
	for i := range uint32(200) {
		wide += wt.LocalGet(0) + wt.I64Const(int64(i)) + wt.I64Mul + wt.LocalSet(i+1)
		sum += wt.LocalGet(i+1) + wt.I64Add
	}
	calls := func(call wt.Code) map[string]wt.Code {
		return map[string]wt.Code{
			"narrow": wt.LocalGet(0) + wt.I64Const(1) + wt.I64Sub + call + wt.I64Const(1) + wt.I64Add,
			"wide":   wide + wt.LocalGet(0) + wt.I64Const(1) + wt.I64Sub + call + sum,
		}
	}
	for kind, call := range map[string]wt.Code{"direct": wt.Call(0), "indirect": wt.I32Const(0) + wt.CallIndirect(0)} {
		for name, body := range calls(call) {
			m := wt.New()
			m.Table(1, 1)
			f := m.Func("f", wt.Sig(wt.I64, wt.I64), wt.Repeat(200, wt.I64),
				wt.LocalGet(0)+wt.I64Eqz+wt.If(wt.Void, wt.I64Const(0)+wt.Return)+body)
			m.Elem(0, f)
			out, err := meter.Rewrite(m.Bytes(), meter.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			ma := newMachine(t, wazero.NewRuntimeConfigCompiler())
			mod := ma.instantiate(t, out.Binary)
			stack := mod.ExportedGlobal(meter.StackExport)
			for range 3 {
				if _, _, err := ma.call(mod, "f", 1_000_000_000); err == nil || !strings.Contains(err.Error(), "unreachable") {
					t.Fatalf("%s, %s: error %v", kind, name, err)
				}
				if int32(stack.Get()) >= 0 {
					t.Errorf("%s, %s: %d of the stack is left", kind, name, int32(stack.Get()))
				}
			}
			if _, _, err := ma.call(mod, "f", 1000); err != nil || int32(stack.Get()) <= 0 {
				t.Errorf("%s, %s: %d of the stack is left, error %v", kind, name, int32(stack.Get()), err)
			}
		}
	}
}

const goSource = `package main

import (
	"encoding/json"
	"regexp"
	"strings"
)

var emails = regexp.MustCompile("[a-z]+@[a-z]+[.]com")

//go:wasmexport work
func work(n int32) int32 {
	b, err := json.Marshal(map[string]any{"a": strings.Repeat("me@example.com ", int(n)), "b": []int32{n}})
	if err != nil {
		panic(err)
	}
	sum := int32(0)
	for _, c := range emails.ReplaceAll(b, []byte("<email>")) {
		sum = sum*31 + int32(c)
	}
	return sum
}

func main() {}
`

// A module compiled by Go is accepted and behaves the same.
func TestGo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module with Go")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", goSource)
	write("go.mod", "module example.com/work\n\ngo 1.24\n")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", "work.wasm", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	bin, err := os.ReadFile(filepath.Join(dir, "work.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := meter.Rewrite(bin, meter.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes became %d, with %d mutable globals", len(bin), len(out.Binary), len(out.Globals))

	ma := newMachine(t, wazero.NewRuntimeConfigCompiler())
	wasi_snapshot_preview1.MustInstantiate(t.Context(), ma.rt)
	work := func(bin []byte, slice int64) (uint64, int64) {
		ma.slice = slice
		mod := ma.instantiate(t, bin)
		defer mod.Close(context.Background())
		if _, _, err := ma.call(mod, "_initialize"); err != nil {
			t.Fatal(err)
		}
		res, fuel, err := ma.call(mod, "work", 100)
		if err != nil {
			t.Fatal(err)
		}
		return res[0], fuel
	}
	want, _ := work(bin, 0)
	_, first := work(out.Binary, 1000)
	for _, slice := range []int64{1000, 100_000, 1 << 40} {
		if got, fuel := work(out.Binary, slice); got != want || fuel != first {
			t.Errorf("slices of %d: %d for %d units, want %d for %d", slice, got, fuel, want, first)
		}
	}
}
