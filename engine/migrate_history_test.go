package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/hook"
)

// storied makes a thread of version 1 with all that a history can have, in two namespaces, which it
// returns.
func storied(t testing.TB, f *fixture) []Ref {
	t.Helper()
	ctx := context.Background()
	ref, sub := testRef("t"), testRef("t")
	sub.Namespace = "sub"
	blob, _, err := f.User("acme", "alice").PutBlob(ctx, bytes.NewReader(noiseBytes(10_000)))
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []Ref{ref, sub} {
		var ids []string
		for i := range 8 {
			d := supportDraft(strings.Replace(supportV1, `"3"`, fmt.Sprintf(`"%d"`, i), 1))
			d.Channels = append(d.Channels, Change{Name: "large", Data: noiseBytes(70_000)})
			d.Labels, d.RunID, d.Step = map[string]string{"n": fmt.Sprint(i / 3)}, fmt.Sprint("run", i/4), int64(i)
			if i%3 == 0 {
				d.ID = fmt.Sprint("c", i)
			}
			if i == 5 {
				d.Parent, d.Branch, d.Blobs = ids[1], "side", []BlobID{blob}
			}
			ids = append(ids, mustSave(t, f, ref, d).ID)
		}
		if _, err := f.Thread(ref).SetLabels(ctx, At("c3"), map[string]string{"seen": "yes"}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{ids[2]}}); err != nil {
			t.Fatal(err)
		}
		putWrites(t, f, ref, ids[7], "task", noiseBytes(100_000))
	}
	return []Ref{ref, sub}
}

// placesOf lists the properties that a migration does not change, in order of seq: a replaced
// checkpoint is seen in its old place only as long as its ghost remains.
func placesOf(t testing.TB, s *Store, ref Ref) (out []string) {
	t.Helper()
	for cp, err := range s.Thread(ref).History(context.Background(), HistoryOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		delete(cp.Labels, "schema")
		out = append(out, fmt.Sprintf("%03d ", cp.Seq)+fmt.Sprint(cp.ID, cp.Parent, cp.ParentSeq, cp.Branch, cp.Time, cp.Step, cp.Status, cp.Kind, cp.RunID, cp.Labels, cp.Blobs))
	}
	slices.Sort(out)
	return out
}

func found(t testing.TB, s *Store, label string) (ids []string) {
	t.Helper()
	for cp, err := range s.User("acme", "alice").Query(context.Background(), Query{Filter: Filter{Labels: map[string]string{"schema": label}}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cp.ID)
	}
	return ids
}

