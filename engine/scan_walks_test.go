package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// A history that is being read does not mix the records of two epochs: the lineage may stay in
// memory while the thread is rewritten.
func TestHistoryAcrossEpochs(t *testing.T) {
	ctx := context.Background()
	for _, data := range []bool{false, true} {
		f := newFixture(t, Options{})
		ref := testRef("t")
		root := mustSave(t, f, ref, Draft{Channels: []Change{{Name: "m", Data: bytes.Repeat([]byte("a state "), 100)}}})
		parents := map[string]string{}
		var remove []string
		for i := range 150 {
			d := Draft{Parent: root.ID, Keep: true, Channels: []Change{{Name: "other", Data: fmt.Append(words(rand.New(rand.NewPCG(1, 1)), 2000), i)}}}
			if i%3 == 0 {
				d.Channels = append(d.Channels, Change{Name: "m", Data: fmt.Appendf(nil, "%d %s", i, bytes.Repeat([]byte("a state "), 100))})
			}
			cp := mustSave(t, f, ref, d)
			if parents[cp.ID] = cp.Parent; i%3 == 0 {
				remove = append(remove, cp.ID)
			}
		}
		l, err := f.refLineage(ctx, ref, false) // as another call would that waits for the thread
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for cp, err := range f.Thread(ref).History(ctx, HistoryOptions{Data: data}) {
			if err != nil {
				t.Fatalf("after %d checkpoints: %v", n, err)
			}
			if n++; n == 10 {
				mustPrune(t, f, ref, upkeep.PruneOptions{Remove: remove, Erase: true})
			}
			if want := parents[cp.ID]; cp.Parent != want {
				t.Fatalf("seq %d: the parent is told as %s, it is %s", cp.Seq, cp.Parent, want)
			}
		}
		f.unrefLineage(l)
	}
}

// heapGauge looks at the heap at every read.
type heapGauge struct {
	backend.Backend
	on         bool
	base, peak uint64
}

func (h *heapGauge) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	h.look()
	return h.Backend.Get(ctx, keys...)
}

func (h *heapGauge) look() {
	if h.on {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		h.peak = max(h.peak, m.HeapAlloc)
	}
}

func (h *heapGauge) most(do func()) int {
	h.peak, h.on = 0, true
	h.look()
	h.base, h.peak = h.peak, 0
	do()
	h.on = false
	return max(0, int(h.peak)-int(h.base))
}

