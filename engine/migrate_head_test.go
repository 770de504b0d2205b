package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// visible is a lineage as callers see it.
type lineageView struct {
	Line     []string // described, newest first
	Latest   string
	Greatest string
	Branches []Branch
	Writes   map[string][]PendingWrite
}

func viewOf(t testing.TB, s *Store, ref Ref) lineageView {
	t.Helper()
	ctx := context.Background()
	th := s.Thread(ref)
	v := lineageView{Writes: map[string][]PendingWrite{}}
	for cp, err := range th.History(ctx, HistoryOptions{Data: true}) {
		if err != nil {
			t.Fatal(err)
		}
		v.Line = append(v.Line, fmt.Sprint(cp.ID, " version ", cp.SchemaVersion, " ", describe(cp)))
		if v.Writes[cp.ID], err = th.Writes(ctx, cp.ID); err != nil {
			t.Fatal(err)
		}
	}
	for to, which := range map[*string]Which{&v.Latest: Latest, &v.Greatest: LatestByID()} {
		*to = mustLoad(t, th, which).ID
	}
	var err error
	if v.Branches, err = th.Branches(ctx); err != nil {
		t.Fatal(err)
	}
	return v
}

// mendableHead is a thread of version 1 with all that moves along with its head.
func mendableHead(t testing.TB, f *fixture, ref Ref, ids func(i int) string) *Checkpoint {
	t.Helper()
	var head *Checkpoint
	for i := range 3 {
		d := supportDraft(strings.Replace(supportV1, `"3"`, fmt.Sprintf(`"%d"`, i), 1))
		d.ID, d.Step, d.Branch, d.RunID, d.Status = ids(i), int64(i), "main", "run", StatusInterrupted
		d.Labels, d.Meta, d.TTL = map[string]string{"env": "prod"}, []byte(`{"a":1}`), time.Hour
		head = mustSave(t, f, ref, d)
		for _, task := range []string{"one", "two"} {
			putWrites(t, f, ref, head.ID, task, []byte(task+head.ID))
		}
	}
	for i := range transferInlineKeys { // more than go into one batch
		putWrites(t, f, ref, head.ID, fmt.Sprint("task ", i), []byte("x"))
	}
	if err := f.Thread(ref).SetBranch(context.Background(), "other", At(head.ID)); err != nil {
		t.Fatal(err)
	}
	return head
}

var idKinds = map[string]func(i int) string{
	"own":   func(int) string { return "" },
	"uuid":  func(i int) string { return fmt.Sprintf("1f0a0000-0000-6%03x-8000-ffffffffffff", i) },
	"names": func(i int) string { return fmt.Sprint("c", i) },
}