func TestMigrateHistory(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	refs := storied(t, f)
	th := f.Thread(refs[0])
	views, places, lazy := map[Ref]lineageView{}, map[Ref][]string{}, map[string]string{}
	for _, ref := range refs {
		views[ref], places[ref] = viewOf(t, f.Store, ref), placesOf(t, f.Store, ref)
		for cp, err := range f.Thread(ref).History(ctx, HistoryOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			lazy[ref.Namespace+cp.ID] = valueOf(mustLoad(t, f.Thread(ref), At(cp.ID), LoadOptions{Schema: 4}), "state")
		}
	}
	for range 2 {
		got, err := th.Upkeep().MigrateHistory(ctx, 4, false)
		if err != nil || got.Checkpoints != 14 || got.Migrated != 14 {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := th.Upkeep().MigrateHistory(ctx, 4, false); err != nil || *got != (upkeep.HistoryMigrated{}) {
			t.Errorf("again: %+v, %v", got, err)
		}
		if _, err := th.Upkeep().MigrateHistory(ctx, 3, true); !errors.Is(err, ErrConflict) {
			t.Errorf("to another version while something is kept: %v", err)
		}
		if _, err := f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1}); err != nil {
			t.Fatal(err)
		}
		for _, forget := range []func(){func() {}, f.reopen} {
			forget()
			for _, ref := range refs {
				if diff := cmp.Diff(places[ref], placesOf(t, f.Store, ref)); diff != "" {
					t.Errorf("places (-before +after):\n%s", diff)
				}
				v := viewOf(t, f.Store, ref)
				if diff := cmp.Diff(views[ref].Branches, v.Branches); diff != "" || v.Latest != views[ref].Latest || !cmp.Equal(v.Writes, views[ref].Writes) {
					t.Errorf("branches, latest or writes changed:\n%s", diff)
				}
				for cp, err := range f.Thread(ref).History(ctx, HistoryOptions{Data: true}) {
					if err != nil {
						t.Fatal(err)
					}
					if cp.SchemaVersion != 4 || valueOf(cp, "state") != lazy[ref.Namespace+cp.ID] || cp.Labels["schema"] != "three" || len(valueOf(cp, "large")) != 70_000 {
						t.Errorf("%s: version %d, %s", cp.ID, cp.SchemaVersion, valueOf(cp, "state"))
					}
				}
			}
			if ids := found(t, f.Store, "three"); len(ids) != 14 {
				t.Errorf("found by the new label: %v", ids)
			}
			rep := mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
			if rep.Orphans != 0 || rep.Checkpoints != 28 {
				t.Errorf("verified: %+v", rep)
			}
			if st, err := f.Upkeep().Stats(ctx, "acme", "alice"); err != nil || st.Checkpoints != 14 || st.KeptBytes == 0 {
				t.Errorf("stats: %+v, %v", st, err)
			}
		}
		th = f.Thread(refs[0])
		if keeps, err := th.Upkeep().KeepsHistory(ctx); !keeps || err != nil {
			t.Errorf("keeps %v, %v", keeps, err)
		}
		if err := th.Upkeep().RestoreHistory(ctx); err != nil {
			t.Fatal(err)
		}
		for _, forget := range []func(){func() {}, f.reopen} {
			forget()
			for _, ref := range refs {
				if diff := cmp.Diff(views[ref], viewOf(t, f.Store, ref)); diff != "" {
					t.Errorf("restored (-before +after):\n%s", diff)
				}
			}
		}
		th = f.Thread(refs[0])
		if err := th.Upkeep().RestoreHistory(ctx); !errors.Is(err, ErrNotFound) {
			t.Errorf("restored again: %v", err)
		}
		if rep := mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true}); rep.Orphans != 0 || rep.Checkpoints != 14 {
			t.Errorf("verified after the restore: %+v", rep)
		}
	}
}

// A save to the thread prevents restoring its previous history; once dropped, it cannot be
// restored.
func TestRestoreHistoryConflicts(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	for name, change := range map[string]func(f *fixture, refs []Ref){
		"save":      func(f *fixture, refs []Ref) { mustSave(t, f, refs[1], Draft{Keep: true, SchemaVersion: 4}) },
		"writes":    func(f *fixture, refs []Ref) { putWrites(t, f, refs[1], "c0", "other", []byte("x")) },
		"namespace": func(f *fixture, refs []Ref) { r := refs[0]; r.Namespace = "new"; mustSave(t, f, r, Draft{}) },
		"branch": func(f *fixture, refs []Ref) {
			if err := f.Thread(refs[0]).SetBranch(ctx, "side", Latest); err != nil {
				t.Fatal(err)
			}
		},
	} {
		f := newFixture(t, Options{Migrations: only(supportSet(t))})
		refs := storied(t, f)
		th := f.Thread(refs[0])
		if _, err := th.Upkeep().MigrateHistory(ctx, 4, false); err != nil {
			t.Fatal(err)
		}
		change(f, refs)
		before := viewOf(t, f.Store, refs[0])
		if err := th.Upkeep().RestoreHistory(ctx); !errors.Is(err, ErrConflict) || !cmp.Equal(before, viewOf(t, f.Store, refs[0])) {
			t.Errorf("%s: %v, want ErrConflict and no change", name, err)
		}
	}
}