// A walk over a whole history remembers a state or two, and not all of them.
func TestMemoryOfWalks(t *testing.T) {
	const size, steps = 1 << 20, 40
	ctx := context.Background()
	f := newFixture(t, Options{CacheBytes: 1})
	ref := testRef("t")
	r := rand.New(rand.NewPCG(1, 1))
	for i := range steps {
		mustSave(t, f, ref, Draft{Step: int64(i), Channels: []Change{{Name: "screen", Data: incompressible(r, size)}}})
	}
	f.reopen()
	h := &heapGauge{Backend: f.Store.be}
	f.Store.be = h
	th := f.Thread(ref)
	for what, do := range map[string]func() error{
		"history": func() error {
			n := 0
			for _, err := range th.History(ctx, HistoryOptions{Data: true}) {
				if err != nil {
					return err
				}
				n++
			}
			if n != steps {
				return fmt.Errorf("%d checkpoints, want %d", n, steps)
			}
			return nil
		},
		"verify": func() error {
			_, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
			return err
		},
	} {
		var err error
		got := h.most(func() { err = do() })
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got > 16<<20 {
			t.Errorf("%s: took %d MiB for %d states of %d MiB", what, got>>20, steps, size>>20)
		}
	}
	// A copy shares the parts, so the data does not grow by it.
	if got := h.most(func() { must(t, th.Copy(ctx, testRef("copy"))) }); got > 16<<20 {
		t.Errorf("copy: took %d MiB for %d states of %d MiB", got>>20, steps, size>>20)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Operations on many checkpoints report a lost one, even one without a record that nothing depends
// on.
func TestLostRecordIsNoticed(t *testing.T) {
	ctx := context.Background()
	for lost := uint64(1); lost <= 5; lost++ {
		f := newFixture(t, Options{})
		f.broken = true
		ref := testRef("t")
		for i := range 6 {
			d := Draft{ID: fmt.Sprint("cp", i), Root: true, RunID: fmt.Sprint("run", i%2), Channels: []Change{{Name: "m", Data: words(rand.New(rand.NewPCG(uint64(i), 1)), 600)}}}
			mustSave(t, f, ref, d)
		}
		l, err := f.refLineage(ctx, ref, false)
		must(t, err)
		key := l.RecordKey(lost)
		f.unrefLineage(l)
		must(t, f.be.Commit(ctx, backend.Batch{Muts: []backend.Mut{{Key: key, Delete: true}}}))
		f.reopen()
		th := f.Thread(ref)
		run := fmt.Sprint("run", (lost-1)%2)
		calls := map[string]func() error{
			"history": func() error { return firstError(th.History(ctx, HistoryOptions{})) },
			"tree":    func() error { _, err := th.Tree(ctx); return err },
			"query":   func() error { return firstError(f.User("acme", "alice").Query(ctx, Query{Filter: Filter{RunID: run}})) },
			"walk":    func() error { return firstError(f.User("acme", "alice").Query(ctx, Query{})) },
			"before":  func() error { _, err := th.Load(ctx, Before(fmt.Sprint("cp", lost))); return err },
			"copy":    func() error { return th.Copy(ctx, testRef("copy")) },
			"gc":      func() error { _, err := f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{}); return err },
		}
		if lost == 5 {
			calls["latest of a run"] = func() error { _, err := th.Load(ctx, LatestOfRun("run0")); return err }
		}
		for what, do := range calls {
			if err := do(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("seq %d is lost: %s: %v, want ErrCorrupt", lost, what, err)
			}
		}
		if _, err := th.Load(ctx, At("cp5")); err != nil {
			t.Errorf("seq %d is lost: another one: %v", lost, err)
		}
		n := 0
		for _, err := range th.History(ctx, HistoryOptions{From: "cp5"}) { // which is not its ancestor
			must(t, err)
			n++
		}
		if n != 1 {
			t.Errorf("seq %d is lost: %d ancestors of another one, want none", lost, n-1)
		}
	}
}

// Pruned checkpoints are not lost, wherever a walk begins and ends.
func TestPrunedIsNotLost(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	th := f.Thread(ref)
	var ids []string
	for i := range 40 {
		ids = append(ids, mustSave(t, f, ref, Draft{Root: i%3 > 0, RunID: fmt.Sprint("run", i%4), Channels: []Change{{Name: "m", Data: words(rand.New(rand.NewPCG(uint64(i), 1)), 300)}}}).ID)
	}
	r := rand.New(rand.NewPCG(5, 5))
	for left := ids; len(left) > 3; {
		var remove []string
		for _, i := range r.Perm(len(left) - 1)[:len(left)/3] {
			remove = append(remove, left[i])
		}
		mustPrune(t, f, ref, upkeep.PruneOptions{Remove: remove, Erase: r.IntN(3) == 0})
		left = nil
		for cp, err := range th.History(ctx, HistoryOptions{}) {
			must(t, err)
			left = append([]string{cp.ID}, left...)
		}
		for i, id := range ids {
			n := 0
			for _, err := range th.History(ctx, HistoryOptions{Before: id}) {
				if errors.Is(err, ErrNotFound) {
					break // nothing is before it
				}
				must(t, err)
				n++
			}
			if cp, err := th.Load(ctx, Before(id), LoadOptions{HeadersOnly: true}); err != nil && !errors.Is(err, ErrNotFound) || err == nil && n == 0 {
				t.Errorf("before %d: %v, %v", i, cp, err)
			}
		}
		for i := range 4 {
			must(t, firstError(f.User("acme", "alice").Query(ctx, Query{Filter: Filter{RunID: fmt.Sprint("run", i)}})))
		}
		_, err := th.Tree(ctx)
		must(t, err)
		mustGC(t, f, upkeep.GCOptions{})
	}
}

// Ids made by the engine are compared bytewise: a UUID that was never issued is between two of
// them, or beyond.
func TestBeforeUUIDThatIsNot(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	ref := testRef("t")
	var ids []string
	for i := range 5 {
		clock.ms += 1000
		ids = append(ids, mustSave(t, f, ref, Draft{Step: int64(i), Channels: []Change{{Name: "m", Data: fmt.Append(nil, i)}}}).ID)
	}
	th := f.Thread(ref)
	for id, want := range map[string]int64{
		"0f000000-0000-7000-8000-000000000000":        4, // whose other bits name no seq
		uuidOf(1_700_000_002_500, 0):                  1,
		uuidOf(1_700_000_002_500, 0x3fffffffffffffff): 1,
		uuidOf(1_700_000_001_000, 0x0fff3fffffffffff): 0,
		"00000000-0000-7fff-bfff-ffffffffffff":        -1,
		"ffffffff-ffff-4fff-bfff-ffffffffffff":        4,
		ids[3]:                                        2,
	} {
		cp, err := th.Load(ctx, Before(id))
		if want < 0 && !errors.Is(err, ErrNotFound) || want >= 0 && (err != nil || cp.Step != want) {
			t.Errorf("before %s: %+v, %v, want step %d", id, cp, err, want)
		}
	}
}

// Less than a millisecond is not for ever.
func TestTimesAreRoundedUp(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	mustSave(t, f, testRef("t"), Draft{TTL: time.Millisecond / 2, Channels: []Change{{Name: "m", Data: []byte("x")}}})
	clock.ms += 1000
	if _, err := f.Thread(testRef("t")).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("a second later: %v, want ErrNotFound", err)
	}
	must(t, f.Upkeep().SetRetention(ctx, "acme", upkeep.RetentionPolicy{OlderThan: time.Millisecond / 2}))
	if p, err := f.Upkeep().Retention(ctx, "acme"); err != nil || p.OlderThan != time.Millisecond {
		t.Errorf("the policy is %+v, %v", p, err)
	}
	must(t, f.Upkeep().SetRetention(ctx, "acme", upkeep.RetentionPolicy{OlderThan: math.MaxInt64})) // which is not a whole number of them
	if p, err := f.Upkeep().Retention(ctx, "acme"); err != nil || p.OlderThan != math.MaxInt64/time.Millisecond*time.Millisecond {
		t.Errorf("the longest policy is %+v, %v", p, err)
	}
}

// ending is a backend on which the context ends at one of its scans.
type ending struct {
	backend.Backend
	left int
	end  func()
}

func (e *ending) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if e.left--; e.left == 0 {
		e.end()
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return e.Backend.Scan(ctx, r)
}

// An interrupted verification reports its findings so far, and nothing else.
func TestVerifyGivenUp(t *testing.T) {
	f := newFixture(t, Options{})
	for _, ns := range []string{"", "a", "b"} {
		ref := Ref{Tenant: "acme", User: "alice", Thread: "t", Namespace: ns}
		for i := range 3 {
			mustSave(t, f, ref, Draft{ID: fmt.Sprint(i), Branch: "b", Channels: []Change{{Name: "m", Data: []byte{byte(i)}}}})
		}
	}
	e := &ending{Backend: f.Store.be}
	f.Store.be = e
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancel(context.Background())
		e.left, e.end = n, cancel
		rep, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
		cancel()
		for _, p := range rep.Problems {
			t.Errorf("given up at scan %d: %v", n, p.Err)
		}
		if err == nil {
			return
		}
	}
}
