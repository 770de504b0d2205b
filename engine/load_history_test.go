package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// deltaTree is the oracle: all checkpoints that were ever saved, with their values and writes.
type deltaTree struct {
	nodes map[string]*deltaNode
	order []string
}

type deltaNode struct {
	parent string
	run    string
	values map[string]string
	writes []PendingWrite
}

var deltaChannels = []string{"log", "notes"}

// history renders the history of a channel before a checkpoint, by parent ids.
func (d *deltaTree) history(id, channel string) string {
	var parts []string
	base := ""
	for at := d.nodes[d.nodes[id].parent]; at != nil; at = d.nodes[at.parent] {
		for _, w := range slices.Backward(at.writes) {
			if w.Channel == channel {
				parts = append(parts, string(w.Data))
			}
		}
		if v, ok := at.values[channel]; ok {
			base = v
			break
		}
	}
	slices.Reverse(parts)
	return base + "|" + strings.Join(parts, ",")
}

func renderHistory(h *ChannelHistory) string {
	var parts []string
	for _, a := range h.Writes {
		for _, w := range a.Writes {
			parts = append(parts, string(w.Data))
		}
	}
	base := ""
	if h.Base != nil {
		base = string(h.Base.Data)
	}
	if h.Lost {
		base = "lost " + base
	}
	return base + "|" + strings.Join(parts, ",")
}

// check compares the histories of all checkpoints of a thread with the oracle.
func (d *deltaTree) check(t *testing.T, th *Thread, what string) (left []string) {
	t.Helper()
	for cp, err := range th.History(t.Context(), HistoryOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, cp.ID)
		got, err := th.Load(t.Context(), At(cp.ID), LoadOptions{History: deltaChannels, HeadersOnly: len(left)%2 == 0})
		if err != nil {
			t.Fatalf("%s: %s: %v", what, cp.ID, err)
		}
		for i, name := range deltaChannels {
			if _, has := d.nodes[cp.ID].values[name]; has {
				continue // nothing keeps what came before a value
			}
			if is, want := renderHistory(&got.Histories[i]), d.history(cp.ID, name); is != want {
				t.Fatalf("%s: the history of %s of %s is\n%.300s, want\n%.300s", what, name, cp.ID, is, want)
			}
		}
		ws, err := th.Writes(t.Context(), cp.ID)
		if err != nil || !cmp.Equal(ws, d.nodes[cp.ID].writes) {
			t.Fatalf("%s: writes of %s: %v, %v, want %v", what, cp.ID, ws, err, d.nodes[cp.ID].writes)
		}
	}
	return left
}

// save saves a checkpoint on another one of those that are left.
func (d *deltaTree) save(t *testing.T, r *rand.Rand, th *Thread, left []string, fresh bool) string {
	t.Helper()
	n := &deltaNode{values: map[string]string{}, run: fmt.Sprint("run", r.IntN(6))}
	id := fmt.Sprintf("cp-%03d", len(d.order))
	draft := Draft{ID: id, Root: true, RunID: n.run, Channels: []Change{{Name: "other", Data: words(r, 50+r.IntN(2000))}}}
	if len(left) > 0 && !fresh {
		n.parent = left[r.IntN(min(len(left), 4))]
		draft.Parent, draft.Root = n.parent, false
	}
	for _, name := range deltaChannels {
		if fresh || r.IntN(7) == 0 {
			n.values[name] = fmt.Sprintf("base of %s: %s", id, words(r, 20))
			draft.Channels = append(draft.Channels, Change{Name: name, Data: []byte(n.values[name])})
		} else {
			draft.Delta = append(draft.Delta, name)
		}
	}
	save(t, th, draft)
	d.nodes[id], d.order = n, append(d.order, id)
	return id
}

