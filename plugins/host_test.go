package plugins_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

func newHost(t testing.TB, o plugins.Options) *plugins.Host {
	t.Helper()
	h, err := plugins.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func load(t testing.TB, h *plugins.Host, s plugins.Spec) *plugins.Plugin {
	t.Helper()
	if s.Name == "" {
		s.Name = "p@1.0.0"
	}
	if hard := plugins.HardLimits(); s.Limits.Compile == 0 { // the race detector makes compilers ten times slower
		s.Limits.Compile, s.Limits.Init = hard.Compile, max(s.Limits.Init, hard.Init)
	}
	p, err := h.Load(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEcho(t *testing.T) {
	h := newHost(t, plugins.Options{})
	p := load(t, h, plugins.Spec{Binary: wasmtest.Echo()})
	for _, size := range []int{0, 1, 1000, 100_000, 3_000_000} {
		in := bytes.Repeat([]byte("x"), size)
		r, err := p.Call(context.Background(), &plugins.Call{Stage: hook.PreSave, Payload: in, Time: time.Unix(1, 0)})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if !bytes.Equal(r.Output, in) {
			t.Errorf("%d bytes came back as %d", size, len(r.Output))
		}
		t.Log(size, r.Fuel)
	}
}