func TestMigrateHead(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Now: clock.now})
	for kind, ids := range idKinds {
		ref := testRef("thread of " + kind)
		if kind == "names" {
			ref.Namespace = "sub"
		}
		old := mendableHead(t, f, ref, ids)
		th := f.Thread(ref)
		before := viewOf(t, f.Store, ref)
		expires := expiryOf(t, f, ref)
		clock.ms += 1_000_000
		entries := allEntries(t, f.be)
		dry, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4, DryRun: true})
		if err != nil || dry.New != nil || len(dry.Steps) != 3 || dry.Old.ID != old.ID || !sameEntries(entries, allEntries(t, f.be)) {
			t.Fatalf("%s: dry run: %+v, %v", kind, dry, err)
		}
		got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
		if err != nil {
			t.Fatal(err)
		}
		now := got.New
		if now.Parent != old.ID || now.ID <= old.ID || now.Step != old.Step || now.Status != old.Status || now.RunID != "run" || now.Branch != "main" ||
			now.SchemaVersion != 4 || now.Kind != "support" || now.Labels["env"] != "prod" || now.Labels["schema"] != "three" {
			t.Errorf("%s: migrated head is %+v", kind, now)
		}
		for range 2 {
			v := viewOf(t, f.Store, ref)
			if v.Latest != now.ID || v.Greatest != now.ID || len(v.Line) != 4 || !strings.Contains(valueOf(mustLoad(t, f.Thread(ref), Latest), "state"), `"attempts": 2`) {
				t.Errorf("%s: after it: %.2000v", kind, v.Line)
			}
			for _, b := range v.Branches {
				if b.HeadID != now.ID {
					t.Errorf("%s: branch %s ends at %s", kind, b.Name, b.HeadID)
				}
			}
			if diff := cmp.Diff(before.Writes[old.ID], v.Writes[now.ID]); diff != "" || len(v.Writes[now.ID]) != 2+transferInlineKeys {
				t.Errorf("%s: writes moved wrongly:\n%s", kind, diff)
			}
			f.reopen()
		}
		if e := expiryOf(t, f, ref); e != expires {
			t.Errorf("%s: the thread expires %v, was %v", kind, e, expires)
		}
		th = f.Thread(ref)
		if again, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4}); err != nil || again.New != nil || again.Old.ID != now.ID {
			t.Errorf("%s: again: %+v, %v", kind, again, err)
		}
		for range 2 {
			if err := th.Upkeep().UndoHead(ctx, old.Seq, now.Seq, now.Hash); err != nil {
				t.Fatal(err)
			}
			for _, s := range []func(){func() {}, f.reopen} {
				s()
				if diff := cmp.Diff(before, viewOf(t, f.Store, ref)); diff != "" {
					t.Errorf("%s: undone (-before +after):\n%s", kind, diff)
				}
			}
			th = f.Thread(ref)
		}
		if ws, err := th.Writes(ctx, now.ID); len(ws) != 0 || err != nil {
			t.Errorf("%s: writes that moved are left: %d, %v", kind, len(ws), err)
		}
		if _, err := th.Load(ctx, At(now.ID)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: the migrated head: %v", kind, err)
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		redone, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
		if err != nil || redone.New.Seq != now.Seq+1 {
			t.Errorf("%s: migrated after the undo: %+v, %v", kind, redone, err)
		}
		next, err := th.Save(ctx, Draft{SchemaVersion: 4, Keep: true})
		if err != nil || next.Parent != redone.New.ID {
			t.Errorf("%s: saved on it: %+v, %v", kind, next, err)
		}
	}
}

func expiryOf(t testing.TB, f *fixture, ref Ref) (at time.Time) {
	t.Helper()
	for info, err := range f.User(ref.Tenant, ref.User).Threads(context.Background(), ThreadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Ref.Thread == ref.Thread {
			at = info.Expires
		}
	}
	return at
}

// Every head of a lineage, the oldest first: each branch continues where it was, and the newest one
// stays the latest.
func TestMigrateHeadsOfBranches(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	th := f.Thread(ref)
	root := mustSave(t, f, ref, supportDraft(supportV1))
	side := supportDraft(strings.Replace(supportV1, `"3"`, `"5"`, 1))
	side.Branch = "side"
	mustSave(t, f, ref, side)
	main := supportDraft(supportV1)
	main.Parent = root.ID
	mustSave(t, f, ref, main)
	before := viewOf(t, f.Store, ref)
	a, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{Branch: "side", To: 4})
	if err != nil || a.New.Seq != 4 || a.New.Branch != "side" {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{Branch: "none", To: 4}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a branch that is not there: %v", err)
	}
	cp := mustLoad(t, th, HeadOf("side"))
	if !strings.Contains(valueOf(cp, "state"), `"attempts": 5`) || cp.ID != a.New.ID {
		t.Errorf("the branch ends at %s", valueOf(cp, "state"))
	}
	if err := th.Upkeep().UndoHead(ctx, a.Old.Seq, a.New.Seq, a.New.Hash); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, viewOf(t, f.Store, ref)); diff != "" {
		t.Errorf("undone:\n%s", diff)
	}
}

