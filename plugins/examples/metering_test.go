package examples

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/meter"
)

// agentState returns a list of messages of about the given size, with an address in every kilobyte.
func agentState(bytes int) []byte {
	words := []string{"the", "agent", "reads", "a", "page", "and", "writes", "what", "it", "found", "there", "\\n", "42", "order", "(not sure)", "https://example.com/a/b"}
	random := rand.New(rand.NewPCG(1, 1))
	state, next := []byte(`[`), 1000
	for len(state) < bytes {
		state = append(state, `{"role":"tool","tool_call_id":"call_0123456789","content":"`...)
		for range 40 {
			state = append(append(state, words[random.IntN(len(words))]...), ' ')
		}
		if len(state) > next {
			state, next = append(state, "bob@example.org"...), next+1000
		}
		state = append(state, `"},`...)
	}
	return append(state[:len(state)-1], ']')
}

// pages is the memory of a guest: 32 MiB.
const pages = 512

// bare runs a module without limits, a pool or resets, as the baseline for metering.
type bare struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	input    []byte
}

func newBare(t testing.TB, binary, input []byte) *bare {
	t.Helper()
	ctx := context.Background()
	b := &bare{input: input, runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(pages).WithMemoryCapacityFromMax(true))}
	t.Cleanup(func() { b.runtime.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, b.runtime)
	abi := b.runtime.NewHostModuleBuilder("ckptd_v1")
	add := func(name string, f any) { abi = abi.NewFunctionBuilder().WithFunc(f).Export(name) }
	add("input_len", func(slot int32) int64 {
		if slot != 0 {
			return 0
		}
		return int64(len(b.input))
	})
	add("input_read", func(_ context.Context, m api.Module, slot int32, off int64, ptr, n uint32) int32 {
		if slot != 0 || n == 0 {
			return 0
		}
		part := b.input[off:][:n]
		m.Memory().Write(ptr, part)
		return int32(len(part))
	})
	add("output_write", func(_ context.Context, m api.Module, ptr, n uint32) int32 { return 0 })
	add("error_set", func(_ context.Context, m api.Module, code int32, ptr, n uint32) {})
	add("log", func(_ context.Context, m api.Module, level int32, ptr, n uint32) {})
	add("finding", func(_ context.Context, m api.Module, a, b, c, d uint32, count int32) {})
	refill := b.runtime.NewHostModuleBuilder(meter.RefillModule).NewFunctionBuilder().
		WithFunc(func(int64) int64 { return 1 << 62 }).Export(meter.RefillName)
	for _, m := range []wazero.HostModuleBuilder{abi, refill} {
		if _, err := m.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.compiled, err = b.runtime.CompileModule(ctx, binary); err != nil {
		t.Fatal(err)
	}
	return b
}

// calls returns the duration of each of n calls in a new instance.
func (b *bare) calls(t testing.TB, n int) (took []time.Duration) {
	t.Helper()
	ctx := context.Background()
	m, err := b.runtime.InstantiateModule(ctx, b.compiled, wazero.NewModuleConfig().WithStartFunctions("_initialize").WithName(""))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(ctx)
	f := m.ExportedFunction("on_pre_save")
	for range n {
		start := time.Now()
		r, err := f.Call(ctx)
		took = append(took, time.Since(start))
		if err != nil || int32(r[0]) != 0 {
			t.Fatal(r, err)
		}
	}
	return took
}

// BenchmarkMetering compares the redactors with and without metering, on 100 kB with an address per
// kilobyte. The overhead is that of the medians.
func BenchmarkMetering(b *testing.B) {
	var all Builder
	input := agentState(100 << 10)
	for _, name := range Redactors() {
		b.Run(name, func(b *testing.B) {
			binary := all.Module(b, name)
			m, err := meter.Rewrite(binary, meter.Limits{Pages: pages})
			if err != nil {
				b.Fatal(err)
			}
			plain, metered := newBare(b, binary, input), newBare(b, m.Binary, input)
			var before, after []time.Duration
			b.ResetTimer()
			for range b.N {
				before = append(before, plain.calls(b, 8)...)
				after = append(after, metered.calls(b, 8)...)
			}
			b.ReportMetric(median(before).Seconds()*1e6, "plain-µs")
			b.ReportMetric(median(after).Seconds()*1e6, "metered-µs")
			b.ReportMetric(100*(float64(median(after))/float64(median(before))-1), "overhead-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkRedactors measures the delay of a save: a call in the pool of a host, including the
// reset.
func BenchmarkRedactors(b *testing.B) {
	var all Builder
	for _, name := range Redactors() {
		for _, size := range []int{1 << 10, 10 << 10, 100 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dkB", name, size>>10), func(b *testing.B) {
				p, err := newHost(b).Load(b.Context(), plugins.Spec{Name: name, Binary: all.Module(b, name)})
				if err != nil {
					b.Fatal(err)
				}
				call := &plugins.Call{Stage: hook.PreSave, Payload: agentState(size)}
				b.SetBytes(int64(len(call.Payload)))
				for b.Loop() {
					if r, err := p.Call(context.Background(), call); err != nil || bytes.Contains(r.Output, []byte("@")) {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
