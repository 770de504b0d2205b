package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// gated hands each commit that comes while it is closed to the test, which decides on its outcome:
// nil lets it through.
type gated struct {
	backend.Backend
	closed  atomic.Bool
	entered chan struct{}
	outcome chan error
}

func (g *gated) Commit(ctx context.Context, b backend.Batch) error {
	if g.closed.Load() {
		g.entered <- struct{}{}
		if err := <-g.outcome; err != nil {
			return err
		}
	}
	return g.Backend.Commit(ctx, b)
}

// slow takes up to most microseconds for a commit.
type slow struct {
	backend.Backend
	most int
}

func (s *slow) Commit(ctx context.Context, b backend.Batch) error {
	time.Sleep(time.Duration(rand.IntN(s.most)) * time.Microsecond)
	return s.Backend.Commit(ctx, b)
}

// slowly replaces the backend of the store by a slow one.
func (f *fixture) slowly(most int) { f.Store.be = &slow{Backend: f.Store.be, most: most} }

// second opens another store on the same data, which knows only the durable state.
func (f *fixture) second() *Store {
	f.t.Helper()
	o := f.opts
	o.Create = false
	s, err := Open(context.Background(), keepOpen{f.be}, o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

const racers = 32

// Of all that save on condition of one head exactly one succeeds, and the others are told of a head
// that is durable.
func TestConcurrentExpectHead(t *testing.T) {
	for _, cache := range []int64{0, -1} {
		t.Run(fmt.Sprint("cache ", cache), func(t *testing.T) { raceForHead(t, cache) })
	}
}

func raceForHead(t *testing.T, cache int64) {
	const seqs = 60
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: cache})
	f.slowly(100)
	th := f.Thread(testRef("t"))
	var winners [seqs + 1]atomic.Int32
	var states [seqs + 1]atomic.Pointer[[]byte]
	var wg sync.WaitGroup
	for g := range racers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(g)))
			for head := uint64(0); head < seqs; {
				data := words(r, 200)
				cp, err := th.Save(ctx, Draft{Expect: ExpectHead(head), Channels: []Change{{Name: "x", Data: data}}})
				var conflict *ConflictError
				switch {
				case err == nil:
					if cp.Seq != head+1 {
						t.Errorf("expected head %d, saved seq %d", head, cp.Seq)
					}
					winners[cp.Seq].Add(1)
					states[cp.Seq].Store(&data)
					head = cp.Seq
				case errors.As(err, &conflict):
					if conflict.HeadSeq <= head {
						t.Errorf("expected head %d, and it is %d", head, conflict.HeadSeq)
						return
					}
					view := f.second() // a new one each time: while a store is open it relies on being the only one
					durable, err := view.Thread(testRef("t")).Load(ctx, At(conflict.HeadID), LoadOptions{HeadersOnly: true})
					if err != nil || durable.Seq != conflict.HeadSeq {
						t.Errorf("the head in a conflict, %s (%d), is not durable: %v", conflict.HeadID, conflict.HeadSeq, err)
					}
					view.Close()
					head = conflict.HeadSeq
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for seq := 1; seq <= seqs; seq++ {
		if n := winners[seq].Load(); n != 1 {
			t.Errorf("seq %d was acknowledged %d times", seq, n)
			continue
		}
		cp, err := f.second().Thread(testRef("t")).Load(ctx, AtSeq(uint64(seq)))
		if err != nil || !bytes.Equal(cp.Channels[0].Data, *states[seq].Load()) {
			t.Errorf("seq %d differs from its winner's save: %v", seq, err)
		}
	}
}

// All that append to one thread get a seq of their own, without gaps, on an intact chain.
func TestConcurrentAppend(t *testing.T) {
	for _, cache := range []int64{0, -1} {
		t.Run(fmt.Sprint("cache ", cache), func(t *testing.T) { raceToAppend(t, cache) })
	}
}

func raceToAppend(t *testing.T, cache int64) {
	const each = 12
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: cache})
	f.slowly(100)
	var mu sync.Mutex
	states := map[string][]byte{}
	bySeq := map[uint64]string{}
	var wg sync.WaitGroup
	for g := range racers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(8, uint64(g)))
			for range each {
				data := words(r, 100+r.IntN(400))
				cp, err := f.Thread(testRef("t")).Save(ctx, Draft{Channels: []Change{{Name: "x", Data: data}}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if have, ok := bySeq[cp.Seq]; ok {
					t.Errorf("seq %d was given to %s and %s", cp.Seq, have, cp.ID)
				}
				bySeq[cp.Seq], states[cp.ID] = cp.ID, data
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for seq := uint64(1); seq <= racers*each; seq++ {
		if bySeq[seq] == "" {
			t.Errorf("nobody was given seq %d", seq)
		}
	}
	v := f.second()
	if have := checkLine(t, v, testRef("t")); len(have) != racers*each {
		t.Errorf("%d checkpoints, want %d", len(have), racers*each)
	}
	for id, data := range states {
		cp, err := v.Thread(testRef("t")).Load(ctx, At(id))
		if err != nil || !bytes.Equal(cp.Channels[0].Data, data) {
			t.Errorf("%s differs from its save: %v", id, err)
		}
	}
}

// recorder delays commits and remembers which checkpoints are durable, by the number of their
// records.
type recorder struct {
	backend.Backend
	durable atomic.Uint64 // greatest seq of a record that is durable
}

func (r *recorder) Commit(ctx context.Context, b backend.Batch) error {
	time.Sleep(200 * time.Microsecond)
	err := r.Backend.Commit(ctx, b)
	for _, m := range b.Muts {
		if space.IsRecord(m.Key) && err == nil {
			r.durable.Store(max(r.durable.Load(), space.SeqOf(m.Key)))
		}
	}
	time.Sleep(200 * time.Microsecond) // durable before the caller is told so
	return err
}

// A load never shows a checkpoint that is not durable, while saves of the same lineage are under
// way.
func TestConcurrentLoadsSeeDurableOnly(t *testing.T) {
	const saves = 60
	ctx := context.Background()
	f := newFixture(t, Options{})
	rec := &recorder{Backend: f.Store.be}
	f.Store.be = rec
	th := f.Thread(testRef("t"))
	mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "x", Data: []byte("seq 1")}}})
	done := make(chan struct{})
	var savers, loaders sync.WaitGroup
	for range 4 {
		savers.Go(func() {
			for range saves / 4 {
				if _, err := th.Save(ctx, Draft{Keep: true, Branch: "main"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	loads := []func() (uint64, error){
		func() (uint64, error) { return seqOf(th.Load(ctx, Latest)) },
		func() (uint64, error) { return seqOf(th.Load(ctx, HeadOf("main"), LoadOptions{HeadersOnly: true})) },
		func() (uint64, error) { return seqOf(th.Load(ctx, LatestByID(), LoadOptions{HeadersOnly: true})) },
		func() (uint64, error) { return seqOf(f.User("acme", "alice").Latest(ctx)) },
		func() (uint64, error) {
			for cp, err := range th.History(ctx, HistoryOptions{Limit: 1}) {
				return seqOf(cp, err)
			}
			return 0, nil
		},
		func() (uint64, error) {
			seq := rec.durable.Load() + 1
			got, err := seqOf(th.Load(ctx, AtSeq(seq), LoadOptions{HeadersOnly: true}))
			if errors.Is(err, ErrNotFound) {
				return 0, nil
			}
			return got, err
		},
	}
	for i, load := range loads {
		loaders.Go(func() {
			last := uint64(0)
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				seq, err := load()
				durable := rec.durable.Load()
				if errors.Is(err, ErrNotFound) && i == 1 && last == 0 { // before the branch exists
					continue
				}
				if err != nil {
					t.Errorf("load %d: %v", i, err)
					return
				}
				if seq > durable {
					t.Errorf("load %d shows seq %d, only %d is durable", i, seq, durable)
				}
				if seq != 0 && seq < last {
					t.Errorf("load %d shows seq %d after %d", i, seq, last)
				}
				last = max(last, seq)
			}
		})
	}
	savers.Wait()
	close(done)
	loaders.Wait()
}

func seqOf(cp *Checkpoint, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	return cp.Seq, nil
}

// Saves to many threads at once with a cache that holds a few of them only.
func TestConcurrentThreadsWithTinyCache(t *testing.T) {
	const threads, rounds, workers = 200, 6, 16
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: 64 << 10})
	f.slowly(50)
	states := make([]map[string][]byte, threads)
	var locks [threads]sync.Mutex
	for i := range states {
		states[i] = map[string][]byte{}
	}
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(9, uint64(g)))
			for range threads * rounds / workers {
				i := r.IntN(threads)
				th := f.Thread(testRef(fmt.Sprint("t", i)))
				if r.IntN(4) == 0 {
					if _, err := th.Load(ctx, Latest); err != nil && !errors.Is(err, ErrNotFound) {
						t.Errorf("loading: %v", err)
					}
				}
				data := words(r, 2000+r.IntN(2000))
				cp, err := th.Save(ctx, Draft{Keep: true, Channels: []Change{{Name: fmt.Sprint("c", r.IntN(3)), Data: data}}})
				if err != nil {
					t.Errorf("saving: %v", err)
					return
				}
				// Others save to the same thread: this save's own channel is known, not the rest.
				got, err := th.Load(ctx, At(cp.ID))
				if err != nil {
					t.Errorf("loading: %v", err)
					return
				}
				found := false
				for _, ch := range got.Channels {
					found = found || bytes.Equal(ch.Data, data)
				}
				if !found {
					t.Errorf("thread %d seq %d differs from its save", i, cp.Seq)
				}
				locks[i].Lock()
				states[i][cp.ID] = data
				locks[i].Unlock()
			}
		})
	}
	wg.Wait()
	if f.Store.cache.size > f.Store.cache.most {
		t.Errorf("the cache holds %d bytes, at most %d are allowed", f.Store.cache.size, f.Store.cache.most)
	}
	v := f.second()
	for i := range states {
		have := checkLine(t, v, testRef(fmt.Sprint("t", i)))
		for id := range states[i] {
			if !have[id] {
				t.Errorf("thread %d: %s was acknowledged and is not there", i, id)
			}
		}
		if len(have) != len(states[i]) {
			t.Errorf("thread %d has %d checkpoints, %d were acknowledged", i, len(have), len(states[i]))
		}
	}
}

