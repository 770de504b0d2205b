package wasmtest_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	wt "github.com/ckptd/ckptd/internal/wasmtest"
)

// run calls on_pre_save of a predefined plugin with a host that supports only input and output.
func run(t *testing.T, bin []byte, input string) (code int32, output string, err error) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(64))
	t.Cleanup(func() { rt.Close(ctx) })

	var out bytes.Buffer
	b := rt.NewHostModuleBuilder(wt.ABI)
	export := func(name string, f any) { b.NewFunctionBuilder().WithFunc(f).Export(name) }
	export("input_len", func(slot int32) int64 { return int64(len(input)) })
	export("input_read", func(_ context.Context, m api.Module, slot int32, off int64, ptr, n int32) int32 {
		if !m.Memory().Write(uint32(ptr), []byte(input[off:off+int64(n)])) {
			panic("out of bounds")
		}
		return n
	})
	export("output_write", func(_ context.Context, m api.Module, ptr, n int32) int32 {
		p, _ := m.Memory().Read(uint32(ptr), uint32(n))
		out.Write(p)
		return 0
	})
	export("error_set", func(_ context.Context, m api.Module, code, ptr, n int32) {
		p, _ := m.Memory().Read(uint32(ptr), uint32(n))
		out.Write(p)
	})
	export("log", func(_, _, _ int32) {})
	export("finding", func(_, _, _, _, _ int32) {})
	export("redact_builtin", func(_, _, _, _, _, _ int32) int32 { return -1 })
	export("pseudonym", func(_, _, _, _ int32) int32 { return -1 })
	export("blob_put", func(_, _, _ int32) int32 { return -1 })
	if _, err := b.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}

	mod, err := rt.Instantiate(ctx, bin)
	if err != nil {
		t.Fatal(err)
	}
	res, err := mod.ExportedFunction("on_pre_save").Call(ctx)
	if err != nil {
		return 0, "", err
	}
	return int32(res[0]), out.String(), nil
}

func TestReadyPlugins(t *testing.T) {
	long := string(bytes.Repeat([]byte("a{Z"), 100_000)) // needs more than the first pages
	for name, c := range map[string]struct {
		bin   []byte
		input string
		code  int32
		out   string
		trap  bool
	}{
		"echo":       {bin: wt.Echo(), input: "Hello", out: "Hello"},
		"echo long":  {bin: wt.Echo(), input: long, out: long},
		"echo empty": {bin: wt.Echo()},
		"upper":      {bin: wt.Upper(), input: "a`z{AZ é", out: "A`Z{AZ é"},
		"reject":     {bin: wt.Reject(), code: wt.Rejected},
		"return":     {bin: wt.Returns(-7), code: -7},
		"fail":       {bin: wt.Fail(16), code: 16, out: "sorry"},
		"trap":       {bin: wt.Trap(), trap: true},
		"recurse":    {bin: wt.Recurse(), trap: true},
		"explode":    {bin: wt.Explode(3), code: wt.Unchanged},
		"fill":       {bin: wt.Fill(2, 3), code: wt.Unchanged},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, err := run(t, c.bin, c.input)
			if c.trap != (err != nil) {
				t.Fatalf("error %v, want a trap: %v", err, c.trap)
			}
			if code != c.code || out != c.out {
				t.Errorf("code %d and %d bytes of output, want %d and %d", code, len(out), c.code, len(c.out))
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want wt.Code }{
		{wt.U(0), "\x00"}, {wt.U(127), "\x7f"}, {wt.U(128), "\x80\x01"}, {wt.U(1<<32 - 1), "\xff\xff\xff\xff\x0f"},
		{wt.S(63), "\x3f"}, {wt.S(64), "\xc0\x00"}, {wt.S(-64), "\x40"}, {wt.S(-65), "\xbf\x7f"},
		{wt.Long(1, 3), "\x81\x80\x00"},
	} {
		if c.got != c.want {
			t.Errorf("got %x, want %x", c.got, c.want)
		}
	}
}

func TestSpoiled(t *testing.T) {
	m := wt.New()
	m.Memory(1, 1)
	m.Count(wt.SecMemory, 1<<32-1)
	m.Append(wt.SecMemory, wt.Section(wt.SecCustom, wt.Name("x")))
	m.Raw(wt.SecStart, "\x05")
	want := wt.Header + "\x05\x08\xff\xff\xff\xff\x0f\x01\x01\x01" + "\x00\x02\x01x" + "\x07\x0a\x01\x06memory\x02\x00" + "\x08\x01\x05"
	if got := wt.Code(m.Bytes()); got != want {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}