// A collection leaves the parts that only the kept history names, and no epoch is used twice.
func TestKeptHistoryStaysWhole(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	large := strings.Replace(supportV1, "en", base64.StdEncoding.EncodeToString(noiseBytes(100_000)), 1)
	mustSave(t, f, ref, supportDraft(large))
	last := uint64(0)
	for range 3 {
		if _, err := f.Thread(ref).Upkeep().MigrateHistory(ctx, 4, false); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{Grace: -1}); err != nil {
			t.Fatal(err)
		}
		f.reopen()
		l, err := f.rlockThread(ctx, ref, false)
		if err != nil {
			t.Fatal(err)
		}
		rec, _ := l.th.record()
		l.runlockThread()
		if rec.Epoch <= last {
			t.Errorf("epoch %d after %d", rec.Epoch, last)
		}
		last = rec.Epoch
		if err := f.Thread(ref).Upkeep().RestoreHistory(ctx); err != nil {
			t.Fatal(err)
		}
		if valueOf(mustLoad(t, f.Thread(ref), Latest), "state") != large {
			t.Error("the restored state is another one")
		}
	}
}

// No operation that drops data leaves it in the kept history.
func TestKeptHistoryIsDropped(t *testing.T) {
	ctx := context.Background()
	for name, drop := range map[string]func(th *Thread) error{
		"drop": func(th *Thread) error { return th.Upkeep().DropHistory(ctx) },
		"erase": func(th *Thread) error {
			_, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 2, Erase: true})
			return err
		},
		"run": func(th *Thread) error {
			_, _, err := th.s.User("acme", "alice").Upkeep().DeleteRun(ctx, "run0")
			return err
		},
		"delete": func(th *Thread) error { _, err := th.Delete(ctx); return err },
	} {
		f := newFixture(t, Options{Migrations: only(supportSet(t))})
		refs := storied(t, f)
		th := f.Thread(refs[0])
		if _, err := th.Upkeep().MigrateHistory(ctx, 4, false); err != nil {
			t.Fatal(err)
		}
		if err := drop(th); err != nil {
			t.Fatal(err)
		}
		epochs := map[string]bool{}
		for _, e := range allEntries(t, f.be) {
			if space.KindOf(e.Key) >= space.KindRecord && space.KindOf(e.Key) < space.TypeStub {
				epochs[fmt.Sprintf("%x", e.Key[32:36])] = true
			}
		}
		if want := 1; len(epochs) > want || name == "delete" && len(epochs) > 0 {
			t.Errorf("%s: left are the epochs %v", name, epochs)
		}
		if rep := mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true}); rep.Orphans != 0 && name != "delete" {
			t.Errorf("%s: %d orphans", name, rep.Orphans)
		}
		if err := th.Upkeep().RestoreHistory(ctx); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: restored: %v", name, err)
		}
	}
}

