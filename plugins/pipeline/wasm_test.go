package pipeline

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/hook"
)

// wasm binds a module, as package wasmtest makes it, everywhere.
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

// TestModules: real modules, in the order in which they are bound, and the redactor behind them.
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

func BenchmarkPreSave(b *testing.B) {
	h := hostOf(b)
	long := `{"role":"assistant","content":"` + string(make100k()) + `"}`
	short := `{"role":"user","content":"` + string(make100k()[:10_000]) + `"}`
	value, prev := "["+long+","+short+"]", "["+long+"]"
	for name, manifest := range map[string]string{"value": preSave, "element": byElement} {
		b.Run(name, func(b *testing.B) {
			p := pipelineOf(wasm(b, h, "upper", wasmtest.Upper(), manifest))
			c := chainOf(b, p, hook.PreSave)
			var took time.Duration
			for b.Loop() {
				call := callOf(hook.Item{Kind: hook.Channel, Name: "c", Type: "json", Data: []byte(value), Prev: []byte(prev)})
				start := time.Now()
				if err := c.Run(context.Background(), call); err != nil {
					b.Fatal(err)
				}
				took += time.Since(start)
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs/save")
		})
	}
	b.Run("split", func(b *testing.B) {
		b.SetBytes(int64(len(value)))
		for b.Loop() {
			changedElements([]byte(value), []byte(prev))
		}
	})
}

// make100k is text without anything to find in it.
func make100k() []byte {
	out := make([]byte, 0, 100_000)
	for len(out) < 100_000 {
		out = append(out, "WORDS OF AN AGENT AND OF ITS TOOLS "...)
	}
	return out
}
