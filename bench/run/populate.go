package run

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/bench/rival"
)

// AdvanceArgs say how far the first thread goes.
type AdvanceArgs struct {
	To   int // the number of steps that it has then
	Save bool
}

// Advance lets the first thread go on without being measured.
func (w *Worker) Advance(a AdvanceArgs, _ *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.memory.watch()()
	w.dry.Allocs, w.dry.AllocBytes = 0, 0 // making steps allocates where a state outgrows its memory, which is seldom one later
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

// PopulateArgs say which threads are begun.
type PopulateArgs struct {
	From, To int
	Seconds  float64 // after which no more are
}

// Populated is how many threads there are, and how long it took to begin the last of them.
type Populated struct {
	Threads int
	Seconds float64
}

// hopeless says whether a rival that has begun so many threads in so many seconds would need more than twice its time: to
// wait for the end of it would be a waste. The first eighth tells nothing.
func (a PopulateArgs) hopeless(done int, seconds float64) bool {
	return seconds > a.Seconds/8 && float64(done)*2*a.Seconds < float64(a.To-a.From)*seconds
}

// Populate begins threads by as many writers as the worker has, and ends early if it will not get there.
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

// writers tells a rival that wants to know how many save at a time from now on.
func (w *Worker) writers(n int) {
	if d, ok := w.driver.(rival.Adaptable); ok {
		d.Writers(n)
	}
}

// SampleArgs say how many saves are made in how many threads.
type SampleArgs struct{ Threads, Saves int }

// Sample lets one writer save random ones of the threads that Populate began.
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
