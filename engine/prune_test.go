package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// saveMany saves n checkpoints in a line, each appending to one channel, which starts over now and
// then, and some setting another.
func saveMany(t testing.TB, f *fixture, ref Ref, n int) []*Checkpoint {
	t.Helper()
	var out []*Checkpoint
	r := rand.New(rand.NewPCG(1, 2))
	var text []byte
	for i := range n {
		if i%25 == 0 {
			text = words(r, 2000)
		}
		text = fmt.Appendf(text, "step %d of many; ", i)
		d := Draft{Step: int64(i), Keep: i > 0, Channels: []Change{{Name: "messages", Data: text}}}
		if i%5 == 0 {
			d.Channels = append(d.Channels, Change{Name: "plan", Data: fmt.Appendf(nil, "plan %d", i)})
		}
		out = append(out, mustSave(t, f, ref, d))
	}
	return out
}

func mustPrune(t testing.TB, f *fixture, ref Ref, o upkeep.PruneOptions) *upkeep.PruneReport {
	t.Helper()
	rep, err := f.Thread(ref).Upkeep().Prune(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func historySeqs(t testing.TB, f *fixture, ref Ref) (seqs []uint64) {
	t.Helper()
	for cp, err := range f.Thread(ref).History(context.Background(), HistoryOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, cp.Seq)
	}
	return seqs
}

// dump is the content of the mem backend.
func dump(t testing.TB, b backend.Backend) map[string]string {
	t.Helper()
	got := map[string]string{}
	r := backend.Range{}
	for {
		page, next, err := b.Scan(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			got[string(e.Key)] = string(e.Value)
		}
		if next == nil {
			return got
		}
		r.Start = next
	}
}

func TestPruneKeepsWhatItSays(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		o    upkeep.PruneOptions
		want []uint64
	}{
		"last":               {upkeep.PruneOptions{KeepLast: 3}, []uint64{20, 19, 18, 10, 4}},
		"last and labelled":  {upkeep.PruneOptions{KeepLast: 3, KeepLabelled: true}, []uint64{20, 19, 18, 10, 7, 4}},
		"younger":            {upkeep.PruneOptions{OlderThan: 4500 * time.Millisecond}, []uint64{20, 19, 18, 17, 16, 10, 4}},
		"either":             {upkeep.PruneOptions{OlderThan: 2500 * time.Millisecond, KeepLast: 6}, []uint64{20, 19, 18, 17, 16, 15, 10, 4}},
		"all but the newest": {upkeep.PruneOptions{KeepLast: 1}, []uint64{20, 10, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &testClock{ms: 1_000_000}
			f := newFixture(t, Options{Now: clock.now})
			ref := testRef("t")
			var saved []*Checkpoint
			for i := range 20 {
				clock.ms += 1000
				d := Draft{Keep: true, Labels: map[string]string{}, Channels: []Change{{Name: "a", Data: []byte(strings.Repeat("x", 100+i))}}}
				switch i + 1 {
				case 4:
					d.Labels[LabelPin] = "yes"
				case 7:
					d.Labels["env"] = "prod"
				}
				saved = append(saved, mustSave(t, f, ref, d))
			}
			if err := f.Thread(ref).SetBranch(ctx, "old", AtSeq(10)); err != nil {
				t.Fatal(err)
			}
			before := dump(t, f.be)
			dry := c.o
			dry.DryRun = true
			plan := mustPrune(t, f, ref, dry)
			if !cmp.Equal(dump(t, f.be), before) {
				t.Error("a dry run changed something")
			}
			rep := mustPrune(t, f, ref, c.o)
			if !cmp.Equal(plan, rep) {
				t.Errorf("the dry run differs: %s", cmp.Diff(plan, rep))
			}
			for range 2 {
				if got := historySeqs(t, f, ref); !slices.Equal(got, c.want) {
					t.Errorf("left are %v, want %v", got, c.want)
				}
				f.reopen()
			}
			if rep.Kept != len(c.want) || len(rep.Removed) != 20-len(c.want) || rep.FreedBytes <= 0 {
				t.Errorf("report is %+v", rep)
			}
			for _, cp := range saved {
				got, err := f.Thread(ref).Load(ctx, At(cp.ID))
				if !slices.Contains(c.want, cp.Seq) {
					if !errors.Is(err, ErrNotFound) {
						t.Errorf("seq %d: got %v, %v", cp.Seq, got, err)
					}
				} else if err != nil || got.Hash != cp.Hash || got.Parent != cp.Parent || len(got.Channels[0].Data) != int(99+cp.Seq) {
					t.Errorf("seq %d: got %+v, %v", cp.Seq, got, err)
				}
			}
		})
	}
}