// put puts writes of some tasks.
func (d *deltaTree) put(t *testing.T, r *rand.Rand, th *Thread, id string) {
	t.Helper()
	n := d.nodes[id]
	for range r.IntN(3) {
		task, path := fmt.Sprintf("t%03d", r.IntN(1000)), fmt.Sprint("p", r.IntN(3))
		var ws []Write
		for i := range 1 + r.IntN(2) {
			name := []string{"log", "notes", "other"}[r.IntN(3)]
			size := 10
			if r.IntN(20) == 0 {
				size = 100_000 // in parts
			}
			ws = append(ws, Write{Index: int64(i), Channel: name, Type: "json", Data: fmt.Appendf(nil, "%s/%s/%d %s", id, task, i, words(r, size))})
		}
		if slices.ContainsFunc(n.writes, func(w PendingWrite) bool { return w.Task == task }) {
			continue
		}
		if _, err := th.PutWrites(t.Context(), id, task, path, Upsert, ws, 0); err != nil {
			t.Fatal(err)
		}
		for _, w := range ws {
			n.writes = append(n.writes, PendingWrite{task, path, w})
		}
	}
	slices.SortStableFunc(n.writes, func(a, b PendingWrite) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Task, b.Task)
	})
}

// The histories of remaining checkpoints are those of all checkpoints that ever were, whatever was
// pruned, erased, labelled, copied or collected; and once nothing stands on the hidden ones, they go.
func TestHistoriesOutlivePrunes(t *testing.T) {
	rounds := 3
	if os.Getenv("CKPTD_LONG") != "" {
		rounds = 20 // some take a minute
	}
	if raceEnabled {
		rounds = 1 // all in one goroutine
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx := context.Background()
			r := rand.New(rand.NewPCG(seed, 16))
			f := newFixture(t, Options{})
			ref := testRef("t")
			d := &deltaTree{nodes: map[string]*deltaNode{}}
			var left []string
			for step := range 60 {
				th := f.Thread(ref)
				what := fmt.Sprint("step ", step)
				switch k := r.IntN(16); {
				case k < 9 || len(left) == 0:
					d.put(t, r, th, d.save(t, r, th, left, len(left) == 0))
				case k == 9:
					d.put(t, r, th, left[r.IntN(len(left))])
				case k < 12:
					o := upkeep.PruneOptions{KeepLast: 1 + r.IntN(4), Erase: r.IntN(3) == 0}
					what = fmt.Sprintf("%s, prune %+v", what, o)
					mustPrune(t, f, ref, o)
				case k == 12:
					if _, err := th.SetLabels(ctx, At(left[r.IntN(len(left))]), map[string]string{"k": what}); err != nil {
						t.Fatal(err)
					}
				case k == 13:
					to := testRef(fmt.Sprint("copy", step))
					if err := th.Copy(ctx, to); err != nil {
						t.Fatal(err)
					}
					ref = to
				case k == 14:
					if _, err := th.Fork(ctx, At(left[r.IntN(len(left))]), what); err != nil {
						t.Fatal(err)
					}
				default:
					mustGC(t, f, upkeep.GCOptions{Grace: -1})
					f.reopen()
				}
				left = d.check(t, f.Thread(ref), what)
				if step%10 == 9 {
					mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
				}
			}
			th := f.Thread(ref)
			bs, err := th.Branches(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bs {
				if err := th.DeleteBranch(ctx, b.Name); err != nil {
					t.Fatal(err)
				}
			}
			last := d.save(t, r, th, nil, true)
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
			if left := d.check(t, f.Thread(ref), "last"); !slices.Equal(left, []string{last}) {
				t.Errorf("left are %v", left)
			}
			v, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true, Tenant: ref.Tenant})
			if err != nil || !v.Clean() {
				t.Fatalf("%+v, %v", v, err)
			}
			l, err := f.Store.rlockThread(ctx, ref, false)
			if err != nil {
				t.Fatal(err)
			}
			defer l.runlockThread()
			page, _, err := f.be.Scan(ctx, l.Writes())
			if err != nil || len(page) != 0 {
				t.Errorf("%d pending writes are left, %v: %s", len(page), err, space.Describe(page[0].Key))
			}
		})
	}
}

func logWrite(t *testing.T, th *Thread, id, data string) {
	t.Helper()
	if _, err := th.PutWrites(t.Context(), id, "task", "", Upsert, []Write{wr(0, "log", data)}, 0); err != nil {
		t.Fatal(err)
	}
}

