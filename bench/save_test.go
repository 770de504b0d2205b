package bench

import (
	"context"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
)

// BenchmarkOneWriter: one writer saves a 1 kB change of a 100 kB state, durably, and Badger alone 1 kB, in turns of 50.
func BenchmarkOneWriter(b *testing.B) {
	const turn = 50
	dir := benchDir(b)
	st := newStore(b, dir, 0)
	plain := openPlainBadger(b, dir)
	words := newSpeaker(3)
	pool := words.messages(1024)
	spliced, whole := newAgent(st, 1), newAgent(st, 2)
	check(b, spliced.begin(stateOf(words.messages(steadyMessages))))
	check(b, whole.begin(stateOf(words.messages(steadyMessages))))
	contenders := []struct {
		save func([]byte) error
		took []time.Duration
	}{{save: spliced.replaceSpliced}, {save: plain.save}, {save: whole.replaceWhole}}

	n := 0
	for b.Loop() {
		for i := range contenders {
			c := &contenders[i]
			for range turn {
				message := pool[n%len(pool)]
				n++
				c.took = append(c.took, timed(b, func() error { return c.save(message) }))
			}
		}
	}
	splice, badger, full := p50(contenders[0].took), p50(contenders[1].took), p50(contenders[2].took)
	report(b, map[string]float64{
		"splice-p50-µs": us(splice),
		"full-p50-µs":   us(full),
		"badger-p50-µs": us(badger),
		"splice/badger": float64(splice) / float64(badger),
		"full/badger":   float64(full) / float64(badger),
	})
	check(b, st.Close())
	check(b, plain.db.Close())
}

// BenchmarkWriters256: 256 writers save 1 kB changes of 1,024 threads of 100 kB each, durably, as splices and with the
// whole state handed in; and Badger alone 1 kB with as many writers; in turns of a second. The cache holds all heads.
func BenchmarkWriters256(b *testing.B) {
	const (
		writers = 256
		threads = 1024
		turn    = time.Second
	)
	dir := benchDir(b)
	st := newStore(b, dir, 512<<20)
	plain := openPlainBadger(b, dir)
	pool := newSpeaker(4).messages(4096)
	agents := make([]*agent, threads)
	for i := range agents {
		agents[i] = newAgent(st, i)
		check(b, agents[i].begin(stateOf(newSpeaker(uint64(100+i)).messages(steadyMessages))))
	}
	next := func(w, call int) (*agent, []byte) {
		return agents[w+writers*(call%(threads/writers))], pool[(w*31+call)%len(pool)]
	}

	var spliced, whole, badger rate
	for b.Loop() {
		spliced.slice(b, writers, turn, func(w, call int) error {
			a, message := next(w, call)
			return a.replaceSpliced(message)
		})
		badger.slice(b, writers, turn, func(w, call int) error {
			_, message := next(w, call)
			return plain.save(message)
		})
		whole.slice(b, writers, turn, func(w, call int) error {
			a, message := next(w, call)
			return a.replaceWhole(message)
		})
	}
	report(b, map[string]float64{
		"splice-saves/s": spliced.perSecond(),
		"full-saves/s":   whole.perSecond(),
		"badger-saves/s": badger.perSecond(),
		"splice/badger":  spliced.perSecond() / badger.perSecond(),
		"full/badger":    whole.perSecond() / badger.perSecond(),
	})
	check(b, st.Close())
	check(b, plain.db.Close())
}

// BenchmarkPipeline: what a save costs without its commit: one writer, a 1 kB change of a 100 kB state, and a backend that
// acknowledges at once and keeps nothing.
func BenchmarkPipeline(b *testing.B) {
	for _, hand := range []struct {
		name string
		save func(*agent, []byte) error
	}{
		{"splice", (*agent).replaceSpliced},
		{"full", (*agent).replaceWhole},
	} {
		b.Run("hand="+hand.name, func(b *testing.B) {
			be := &acknowledger{Backend: mem.Open()}
			st := openStore(b, be, newKeys(b, benchDir(b)), 0)
			words := newSpeaker(5)
			pool := words.messages(1024)
			a := newAgent(st, 1)
			check(b, a.begin(stateOf(words.messages(steadyMessages))))
			be.discard = true
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				check(b, hand.save(a, pool[n%len(pool)]))
				n++
			}
			check(b, st.Close())
		})
	}
}

// acknowledger is a backend that, once told to, acknowledges every batch and keeps none.
type acknowledger struct {
	backend.Backend
	discard bool // set between saves only
}

func (a *acknowledger) Commit(ctx context.Context, batch backend.Batch) error {
	if a.discard {
		return nil
	}
	return a.Backend.Commit(ctx, batch)
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