func TestPruneRefuses(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	saved := saveMany(t, f, ref, 5)
	if _, err := f.Thread(ref).SetLabels(ctx, AtSeq(2), map[string]string{LabelPin: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Thread(ref).SetBranch(ctx, "b", AtSeq(3)); err != nil {
		t.Fatal(err)
	}
	before := dump(t, f.be)
	for name, c := range map[string]struct {
		o    upkeep.PruneOptions
		want error
	}{
		"nothing":  {upkeep.PruneOptions{}, ErrInvalid},
		"negative": {upkeep.PruneOptions{KeepLast: -1}, ErrInvalid},
		"head":     {upkeep.PruneOptions{Remove: []string{saved[4].ID}}, ErrInvalid},
		"pinned":   {upkeep.PruneOptions{Remove: []string{saved[0].ID, saved[1].ID}}, ErrInvalid},
		"branch":   {upkeep.PruneOptions{Remove: []string{saved[2].ID}}, ErrInvalid},
		"unknown":  {upkeep.PruneOptions{Remove: []string{saved[0].ID, "nobody"}}, ErrNotFound},
	} {
		if _, err := f.Thread(ref).Upkeep().Prune(ctx, c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Thread(testRef("none")).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a thread that is not there: %v", err)
	}
	if !cmp.Equal(dump(t, f.be), before) {
		t.Error("a refused prune changed something")
	}
}

// Remaining checkpoints depend on ghosts; ghosts are removed when they have no dependents any more,
// and stubs merge.
func TestPruneGhostsAndStubs(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	saved := saveMany(t, f, ref, 60)
	rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 2})
	if rep.Ghosts == 0 || rep.Ghosts == 58 {
		t.Fatalf("%d ghosts: the test wants some of each", rep.Ghosts)
	}
	next := Draft{Keep: true, Channels: []Change{{Name: "messages", Data: []byte("short")}}}
	for range 3 {
		saved = append(saved, mustSave(t, f, ref, next))
		next.Channels[0].Data = append(next.Channels[0].Data, "er"...)
	}
	next.Channels = append(next.Channels, Change{Name: "plan", Data: []byte("new plan")})
	next.Meta = []byte(`{"n":1}`)
	last := mustSave(t, f, ref, next)
	again := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	if again.Ghosts >= rep.Ghosts {
		t.Errorf("%d ghosts after, %d before", again.Ghosts, rep.Ghosts)
	}
	f.reopen()
	got, err := f.Thread(ref).Load(ctx, Latest)
	if err != nil || got.Parent != saved[len(saved)-1].ID || got.Hash != last.Hash {
		t.Errorf("got %+v, %v", got, err)
	}
	v, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	if err != nil || !v.Clean() || v.Checkpoints != 1 || v.Ghosts != again.Ghosts || v.Stubs > v.Ghosts+1 {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

// unlike makes a draft so different that no delta against another pays: only records that keep
// channels depend on it.
func unlike(r *rand.Rand, d Draft) Draft {
	d.Meta = fmt.Appendf(nil, "%q", hex.EncodeToString(words(r, 300))+fmt.Sprintf("%x", rand.New(rand.NewPCG(r.Uint64(), 1)).Perm(1500)))
	d.Channels = append(d.Channels, Change{Name: "a", Data: words(r, 3000)})
	return d
}

// A stub names the parent, and repeating the save of a child whose parent was pruned is still
// recognized.
func TestSaveAgainAfterPrune(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(5, 6))
	f := newFixture(t, Options{})
	ref := testRef("t")
	th := f.Thread(ref)
	mustSave(t, f, ref, unlike(r, Draft{ID: "p"}))
	d := unlike(r, Draft{ID: "c", Parent: "p", Keep: true})
	child := mustSave(t, f, ref, d)
	if rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1}); rep.Ghosts != 0 {
		t.Fatal("the parent is a ghost: the test wants a stub")
	}
	for range 2 {
		again, err := th.Save(ctx, d)
		if err != nil || again.Seq != child.Seq || again.Hash != child.Hash {
			t.Errorf("saved again: %+v, %v", again, err)
		}
		got, err := th.Load(ctx, Latest)
		if err != nil || got.Parent != "p" || got.Hash != child.Hash {
			t.Errorf("got %+v, %v", got, err)
		}
		f.reopen()
		th = f.Thread(ref)
	}
	d.Channels, d.Parent = []Change{{Name: "a", Data: []byte("three")}}, ""
	if got, err := th.Save(ctx, d); !errors.Is(err, ErrUnknownParent) {
		t.Errorf("a change on a state that is gone: %+v, %v", got, err)
	}
	d.Keep = false
	replaced := mustSave(t, f, ref, d)
	if replaced.Parent != "p" || replaced.Seq != 3 {
		t.Errorf("replaced: %+v", replaced)
	}
	if _, err := th.Save(ctx, Draft{Parent: "p"}); !errors.Is(err, ErrUnknownParent) {
		t.Errorf("a save on a parent that was pruned: %v", err)
	}
}