func wantHistory(t *testing.T, th *Thread, w Which, want string) {
	t.Helper()
	cp, err := th.Load(t.Context(), w, LoadOptions{History: []string{"log"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := renderHistory(&cp.Histories[0]); got != want {
		t.Errorf("the history of %s is %q, want %q", cp.ID, got, want)
	}
}

func logDraft(id, base string) Draft {
	d := Draft{ID: id, Channels: []Change{{Name: "x", Data: []byte(id)}}}
	if base == "" {
		d.Delta = []string{"log"}
	} else {
		d.Channels = append(d.Channels, Change{Name: "log", Data: []byte(base)})
	}
	return d
}

// DeleteRun removes ancestors of its run, hidden or not, with their writes, and says who lost what.
func TestDeleteRunTakesHistories(t *testing.T) {
	for _, hide := range []bool{false, true} {
		for _, erase := range []bool{false, true} {
			f := newFixture(t, Options{})
			ref := testRef("t")
			th := f.Thread(ref)
			for i := range 6 {
				d := logDraft(fmt.Sprint(i), "")
				if i == 0 {
					d = logDraft("0", "base")
				}
				if d.RunID = "keep"; i == 2 {
					d.RunID = "secret"
				}
				save(t, th, d)
				logWrite(t, th, d.ID, "w"+d.ID)
			}
			wantHistory(t, th, At("5"), "base|w0,w1,w2,w3,w4")
			if hide {
				mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 2, Erase: erase})
				wantHistory(t, th, At("5"), "base|w0,w1,w2,w3,w4")
			}
			n, lost, err := f.User("acme", "alice").Upkeep().DeleteRun(t.Context(), "secret")
			left := []string{"5", "4", "3"}
			if hide {
				left = left[:2]
			}
			if err != nil || hide == (n != 0) {
				t.Errorf("removed %d, %v", n, err)
			}
			var ids []string
			for _, l := range lost {
				ids = append(ids, l.ID)
				if l.Thread != "t" || !slices.Equal(l.Channels, []string{"log"}) {
					t.Errorf("lost %+v", l)
				}
			}
			if !slices.Equal(ids, left) {
				t.Errorf("lost %v, want %v", ids, left)
			}
			wantHistory(t, th, At("5"), "lost |w3,w4")
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
			if n, lost, err := f.User("acme", "alice").Upkeep().DeleteRun(t.Context(), "secret"); n != 0 || lost != nil || err != nil {
				t.Errorf("again: %d, %v, %v", n, lost, err)
			}
			f.reopen()
			th = f.Thread(ref)
			wantHistory(t, th, At("5"), "lost |w3,w4")
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
			wantHistory(t, f.Thread(ref), At("5"), "lost |w3,w4")
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		}
	}
}

// A migrated head takes over the writes of the old one: its children's histories have them once.
func TestHistoryThroughMigratedHead(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	th := f.Thread(ref)
	for _, id := range []string{"1", "2"} {
		d := supportDraft(supportV1)
		d.ID, d.Delta = id, []string{"log"}
		save(t, th, d)
		logWrite(t, th, id, "w"+id)
	}
	got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.New.Delta, []string{"log"}) {
		t.Errorf("the migrated head has delta channels %v", got.New.Delta)
	}
	wantHistory(t, th, At(got.New.ID), "|w1")
	if _, err := th.SetLabels(ctx, At(got.New.ID), map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, th, At(got.New.ID), "|w1")
	save(t, th, Draft{ID: "3", Keep: true, SchemaVersion: 4})
	for range 2 {
		wantHistory(t, th, At("3"), "|w1,w2")
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		wantHistory(t, th, At("3"), "|w1,w2")
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
	}
	if err := th.Copy(ctx, testRef("c")); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, f.Thread(testRef("c")), At("3"), "|w1,w2")
}

