package meter_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	wt "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/meter"
)

// BenchmarkOverhead runs on_pre_save of plugins on 100 kB, alternating between metered and
// unmetered, and reports the time of each and the overhead of their fastest runs. The plugins are
// METER_PLUGINS (a glob), or else the built examples.
func BenchmarkOverhead(b *testing.B) {
	files, err := filepath.Glob(cmp.Or(os.Getenv("METER_PLUGINS"), "../examples/*/email/email.wasm"))
	if err != nil || len(files) == 0 {
		b.Skip("no modules:", err)
	}
	for _, file := range files {
		bin, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		lang := filepath.Base(filepath.Dir(filepath.Dir(file)))
		b.Run(lang, func(b *testing.B) { benchmarkOverhead(b, bin) })
	}
	b.Run("upper", func(b *testing.B) { benchmarkOverhead(b, wt.Upper()) })
}

func benchmarkOverhead(b *testing.B, bin []byte) {
	out, err := meter.Rewrite(bin, meter.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	ma := newMachine(b, wazero.NewRuntimeConfigCompiler())
	ma.slice = 200_000 // like the host
	wasi_snapshot_preview1.MustInstantiate(b.Context(), ma.rt)
	input := messages(100_000)
	provideInput(b, ma.rt, input)
	var mods [2]api.Module
	for i, bin := range [][]byte{bin, out.Binary} {
		mods[i] = ma.instantiate(b, bin)
		if mods[i].ExportedFunction("_initialize") != nil {
			if _, _, err := ma.call(mods[i], "_initialize"); err != nil {
				b.Fatal(err)
			}
		}
	}
	var times [2][]time.Duration
	var fuel int64
	for range max(b.N, 10) {
		for i, mod := range mods {
			start := time.Now()
			res, f, err := ma.call(mod, "on_pre_save")
			if err != nil || res[0] != wt.Output {
				b.Fatal(res, err)
			}
			times[i] = append(times[i], time.Since(start))
			fuel = f
		}
	}
	plain, metered := slices.Min(times[0]), slices.Min(times[1])
	b.ReportMetric(float64(plain.Nanoseconds()), "plain-ns")
	b.ReportMetric(float64(metered.Nanoseconds()), "metered-ns")
	b.ReportMetric(100*(float64(metered)/float64(plain)-1), "overhead-%")
	b.ReportMetric(float64(metered.Nanoseconds())/float64(fuel), "ns/unit")
}

// messages returns JSON like that of agents, with an occasional address.
func messages(size int) []byte {
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, "line %d of what someone wrote to the agent; ", i*7919%1000)
		if i%20 == 7 {
			fmt.Fprintf(&text, "answer to user%d@example.com please ", i)
		}
	}
	return fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}]}`, text.String()[:size])
}

// provideInput provides the imports of ABI v1. Only those for input do anything.
func provideInput(b *testing.B, rt wazero.Runtime, input []byte) {
	h := rt.NewHostModuleBuilder(wt.ABI)
	export := func(name string, f any) { h.NewFunctionBuilder().WithFunc(f).Export(name) }
	export("input_len", func(slot int32) int64 {
		if slot != 0 {
			return 0
		}
		return int64(len(input))
	})
	export("input_read", func(_ context.Context, m api.Module, slot int32, off int64, ptr, n int32) int32 {
		if slot != 0 {
			return 0
		}
		p := input[off:min(off+int64(n), int64(len(input)))]
		m.Memory().Write(uint32(ptr), p)
		return int32(len(p))
	})
	export("output_write", func(_, _ int32) int32 { return 0 })
	export("error_set", func(_, _, _ int32) {})
	export("log", func(_, _, _ int32) {})
	export("finding", func(_, _, _, _, _ int32) {})
	export("redact_builtin", func(_, _, _, _, _, _ int32) int32 { return -1 })
	export("pseudonym", func(_, _, _, _ int32) int32 { return -1 })
	export("blob_put", func(_, _, _ int32) int32 { return -1 })
	if _, err := h.Instantiate(b.Context()); err != nil {
		b.Fatal(err)
	}
}
