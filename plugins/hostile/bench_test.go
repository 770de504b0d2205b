package hostile

import (
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// BenchmarkEcho measures an identity call in both modes.
func BenchmarkEcho(b *testing.B) {
	for _, mode := range []string{inProcess, inWorkers} {
		bed := &bed{mode: mode}
		if err := bed.open(); err != nil {
			b.Fatal(err)
		}
		pl := bed.load(plugins.Spec{Name: "echo@1", Binary: wasmtest.Echo()})
		for _, size := range []struct {
			name string
			n    int
		}{{"1kB", 1 << 10}, {"100kB", 100 << 10}, {"1MB", 1 << 20}} {
			b.Run(mode+"/"+size.name, func(b *testing.B) {
				payload := make([]byte, size.n)
				for b.Loop() {
					if _, err := pl.Call(b.Context(), &plugins.Call{Stage: hook.PreSave, Payload: payload}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