// A save during the steps is not overtaken, and a child of a migrated head prevents its undoing.
func TestMigrateHeadConflicts(t *testing.T) {
	ctx := context.Background()
	var f *fixture
	ref := testRef("t")
	meddle := func() {}
	step := migrate.Go(1, 2, "", func(doc map[string]any) (map[string]any, error) {
		meddle()
		meddle = func() {}
		return doc, nil
	})
	set, err := migrate.NewSet(ctx, migrate.Spec{Kind: "support", Steps: []migrate.Step{step}})
	if err != nil {
		t.Fatal(err)
	}
	f = newFixture(t, Options{Migrations: only(set)})
	mustSave(t, f, ref, supportDraft(supportV1))
	th := f.Thread(ref)
	meddle = func() { mustSave(t, f, ref, supportDraft(`{"by":"another"}`)) }
	var conflict *ConflictError
	if _, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 2}); !errors.As(err, &conflict) || conflict.HeadSeq != 2 {
		t.Fatalf("a save meanwhile: %v, want a conflict at seq 2", err)
	}
	// Writes that come while the steps run move along.
	meddle = func() { putWrites(t, f, ref, mustLoad(t, th, Latest).ID, "late", []byte("x")) }
	got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 2})
	if err != nil {
		t.Fatal(err)
	}
	if ws, err := th.Writes(ctx, got.New.ID); err != nil || len(ws) != 1 {
		t.Errorf("late writes: %v, %v", ws, err)
	}
	putWrites(t, f, ref, got.New.ID, "more", []byte("y"))
	if err := th.Upkeep().UndoHead(ctx, 2, 3, got.New.Hash); !errors.Is(err, ErrConflict) {
		t.Errorf("with writes: %v", err)
	}
	v := viewOf(t, f.Store, ref)
	mustSave(t, f, ref, Draft{SchemaVersion: 2, Keep: true})
	if err := th.Upkeep().UndoHead(ctx, 2, 3, got.New.Hash); !errors.Is(err, ErrConflict) {
		t.Errorf("with a child: %v", err)
	}
	if now := viewOf(t, f.Store, ref); !cmp.Equal(now.Line[1:], v.Line) {
		t.Error("an undo that was refused changed something")
	}
	for _, seqs := range [][2]uint64{{1, 3}, {1, 2}, {2, 9}} {
		if err := th.Upkeep().UndoHead(ctx, seqs[0], seqs[1], got.New.Hash); err == nil {
			t.Errorf("undoing %v succeeded", seqs)
		}
	}
}

func TestMigrateHeadPassesHooks(t *testing.T) {
	hooks := &testHooks{}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Hooks: hooks})
	ref := testRef("t")
	mustSave(t, f, ref, supportDraft(supportV1))
	chain := &testChain{ids: []hook.Identity{{Name: "h"}}, run: func(_ context.Context, c *hook.Call) error {
		for i := range c.Items {
			c.Items[i].Data = []byte(strings.ReplaceAll(string(c.Items[i].Data), `"plain"`, `"hooked"`))
		}
		return nil
	}}
	hooks.set(hook.PreSave, chain)
	got, err := f.Thread(ref).Upkeep().MigrateHead(context.Background(), upkeep.HeadMigration{To: 4})
	if err != nil {
		t.Fatal(err)
	}
	cp := mustLoad(t, f.Thread(ref), Latest)
	if len(got.New.Hooks) != 1 || !strings.Contains(valueOf(cp, "state"), "hooked") || cp.SchemaVersion != 4 {
		t.Errorf("%+v: %s", got.New, valueOf(cp, "state"))
	}
	chain.run = func(context.Context, *hook.Call) error { return errors.New("no") }
	mustSaveRaw(t, f, hooks, ref)
	if _, err := f.Thread(ref).Upkeep().MigrateHead(context.Background(), upkeep.HeadMigration{To: 4}); !errors.Is(err, ErrRejected) {
		t.Errorf("a hook that fails: %v", err)
	}
}

// mustSaveRaw saves a state of version 1 without hooks.
func mustSaveRaw(t testing.TB, f *fixture, hooks *testHooks, ref Ref) {
	t.Helper()
	chain := hooks.chains[hook.PreSave]
	hooks.set(hook.PreSave, nil)
	mustSave(t, f, ref, supportDraft(supportV1))
	hooks.set(hook.PreSave, chain)
}

// Every commit of a migration and of its undoing fails once, before or after it took effect: the
// head is wholly the old or wholly the new one, with its writes, branches and ids, and a repetition
// succeeds.
func TestMigrateHeadFaults(t *testing.T) {
	for kind, ids := range idKinds {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t, Options{Migrations: only(supportSet(t))})
			ref := testRef("t")
			old := mendableHead(t, f, ref, ids)
			migrateWithFaults(t, f, ref, old)
		})
	}
}

// The same with more branches than fit into a batch.
func TestMigrateHeadOfManyBranchesFaults(t *testing.T) {
	runsAlone(t)
	for kind, ids := range idKinds {
		if testing.Short() && kind != "names" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t, Options{Migrations: only(supportSet(t))})
			ref := testRef("t")
			old := mendableHead(t, f, ref, ids)
			for i := range 2 * backend.MaxBatchKeys {
				if err := f.Thread(ref).SetBranch(context.Background(), fmt.Sprint("b", i), At(old.ID)); err != nil {
					t.Fatal(err)
				}
			}
			migrateWithFaults(t, f, ref, old)
		})
	}
}

