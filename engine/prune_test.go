package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
)

// saveMany saves n checkpoints in a line, each appending to one channel, which starts over now and then, and some
// setting another.
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

func mustPrune(t testing.TB, f *fixture, ref Ref, o PruneOptions) *PruneReport {
	t.Helper()
	rep, err := f.Thread(ref).Prune(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func prunedSeqs(rep *PruneReport) (seqs []uint64) {
	for _, r := range rep.Removed {
		seqs = append(seqs, r.Seq)
	}
	return seqs
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

// dump is what the mem backend holds.
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
		o    PruneOptions
		want []uint64
	}{
		"last":               {PruneOptions{KeepLast: 3}, []uint64{20, 19, 18, 10, 4}},
		"last and labelled":  {PruneOptions{KeepLast: 3, KeepLabelled: true}, []uint64{20, 19, 18, 10, 7, 4}},
		"younger":            {PruneOptions{OlderThan: 4500 * time.Millisecond}, []uint64{20, 19, 18, 17, 16, 10, 4}},
		"either":             {PruneOptions{OlderThan: 2500 * time.Millisecond, KeepLast: 6}, []uint64{20, 19, 18, 17, 16, 15, 10, 4}},
		"all but the newest": {PruneOptions{KeepLast: 1}, []uint64{20, 10, 4}},
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
		o    PruneOptions
		want error
	}{
		"nothing":  {PruneOptions{}, ErrInvalid},
		"negative": {PruneOptions{KeepLast: -1}, ErrInvalid},
		"head":     {PruneOptions{Remove: []string{saved[4].ID}}, ErrInvalid},
		"pinned":   {PruneOptions{Remove: []string{saved[0].ID, saved[1].ID}}, ErrInvalid},
		"branch":   {PruneOptions{Remove: []string{saved[2].ID}}, ErrInvalid},
		"unknown":  {PruneOptions{Remove: []string{saved[0].ID, "nobody"}}, ErrNotFound},
	} {
		if _, err := f.Thread(ref).Prune(ctx, c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Thread(testRef("none")).Prune(ctx, PruneOptions{KeepLast: 1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a thread that is not there: %v", err)
	}
	if !cmp.Equal(dump(t, f.be), before) {
		t.Error("a refused prune changed something")
	}
}

// What stays stands on ghosts; they go when nobody needs them any more, and stubs grow together.
func TestPruneGhostsAndStubs(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	saved := saveMany(t, f, ref, 60)
	rep := mustPrune(t, f, ref, PruneOptions{KeepLast: 2})
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
	again := mustPrune(t, f, ref, PruneOptions{KeepLast: 1})
	if again.Ghosts >= rep.Ghosts {
		t.Errorf("%d ghosts after, %d before", again.Ghosts, rep.Ghosts)
	}
	f.reopen()
	got, err := f.Thread(ref).Load(ctx, Latest)
	if err != nil || got.Parent != saved[len(saved)-1].ID || got.Hash != last.Hash {
		t.Errorf("got %+v, %v", got, err)
	}
	v, err := f.Verify(ctx, VerifyOptions{Deep: true})
	if err != nil || !v.Clean() || v.Checkpoints != 1 || v.Ghosts != again.Ghosts || v.Stubs > v.Ghosts+1 {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

// A stub tells of the parent, and a save again of a child whose parent was pruned is still known as the same one.
func TestSaveAgainAfterPrune(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	th := f.Thread(ref)
	parent := mustSave(t, f, ref, Draft{ID: "p", Channels: []Change{{Name: "a", Data: []byte("one")}, {Name: "b", Data: []byte("other")}}})
	d := Draft{ID: "c", Parent: "p", Keep: true, Channels: []Change{{Name: "a", Data: []byte("two, which is quite another text")}, {Name: "b", Data: []byte("x")}}}
	child := mustSave(t, f, ref, d)
	mustPrune(t, f, ref, PruneOptions{KeepLast: 1})
	for range 2 {
		again, err := th.Save(ctx, d)
		if err != nil || again.Seq != child.Seq || again.Hash != child.Hash {
			t.Errorf("saved again: %+v, %v", again, err)
		}
		got, err := th.Load(ctx, Latest)
		if err != nil || got.Parent != parent.ID || got.Hash != child.Hash {
			t.Errorf("got %+v, %v", got, err)
		}
		f.reopen()
		th = f.Thread(ref)
	}
	d.Channels = d.Channels[:1]
	d.Channels[0].Data = []byte("three")
	if got, err := th.Save(ctx, d); !errors.Is(err, ErrUnknownParent) {
		t.Errorf("a change on a state that is gone: %+v, %v", got, err)
	}
	d.Keep, d.Parent = false, ""
	replaced := mustSave(t, f, ref, d)
	if replaced.Parent != "p" || replaced.Seq != 3 {
		t.Errorf("replaced: %+v", replaced)
	}
	if _, err := th.Save(ctx, Draft{Parent: "p"}); !errors.Is(err, ErrUnknownParent) {
		t.Errorf("a save on a parent that was pruned: %v", err)
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
	mustPrune(t, f, ref, PruneOptions{KeepLast: 2})
	kinds := map[byte]int{}
	for key := range dump(t, f.be) {
		kinds[key[prefixLen-1]]++
	}
	if kinds[kindWrites] != 2 || kinds[kindID] != 2 {
		t.Errorf("left are %d writes and %d id entries", kinds[kindWrites], kinds[kindID])
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

// putWrites stores a pending write as docs/format.md §13 says.
func putWrites(t testing.TB, f *fixture, ref Ref, id, task string, data []byte) {
	t.Helper()
	ctx := context.Background()
	l, err := f.acquire(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	tok := l.th.u.keys.BlindToken("task", task)
	key := append(l.writesPrefix(id), tok[:]...)
	w := codec.Write{Channel: "out", Type: "bytes", Size: uint64(len(data)), Payload: f.z.AppendBlock(nil, data)}
	if len(data) > 1000 {
		ids, muts, err := l.th.u.newParts(ctx, w.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.commitAll(ctx, muts); err != nil {
			t.Fatal(err)
		}
		w.PartBytes, w.Parts, w.Payload = uint64(len(w.Payload)), ids, nil
	}
	plain := codec.AppendWrites(nil, &codec.Writes{Checkpoint: id, Task: task, Writes: []codec.Write{w}})
	value, err := l.th.sealer.Seal(nil, kindWrites, key, plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.commit(ctx, []backend.Mut{{Key: key, Value: value, Version: versionOne}}, nil); err != nil {
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
	n, err := u.DeleteRun(ctx, "two")
	if err != nil || n != 4 {
		t.Fatalf("removed %d, %v", n, err)
	}
	f.reopen()
	u = f.User("acme", "alice")
	got, err := f.Thread(a).Load(ctx, Latest)
	if err != nil || got.ID != root.ID {
		t.Errorf("latest is %+v, %v", got, err)
	}
	branches, err := f.Thread(a).Branches(ctx)
	if want := []Branch{{"main", root.ID, 1}, {"side", root.ID, 1}}; err != nil || !cmp.Equal(branches, want) {
		t.Errorf("branches are %+v, %v", branches, err)
	}
	if _, err := f.Thread(b).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("the thread that was all of the run: %v", err)
	}
	if _, ids := listThreads(t, u, ThreadOptions{}); !slices.Equal(ids, []string{"a", "c"}) {
		t.Errorf("threads are %v", ids)
	}
	next := mustSave(t, f, a, Draft{Keep: true})
	if next.Seq != 5 || next.ParentSeq != 1 || next.ID == two.ID {
		t.Errorf("next is %+v", next)
	}
	for _, run := range []string{"two", "none"} {
		if n, err := u.DeleteRun(ctx, run); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	}
}