// A checkpoint whose parent leaves no record is found by all its terms, whatever it shared with the
// parent.
func TestPruneMovesIndexEntries(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(7, 8))
	f := newFixture(t, Options{})
	ref := testRef("t")
	for range 4 {
		mustSave(t, f, ref, unlike(r, Draft{RunID: "run", Status: StatusFailed, Labels: map[string]string{"k": "v"}}))
	}
	if n := keysOf(t, f, space.KindIndex); n != 3 {
		t.Fatalf("%d index entries at first", n)
	}
	if rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1}); rep.Ghosts != 0 {
		t.Fatal("there are ghosts: the test wants stubs")
	}
	for _, q := range []Filter{{Status: StatusFailed}, {RunID: "run"}, {Labels: map[string]string{"k": "v"}}} {
		n := 0
		for _, err := range f.User("acme", "alice").Query(ctx, Query{Filter: q}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("%+v finds %d", q, n)
		}
	}
	if n := keysOf(t, f, space.KindIndex); n != 3 {
		t.Errorf("%d index entries in the end", n)
	}
}

// A ghost keeps its attributes, even without dependents, because others are compared with them. It
// need not restore any more, and its children must cope with that.
func TestGhostsInPart(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	f := newFixture(t, Options{})
	ref := testRef("t")
	first := unlike(r, Draft{ID: "1", Labels: map[string]string{"l": "v"}})
	first.Channels = append(first.Channels, Change{Name: "b", Data: words(r, 3000)})
	mustSave(t, f, ref, first)
	mustSave(t, f, ref, Draft{ID: "2", Keep: true, Channels: []Change{{Name: "a", Data: words(r, 3000)}}}) // its attributes and b stay in 1
	third := unlike(r, Draft{ID: "3", Keep: true, Channels: []Change{{Name: "b", Data: words(r, 3000)}}})
	third.Channels = third.Channels[:1]
	mustSave(t, f, ref, third) // a stays in 2
	if rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1}); rep.Ghosts != 2 {
		t.Fatalf("%d ghosts, want 1 for the attributes of 2, and 2 for its a", rep.Ghosts)
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})

	// Now one with attributes of its own, so that nothing of 4 is needed and 5 is a ghost with no
	// b.
	mustSave(t, f, ref, Draft{ID: "4", Root: true, Channels: []Change{{Name: "b", Data: words(r, 3000)}}})
	fifth := unlike(r, Draft{ID: "5", Keep: true, Labels: map[string]string{"l": "v"}})
	mustSave(t, f, ref, fifth)
	sixth := unlike(r, Draft{ID: "6", Keep: true, Labels: map[string]string{"l": "v"}, Channels: []Change{{Name: "b", Data: words(r, 3000)}}})
	sixth.Channels = sixth.Channels[:1]
	mustSave(t, f, ref, sixth)
	if rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1}); rep.Ghosts != 1 {
		t.Fatalf("%d ghosts, want 5", rep.Ghosts)
	}
	again := mustSave(t, f, ref, sixth)
	if again.Seq != 6 {
		t.Errorf("saved again: %+v", again)
	}
	replaced := mustSave(t, f, ref, Draft{ID: "6", Labels: map[string]string{"l": "v"}, Channels: []Change{{Name: "b", Data: []byte("else")}}})
	if replaced.Parent != "5" || replaced.ParentSeq != 5 {
		t.Errorf("replaced: %+v", replaced)
	}
	mustSave(t, f, ref, Draft{Root: true})
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	if rep := mustGC(t, f, upkeep.GCOptions{}); rep.IndexEntries != 0 || keysOf(t, f, space.KindIndex) != 0 {
		t.Errorf("index entries are left: %+v, %d", rep, keysOf(t, f, space.KindIndex))
	}
}