func migrateWithFaults(t *testing.T, f *fixture, ref Ref, old *Checkpoint) {
	w := &faultWorld{f: f, entries: allEntries(t, f.be)}
	before := viewOf(t, f.Store, ref)
	for _, p := range faultPlans {
		if p.plan.Ops != backendtest.OpCommit {
			continue
		}
		for k := 0; ; k++ {
			plan := p.plan
			plan.After = k
			if !migrateWithFault(t, w, ref, old, before, plan) || t.Failed() {
				break
			}
		}
	}
}

// migrateWithFault reports whether a call failed.
func migrateWithFault(t *testing.T, w *faultWorld, ref Ref, old *Checkpoint, before lineageView, plan backendtest.Plan) bool {
	ctx := context.Background()
	b := newBed(t, w)
	defer b.Close()
	th := b.Thread(ref)
	b.fault.Arm(plan)
	_, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	fired := b.fault.Fired() > 0
	b.fault.Disarm()
	if fired != (err != nil) {
		t.Errorf("call %d failed: %v, error: %v", plan.After, fired, err)
	}
	b.oneOfBoth(ref, old, before)
	if _, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4}); err != nil {
		t.Errorf("again: %v", err)
	}
	now := b.oneOfBoth(ref, old, before)
	if now.ID == old.ID {
		t.Error("again: it is still the old one")
	}
	b.fault.Arm(plan)
	err = th.Upkeep().UndoHead(ctx, old.Seq, now.Seq, now.Hash)
	firedToo := b.fault.Fired() > 0
	b.fault.Disarm()
	if firedToo != (err != nil) {
		t.Errorf("undo: call %d failed: %v, error: %v", plan.After, firedToo, err)
	}
	b.oneOfBoth(ref, old, before)
	if err := th.Upkeep().UndoHead(ctx, old.Seq, now.Seq, now.Hash); err != nil {
		t.Errorf("undo again: %v", err)
	}
	v := b.view()
	defer v.Close()
	if diff := cmp.Diff(before, viewOf(t, v, ref)); diff != "" {
		t.Errorf("undone:\n%s", diff)
	}
	mustBeClean(t, v, upkeep.VerifyOptions{Deep: true})
	return fired || firedToo
}

// oneOfBoth checks that the head is the old one or its migration, in memory and on disk, and
// returns it.
func (b *bed) oneOfBoth(ref Ref, old *Checkpoint, before lineageView) *Checkpoint {
	b.t.Helper()
	v := b.view()
	defer v.Close()
	mustBeClean(b.t, v, upkeep.VerifyOptions{})
	is := viewOf(b.t, v, ref)
	if diff := cmp.Diff(is, viewOf(b.t, b.Store, ref)); diff != "" {
		b.t.Errorf("the store has in mind another thing than its data:\n%s", diff)
	}
	head := mustLoad(b.t, v.Thread(ref), Latest)
	if head.ID == old.ID {
		if diff := cmp.Diff(before, is); diff != "" {
			b.t.Errorf("the old head is not as it was:\n%s", diff)
		}
		return head
	}
	same := head.SchemaVersion == 4 && is.Greatest == head.ID && cmp.Equal(is.Line[1:], before.Line) &&
		cmp.Equal(is.Writes[head.ID], before.Writes[old.ID]) && cmp.Equal(is.Writes[old.ID], before.Writes[old.ID])
	for _, br := range is.Branches {
		same = same && br.HeadID == head.ID
	}
	if !same {
		b.t.Errorf("the new head is not whole: %s", is.Line[0])
	}
	return head
}

