package plugins_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

func TestLoadTellsWhatItIs(t *testing.T) {
	p := load(t, newHost(t, plugins.Options{}), plugins.Spec{Binary: Echo()})
	if want := []hook.Stage{hook.PreSave, hook.Load, hook.Export}; !slices.Equal(p.Stages(), want) {
		t.Errorf("stages %v", p.Stages())
	}
	if p.Digest() != sha256.Sum256(Echo()) {
		t.Error("another digest")
	}
}

// configured returns a plugin with the given initialization and configuration.
func configured(initialize, configure func(p *Plugin) Code) []byte {
	p := NewPlugin(-1)
	p.Data(0, "no such colour")
	if initialize != nil {
		p.Func("_initialize", Sig("", ""), "", initialize(p))
	}
	if configure != nil {
		p.Hook("ckptd_configure", "", configure(p))
	}
	p.Hook("on_pre_save", "", I32Const(1))
	return p.Bytes()
}

func abi(export string, s Signature, code Code) []byte {
	m := New()
	m.Memory(1, -1)
	if export != "" {
		m.Func(export, s, "", code)
	}
	m.Func("on_pre_save", Sig("", I32), "", I32Const(1))
	return m.Bytes()
}

func TestLoadRefuses(t *testing.T) {
	h := newHost(t, plugins.Options{})
	spin := func(*Plugin) Code { return Loop(Void, Br(0)) }
	fuel := plugins.Limits{Fuel: 1000}
	brief := plugins.Limits{Fuel: 1e12, Init: 10 * time.Millisecond}
	for name, test := range map[string]struct {
		bin    []byte
		limits plugins.Limits
		kind   error
		words  []string
	}{
		"nothing":          {nil, plugins.Limits{}, hook.ErrInvalid, nil},
		"text":             {[]byte("hello, I am a plugin"), plugins.Limits{}, hook.ErrInvalid, nil},
		"component":        {[]byte("\x00asm\x0d\x00\x01\x00"), plugins.Limits{}, hook.ErrInvalid, []string{"component", "wasip1"}},
		"large":            {Echo(), plugins.Limits{Binary: 100}, hook.ErrLimit, []string{"more than the limit of 100"}},
		"limits":           {Echo(), plugins.Limits{Memory: 2 << 30}, hook.ErrLimit, []string{"memory", "1073741824"}},
		"negative":         {Echo(), plugins.Limits{Call: -1}, hook.ErrLimit, []string{"call"}},
		"no ABI":           {abi("", Signature{}, ""), plugins.Limits{}, hook.ErrInvalid, []string{"ckptd_abi_v1"}},
		"another ABI":      {abi("ckptd_abi_v1", Sig("", I32), I32Const(2)), plugins.Limits{}, hook.ErrInvalid, []string{"version 2"}},
		"odd ABI":          {abi("ckptd_abi_v1", Sig("", I64), I64Const(1)), plugins.Limits{}, hook.ErrInvalid, []string{"()->i32"}},
		"command":          {abi("_start", Sig("", ""), ""), plugins.Limits{}, hook.ErrInvalid, []string{"reactor", "c-shared"}},
		"no hooks":         {NewPlugin(-1).Bytes(), plugins.Limits{}, hook.ErrInvalid, []string{"on_pre_save"}},
		"spins at first":   {configured(spin, nil), fuel, hook.ErrFuel, []string{"_initialize"}},
		"spins, slowly":    {configured(spin, nil), brief, hook.ErrTimeout, []string{"_initialize"}},
		"spins configured": {configured(nil, func(p *Plugin) Code { return spin(p) + I32Const(0) }), fuel, hook.ErrFuel, []string{"ckptd_configure"}},
		"traps at first":   {configured(func(*Plugin) Code { return Unreachable }, nil), plugins.Limits{}, hook.ErrTrap, []string{"_initialize", "unreachable"}},
		"refuses":          {configured(nil, func(p *Plugin) Code { return I32Const(7) + I32Const(0) + I32Const(14) + Call(p.ErrorSet) + I32Const(7) }), plugins.Limits{}, hook.ErrInvalid, []string{"configuration", "(7)", "no such colour"}},
		"does not compile": {saver("", func(*Plugin) Code { return I64Const(1) }), plugins.Limits{}, hook.ErrInvalid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Load(context.Background(), plugins.Spec{Name: "p@1.0.0", Binary: test.bin, Limits: test.limits})
			wantError(t, err, test.kind, append(test.words, "p@1.0.0: ")...)
			t.Log(err)
		})
	}
	if _, err := load(t, h, plugins.Spec{Binary: Echo()}).Call(context.Background(), preSave("x")); err != nil {
		t.Error(err)
	}
}