// The id of a hidden ancestor is free: a checkpoint saved under it, and writes put to it, change no
// history.
func TestHiddenIDIsFree(t *testing.T) {
	f := newFixture(t, Options{})
	ref := testRef("t")
	th := f.Thread(ref)
	for i, base := range []string{"base", "", ""} {
		id := fmt.Sprint(i)
		save(t, th, logDraft(id, base))
		logWrite(t, th, id, "w"+id)
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	logWrite(t, th, "0", "late")
	logWrite(t, th, "1", "late")
	wantHistory(t, th, At("2"), "base|w0,w1")
	again := logDraft("1", "other")
	again.Root = true
	save(t, th, again)
	wantHistory(t, th, At("2"), "base|w0,w1")
	save(t, th, logDraft("3", ""))
	wantHistory(t, th, At("3"), "other|late")
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	wantHistory(t, th, At("3"), "other|late")
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	f.reopen()
	wantHistory(t, f.Thread(ref), At("3"), "other|late")
}

// A parent that is saved after its child is found by its id, also by a prune; ids in a circle end.
func TestHistoryOfDangling(t *testing.T) {
	f := newFixture(t, Options{})
	ref := testRef("t")
	th := f.Thread(ref)
	child := logDraft("child", "")
	child.Parent, child.AllowDangling = "later", true
	save(t, th, child)
	wantHistory(t, th, At("child"), "lost |")
	later := logDraft("later", "base")
	later.Root = true
	save(t, th, later)
	logWrite(t, th, "later", "w")
	wantHistory(t, th, At("child"), "base|w")
	last := logDraft("last", "")
	last.Parent = "child"
	save(t, th, last)
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	wantHistory(t, th, At("last"), "base|w")
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})

	for _, d := range []Draft{{ID: "a", Parent: "b", AllowDangling: true}, {ID: "b", Parent: "a"}} {
		d.Delta = []string{"log"}
		save(t, th, d)
	}
	wantHistory(t, th, At("b"), "|")
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	wantHistory(t, th, At("b"), "|")
}

// What a draft without delta channels keeps stays a delta channel, unless it gets a value.
func TestKeepDelta(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	d := Draft{ID: "1", Delta: []string{"b", "a", "b"}}
	first := save(t, th, d)
	if again := save(t, th, d); again.Seq != first.Seq || !slices.Equal(first.Delta, []string{"a", "b"}) {
		t.Errorf("saved %+v, then %+v", first, again)
	}
	if cp := save(t, th, Draft{Keep: true, Delta: []string{"c"}, Channels: []Change{jsonChannel("a", "1")}}); !slices.Equal(cp.Delta, []string{"b", "c"}) {
		t.Errorf("kept %v", cp.Delta)
	}
	if cp := save(t, th, Draft{Keep: true, Channels: []Change{{Name: "b", Remove: true}}}); !slices.Equal(cp.Delta, []string{"c"}) {
		t.Errorf("kept %v", cp.Delta)
	}
	cp, err := th.SetLabels(t.Context(), Latest, map[string]string{"k": "v"})
	if err != nil || !slices.Equal(cp.Delta, []string{"c"}) {
		t.Errorf("labelled: %v, %v", cp, err)
	}
	if cp := save(t, th, Draft{}); cp.Delta != nil {
		t.Errorf("a whole state has %v", cp.Delta)
	}
	f.reopen()
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// A load pays for histories before it allocates them, and refuses chains without an end in sight.
func TestHistoryIsPaidFor(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, logDraft("0", strings.Repeat("b", 50_000)))
	logWrite(t, th, "0", strings.Repeat("w", 60_000))
	save(t, th, logDraft("1", ""))
	f.reopen()
	th = f.Thread(testRef("t"))
	b := &sumBudget{}
	cp, err := th.Load(WithBudget(t.Context(), b), Latest, LoadOptions{History: []string{"log"}, HeadersOnly: true})
	if err != nil || b.sum < 110_000 {
		t.Errorf("paid for %d bytes of %d: %v", b.sum, cp.Histories[0].Base.Size, err)
	}
	b = &sumBudget{most: 100_000}
	if _, err := th.Load(WithBudget(t.Context(), b), Latest, LoadOptions{History: []string{"log"}}); !errors.Is(err, errBudget) {
		t.Errorf("more than there is: %v", err)
	}
	for _, names := range [][]string{{""}, {"a", "a"}, {"\xff"}, make([]string, maxHistories+1)} {
		if _, err := th.Load(t.Context(), Latest, LoadOptions{History: names}); !errors.Is(err, ErrInvalid) {
			t.Errorf("histories of %.20q: %v", names, err)
		}
	}
}

