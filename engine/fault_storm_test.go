package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// TestFaultFailsAllThatStandOnIt holds the commit of one save until others are queued on it, and
// then fails it: they all fail, none of them exists, and the lineage continues.
func TestFaultFailsAllThatStandOnIt(t *testing.T) {
	const queued = 12
	for _, injected := range []error{errUnavailable, errAmbiguous} {
		t.Run(injected.Error(), func(t *testing.T) {
			ctx := context.Background()
			f := newFixture(t, Options{})
			th := f.Thread(testRef("t"))
			first := mustSave(t, f, testRef("t"), Draft{ID: "before", Channels: []Change{{Name: "x", Data: []byte("before")}}})
			gate := &gated{Backend: keepOpen{f.be}, entered: make(chan struct{}, 1), outcome: make(chan error)}
			f.Store.be = gate
			gate.closed.Store(true)
			errs := make(chan error, queued+1)
			save := func(i int) {
				_, err := th.Save(ctx, Draft{ID: fmt.Sprint("lost ", i), Channels: []Change{{Name: "x", Data: fmt.Append(nil, "state ", i)}}})
				errs <- err
			}
			go save(0)
			<-gate.entered
			for i := range queued {
				go save(i + 1)
			}
			f.waitQueued(testRef("t"), queued)
			gate.closed.Store(false)
			gate.outcome <- injected
			for range queued + 1 {
				if err := <-errs; !errors.Is(err, injected) {
					t.Errorf("a save that stands on one that failed: %v", err)
				}
			}
			cp, err := th.Load(ctx, Latest)
			if err != nil || cp.ID != first.ID {
				t.Errorf("latest is %+v, %v", cp, err)
			}
			next := mustSave(t, f, testRef("t"), Draft{Channels: []Change{{Name: "x", Data: []byte("after")}}})
			if next.Parent != first.ID || next.Seq != 2 {
				t.Errorf("next is %+v", next)
			}
			f.reopen()
			for i := range queued + 1 {
				if _, err := f.Thread(testRef("t")).Load(ctx, At(fmt.Sprint("lost ", i))); !errors.Is(err, ErrNotFound) {
					t.Errorf("save %d failed, but loading it gives %v", i, err)
				}
			}
		})
	}
}

// waitQueued waits until so many saves are queued behind the one under way.
func (f *fixture) waitQueued(ref Ref, n int) {
	l, err := f.rlockThread(context.Background(), ref, false)
	if err != nil {
		f.t.Fatal(err)
	}
	defer l.runlockThread()
	for queued := -1; queued != n; {
		l.mu.lock(context.Background())
		queued = len(l.queue)
		l.mu.unlock()
	}
}

// TestFaultUnderConcurrentSaves saves from many goroutines to one lineage while a commit fails.
// Acknowledged saves exist with all their ancestors, and those that certainly failed do not.
func TestFaultUnderConcurrentSaves(t *testing.T) {
	w := newFaultWorld(t)
	for _, p := range faultPlans {
		t.Run(p.name, func(t *testing.T) {
			for k := range 12 {
				plan := p.plan
				plan.After, plan.Keep = k, false
				stormWithFault(t, w, plan, uint64(k))
			}
		})
	}
}

