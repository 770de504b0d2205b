package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
)

func mustLoad(t testing.TB, th *Thread, w Which, o ...LoadOptions) *Checkpoint {
	t.Helper()
	cp, err := th.Load(context.Background(), w, o...)
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

// Labels of a checkpoint change, and nothing else that anyone sees of it, with ids of either kind.
func TestSetLabels(t *testing.T) {
	for _, ids := range []string{"engine's", "caller's", "uuid"} {
		t.Run(ids, func(t *testing.T) { setLabels(t, ids) })
	}
}

func setLabels(t *testing.T, ids string) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	blob, _, err := f.User("acme", "alice").PutBlob(ctx, strings.NewReader("a file"))
	if err != nil {
		t.Fatal(err)
	}
	var cps []*Checkpoint
	for i := range 5 {
		d := Draft{Step: int64(i + 1), Status: "waiting", SchemaVersion: 2, RunID: "run", Branch: "main", Meta: []byte(`{"m":1}`), Blobs: []BlobID{blob},
			Labels: map[string]string{"old": "1", "kept": "x"}, Channels: []Change{jsonChannel("n", fmt.Sprint(i)), {Name: "same", Data: []byte("same")}}}
		switch ids {
		case "caller's":
			d.ID = fmt.Sprint("c", i+1)
		case "uuid":
			d.ID = fmt.Sprintf("1f0aa24e-9c1e-6f3%d-8000-0123456789ab", i)
		}
		cps = append(cps, save(t, th, d))
	}
	for round, want := range []map[string]string{{"kept": "x", "new": "2"}, {"kept": "x", "new": "3"}} {
		before := mustLoad(t, th, At(cps[2].ID))
		cp, err := th.SetLabels(ctx, At(cps[2].ID), map[string]string{"old": "", "new": fmt.Sprint(round + 2)})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got := mustLoad(t, th, At(cps[2].ID))
			if d := cmp.Diff(want, got.Labels); d != "" || cp.Seq != uint64(6+round) || got.Hash != cp.Hash {
				t.Fatalf("round %d: seq %d, labels (-want +got):\n%s", round, cp.Seq, d)
			}
			if d := cmp.Diff(before, got, cmpopts.IgnoreFields(Checkpoint{}, "Seq", "Time", "Hash", "Labels", "Cost"), cmpopts.IgnoreFields(Channel{}, "Version")); d != "" {
				t.Errorf("round %d: the checkpoint changed (-before +after):\n%s", round, d)
			}
			wantPlaces(t, th, cps)
			f.reopen()
			th = f.Thread(testRef("t"))
		}
	}
	// The next save continues where the thread was.
	next := save(t, th, Draft{Expect: ExpectHead(5), Step: 6, Keep: true})
	if next.Parent != cps[4].ID || next.Seq != 8 {
		t.Errorf("the next save is seq %d on %s, want 8 on %s", next.Seq, next.Parent, cps[4].ID)
	}
	// Relabelling the latest leaves it the latest, and the end of its branch.
	for range 2 {
		head, err := th.SetLabels(ctx, HeadOf("main"), map[string]string{"at": "head"})
		if err != nil {
			t.Fatal(err)
		}
		if got := mustLoad(t, th, HeadOf("main")); got.ID != cps[4].ID || got.Labels["at"] != "head" || head.Seq != 9 {
			t.Errorf("branch ends at %s with %v", got.ID, got.Labels)
		}
	}
	last, err := th.SetLabels(ctx, Latest, map[string]string{"at": "last"})
	if err != nil || last.ID != next.ID || last.Seq != 10 {
		t.Fatalf("relabelled %+v, %v", last, err)
	}
	got := save(t, th, Draft{Expect: ExpectHead(10)})
	if got.Parent != next.ID || got.ParentSeq != 10 {
		t.Errorf("the next save is on %s", got.Parent)
	}
	want := []string{got.ID, next.ID, cps[4].ID, cps[3].ID, cps[2].ID, cps[1].ID, cps[0].ID}
	if d := cmp.Diff(want, collectIDs(t, th.History(ctx, HistoryOptions{From: got.ID}))); d != "" {
		t.Errorf("history over replacements (-want +got):\n%s", d)
	}
}