func benchmarkMigrateHead(b *testing.B, dry bool) {
	f := newFixture(b, Options{Migrations: only(supportSet(b))})
	d := supportDraft(strings.Replace(supportV1, `"en"`, `"`+strings.Repeat("some words ", 1800)+`"`, 1))
	th := f.Thread(testRef("t"))
	mustSave(b, f, testRef("t"), d)
	for b.Loop() {
		got, err := th.Upkeep().MigrateHead(b.Context(), upkeep.HeadMigration{To: 4, DryRun: dry})
		if err == nil && !dry {
			err = th.Upkeep().UndoHead(b.Context(), got.Old.Seq, got.New.Seq, got.New.Hash)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMigrateHeadDry(b *testing.B)     { benchmarkMigrateHead(b, true) }
func BenchmarkMigrateHeadAndUndo(b *testing.B) { benchmarkMigrateHead(b, false) }

// Programs save while heads are migrated up and down and undone, and histories are rewritten and
// restored: every acknowledged save exists, with its number in the head.
func TestMigrateWhileSaving(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(sayingSet(t)), CacheBytes: 256 << 10})
	ref := testRef("t")
	mustSave(t, f, ref, Draft{Kind: "saying", SchemaVersion: 1, Channels: []Change{jsonChannel("state", saying{}.at(1)["state"])}})
	var saved atomic.Int64
	var writers, migrators sync.WaitGroup
	done := make(chan struct{})
	for writer := range 3 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(writer), 3))
			for range 60 {
				version := 1 + r.Uint64N(4)
				on, err := f.Thread(ref).Load(ctx, Latest, LoadOptions{Schema: version, Down: true})
				if err != nil {
					t.Error(err)
					return
				}
				s := parseSaying(t, on)
				s.n++
				_, err = say(t, f.Thread(ref), r, on, s, version, ExpectHead(on.Seq))
				switch {
				case err == nil:
					saved.Add(1)
				case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNeedFull):
					t.Error(err)
				}
			}
		})
	}
	allowed := func(err error) {
		if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	migrators.Go(func() {
		r := rand.New(rand.NewPCG(7, 7))
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			got, err := f.Thread(ref).Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 1 + r.Uint64N(4), Down: true})
			if allowed(err); err == nil && got.New != nil && n%2 == 0 {
				allowed(f.Thread(ref).Upkeep().UndoHead(ctx, got.Old.Seq, got.New.Seq, got.New.Hash))
			}
			if n%20 == 0 {
				_, err := f.Thread(ref).Upkeep().MigrateHistory(ctx, 1+r.Uint64N(4), true)
				if allowed(err); n%40 == 0 {
					allowed(f.Thread(ref).Upkeep().RestoreHistory(ctx))
				}
				allowed(f.Thread(ref).Upkeep().DropHistory(ctx))
			}
		}
	})
	writers.Wait()
	close(done)
	migrators.Wait()
	if s := parseSaying(t, mustLoad(t, f.Thread(ref), Latest)); int64(s.n) != saved.Load() || s.n == 0 {
		t.Errorf("the head says %d after %d saves", s.n, saved.Load())
	}
	for cp, err := range f.Thread(ref).History(ctx, HistoryOptions{Data: true}) {
		if err != nil {
			t.Fatal(err)
		}
		parseSaying(t, cp)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// A checkpoint saved after a failed migration is not one at which branches of the head end.
func TestSaveAfterAFailedMigrationOfManyBranches(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	old := mendableHead(t, f, ref, idKinds["names"])
	for i := range 2 * backend.MaxBatchKeys {
		if err := f.Thread(ref).SetBranch(ctx, fmt.Sprint("b", i), At(old.ID)); err != nil {
			t.Fatal(err)
		}
	}
	w := &faultWorld{f: f, entries: allEntries(t, f.be)}
	for _, p := range faultPlans {
		for k, fired := 0, true; fired && !t.Failed(); k++ {
			plan := p.plan
			plan.After = k
			b := newBed(t, w)
			th := b.Thread(ref)
			l, err := b.refLineage(ctx, ref, false) // as another call does that waits meanwhile
			if err != nil {
				t.Fatal(err)
			}
			b.fault.Arm(plan)
			_, err = th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
			fired = b.fault.Fired() > 0
			b.fault.Disarm()
			if err == nil {
				continue
			}
			want, err := th.Branches(ctx)
			if err != nil {
				t.Fatal(err)
			}
			cp, err := th.Save(ctx, Draft{Root: true, Channels: []Change{{Name: "x", Data: []byte("other")}}})
			if err != nil {
				t.Fatal(err)
			}
			v := b.view()
			got, err := v.Thread(ref).Branches(ctx)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s, call %d: after seq %d was saved: %v\n%.500s", p.name, k, cp.Seq, err, diff)
			}
			mustBeClean(t, v, upkeep.VerifyOptions{Deep: true})
			b.unrefLineage(l)
			v.Close()
			b.Close()
		}
	}
}
