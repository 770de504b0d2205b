package run

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ckptd/ckptd/bench/rival"
	"github.com/ckptd/ckptd/bench/workload"
)

// TurnArgs limit how long the writers save; the first limit reached ends the turn.
type TurnArgs struct {
	Seconds float64
	Bytes   int64   // that all writers together give a rival to store: whole states or changes
	Steps   int     // per writer; 0 means no limit, as in the other fields
	Rate    float64 // saves/s due from all writers; 0: each saves as soon as its previous save is done
}

// Turn holds the measurements of a turn.
type Turn struct {
	Saves    int
	Late     int     // saves that were due but never began, because earlier ones took too long; their wait counts
	Seconds  float64 // duration
	Changed  int64   // bytes
	Stored   int64   // bytes that the rival was given to store
	P50, P99 float64 // seconds
	P999     float64
	Usage    Usage // minus the cost of making the steps
	Full     bool  // it was ended by Bytes
}

// Turn runs the writers.
func (w *Worker) Turn(a TurnArgs, reply *Turn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.turn(reply, func(writer int) *pace {
		p := &pace{seconds: a.Seconds, bytes: a.Bytes / int64(w.args.Writers), steps: a.Steps}
		if a.Rate > 0 {
			p.interval = time.Duration(float64(w.args.Writers) / a.Rate * float64(time.Second))
			p.first = p.interval * time.Duration(writer) / time.Duration(w.args.Writers)
		}
		return p
	})
	reply.Full = a.Bytes > 0 && reply.Stored >= a.Bytes*9/10
	return err
}

// pace determines when a writer saves and when it ends, and records the time of each save.
type pace struct {
	seconds  float64
	bytes    int64
	steps    int
	interval time.Duration // of an open loop
	first    time.Duration

	took            []time.Duration
	saves, late     int
	changed, stored int64
}

// patience is the factor by which an open loop may exceed its length in order to catch up.
const patience = 3

// next waits until the n-th save is due and returns its due time. It is not ok if there are no more
// saves.
func (p *pace) next(n int, began time.Time) (due time.Time, ok bool) {
	now := time.Now()
	if p.steps > 0 && n >= p.steps || p.bytes > 0 && p.stored >= p.bytes {
		return now, false
	}
	if p.interval == 0 {
		return now, p.seconds == 0 || now.Sub(began).Seconds() < p.seconds
	}
	due = began.Add(p.first + time.Duration(n)*p.interval)
	if due.Sub(began).Seconds() >= p.seconds {
		return due, false
	}
	if now.Sub(began).Seconds() > patience*p.seconds {
		for ; due.Sub(began).Seconds() < p.seconds; due = due.Add(p.interval) {
			p.late++
			p.took = append(p.took, now.Sub(due))
		}
		return due, false
	}
	time.Sleep(due.Sub(now))
	return due, true
}

