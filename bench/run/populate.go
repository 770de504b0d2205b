package run

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/bench/rival"
)

// AdvanceArgs are the arguments of Advance.
type AdvanceArgs struct {
	To   int // number of steps to reach
	Save bool
}

// Advance advances the first thread without measuring.
func (w *Worker) Advance(a AdvanceArgs, _ *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.memory.watch()()
	w.dry.Allocs, w.dry.AllocBytes = 0, 0 // making steps allocates when a state outgrows its memory, which is rare later on
	for w.steps[0] == nil || w.steps[0].Number+1 < a.To {
		if a.To == 0 {
			return nil
		}
		w.steps[0] = w.players[0].Next()
		if !a.Save {
			continue
		}
		if err := w.driver.Save(context.Background(), w.steps[0]); err != nil {
			return fmt.Errorf("saving: %w", err)
		}
	}
	return nil
}

// PopulateArgs are the arguments of Populate.
type PopulateArgs struct {
	From, To int
	Seconds  float64 // time limit for creating threads
}

// Populated is the number of threads and the time it took to create them.
type Populated struct {
	Threads int
	Seconds float64
}

// hopeless reports whether, at its current pace, a rival would need more than twice its time, so
// that waiting is pointless. The first eighth is not representative.
func (a PopulateArgs) hopeless(done int, seconds float64) bool {
	return seconds > a.Seconds/8 && float64(done)*2*a.Seconds < float64(a.To-a.From)*seconds
}

// Populate creates threads with all of the worker's writers. It ends early if it cannot finish in
// time.
func (w *Worker) Populate(a PopulateArgs, reply *Populated) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.memory.watch()()
	w.writers(w.args.Writers)
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		done  atomic.Int64
		once  sync.Once
		first error
	)
	next.Store(int64(a.From))
	began := time.Now()
	for range w.args.Writers {
		wg.Go(func() {
			for took := 0.0; took < a.Seconds && !a.hopeless(int(done.Load()), took); took = since(began) {
				thread := int(next.Add(1) - 1)
				if thread >= a.To {
					return
				}
				if err := w.driver.Save(context.Background(), w.player(thread).Next()); err != nil {
					once.Do(func() { first = err })
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if first != nil {
		return fmt.Errorf("beginning threads: %w", first)
	}
	*reply = Populated{a.From + int(done.Load()), since(began)}
	return nil
}

// writers informs an Adaptable rival of the number of concurrent writers.
func (w *Worker) writers(n int) {
	if d, ok := w.driver.(rival.Adaptable); ok {
		d.Writers(n)
	}
}

// SampleArgs are the arguments of Sample: how many saves to make in how many threads.
type SampleArgs struct{ Threads, Saves int }

// Sample makes one writer save random threads among those that Populate created.
func (w *Worker) Sample(a SampleArgs, reply *Turn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.memory.watch()()
	w.writers(1)
	p := &pace{}
	m, began := meterOf(w.driver.Process()), time.Now()
	for range a.Saves {
		thread := w.rng.IntN(a.Threads)
		player := w.extra[thread]
		if player == nil {
			player = w.player(thread)
			player.Next()
			w.extra[thread] = player
		}
		s := player.Next()
		due := time.Now()
		if err := w.driver.Save(context.Background(), s); err != nil {
			return fmt.Errorf("saving: %w", err)
		}
		p.took = append(p.took, time.Since(due))
		p.saved(w, s)
	}
	reply.Seconds = since(began)
	reply.Usage = m.taken()
	reply.sum([]*pace{p}, w.dry)
	return nil
}
