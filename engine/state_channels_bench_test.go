package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

var channelCounts = []int{8, 64, 256, 1024, 4096}

func benchStore(b *testing.B) *engine.Store {
	root, err := crypto.GenerateRootKey()
	if err != nil {
		b.Fatal(err)
	}
	s, err := engine.Open(context.Background(), mem.Open(), engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// manyChannels is a whole state of n channels of about 40 bytes.
func manyChannels(n, step int) (chs []engine.Change) {
	for i := range n {
		chs = append(chs, engine.Change{Name: fmt.Sprintf("channel-%04d", i), Data: fmt.Appendf(nil, "value %d of step %d, and some more", i, step)})
	}
	return chs
}

// BenchmarkOneOfChannels saves a change of one channel among many, at random.
func BenchmarkOneOfChannels(b *testing.B) {
	for _, n := range channelCounts {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx := context.Background()
			th := benchStore(b).Thread(engine.Ref{Tenant: "t", User: "u", Thread: "th"})
			if _, err := th.Save(ctx, engine.Draft{Channels: manyChannels(n, 0)}); err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			step, stored := 0, int64(0)
			for b.Loop() {
				step++
				i := r.IntN(n)
				cp, err := th.Save(ctx, engine.Draft{Keep: true, Step: int64(step), Channels: []engine.Change{
					{Name: fmt.Sprintf("channel-%04d", i), Data: fmt.Appendf(nil, "value %d of step %d, and some more", i, step)}}})
				if err != nil {
					b.Fatal(err)
				}
				stored += cp.Cost.Stored
			}
			b.ReportMetric(float64(stored)/float64(step), "B/step")
		})
	}
}

// BenchmarkWholeOfChannels saves whole states of many channels, one of which has changed.
func BenchmarkWholeOfChannels(b *testing.B) {
	for _, n := range channelCounts {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx := context.Background()
			th := benchStore(b).Thread(engine.Ref{Tenant: "t", User: "u", Thread: "th"})
			chs := manyChannels(n, 0)
			step := 0
			for b.Loop() {
				step++
				chs[step%n].Data = fmt.Appendf(nil, "value %d of step %d, and some more", step%n, step)
				if _, err := th.Save(ctx, engine.Draft{Step: int64(step), Channels: chs}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(step)/float64(n), "ns/channel")
		})
	}
}