// States of removed checkpoints are dropped from memory.
func TestPruneForgets(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	mustSave(t, f, ref, Draft{Root: true})
	mustSave(t, f, ref, Draft{Root: true})
	if _, err := f.Thread(ref).Load(ctx, AtSeq(1)); err != nil {
		t.Fatal(err)
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	if cp, err := f.Thread(ref).Load(ctx, AtSeq(1)); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %+v, %v", cp, err)
	}
}

func TestPruneDropsPendingWritesAndEntries(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	for i := range 10 {
		id := fmt.Sprintf("id-%d", i)
		mustSave(t, f, ref, Draft{ID: id, Status: StatusFailed, RunID: "run", Labels: map[string]string{"k": fmt.Sprint(i)}})
		putWrites(t, f, ref, id, "task", []byte("result of "+id))
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 2})
	kinds := map[byte]int{}
	for key := range dump(t, f.be) {
		kinds[key[space.PrefixLen-1]]++
	}
	if kinds[space.KindWrites] != 2*2 || kinds[space.KindID] != 2 {
		t.Errorf("left are %d writes and %d id entries", kinds[space.KindWrites], kinds[space.KindID])
	}
	for _, q := range []Filter{{Status: StatusFailed}, {RunID: "run"}, {Labels: map[string]string{"k": "8"}}} {
		n := 0
		for cp, err := range f.User(ref.Tenant, ref.User).Query(ctx, Query{Filter: q}) {
			if err != nil || cp.Seq < 9 {
				t.Fatalf("%+v found %+v, %v", q, cp, err)
			}
			n++
		}
		if want := 2 - len(q.Labels); n != want {
			t.Errorf("%+v found %d, want %d", q, n, want)
		}
	}
}

func putWrites(t testing.TB, f *fixture, ref Ref, id, task string, data []byte) {
	t.Helper()
	w := []Write{{Channel: "out", Type: "bytes", Data: data}}
	if _, err := f.Thread(ref).PutWrites(context.Background(), id, task, "", Upsert, w, 0); err != nil {
		t.Fatal(err)
	}
}

func TestDeleteRun(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	u := f.User("acme", "alice")
	a, b, c := testRef("a"), testRef("b"), testRef("c")
	b.Namespace = "sub"
	root := mustSave(t, f, a, Draft{RunID: "one", Channels: []Change{{Name: "x", Data: []byte("1")}}})
	two := mustSave(t, f, a, Draft{RunID: "two", Keep: true, Branch: "main"})
	mustSave(t, f, a, Draft{RunID: "two", Keep: true, Branch: "side", Labels: map[string]string{LabelPin: ""}})
	mustSave(t, f, a, Draft{RunID: "two", Root: true, Branch: "alone"})
	mustSave(t, f, b, Draft{RunID: "two"})
	mustSave(t, f, c, Draft{RunID: "three"})
	newest := mustSave(t, f, a, Draft{Root: true, RunID: "four"})
	n, _, err := u.Upkeep().DeleteRun(ctx, "two")
	if err != nil || n != 4 {
		t.Fatalf("removed %d, %v", n, err)
	}
	next := mustSave(t, f, a, Draft{Branch: "side", Keep: true}) // where memory has it that the branch ends
	if next.Seq != newest.Seq+1 || next.Parent != root.ID || next.ID == two.ID {
		t.Errorf("next is %+v", next)
	}
	f.reopen()
	u = f.User("acme", "alice")
	branches, err := f.Thread(a).Branches(ctx)
	if want := []Branch{{"main", root.ID, 1}, {"side", next.ID, 6}}; err != nil || !cmp.Equal(branches, want) {
		t.Errorf("branches are %+v, %v", branches, err)
	}
	if got := historySeqs(t, f, a); !slices.Equal(got, []uint64{6, 5, 1}) {
		t.Errorf("left are %v", got)
	}
	if _, err := f.Thread(b).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("the thread that was all of the run: %v", err)
	}
	if _, ids := listThreads(t, u, ThreadOptions{}); !slices.Equal(ids, []string{"a", "c"}) {
		t.Errorf("threads are %v", ids)
	}
	if n, _, err := u.Upkeep().DeleteRun(ctx, "one"); n != 2 || err != nil { // next kept the run id
		t.Errorf("removed %d, %v", n, err)
	}
	if cp := mustSave(t, f, a, Draft{}); cp.Seq != 7 || cp.Parent != newest.ID {
		t.Errorf("after the newest went: %+v", cp)
	}
	for _, run := range []string{"two", "none"} {
		if n, _, err := u.Upkeep().DeleteRun(ctx, run); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	}
}
