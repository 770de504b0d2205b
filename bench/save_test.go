package bench

import (
	"context"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
)

// BenchmarkOneWriter: one writer saves 1 kB changes of a 100 kB state, durably, and Badger alone
// saves 1 kB, in turns of 50. Ratios are medians over the rounds, so that a disk that becomes
// slower affects both.
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

	n := 0
	round := func(save func([]byte) error) float64 { // p50 of a turn in µs
		took := make([]time.Duration, turn)
		for i := range took {
			message := pool[n%len(pool)]
			n++
			took[i] = timed(b, func() error { return save(message) })
		}
		return us(p50(took))
	}
	var rounds contest
	for b.Loop() {
		rounds.add(round(spliced.replaceSpliced), round(plain.save), round(whole.replaceWhole))
	}
	rounds.report(b, "p50-µs")
	check(b, st.Close())
	check(b, plain.db.Close())
}

// contest holds the contenders' results, one figure per round.
type contest struct{ splice, badger, full []float64 }

func (c *contest) add(splice, badger, full float64) {
	c.splice, c.badger, c.full = append(c.splice, splice), append(c.badger, badger), append(c.full, full)
}

// report reports medians over the rounds, both of figures and of their ratios.
func (c *contest) report(b *testing.B, unit string) {
	b.Helper()
	over := func(list []float64) float64 {
		ratios := make([]float64, len(list))
		for i := range list {
			ratios[i] = list[i] / c.badger[i]
		}
		return p50(ratios)
	}
	report(b, map[string]float64{
		"splice-" + unit: p50(c.splice),
		"badger-" + unit: p50(c.badger),
		"full-" + unit:   p50(c.full),
		"splice/badger":  over(c.splice),
		"full/badger":    over(c.full),
	})
}

// BenchmarkWriters256: 256 writers save 1 kB changes of 1,024 threads of 100 kB each, durably, as
// splices and as whole states, and Badger alone saves 1 kB with as many writers; in turns of 0.4 s,
// three rounds at a time. The cache holds all heads. Ratios are medians over the rounds.
func BenchmarkWriters256(b *testing.B) {
	const (
		writers = 256
		threads = 1024
		turn    = 400 * time.Millisecond
		rounds  = 3
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
	save := func(save func(*agent, []byte) error) float64 { // saves per second
		return rate(b, writers, turn, func(w, call int) error {
			return save(agents[w+writers*(call%(threads/writers))], pool[(w*31+call)%len(pool)])
		})
	}
	update := func() float64 {
		return rate(b, writers, turn, func(w, call int) error { return plain.save(pool[(w*31+call)%len(pool)]) })
	}
	var found contest
	for b.Loop() {
		for range rounds {
			found.add(save((*agent).replaceSpliced), update(), save((*agent).replaceWhole))
		}
	}
	found.report(b, "saves/s")
	check(b, st.Close())
	check(b, plain.db.Close())
}

// BenchmarkPipeline: the cost of a save without its commit: one writer, a 1 kB change of a 100 kB
// state, and a backend that acknowledges immediately and stores nothing.
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

// acknowledger is a backend that, once switched, acknowledges every batch without storing it.
type acknowledger struct {
	backend.Backend
	discard bool // changed only between saves
}

func (a *acknowledger) Commit(ctx context.Context, batch backend.Batch) error {
	if a.discard {
		return nil
	}
	return a.Backend.Commit(ctx, batch)
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