func TestLoadNamesUnknownImports(t *testing.T) {
	h := newHost(t, plugins.Options{})
	importing := func(module, name string, s Signature) []byte {
		m := New()
		m.Import("ckptd_v1", "input_len", Sig(I32, I64))
		m.Import(module, name, s)
		m.Memory(1, -1)
		m.Func("ckptd_abi_v1", Sig("", I32), "", I32Const(1))
		m.Func("on_pre_save", Sig("", I32), "", I32Const(1))
		return m.Bytes()
	}
	for _, test := range []struct {
		module, name string
		s            Signature
		words        []string
	}{
		{"env", "system", Sig(I32, I32), []string{`"env"."system"`}},
		{"ckptd_v1", "input_read_all", Sig(I32, I32), []string{`"ckptd_v1"."input_read_all"`}},
		{"ckptd_meter", "refill", Sig(I64, I64), nil},
		{"wasi_snapshot_preview1", "proc_raise", Sig(I32, I32), []string{"proc_raise", "no files"}},
		{"ckptd_v1", "input_read", Sig(I32+I32+I32+I32, I32), []string{"input_read", "(i32,i64,i32,i32)->i32"}},
		{"x\n\x1b[31m", strings.Repeat("y", 900), Sig("", ""), nil},
	} {
		_, err := h.Load(context.Background(), plugins.Spec{Name: "p", Binary: importing(test.module, test.name, test.s)})
		wantError(t, err, hook.ErrInvalid, test.words...)
		if len(err.Error()) > 700 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestLoadCompilesNoLongerThanItMay(t *testing.T) {
	m := NewPlugin(-1)
	for range 3000 {
		m.Func("", Sig("", ""), I32, Repeat(200, LocalGet(0)+I32Const(3)+I32Mul+LocalSet(0)))
	}
	m.Hook("on_pre_save", "", I32Const(1))
	h, bin := newHost(t, plugins.Options{}), m.Bytes()
	_, err := h.Load(context.Background(), plugins.Spec{Binary: bin, Limits: plugins.Limits{Compile: time.Millisecond}})
	wantError(t, err, hook.ErrTimeout, "more than 1ms")
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = h.Load(ctx, plugins.Spec{Binary: bin})
	if wantError(t, err, hook.ErrTimeout); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not wrap the error of the context", err)
	}
}

func TestHostIsClosed(t *testing.T) {
	h, err := plugins.New(plugins.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, h, plugins.Spec{Binary: Echo()})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = p.Call(context.Background(), preSave("x"))
	wantError(t, err, hook.ErrUnavailable)
	_, err = h.Load(context.Background(), plugins.Spec{Binary: Echo()})
	wantError(t, err, hook.ErrUnavailable)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// The memory and the globals as left by the configuration are there in every call, and nothing else
// is.
func TestConfigurationIsKept(t *testing.T) {
	p := NewPlugin(-1)
	g := p.Global(I32, true, I32Const(0))
	p.Hook("ckptd_configure", "",
		I32Const(2)+I64Const(0)+I32Const(100)+I32Const(99)+Call(p.InputRead)+GlobalSet(g)+I32Const(0))
	p.Hook("on_pre_save", "", I32Const(100)+GlobalGet(g)+Call(p.OutputWrite)+Drop+
		I32Const(0)+GlobalSet(g)+I32Const(100)+I32Const(0)+I32Const(99)+MemoryFill+I32Const(0))
	h := newHost(t, plugins.Options{})
	for i := range 2 {
		config := fmt.Sprintf(`{"number":%d}`, i)
		plugin := load(t, h, plugins.Spec{Binary: p.Bytes(), Config: []byte(config)})
		for range 3 {
			r, err := plugin.Call(context.Background(), preSave("x"))
			if err != nil || string(r.Output) != config {
				t.Errorf("got %q, %v", r.Output, err)
			}
		}
	}
}
