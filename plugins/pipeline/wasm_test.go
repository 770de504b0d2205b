package pipeline

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// wasm binds a module made with package wasmtest to everything.
func wasm(t testing.TB, h *plugins.Host, name string, module []byte, manifest string) Binding {
	t.Helper()
	text := "name = \"" + name + "\"\nversion = \"1.0.0\"\nabi = 1\nwasm = \"a.wasm\"\n" + manifest
	b, err := bundle.Load([]bundle.File{{Path: bundle.ManifestFile, Data: []byte(text)}, {Path: "a.wasm", Data: module}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(context.Background(), LoaderFunc(func(ctx context.Context, s plugins.Spec) (Plugin, error) { return h.Load(ctx, s) }), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Binding{Bundle: b, Plugin: p}
}

func hostOf(t testing.TB) *plugins.Host {
	t.Helper()
	h, err := plugins.New(plugins.Options{})
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

// TestModules: real modules run in the order of their bindings, with the redactor last.
func TestModules(t *testing.T) {
	h := hostOf(t)
	echo := wasm(t, h, "echo", wasmtest.Echo(), preSave)
	upper := wasm(t, h, "upper", wasmtest.Upper(), "[limits]\ncall = \"100ms\"\n"+preSave+"channels = [\"m*\"]\norder = 1\n")
	p := pipelineOf(upper, echo, redactor(t))
	got := saved(t, p, channel("messages", `["hi jane@example.com"]`), channel("other", `["hi jane@example.com"]`))
	wantStrings(t, got, `["HI [REDACTED:email]"]`, `["hi [REDACTED:email]"]`)

	for _, tt := range []struct {
		name   string
		module []byte
		want   error
	}{
		{"reject", wasmtest.Reject(), hook.ErrRejected}, {"trap", wasmtest.Trap(), hook.ErrTrap}, {"fail", wasmtest.Fail(16), hook.ErrFailed},
		{"spin", wasmtest.Spin(), hook.ErrFuel}, {"recurse", wasmtest.Recurse(), hook.ErrTrap},
	} {
		b := wasm(t, h, tt.name, tt.module, "[limits]\nfuel = 10000000\n"+preSave)
		p.Replace([]Binding{echo, b, redactor(t)})
		err := chainOf(t, p, hook.PreSave).Run(context.Background(), callOf(channel("c", "[]")))
		e, ok := errors.AsType[*hook.Error](err)
		if !ok || e.Plugin != tt.name+"@1.0.0" || e.Item != "channel c" || !errors.Is(err, tt.want) && tt.name != "recurse" {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	runtime.KeepAlive(upper)
}

// BenchmarkPreSave measures a save that appends 10 kB to 100 kB.
func BenchmarkPreSave(b *testing.B) {
	h := hostOf(b)
	words := strings.Repeat("WORDS OF AN AGENT AND OF ITS TOOLS ", 3000)
	long, short := `{"role":"assistant","content":"`+words[:100_000]+`"}`, `{"role":"user","content":"`+words[:10_000]+`"}`
	value, prev := []byte("["+long+","+short+"]"), []byte("["+long+"]")
	unchanged := newFake(func(*plugins.Call) (*plugins.Result, error) { return &plugins.Result{Unchanged: true}, nil })
	for _, bb := range []struct {
		name string
		Binding
	}{
		{"nothing by value", bound(b, "a", preSave, quiet{unchanged})},
		{"nothing by element", bound(b, "a", byElement, quiet{unchanged})},
		{"upper by value", wasm(b, h, "upper", wasmtest.Upper(), preSave)},
		{"upper by element", wasm(b, h, "upper", wasmtest.Upper(), byElement)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			c := chainOf(b, pipelineOf(bb.Binding), hook.PreSave)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Run(context.Background(), callOf(hook.Item{Kind: hook.Channel, Name: "c", Type: "json", Data: value, Prev: prev})); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("for", func(b *testing.B) {
		p := pipelineOf(bound(b, "a", preSave, unchanged))
		b.ReportAllocs()
		for b.Loop() {
			chainOf(b, p, hook.PreSave)
		}
	})
}

// quiet does not record its calls.
type quiet struct{ *fake }

func (q quiet) Call(_ context.Context, c *plugins.Call) (*plugins.Result, error) { return q.run(c) }