func stormWithFault(t *testing.T, w *faultWorld, plan backendtest.Plan, seed uint64) {
	const writers, saves = 8, 6
	ctx := context.Background()
	b := newBed(t, w)
	defer b.Close()
	b.Store.be = &slow{Backend: b.Store.be, most: 200}
	ref := testRef("storm")
	var mu sync.Mutex
	failed := map[string]bool{}
	other := ref
	other.Namespace = "sub"
	if l, err := b.refLineage(ctx, other, true); err != nil {
		t.Fatal(err)
	} else {
		defer b.unrefLineage(l) // keeps the thread in memory
	}
	b.fault.Arm(plan)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for n := range saves {
				id := fmt.Sprintf("w%d-%d", i, n)
				data := words(r, 300+r.IntN(300))
				cp, err := b.Thread(ref).Save(ctx, Draft{ID: id, Channels: []Change{{Name: "x", Data: data}}})
				mu.Lock()
				switch {
				case err == nil:
					b.acked = append(b.acked, ackedSave{ref, cp.ID, map[string][]byte{"x": data}})
				case !errors.Is(err, plan.Err):
					t.Errorf("%s: %v", id, err)
				default:
					failed[id] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if b.fault.Fired() > 0 && len(failed) == 0 {
		t.Errorf("a commit failed, and no save did")
	}
	b.fault.Disarm()
	v := b.view()
	defer v.Close()
	b.checkAcked(v)
	mustBeClean(t, v, upkeep.VerifyOptions{})
	have := checkLine(t, v, ref)
	for id := range failed {
		if have[id] && errors.Is(plan.Err, backend.ErrUnavailable) {
			t.Errorf("%s failed and is there", id)
		}
	}
	if len(have) < len(b.acked) {
		t.Errorf("%d checkpoints, %d were acknowledged", len(have), len(b.acked))
	}
	if !slices.Equal(slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(checkLine(t, b.Store, ref)))) {
		t.Errorf("the store sees another history than its data has")
	}
}

// checkLine checks that a lineage without forks has all seqs from 1 on, each the child of the one
// before, and returns its ids.
func checkLine(t testing.TB, s *Store, ref Ref) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	var child *Checkpoint
	for cp, err := range s.Thread(ref).History(context.Background(), HistoryOptions{Data: true}) {
		if errors.Is(err, ErrNotFound) {
			return ids
		}
		if err != nil {
			t.Fatal(err)
		}
		if child != nil && (child.Parent != cp.ID || child.ParentSeq != cp.Seq || child.Seq != cp.Seq+1 || child.Time.Before(cp.Time)) {
			t.Errorf("seq %d (%s) has parent %s (%d), but %s (%d) comes before it", child.Seq, child.ID, child.Parent, child.ParentSeq, cp.ID, cp.Seq)
		}
		ids[cp.ID], child = true, cp
	}
	if child != nil && (child.Seq != 1 || child.Parent != "") {
		t.Errorf("the first checkpoint is seq %d with parent %q", child.Seq, child.Parent)
	}
	return ids
}

// TestStaleThreadIsNotTakenForANewOne plays the two ways in which a save that waited for the
// lineage knows less than the backend has: the save that made the thread was applied though its
// outcome is unknown, and the thread expired meanwhile. Neither may start the lineage at seq 1
// again, over the record that is there.
func TestStaleThreadIsNotTakenForANewOne(t *testing.T) {
	ctx := context.Background()
	x := Draft{Channels: []Change{{Name: "x", Data: []byte("state")}}}
	check := func(t *testing.T, l *lineage, want uint64) {
		t.Helper()
		l.mu.lock(context.Background())
		defer l.mu.unlock()
		if err := l.open(ctx); err != nil || l.head != want {
			t.Errorf("the lineage opens with head %d, %v; want %d", l.head, err, want)
		}
	}
	t.Run("unknown outcome", func(t *testing.T) {
		f := newFixture(t, Options{})
		fault := backendtest.NewFault(keepOpen{f.be})
		f.Store.be = fault.Backend()
		l, err := f.Store.rlockLive(ctx, testRef("t"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.runlockThread()
		fault.Arm(backendtest.Plan{Ops: backendtest.OpCommit, Err: errAmbiguous, Apply: true})
		if _, err := f.Thread(testRef("t")).Save(ctx, x); !errors.Is(err, errAmbiguous) {
			t.Fatalf("the first save: %v", err)
		}
		fault.Disarm()
		check(t, l, 1)
	})
	t.Run("expired", func(t *testing.T) {
		clock := &testClock{ms: 1_700_000_000_000}
		f := newFixture(t, Options{Now: clock.now})
		mortal := x
		mortal.TTL = time.Minute
		mustSave(t, f, testRef("t"), mortal)
		l, err := f.Store.rlockLive(ctx, testRef("t"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.runlockThread()
		l.mu.lock(context.Background())
		l.forget() // as a failed save does
		l.mu.unlock()
		clock.ms += 3_600_000
		if _, err := f.Thread(testRef("t")).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
			t.Fatalf("loading an expired thread: %v", err)
		}
		check(t, l, 1)
	})
}