// turn runs all writers at their paces.
func (w *Worker) turn(reply *Turn, pacer func(writer int) *pace) error {
	paces := make([]*pace, w.args.Writers)
	for i := range paces {
		paces[i] = pacer(i)
	}
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer w.memory.watch()()
	m, began := meterOf(w.driver.Process()), time.Now()
	for i, p := range paces {
		wg.Go(func() {
			if err := w.write(ctx, i, p, began); err != nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	wg.Wait()
	reply.Seconds = since(began)
	reply.Usage = m.taken()
	if first != nil {
		return fmt.Errorf("saving: %w", first)
	}
	reply.sum(paces, w.dry)
	return nil
}

// write is one writer. It saves its threads in rotation.
func (w *Worker) write(ctx context.Context, writer int, p *pace, began time.Time) error {
	mine := w.mine(writer)
	for n := 0; mine > 0 && ctx.Err() == nil; n++ {
		thread := writer + w.args.Writers*(n%mine)
		due, ok := p.next(n, began)
		if !ok {
			return nil
		}
		s := w.players[thread].Next()
		if p.interval == 0 {
			due = time.Now() // making the step is not part of the save
		}
		if err := w.driver.Save(ctx, s); err != nil {
			return err
		}
		p.took = append(p.took, time.Since(due))
		p.saved(w, s)
		w.steps[thread] = s
		if writer == 0 {
			w.keep(s)
		}
	}
	return nil
}

// saved counts a step.
func (p *pace) saved(w *Worker, s *workload.Step) {
	p.saves++
	p.changed += int64(s.Changed)
	if w.rival.Whole {
		p.stored += int64(len(s.State.Doc))
	} else {
		p.stored += int64(s.Changed)
	}
}

// keep copies some states, to check later that they load correctly.
func (w *Worker) keep(s *workload.Step) {
	k := kept{s.Thread, s.Number, nil}
	switch {
	case len(w.kept) < mostKept:
		w.kept = append(w.kept, k)
	case w.rng.IntN(64) == 0:
		at := w.rng.IntN(mostKept)
		k.state = w.kept[at].state[:0]
		w.kept[at] = k
	default:
		return
	}
	for i := range w.kept {
		if w.kept[i].thread == s.Thread && w.kept[i].step == s.Number {
			w.kept[i].state = append(w.kept[i].state, s.State.Doc...)
		}
	}
}

func (t *Turn) sum(paces []*pace, dry Usage) {
	h := newHistogram()
	for _, p := range paces {
		t.Saves += p.saves
		t.Late += p.late
		t.Changed += p.changed
		t.Stored += p.stored
		for _, took := range p.took {
			record(h, took)
		}
	}
	t.P50, t.P99, t.P999 = quantile(h, 50), quantile(h, 99), quantile(h, 99.9)
	t.Usage = t.Usage.minus(dry.times(float64(t.Saves)))
}

// newHistogram returns a histogram of nanoseconds up to ten minutes, exact to a thousandth.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(10*time.Minute), 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	h.RecordValue(min(max(int64(d), 1), int64(10*time.Minute)))
}

func quantile(h *hdrhistogram.Histogram, percent float64) float64 {
	if h.TotalCount() == 0 {
		return 0
	}
	return float64(h.ValueAtPercentile(percent)) / 1e9
}

// LoadArgs are the arguments of Load.
type LoadArgs struct {
	Loads int
	Old   bool // random earlier steps; otherwise the newest of random threads, once each
}

// Loaded holds the measurements of loads.
type Loaded struct {
	Loads int
	Bytes int64
	P50   float64 // seconds
}

// Load loads states one by one and checks that they equal the saved ones.
func (w *Worker) Load(a LoadArgs, reply *Loaded) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.memory.watch()()
	h := newHistogram()
	for i, thread := range w.rng.Perm(len(w.players)) {
		if i == a.Loads || a.Old {
			break
		}
		if s := w.steps[thread]; s != nil {
			if err := w.load(h, s.Thread, -1, s.State.Doc, reply); err != nil {
				return err
			}
		}
	}
	for i := range a.Loads {
		if !a.Old {
			break
		}
		if i < len(w.kept) {
			if err := w.load(h, w.kept[i].thread, w.kept[i].step, w.kept[i].state, reply); err != nil {
				return err
			}
		} else if s := w.steps[w.rng.IntN(len(w.steps))]; s != nil {
			if err := w.load(h, s.Thread, w.rng.IntN(s.Number+1), nil, reply); err != nil {
				return err
			}
		}
	}
	reply.P50 = quantile(h, 50)
	runtime.GC() // so that the garbage of large states isn't collected while saves are measured
	return nil
}

func (w *Worker) load(h *hdrhistogram.Histogram, thread, step int, want []byte, reply *Loaded) error {
	began := time.Now()
	got, err := w.driver.Load(context.Background(), thread, step)
	record(h, time.Since(began))
	if err != nil {
		return fmt.Errorf("loading: %w", err)
	}
	if want != nil && !rival.Same(w.rival, got, want) {
		return fmt.Errorf("another state came back than was saved: %d bytes, want %d, equal up to %d", len(got), len(want), common(got, want))
	}
	reply.Loads++
	reply.Bytes += int64(len(got))
	return nil
}

func common(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