var errBudget = errors.New("no room")

type sumBudget struct{ sum, most int64 }

func (b *sumBudget) Reserve(n int64) error {
	if b.sum += n; b.most > 0 && b.sum > b.most {
		return errBudget
	}
	return nil
}
func (b *sumBudget) Release(n int64) {}

// failAfter lets some commits through, and fails the others.
type failAfter struct {
	backend.Backend
	left int
}

func (f *failAfter) Commit(ctx context.Context, b backend.Batch) error {
	if f.left--; f.left < 0 {
		return errBudget
	}
	return f.Backend.Commit(ctx, b)
}

// A prune that ends at any commit leaves the histories whole, and the next one completes it, also
// where the writes are too many for one batch.
func TestInterruptedPruneKeepsHistories(t *testing.T) {
	for commits := 0; ; commits++ {
		f := newFixture(t, Options{})
		ref := testRef("t")
		th := f.Thread(ref)
		var want []string
		for i, base := range []string{"base", "", ""} {
			id := fmt.Sprint(i)
			save(t, th, logDraft(id, base))
			for task := range 40 {
				if i == 2 {
					break
				}
				data := fmt.Sprintf("w%d-%02d %s", i, task, words(rand.New(rand.NewPCG(uint64(task), 1)), 30_000))
				if _, err := th.PutWrites(t.Context(), id, fmt.Sprintf("task%02d", task), "", Upsert, []Write{wr(0, "log", data)}, 0); err != nil {
					t.Fatal(err)
				}
				want = append(want, data)
			}
		}
		all := "base|" + strings.Join(want, ",")
		real := f.Store.be
		f.Store.be = &failAfter{real, commits}
		_, err := th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1})
		f.Store.be = real
		f.reopen()
		for range 2 {
			wantHistory(t, f.Thread(ref), At("2"), all)
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
			mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		}
		if t.Failed() {
			t.Fatalf("after %d commits: %v", commits, err)
		}
		if err == nil {
			if commits < 3 {
				t.Errorf("%d commits: the test wants several", commits)
			}
			return
		}
	}
}

// Histories outlive migrations of histories and their undoing, and undone heads.
func TestHistoryThroughMigrations(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	th := f.Thread(ref)
	for i, id := range []string{"0", "1", "2", "3"} {
		d := supportDraft(supportV1)
		if d.ID = id; i == 0 {
			d.Channels = append(d.Channels, Change{Name: "log", Data: []byte("base")})
		} else {
			d.Delta = []string{"log"}
		}
		save(t, th, d)
		logWrite(t, th, id, "w"+id)
	}
	check := func(what string) {
		t.Helper()
		wantHistory(t, f.Thread(ref), At("3"), "base|w0,w1,w2")
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		if t.Failed() {
			t.Fatal(what)
		}
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 2})
	check("pruned")
	if _, err := th.Upkeep().MigrateHistory(ctx, 4, false); err != nil {
		t.Fatal(err)
	}
	check("migrated")
	mustGC(t, f, upkeep.GCOptions{Grace: -1})
	if err := th.Upkeep().RestoreHistory(ctx); err != nil {
		t.Fatal(err)
	}
	check("restored")
	old := mustLoad(t, th, At("3"))
	got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	if err != nil {
		t.Fatal(err)
	}
	wantHistory(t, th, At(got.New.ID), "base|w0,w1,w2")
	if err := th.Upkeep().UndoHead(ctx, old.Seq, got.New.Seq, got.New.Hash); err != nil {
		t.Fatal(err)
	}
	check("head undone")
	mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
	check("pruned again")
	f.reopen()
	check("reopened")
}
