package bench

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// BenchmarkSaveBesideReaders: two writers save 1 kB changes of one 1 MB thread, each to its own
// channel, durably. They alternate between running alone and running with eight readers that each
// load the newest checkpoint 20 times a second. The ratio is the median over the rounds.
func BenchmarkSaveBesideReaders(b *testing.B) {
	const turn = time.Second
	st := newStore(b, benchDir(b), 0)
	th := st.Thread(threadRef(1))
	var alone, beside, ratios []float64
	writers := []*halfWriter{newHalfWriter(b, th, 0), newHalfWriter(b, th, 1)}
	for b.Loop() {
		a := writeFor(b, writers, turn)
		stop := readers(b, th, 8, time.Second/20)
		r := writeFor(b, writers, turn)
		stop()
		alone, beside, ratios = append(alone, a), append(beside, r), append(ratios, r/a)
	}
	report(b, map[string]float64{"alone-p50-µs": p50(alone), "beside-p50-µs": p50(beside), "beside/alone": p50(ratios)})
	check(b, st.Close())
}

// halfWriter writes one of the channels of a thread.
type halfWriter struct {
	th      *engine.Thread
	channel string
	version engine.Version
	size    int
	step    byte
}

func newHalfWriter(b *testing.B, th *engine.Thread, n int) *halfWriter {
	w := &halfWriter{th: th, channel: fmt.Sprint("half-", n), size: 500_000}
	words := newSpeaker(uint64(n + 1))
	value := bytes.Join(words.messages(w.size/messageBytes+1), nil)[:w.size]
	check(b, w.put(engine.Change{Name: w.channel, Data: value}))
	return w
}

// save changes a kilobyte in the middle.
func (w *halfWriter) save() error {
	w.step++
	const at = 250_000
	return w.put(engine.Change{Name: w.channel, Base: w.version, Prefix: at, Suffix: w.size - at - 1000,
		Data: bytes.Repeat([]byte{'a' + w.step%26}, 1000)})
}

func (w *halfWriter) put(c engine.Change) error {
	cp, err := w.th.Save(context.Background(), engine.Draft{Keep: true, Channels: []engine.Change{c}})
	if err != nil {
		return err
	}
	ch, _ := cp.Channel(w.channel)
	w.version = ch.Version
	return nil
}

// writeFor runs all writers for a time and returns the median time of a save, in µs.
func writeFor(b *testing.B, writers []*halfWriter, d time.Duration) float64 {
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	until := time.Now().Add(d)
	for _, w := range writers {
		wg.Go(func() {
			for time.Now().Before(until) {
				began := time.Now()
				if err := w.save(); err != nil {
					b.Error(err)
					return
				}
				one := time.Since(began)
				mu.Lock()
				took = append(took, one)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return us(p50(took))
}

// readers load the newest checkpoint of a thread at a pace, until stop.
func readers(b *testing.B, th *engine.Thread, n int, pace time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			time.Sleep(pace * time.Duration(i) / time.Duration(n))
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
					if _, err := th.Load(context.Background(), engine.Latest); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	return func() { close(done); wg.Wait() }
}
