package bench

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
)

const (
	steps  = 1000
	window = 20 // steps per median, at the start and at the end of a thread
)

// BenchmarkThread1000: one thread grows by a message per step to 1,000 messages, every save
// durable, and the same in SQLite with the whole state in every row. Sizes are allocated blocks
// after close; for ckptd they include key file and keystore. Times are medians over the first and
// the last 20 steps; a round is one thread in a new store.
func BenchmarkThread1000(b *testing.B) {
	for _, hand := range []struct {
		name string
		save func(*agent, []byte) error
	}{
		{"splice", (*agent).appendSpliced},
		{"full", (*agent).appendWhole},
	} {
		b.Run("hand="+hand.name, func(b *testing.B) {
			var ckptd, sqlite growth
			for seed := uint64(6); b.Loop(); seed++ {
				messages := newSpeaker(seed).messages(steps)
				ckptd.store(b, messages, hand.save)
				if hand.name == "full" { // the saver takes whole states, so measure it once
					sqlite.saver(b, messages)
				}
			}
			ckptd.report(b, "ckptd")
			if hand.name == "full" {
				sqlite.report(b, "sqlite")
			}
		})
	}
}

// growth holds the results of one contender's rounds.
type growth struct {
	bytes       []int64
	first, last []time.Duration // medians of a window, one per round
}

func (g *growth) store(b *testing.B, messages [][]byte, save func(*agent, []byte) error) {
	dir := benchDir(b)
	st := newStore(b, dir, 0)
	a := newAgent(st, 1)
	g.steps(b, messages, func(message []byte) error { return save(a, message) })
	check(b, st.Close())
	g.bytes = append(g.bytes, allocated(b, dir))
}

func (g *growth) saver(b *testing.B, messages [][]byte) {
	dir := benchDir(b)
	saver := openSQLiteSaver(b, dir, "thread-1")
	var state []byte
	g.steps(b, messages, func(message []byte) error {
		state = grow(state, message)
		return saver.save(state)
	})
	check(b, saver.close())
	g.bytes = append(g.bytes, allocated(b, dir))
}

func (g *growth) steps(b *testing.B, messages [][]byte, save func([]byte) error) {
	var took []time.Duration
	for _, message := range messages {
		took = append(took, timed(b, func() error { return save(message) }))
	}
	g.first = append(g.first, p50(took[:window]))
	g.last = append(g.last, p50(took[len(took)-window:]))
}

func (g *growth) report(b *testing.B, name string) {
	report(b, map[string]float64{
		name + "-disk-MB":    float64(p50(g.bytes)) / 1e6,
		name + "-first-µs":   us(p50(g.first)),
		name + "-last-µs":    us(p50(g.last)),
		name + "-last/first": float64(p50(g.last)) / float64(p50(g.first)),
	})
}

// BenchmarkLoadCold: a newly opened engine with empty caches loads a 1 MB state, 1,000 steps deep,
// and SQLite reads its row. The operating system's cache of the files stays warm for both.
func BenchmarkLoadCold(b *testing.B) {
	const turn = 10
	dir := benchDir(b)
	k := newKeys(b, dir)
	be := openDriver(b, dir)
	saver := openSQLiteSaver(b, dir, "thread-1")
	st := openStore(b, keepOpen{be}, k, 0)
	a := newAgent(st, 1)
	for _, message := range newSpeaker(7).messages(steps) {
		check(b, a.appendSpliced(message))
	}
	check(b, saver.save(a.state))
	check(b, st.Close())

	var cold, row []time.Duration
	for b.Loop() {
		for range turn {
			st := openStore(b, keepOpen{be}, k, 0)
			thread := newAgent(st, 1).thread
			var cp *engine.Checkpoint
			cold = append(cold, timed(b, func() (err error) {
				cp, err = thread.Load(context.Background(), engine.Latest)
				return err
			}))
			check(b, same(cp, a.state))
			check(b, st.Close())
		}
		for range turn {
			row = append(row, timed(b, func() error {
				_, err := saver.load()
				return err
			}))
		}
	}
	report(b, map[string]float64{"ckptd-p50-ms": ms(p50(cold)), "sqlite-p50-ms": ms(p50(row))})
	check(b, errors.Join(saver.close(), be.Close()))
}

func same(cp *engine.Checkpoint, want []byte) error {
	if got, ok := cp.Channel(channel); !ok || !bytes.Equal(got.Data, want) {
		return errors.New("loaded another state than was saved")
	}
	return nil
}

// keepOpen is a backend that outlives the engines on it.
type keepOpen struct{ backend.Backend }

func (keepOpen) Close() error { return nil }