func TestMigrateHistoryRefuses(t *testing.T) {
	ctx := context.Background()
	hooks := &testHooks{}
	f := newFixture(t, Options{Migrations: only(supportSet(t)), Hooks: hooks})
	ref := testRef("t")
	mustSave(t, f, ref, supportDraft(supportV1))
	mustSave(t, f, ref, supportDraft(`{"attempts":"many"}`))
	mustSave(t, f, ref, supportDraft(supportV1))
	before := viewOf(t, f.Store, ref)
	_, err := f.Thread(ref).Upkeep().MigrateHistory(ctx, 4, false)
	if !errors.Is(err, ErrMigration) || !strings.Contains(err.Error(), "seq 2") || !strings.Contains(err.Error(), `thread "t"`) {
		t.Errorf("a checkpoint that does not migrate: %v", err)
	}
	hooks.set(hook.PreSave, &testChain{run: func(context.Context, *hook.Call) error { return nil }})
	if _, err := f.Thread(ref).Upkeep().MigrateHistory(ctx, 3, false); !errors.Is(err, ErrRejected) {
		t.Errorf("where hooks run: %v", err)
	}
	if diff := cmp.Diff(before, viewOf(t, f.Store, ref)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

// Every commit fails once: the thread is wholly the old one or wholly the new one, in all its
// namespaces.
func TestMigrateHistoryFaults(t *testing.T) {
	runsAlone(t)
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	refs := storied(t, f)
	w := &faultWorld{f: f, entries: allEntries(t, f.be)}
	old := fmt.Sprint(viewOf(t, f.Store, refs[0]), viewOf(t, f.Store, refs[1]))
	if _, err := f.Thread(refs[0]).Upkeep().MigrateHistory(context.Background(), 4, false); err != nil {
		t.Fatal(err)
	}
	migrated := fmt.Sprint(viewOf(t, f.Store, refs[0]), viewOf(t, f.Store, refs[1]))
	ops := []struct {
		run func(th *Thread) error
		to  string
	}{
		{func(th *Thread) error {
			_, err := th.Upkeep().MigrateHistory(context.Background(), 4, false)
			return err
		}, migrated},
		{func(th *Thread) error { return th.Upkeep().RestoreHistory(context.Background()) }, old},
	}
	for _, p := range faultPlans {
		if p.plan.Ops != backendtest.OpCommit {
			continue
		}
		for i, op := range ops {
			for k, fired := 0, true; fired && !t.Failed(); k++ {
				b := newBed(t, w)
				if i == 1 {
					if err := ops[0].run(b.Thread(refs[0])); err != nil {
						t.Fatal(err)
					}
				}
				plan := p.plan
				plan.After = k
				b.fault.Arm(plan)
				err := op.run(b.Thread(refs[0]))
				fired = b.fault.Fired() > 0
				b.fault.Disarm()
				if fired != (err != nil) {
					t.Errorf("call %d failed: %v, error: %v", k, fired, err)
				}
				v := b.view()
				for _, s := range []*Store{b.Store, v} {
					if is := fmt.Sprint(viewOf(t, s, refs[0]), viewOf(t, s, refs[1])); is != old && is != migrated {
						t.Errorf("%s, call %d: the thread is neither the old nor the new one", p.name, k)
					}
				}
				mustBeClean(t, v, upkeep.VerifyOptions{})
				if err := op.run(v.Thread(refs[0])); err != nil && !(i == 1 && errors.Is(err, ErrNotFound)) {
					t.Errorf("again: %v", err)
				}
				if is := fmt.Sprint(viewOf(t, v, refs[0]), viewOf(t, v, refs[1])); is != op.to {
					t.Errorf("%s, call %d: the repetition has the wrong result", p.name, k)
				}
				if _, err := v.Upkeep().GC(context.Background(), "acme", upkeep.GCOptions{Grace: -1}); err != nil {
					t.Fatal(err)
				}
				if rep := mustBeClean(t, v, upkeep.VerifyOptions{Deep: true}); rep.Orphans != 0 {
					t.Errorf("%d orphans after a collection", rep.Orphans)
				}
				v.Close()
				b.Close()
			}
		}
	}
}

// A checkpoint that is of the version already passes no step, and keeps all that it says.
func TestMigratedHistoryKeepsLabels(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	old, now := supportDraft(supportV1), supportDraft(strings.Replace(supportV1, "user_pref", "preferences", 1))
	old.Labels, now.Labels, now.SchemaVersion = map[string]string{"env": "prod"}, map[string]string{"env": "test"}, 2
	mustSave(t, f, testRef("t"), old)
	mustSave(t, f, testRef("t"), now)
	th := f.Thread(testRef("t"))
	if _, err := th.Upkeep().MigrateHistory(ctx, 2, false); err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]string{1: "prod", 2: "test"} {
		if cp := mustLoad(t, th, AtSeq(seq), LoadOptions{}); cp.Labels["env"] != want || cp.SchemaVersion != 2 {
			t.Errorf("seq %d has the labels %v at version %d", seq, cp.Labels, cp.SchemaVersion)
		}
	}
}