// A delete comes before or after each save as a whole: drafts that name the old generation are
// refused from then on, and those that name none start the thread again.
func TestConcurrentDelete(t *testing.T) {
	ctx := context.Background()
	for round := range 20 {
		f := newFixture(t, Options{})
		f.slowly(100)
		th := f.Thread(testRef("t"))
		mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "x", Data: []byte("first")}}})
		type saved struct{ id, data string }
		var mu sync.Mutex
		acked := map[uint64][]saved{} // by generation
		var late atomic.Int32
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				var d Draft
				if g%2 == 0 {
					d.Generation = 1
				}
				for n := range 6 {
					data := fmt.Sprintf("%d %d %d", round, g, n)
					d.Channels = []Change{{Name: "x", Data: []byte(data)}}
					cp, err := th.Save(ctx, d)
					if errors.Is(err, ErrGeneration) && d.Generation == 1 {
						late.Add(1)
						continue
					}
					if err != nil {
						t.Errorf("saving: %v", err)
						return
					}
					if d.Generation != 0 && cp.Generation != d.Generation {
						t.Errorf("a draft of generation %d was saved in %d", d.Generation, cp.Generation)
					}
					mu.Lock()
					acked[cp.Generation] = append(acked[cp.Generation], saved{cp.ID, data})
					mu.Unlock()
				}
			})
		}
		var generation uint64
		wg.Go(func() {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			var err error
			if generation, err = th.Delete(ctx); err != nil {
				t.Errorf("deleting: %v", err)
			}
		})
		wg.Wait()
		if generation != 2 {
			t.Errorf("generation %d after the first deletion", generation)
		}
		if _, err := th.Save(ctx, Draft{Generation: 1}); !errors.Is(err, ErrGeneration) {
			t.Errorf("a late save of the old generation: %v", err)
		}
		v := f.second()
		for _, s := range acked[1] {
			if cp, err := v.Thread(testRef("t")).Load(ctx, At(s.id)); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s was deleted, and is %+v, %v", s.id, cp, err)
			}
		}
		have := checkLine(t, v, testRef("t"))
		if len(have) != len(acked[2]) {
			t.Errorf("%d checkpoints after the deletion, %d were acknowledged", len(have), len(acked[2]))
		}
		for _, s := range acked[2] {
			cp, err := v.Thread(testRef("t")).Load(ctx, At(s.id))
			if err != nil || string(cp.Channels[0].Data) != s.data {
				t.Errorf("%s was acknowledged after the deletion: %v", s.id, err)
			}
		}
	}
}