// wantPlaces checks that every way to see the checkpoints of a line shows them where they were
// saved first.
func wantPlaces(t *testing.T, th *Thread, cps []*Checkpoint) {
	t.Helper()
	ctx := context.Background()
	var want []string
	for i := len(cps) - 1; i >= 0; i-- {
		want = append(want, cps[i].ID)
	}
	last := cps[len(cps)-1].ID
	for _, w := range []Which{Latest, LatestByID(), LatestOfRun("run"), HeadOf("main")} {
		if got := mustLoad(t, th, w); got.ID != last {
			t.Errorf("%+v is %s, want %s", w, got.ID, last)
		}
	}
	for i := 1; i < len(cps); i++ {
		if got := mustLoad(t, th, Before(cps[i].ID)); got.ID != cps[i-1].ID {
			t.Errorf("before checkpoint %d is step %d", i+1, got.Step)
		}
	}
	for name, o := range map[string]HistoryOptions{"all": {}, "branch": {Branch: "main"}, "from": {From: last}, "before": {Before: cps[3].ID}, "before itself": {Before: cps[2].ID}, "from before": {From: last, Before: cps[3].ID}} {
		wanted := want
		switch o.Before {
		case cps[3].ID:
			wanted = want[2:]
		case cps[2].ID:
			wanted = want[3:]
		}
		if d := cmp.Diff(wanted, collectIDs(t, th.History(ctx, o))); d != "" {
			t.Errorf("history, %s (-want +got):\n%s", name, d)
		}
	}
	tr, err := th.Tree(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range tr.Nodes {
		if n.ID != cps[i].ID || i > 0 && n.Parent != tr.Nodes[i-1] {
			t.Errorf("node %d of the tree is step %d on %+v", i, n.Step, n.Parent)
		}
	}
}

// A root still has no parent, a dangling parent keeps its name, and a pruned parent suffices.
func TestSetLabelsKeepsParent(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	root := save(t, th, Draft{Channels: []Change{jsonChannel("n", "1")}})
	dangling := save(t, th, Draft{Parent: "nobody", AllowDangling: true, Channels: []Change{jsonChannel("n", "2")}})
	child := save(t, th, aloneOn(root.ID, 3))
	for _, cp := range []*Checkpoint{root, dangling} {
		got, err := th.SetLabels(ctx, At(cp.ID), map[string]string{"a": "b"})
		if err != nil || got.Parent != cp.Parent || got.ParentSeq != cp.ParentSeq {
			t.Errorf("parent of %s became %q, seq %d, %v", cp.ID, got.Parent, got.ParentSeq, err)
		}
	}
	f.reopen()
	rewrite(t, f, testRef("t"), 1, asStub(t, root))
	th = f.Thread(testRef("t"))
	for _, v := range []string{"1", "2", "2"} {
		if _, err := th.SetLabels(ctx, At(child.ID), map[string]string{"a": v}); err != nil {
			t.Fatal(err)
		}
		got := mustLoad(t, th, At(child.ID))
		if got.Labels["a"] != v || got.Parent != root.ID || got.ParentSeq != 1 || len(got.Channels) != 1 || string(got.Channels[0].Data) != "1" {
			t.Errorf("got %+v", got)
		}
		f.reopen()
		th = f.Thread(testRef("t"))
	}
	if head := mustLoad(t, th, Latest); head.ID != child.ID || head.Seq != 7 {
		t.Errorf("latest is %+v", head)
	}
}

func TestSetLabelsBadInput(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	if _, err := th.SetLabels(ctx, Latest, map[string]string{"a": "b"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("labels of nothing: %v", err)
	}
	cp := save(t, th, Draft{Labels: map[string]string{"a": "b"}})
	long := strings.Repeat("x", 257)
	many := map[string]string{}
	for i := range 256 {
		many[fmt.Sprint(i)] = "x"
	}
	for _, labels := range []map[string]string{{"": "x"}, {long: "x"}, {"x": long}, {"\xff": "x"}, {"x": "\xff"}, many} {
		if _, err := th.SetLabels(ctx, Latest, labels); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d labels: %v", len(labels), err)
		}
	}
	for _, labels := range []map[string]string{nil, {"a": "b"}, {"absent": ""}} { // nothing to do
		if got, err := th.SetLabels(ctx, Latest, labels); err != nil || got.Seq != 1 || got.Hash != cp.Hash {
			t.Errorf("labels %v made %+v, %v", labels, got, err)
		}
	}
	if _, err := th.SetLabels(ctx, At("nobody"), map[string]string{"a": "b"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("labels of a checkpoint that does not exist: %v", err)
	}
}

// A save of an id that exists keeps its place as well, and moves a branch only with its head.
func TestReplaceKeepsPlace(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	for i := range 4 {
		d := on(int64(i+1), fmt.Sprint("c", i))
		d.Root, d.Branch = false, "main"
		if i == 0 {
			d.Parent = ""
		}
		save(t, th, d)
	}
	for _, id := range []string{"c2", "c4", "c4", "c2"} {
		d := on(9, "")
		d.ID, d.Root, d.Branch = id, false, "main"
		d.Labels = map[string]string{"n": fmt.Sprint(len(id), f)}
		d.Channels[0].Data = fmt.Appendf(nil, "%q", fmt.Sprint(id, th.s.now().UnixNano()))
		save(t, th, d)
		for range 2 {
			for _, w := range []Which{Latest, HeadOf("main")} {
				if got := mustLoad(t, th, w); got.ID != "c4" {
					t.Errorf("after replacing %s, %+v is %s", id, w, got.ID)
				}
			}
			if d := cmp.Diff([]string{"c4", "c3", "c2", "c1"}, collectIDs(t, th.History(context.Background(), HistoryOptions{}))); d != "" {
				t.Errorf("history (-want +got):\n%s", d)
			}
			f.reopen()
			th = f.Thread(testRef("t"))
		}
	}
	// An engine's id replaced by a save is the same checkpoint, too.
	own := save(t, th, Draft{Step: 5, Channels: []Change{jsonChannel("n", "5")}})
	again := save(t, th, Draft{ID: own.ID, Step: 6, Channels: []Change{jsonChannel("n", "6")}})
	if again.ID != own.ID || again.Parent != "c4" || mustLoad(t, th, At(own.ID)).Step != 6 || mustLoad(t, th, Latest).ID != own.ID {
		t.Errorf("replaced %+v by %+v", own, again)
	}
}

// Labels set while others save the same ids get lost in no save, and no save in them.
func TestSetLabelsRace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	cps := saveLine(t, th, 3)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10 {
				if _, err := th.SetLabels(ctx, At(cps[1].ID), map[string]string{fmt.Sprint("g", g): fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
				if _, err := th.Save(ctx, Draft{Step: int64(g), Keep: true, Branch: fmt.Sprint("b", g)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	f.reopen()
	th = f.Thread(testRef("t"))
	got := mustLoad(t, th, At(cps[1].ID))
	if d := cmp.Diff(map[string]string{"g0": "9", "g1": "9", "g2": "9", "g3": "9"}, got.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if n := len(collectIDs(t, th.History(ctx, HistoryOptions{}))); n != 43 {
		t.Errorf("history has %d checkpoints, want 43", n)
	}
}

func TestSetLabelsFaults(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	fault := backendtest.NewFault(f.be)
	f.be = fault.Backend()
	f.reopen()
	cps := saveLine(t, f.Thread(testRef("t")), 3)
	for k := 0; ; k++ {
		f.reopen()
		th := f.Thread(testRef("t"))
		mustLoad(t, th, Latest)
		fault.Arm(backendtest.Plan{Ops: backendtest.OpAny, After: k, Err: backend.ErrUnavailable})
		_, err := th.SetLabels(ctx, At(cps[0].ID), map[string]string{"a": "b"})
		fault.Disarm()
		if fault.Fired() == 0 {
			if err != nil || k == 0 {
				t.Errorf("fault %d never came: %v", k, err)
			}
			break
		}
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("fault %d: %v", k, err)
		}
		if got := mustLoad(t, th, At(cps[0].ID)); got.Labels != nil || got.Seq != 1 {
			t.Errorf("fault %d left %+v", k, got)
		}
	}
	if got := mustLoad(t, f.Thread(testRef("t")), At(cps[0].ID)); got.Labels["a"] != "b" {
		t.Errorf("labels are %v", got.Labels)
	}
}

// Queries find checkpoints by their current labels: not by those of a replaced one, and still by
// those that children inherited from it.
func TestSetLabelsAndQuery(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	first := save(t, th, Draft{Labels: map[string]string{"env": "prod"}})
	second := save(t, th, Draft{Keep: true})
	third := save(t, th, Draft{Keep: true})
	find := func(key, value string, want ...string) {
		t.Helper()
		for range 2 {
			got := collectIDs(t, f.User("acme", "alice").Query(ctx, Query{Filter: Filter{Labels: map[string]string{key: value}}}))
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s=%s finds %v, want %v", key, value, got, want)
			}
			f.reopen()
			th = f.Thread(testRef("t"))
		}
	}
	relabel := func(cp *Checkpoint, key, value string) {
		t.Helper()
		if _, err := th.SetLabels(ctx, At(cp.ID), map[string]string{key: value}); err != nil {
			t.Fatal(err)
		}
	}
	find("env", "prod", first.ID, second.ID, third.ID)
	relabel(first, "env", "")
	find("env", "prod", second.ID, third.ID)
	relabel(second, "env", "test")
	find("env", "prod", third.ID)
	find("env", "test", second.ID)
	relabel(third, "mark", "x")
	fourth := save(t, th, Draft{Keep: true})
	find("env", "prod", third.ID, fourth.ID)
	find("mark", "x", third.ID, fourth.ID)
	relabel(third, "mark", "")
	find("mark", "x", fourth.ID)
	find("env", "prod", third.ID, fourth.ID)
}

// An id that is given away again after its checkpoint was pruned names another checkpoint, in
// another place.
func TestIDOfPrunedCheckpoint(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, on(1, ""))
	save(t, th, on(2, "c1"))
	save(t, th, on(3, "c2"))
	f.reopen()
	rewrite(t, f, testRef("t"), 2, asGhost(t))
	rewrite(t, f, testRef("t"), 2, func(l *lineage, _ *record) backend.Mut { return backend.Mut{Key: l.IDKey("c2"), Delete: true} })
	th = f.Thread(testRef("t"))
	save(t, th, on(2, "c3"))
	if d := cmp.Diff([]string{"c2", "c3", "c1"}, collectIDs(t, th.History(ctx, HistoryOptions{}))); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	if got := mustLoad(t, th, Before("c3")); got.ID != "c1" {
		t.Errorf("before c3 is %s", got.ID)
	}
}

// A replacement can end another branch than the old one did, and the branch that did moves along.
func TestReplaceOnAnotherBranch(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, Draft{ID: "c1", Branch: "a"})
	if _, err := th.Fork(ctx, At("c1"), "b"); err != nil {
		t.Fatal(err)
	}
	save(t, th, Draft{ID: "c1", Branch: "b", Step: 1})
	for _, b := range []string{"a", "b"} {
		if got := mustLoad(t, th, HeadOf(b)); got.ID != "c1" || got.Seq != 2 {
			t.Errorf("branch %s ends at %s, seq %d", b, got.ID, got.Seq)
		}
	}
}

// A branch moved by a save under way does not return to the replacement of its previous head.
func TestReplaceWhileBranchMoves(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	h := &hooked{Backend: f.be}
	f.be = h
	f.reopen()
	th := f.Thread(testRef("t"))
	save(t, th, Draft{ID: "c1", Branch: "main"})
	replaced := make(chan error)
	h.before = func() {
		go func() {
			_, err := th.Save(ctx, Draft{ID: "c1", Step: 7})
			replaced <- err
		}()
		l, err := f.refLineage(ctx, testRef("t"), false)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.unrefLineage(l)
		for queued := false; !queued; { // behind the save that is being committed
			l.mu.lock(context.Background())
			queued = len(l.queue) > 0
			l.mu.unlock()
			runtime.Gosched()
		}
	}
	next := save(t, th, Draft{Parent: "c1", Branch: "main"})
	if err := <-replaced; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := mustLoad(t, th, HeadOf("main")); got.ID != next.ID {
			t.Errorf("main ends at %s, want %s", got.ID, next.ID)
		}
		if got := mustLoad(t, th, At("c1")); got.Step != 7 {
			t.Errorf("c1 is %+v", got)
		}
		f.reopen()
		th = f.Thread(testRef("t"))
	}
}