// Concurrent saves of one checkpoint under its id save it once; each gets the same checkpoint.
func TestConcurrentSameID(t *testing.T) {
	ctx := context.Background()
	for _, d := range []Draft{{ID: "same"}, {ID: "same", Parent: "root"}, {ID: "1ef5cbe4-1b1e-6c60-bfff-0123456789ab"}} {
		f := newFixture(t, Options{})
		f.slowly(200)
		mustSave(t, f, testRef("t"), Draft{ID: "root", Channels: []Change{{Name: "x", Data: []byte("root")}}})
		d.Channels = []Change{{Name: "x", Data: []byte("state")}}
		var wg sync.WaitGroup
		got := make([]*Checkpoint, racers/2)
		for g := range got {
			wg.Go(func() {
				cp, err := f.Thread(testRef("t")).Save(ctx, d)
				if err != nil {
					t.Error(err)
				}
				got[g] = cp
			})
		}
		wg.Wait()
		for _, cp := range got {
			if cp != nil && (cp.Seq != 2 || cp.ID != d.ID || cp.Hash != got[0].Hash) {
				t.Errorf("acknowledged as %+v", cp)
			}
		}
		if have := checkLine(t, f.second(), testRef("t")); len(have) != 2 {
			t.Errorf("the lineage is %v", have)
		}
	}
}
