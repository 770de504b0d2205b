package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func nsRef(thread, namespace string) Ref {
	ref := testRef(thread)
	ref.Namespace = namespace
	return ref
}

func mustDelete(t *testing.T, f *fixture, ref Ref) uint64 {
	t.Helper()
	generation, err := f.Thread(ref).Delete(context.Background())
	if err != nil {
		t.Fatalf("deleting %v: %v", ref, err)
	}
	return generation
}

func mustWrite(t *testing.T, f *fixture, ref Ref, id string) {
	t.Helper()
	w := []Write{{Channel: "c", Data: []byte("w")}}
	if _, err := f.Thread(ref).PutWrites(context.Background(), id, "task", "", Upsert, w, 0); err != nil {
		t.Fatal(err)
	}
}

// namespaceKeys counts the keys of a namespace, by kind.
func namespaceKeys(t *testing.T, f *fixture, ref Ref) map[string]int {
	t.Helper()
	u, err := f.Store.user(context.Background(), userName{ref.Tenant, ref.User}, false)
	if err != nil {
		t.Fatal(err)
	}
	ns := (&space.Thread{User: u.User}).Namespace(ref.Namespace).NS
	n := map[string]int{}
	for _, e := range allEntries(t, f.be) {
		if x, ok := space.ParseIndex(e.Key); ok {
			if x.NS == ns {
				n["index"]++
			}
			continue
		}
		if at, ok := space.NamespaceOf(e.Key); ok && at == ns && space.KindOf(e.Key) >= space.KindRecord {
			n[fmt.Sprintf("%#x", space.KindOf(e.Key))]++
		}
	}
	return n
}

// TestDeleteNamespace deletes one namespace of a thread with everything in it, and nothing else.
func TestDeleteNamespace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	root, sub, other := testRef("t"), nsRef("t", "sub"), nsRef("t", "other")
	for _, ref := range []Ref{root, sub, other} {
		for i := range 3 {
			mustSave(t, f, ref, Draft{ID: fmt.Sprint("c", i), RunID: "run", Branch: "main", Labels: map[string]string{"env": "prod"}, Channels: changes(map[string][]byte{"x": []byte("1")})})
			mustWrite(t, f, ref, fmt.Sprint("c", i))
		}
	}
	before, err := f.Thread(sub).Load(ctx, Latest)
	if err != nil {
		t.Fatal(err)
	}
	generation := mustDelete(t, f, sub)
	if generation == before.Generation || threadOf(generation) != 1 {
		t.Errorf("generation %#x after %#x", generation, before.Generation)
	}
	if left := namespaceKeys(t, f, sub); len(left) != 0 {
		t.Errorf("these keys are left: %v", left)
	}
	if _, err := f.Thread(sub).Delete(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted again: %v", err)
	}
	for range 2 {
		if _, err := f.Thread(sub).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
			t.Errorf("loading it: %v", err)
		}
		if ws, err := f.Thread(sub).Writes(ctx, "c1"); err != nil || len(ws) != 0 {
			t.Errorf("its writes are %v, %v", ws, err)
		}
		if bs, err := f.Thread(sub).Branches(ctx); err != nil || len(bs) != 0 {
			t.Errorf("its branches are %v, %v", bs, err)
		}
		if names, err := f.Thread(root).Namespaces(ctx); err != nil || !slices.Equal(names, []string{"", "other"}) {
			t.Errorf("namespaces %q, %v", names, err)
		}
		found := 0
		for cp, err := range f.User("acme", "alice").Query(ctx, Query{Filter: Filter{RunID: "run"}}) {
			if err != nil || cp.Ref == sub {
				t.Errorf("found %v, %v", cp, err)
			}
			found++
		}
		if found != 6 {
			t.Errorf("found %d", found)
		}
		for _, ref := range []Ref{root, other} {
			if cp, err := f.Thread(ref).Load(ctx, HeadOf("main")); err != nil || cp.ID != "c2" {
				t.Errorf("%v: %v", ref, err)
			}
			if ws, err := f.Thread(ref).Writes(ctx, "c1"); err != nil || len(ws) != 1 {
				t.Errorf("%v: writes %v, %v", ref, ws, err)
			}
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		f.reopen()
	}
}

// TestGenerationsOfANamespace follows a namespace through deletions of its own and of its thread,
// with the state in memory and without it: every life has another generation, late writers are
// refused, and those that name the thread only are not.
func TestGenerationsOfANamespace(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			ctx := context.Background()
			f := newFixture(t, Options{})
			root, sub, other := testRef("t"), nsRef("t", "sub"), nsRef("t", "other")
			again := func() {
				if restart {
					f.reopen()
				}
			}
			var earlier []uint64
			check := func(generation, thread uint64) {
				t.Helper()
				again()
				w := []Write{{Channel: "c", Data: []byte("w")}}
				for _, old := range earlier {
					if _, err := f.Thread(sub).Save(ctx, Draft{Generation: old}); !errors.Is(err, ErrGeneration) {
						t.Errorf("a save for generation %#x: %v", old, err)
					}
					if _, err := f.Thread(sub).PutWrites(ctx, "c", "late", "", Upsert, w, old); !errors.Is(err, ErrGeneration) {
						t.Errorf("writes for generation %#x: %v", old, err)
					}
				}
				for _, now := range []uint64{generation, thread, 0} {
					cp, err := f.Thread(sub).Save(ctx, Draft{Generation: now})
					if err != nil || cp.Generation != generation {
						t.Fatalf("a save for generation %#x: %v, %v", now, cp, err)
					}
					if _, err := f.Thread(sub).PutWrites(ctx, cp.ID, "task", "", Upsert, w, now); err != nil {
						t.Fatalf("writes for generation %#x: %v", now, err)
					}
				}
				again()
				cp, err := f.Thread(sub).Load(ctx, Latest)
				if err != nil || cp.Generation != generation || cp.Seq != 3 {
					t.Errorf("loaded %+v, %v", cp, err)
				}
				earlier = append(earlier, generation)
			}
			mustSave(t, f, root, Draft{})
			mustSave(t, f, other, Draft{})
			check(1<<32+1, 1)
			check2 := mustDelete(t, f, sub)
			check(check2, 1)
			mustDelete(t, f, other)
			mustSave(t, f, other, Draft{Generation: 1<<32 + 3})
			cp, err := f.Thread(sub).Load(ctx, Latest)
			if err != nil || cp.Generation != check2 {
				t.Errorf("loaded %+v, %v", cp, err)
			}
			check3 := mustDelete(t, f, sub)
			check(check3, 1)
			if generation := mustDelete(t, f, root); generation != 2 {
				t.Errorf("generation %d", generation)
			}
			earlier = append(earlier, 1)
			check(2<<32+1, 2)
			if cp := mustSave(t, f, root, Draft{Generation: 2<<32 + 1}); cp.Generation != 2 {
				t.Errorf("generation %d", cp.Generation)
			}
			if _, err := f.Thread(root).Save(ctx, Draft{Generation: check3}); !errors.Is(err, ErrGeneration) {
				t.Errorf("a save to the thread for generation %#x: %v", check3, err)
			}
		})
	}
}

// TestNamespaceOfWritesOnly: pending writes begin a namespace, and their life is that of its first
// checkpoint, even if another namespace is deleted in between.
func TestNamespaceOfWritesOnly(t *testing.T) {
	f := newFixture(t, Options{})
	sub, other := nsRef("t", "sub"), nsRef("t", "other")
	mustSave(t, f, testRef("t"), Draft{})
	mustSave(t, f, other, Draft{})
	mustWrite(t, f, sub, "first")
	mustDelete(t, f, other)
	if cp := mustSave(t, f, sub, Draft{ID: "first", CalledFrom: "x"}); cp.Generation != 1<<32+1 {
		t.Errorf("generation %#x", cp.Generation)
	}
	if ws, err := f.Thread(sub).Writes(context.Background(), "first"); err != nil || len(ws) != 1 {
		t.Errorf("writes %v, %v", ws, err)
	}
	mustDelete(t, f, sub)
	mustWrite(t, f, sub, "first")
	if left := namespaceKeys(t, f, sub); left["0x24"] != 1 || left["0x23"] != 2 {
		t.Errorf("keys %v", left)
	}
	mustDelete(t, f, sub)
	if left := namespaceKeys(t, f, sub); len(left) != 0 {
		t.Errorf("keys %v", left)
	}
}

// TestOnlyNamespace: a thread that held nothing but a deleted namespace goes with it.
func TestOnlyNamespace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	sub := nsRef("t", "sub")
	first := mustSave(t, f, sub, Draft{})
	generation := mustDelete(t, f, sub)
	if _, err := f.Thread(testRef("t")).Namespaces(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("the thread: %v", err)
	}
	if _, err := f.Thread(sub).Save(ctx, Draft{Generation: first.Generation}); !errors.Is(err, ErrGeneration) {
		t.Errorf("a late save: %v", err)
	}
	if cp := mustSave(t, f, sub, Draft{Generation: generation}); cp.Generation != generation {
		t.Errorf("generation %#x, want %#x", cp.Generation, generation)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// TestIDsOfTheNextLife: the engine's ids never come twice, though seqs do, at the same time.
func TestIDsOfTheNextLife(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := newFixture(t, Options{Now: func() time.Time { return now }})
	sub := nsRef("t", "sub")
	mustSave(t, f, testRef("t"), Draft{})
	seen := map[string]bool{}
	for life := range 4 {
		for range 3 {
			cp := mustSave(t, f, sub, Draft{})
			if seen[cp.ID] {
				t.Fatalf("id %s came again in life %d", cp.ID, life)
			}
			seen[cp.ID] = true
		}
		if life == 2 {
			f.reopen()
		}
		mustDelete(t, f, sub)
		for id := range seen {
			if _, err := f.Thread(sub).Load(context.Background(), At(id)); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
}

// TestCopyAfterDeletedNamespaces copies and rewrites a thread: lives stay, and the deleted one does
// not come back.
func TestCopyAfterDeletedNamespaces(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	sub, other, late := nsRef("t", "sub"), nsRef("t", "other"), nsRef("t", "late")
	for range 3 {
		mustSave(t, f, testRef("t"), Draft{})
	}
	mustSave(t, f, sub, Draft{})
	mustSave(t, f, other, Draft{CalledFrom: "c"})
	mustDelete(t, f, sub)
	mustSave(t, f, late, Draft{})
	if err := f.Thread(testRef("t")).Copy(ctx, testRef("copy")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Thread(testRef("t")).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true}); err != nil {
		t.Fatal(err)
	}
	for _, thread := range []string{"t", "copy"} {
		names, err := f.Thread(testRef(thread)).Namespaces(ctx)
		if err != nil || !slices.Equal(names, []string{"", "late", "other"}) {
			t.Errorf("%s: namespaces %q, %v", thread, names, err)
		}
		for _, c := range []struct {
			ns   string
			want uint64
		}{{"", 1}, {"other", 1<<32 + 1}, {"late", 1<<32 + 2}} {
			cp, err := f.Thread(nsRef(thread, c.ns)).Load(ctx, Latest)
			if err != nil || cp.Generation != c.want {
				t.Errorf("%s %q: %v, %v", thread, c.ns, cp, err)
			}
		}
		if _, err := f.Thread(nsRef(thread, "other")).Save(ctx, Draft{CalledFrom: "d"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: called from elsewhere: %v", thread, err)
		}
		if _, err := f.Thread(nsRef(thread, "sub")).Save(ctx, Draft{Generation: 1<<32 + 1}); !errors.Is(err, ErrGeneration) {
			t.Errorf("%s: a late save: %v", thread, err)
		}
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// TestCalledFrom: the first save that names a checkpoint decides, durable or not.
func TestCalledFrom(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	sub := nsRef("t", "sub")
	th := f.Thread(sub)
	if _, err := f.Thread(testRef("t")).Save(ctx, Draft{CalledFrom: "a"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("of the unnamed namespace: %v", err)
	}
	mustSave(t, f, sub, Draft{ID: "first"})
	mustSave(t, f, sub, Draft{ID: "second", CalledFrom: "a", Keep: true})
	for range 2 {
		mustSave(t, f, sub, Draft{Keep: true})
		mustSave(t, f, sub, Draft{CalledFrom: "a"})
		if _, err := th.Save(ctx, Draft{CalledFrom: "b"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("another one: %v", err)
		}
		if _, err := th.Save(ctx, Draft{ID: "second", CalledFrom: "b", Keep: true}); !errors.Is(err, ErrInvalid) {
			t.Errorf("another one under the same id: %v", err)
		}
		f.reopen()
		th = f.Thread(sub)
	}
	mustSave(t, f, testRef("t"), Draft{})
	mustDelete(t, f, sub)
	mustSave(t, f, sub, Draft{CalledFrom: "b"})
}

// callTree saves n checkpoints of the thread, each of which called namespaces, and returns their
// ids.
func callTree(t *testing.T, f *fixture, n int, names func(i int) []string) (ids []string) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("root-%03d", i)
		ids = append(ids, id)
		mustSave(t, f, testRef("t"), Draft{ID: id, Channels: changes(map[string][]byte{"x": fmt.Append(nil, i)})})
		for _, name := range names(i) {
			mustSave(t, f, nsRef("t", name), Draft{CalledFrom: id, RunID: "run", Channels: changes(map[string][]byte{"y": fmt.Append(nil, i)})})
			mustSave(t, f, nsRef("t", name), Draft{ID: "last", Keep: true})
			mustWrite(t, f, nsRef("t", name), "last")
		}
	}
	return ids
}

func TestPruneTakesNamespacesAlong(t *testing.T) {
	for _, o := range []upkeep.PruneOptions{{KeepLast: 2}, {KeepLast: 2, Erase: true}, {KeepLast: 2, AllNamespaces: true}, {Remove: []string{"root-000", "root-001", "root-002"}}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			ctx := context.Background()
			f := newFixture(t, Options{})
			callTree(t, f, 5, func(i int) []string { return []string{fmt.Sprint("a", i), fmt.Sprint("a", i, "|b")} })
			late := mustSave(t, f, nsRef("t", "free"), Draft{})
			mustSave(t, f, nsRef("t", "early"), Draft{CalledFrom: "not yet there"})
			th := f.Thread(testRef("t"))
			dry := o
			dry.DryRun = true
			want, err := th.Upkeep().Prune(ctx, dry)
			if err != nil {
				t.Fatal(err)
			}
			if names, err := th.Namespaces(ctx); err != nil || len(names) != 13 {
				t.Fatalf("namespaces after a dry run: %q, %v", names, err)
			}
			got, err := th.Upkeep().Prune(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			gone := []string{"a0", "a0|b", "a1", "a1|b", "a2", "a2|b"}
			if !slices.Equal(got.Namespaces, gone) || !slices.Equal(want.Namespaces, gone) {
				t.Errorf("namespaces %q, a dry run said %q", got.Namespaces, want.Namespaces)
			}
			in := map[string]int{}
			for _, r := range got.Removed {
				in[r.Namespace]++
			}
			for _, name := range gone {
				if least := 2; in[name] != least {
					t.Errorf("%d checkpoints of %q were reported", in[name], name)
				}
			}
			if len(want.Removed) != len(got.Removed) || want.FreedBytes != got.FreedBytes {
				t.Errorf("the dry run said %d, %d bytes; it was %d, %d", len(want.Removed), want.FreedBytes, len(got.Removed), got.FreedBytes)
			}
			names, err := th.Namespaces(ctx)
			if err != nil || !slices.Equal(names, []string{"", "a3", "a3|b", "a4", "a4|b", "early", "free"}) {
				t.Errorf("namespaces %q, %v", names, err)
			}
			for _, name := range gone {
				if left := namespaceKeys(t, f, nsRef("t", name)); len(left) != 0 {
					t.Errorf("keys of %q: %v", name, left)
				}
				if _, err := f.Thread(nsRef("t", name)).Save(ctx, Draft{Generation: late.Generation}); !errors.Is(err, ErrGeneration) {
					t.Errorf("a late save to %q: %v", name, err)
				}
			}
			if cp := mustSave(t, f, nsRef("t", "free"), Draft{Generation: late.Generation}); cp.Seq != 2 {
				t.Errorf("seq %d", cp.Seq)
			}
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		})
	}
}

// TestPinInACalledNamespace: a pin protects the namespace and the checkpoint that it hangs on.
func TestPinInACalledNamespace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	callTree(t, f, 4, func(i int) []string { return []string{fmt.Sprint("a", i)} })
	if _, err := f.Thread(nsRef("t", "a1")).SetLabels(ctx, At("last"), map[string]string{LabelPin: "yes"}); err != nil {
		t.Fatal(err)
	}
	th := f.Thread(testRef("t"))
	if _, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{"root-001"}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("removing the pinned one: %v", err)
	}
	rep, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1})
	if err != nil || !slices.Equal(rep.Namespaces, []string{"a0", "a2"}) {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, err := th.Load(ctx, At("root-001")); err != nil {
		t.Error(err)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// TestDeleteRunAndCalledNamespaces: a namespace goes with the run that called it, unless another
// run saved in it.
func TestDeleteRunAndCalledNamespaces(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	mustSave(t, f, testRef("t"), Draft{ID: "a", RunID: "one"})
	for _, c := range []struct{ ns, run string }{{"x", "one"}, {"y", "one"}, {"y", "two"}} {
		mustSave(t, f, nsRef("t", c.ns), Draft{CalledFrom: "a", RunID: c.run})
	}
	mustSave(t, f, testRef("t"), Draft{ID: "b", RunID: "two"})
	if n, _, err := f.User("acme", "alice").Upkeep().DeleteRun(ctx, "one"); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	if names, err := f.Thread(testRef("t")).Namespaces(ctx); err != nil || !slices.Equal(names, []string{"", "y"}) {
		t.Errorf("namespaces %q, %v", names, err)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// commits counts commits.
type commits struct {
	backend.Backend
	n int
}

func (c *commits) Commit(ctx context.Context, b backend.Batch) error {
	c.n++
	return c.Backend.Commit(ctx, b)
}

// TestThousandCalls prunes a thread whose checkpoints called a thousand namespaces.
func TestThousandCalls(t *testing.T) {
	runsAlone(t)
	ctx := context.Background()
	f := newFixture(t, Options{})
	const calls = 1000
	for i := range calls {
		id := fmt.Sprintf("root-%04d", i)
		mustSave(t, f, testRef("t"), Draft{ID: id, Keep: true, Channels: []Change{{Name: "x", Data: fmt.Append(nil, i)}}})
		sub := nsRef("t", fmt.Sprintf("call:%04d", i))
		for range 2 {
			mustSave(t, f, sub, Draft{CalledFrom: id, Keep: true, Channels: []Change{{Name: "y", Data: fmt.Append(nil, i)}}})
		}
	}
	keys := len(allEntries(t, f.be))
	c := &commits{Backend: f.Store.be}
	f.Store.be = c
	began := time.Now()
	rep, err := f.Thread(testRef("t")).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d keys before, %d after; %d commits, %v", keys, len(allEntries(t, f.be)), c.n, time.Since(began))
	if len(rep.Namespaces) != calls-1 || len(rep.Removed) != 3*(calls-1) {
		t.Errorf("%d namespaces and %d checkpoints were removed", len(rep.Namespaces), len(rep.Removed))
	}
	if names, err := f.Thread(testRef("t")).Namespaces(ctx); err != nil || len(names) != 2 {
		t.Errorf("%d namespaces are left, %v", len(names), err)
	}
	if most := keys/20 + 200; c.n > most {
		t.Errorf("%d commits, at most %d were expected", c.n, most)
	}
	if left := len(allEntries(t, f.be)); left > 20 {
		t.Errorf("%d keys are left", left)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// TestUnfinishedDeletionOfNamespaces stops a deletion at each of its commits, and continues with a
// restart: the namespace is there whole, or not at all.
func TestUnfinishedDeletionOfNamespaces(t *testing.T) {
	ctx := context.Background()
	root, sub := testRef("t"), nsRef("t", "sub")
	continues := map[string]func(*Store) error{
		"load":        func(s *Store) error { _, err := s.Thread(sub).Load(ctx, Latest); return err },
		"save":        func(s *Store) error { _, err := s.Thread(sub).Save(ctx, Draft{}); return err },
		"delete it":   func(s *Store) error { _, err := s.Thread(sub).Delete(ctx); return err },
		"delete all":  func(s *Store) error { _, err := s.Thread(root).Delete(ctx); return err },
		"namespaces":  func(s *Store) error { _, err := s.Thread(root).Namespaces(ctx); return err },
		"copy":        func(s *Store) error { return s.Thread(root).Copy(ctx, testRef("copy")) },
		"gc":          func(s *Store) error { _, err := s.Upkeep().GC(ctx, "acme", upkeep.GCOptions{}); return err },
		"verify":      func(s *Store) error { mustBeClean(t, s, upkeep.VerifyOptions{Deep: true}); return nil },
		"other thing": func(s *Store) error { _, err := s.Thread(nsRef("t", "other")).Save(ctx, Draft{}); return err },
	}
	for name, next := range continues {
		t.Run(name, func(t *testing.T) {
			for k := 0; ; k++ {
				f := newFixture(t, Options{})
				mustSave(t, f, root, Draft{})
				for range 40 {
					mustSave(t, f, sub, Draft{RunID: "run", Branch: "main"})
				}
				mustSave(t, f, sub, Draft{ID: "last"})
				mustWrite(t, f, sub, "last")
				fault := backendtest.NewFault(keepOpen{f.be})
				f.Store.be = fault.Backend()
				fault.Arm(backendtest.Plan{Ops: backendtest.OpCommit, Err: errUnavailable, Keep: true, After: k})
				_, err := f.Thread(sub).Delete(ctx)
				fired := fault.Fired() > 0
				fault.Disarm()
				if fired != (err != nil) {
					t.Fatalf("commit %d: %v", k, err)
				}
				gone := k > 0
				if k%2 == 0 {
					f.reopen()
				}
				if err := next(f.Store); err != nil && (!gone || !errors.Is(err, ErrNotFound)) {
					t.Errorf("commit %d: then %v", k, err)
				}
				if left := namespaceKeys(t, f, sub); gone && name != "save" && len(left) != 0 {
					t.Errorf("commit %d: keys %v are left", k, left)
				}
				mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
				names, err := f.Thread(root).Namespaces(ctx)
				if name != "delete all" && (err != nil || slices.Contains(names, "sub") != (!gone && name != "delete it" || name == "save")) {
					t.Errorf("commit %d: namespaces %q, %v", k, names, err)
				}
				if !fired {
					return
				}
			}
		})
	}
}

// TestDamagedNamespace deletes a namespace whose records are damaged.
func TestDamagedNamespace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	sub := nsRef("t", "sub")
	mustSave(t, f, testRef("t"), Draft{})
	for range 3 {
		mustSave(t, f, sub, Draft{RunID: "run"})
	}
	for _, e := range allEntries(t, f.be) {
		if space.IsRecord(e.Key) && space.SeqOf(e.Key) == 2 {
			e.Value[len(e.Value)-1] ^= 1
			copyEntries(t, f.be, []backend.Entry{e})
		}
	}
	f.reopen()
	mustDelete(t, f, sub)
	if _, err := f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := namespaceKeys(t, f, sub); len(left) != 0 {
		t.Errorf("keys %v", left)
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// TestExhaustedLives: the number of a life does not run over.
func TestExhaustedLives(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	sub := nsRef("t", "sub")
	mustSave(t, f, testRef("t"), Draft{})
	mustSave(t, f, sub, Draft{})
	err := f.Store.withExclusive(ctx, sub, func(l *lineage) error {
		rec, _ := l.th.record()
		rec.Cuts = codec.MaxCuts
		return l.th.replace(ctx, rec)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Thread(sub).Delete(ctx); !errors.Is(err, ErrExhausted) {
		t.Errorf("deleted: %v", err)
	}
	cp := mustSave(t, f, nsRef("t", "last"), Draft{})
	if cp.Generation != 1<<32+1<<32-1 {
		t.Errorf("generation %#x", cp.Generation)
	}
	if generation := mustDelete(t, f, testRef("t")); generation != 2 {
		t.Errorf("generation %d", generation)
	}
}

// TestSavesBesideDeletionsOfTheirNamespace: a save that names a generation is in that life, whole, or
// refused, and nothing of a deleted life is left.
func TestSavesBesideDeletionsOfTheirNamespace(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	sub := nsRef("t", "sub")
	mustSave(t, f, testRef("t"), Draft{})
	var mu sync.Mutex
	acked := map[uint64]int{} // saves, by generation
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			named := uint64(0)
			for i := range 60 {
				cp, err := f.Thread(sub).Save(ctx, Draft{ID: fmt.Sprint(w, "-", i), Generation: named, CalledFrom: "a"})
				switch {
				case errors.Is(err, ErrGeneration):
					named = 0
					continue
				case err != nil:
					t.Error(err)
					return
				case named != 0 && cp.Generation != named:
					t.Errorf("saved in generation %#x, want %#x", cp.Generation, named)
				}
				named = cp.Generation
				mu.Lock()
				acked[named]++
				mu.Unlock()
			}
		})
	}
	for range 20 {
		_, err := f.Thread(sub).Delete(ctx)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	wg.Wait()
	for range 2 {
		n, generation := 0, uint64(0)
		for cp, err := range f.Thread(sub).History(ctx, HistoryOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			n, generation = n+1, cp.Generation
		}
		if n != acked[generation] {
			t.Errorf("%d checkpoints, %d were acknowledged in generation %#x", n, acked[generation], generation)
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		f.reopen()
	}
}

// TestHistoryIsNotKeptPastADeletion: the epoch that a migration kept does not bring a deleted
// namespace back.
func TestHistoryIsNotKeptPastADeletion(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	for _, prune := range []bool{false, true} {
		thread := fmt.Sprint("t", prune)
		for i := range 3 {
			mustSave(t, f, testRef(thread), Draft{ID: fmt.Sprint("c", i)})
		}
		mustSave(t, f, nsRef(thread, "sub"), Draft{CalledFrom: "c0"})
		err := f.Store.withExclusive(ctx, testRef(thread), func(l *lineage) error {
			p, err := l.th.newPruning(ctx, func(string) *pruneRule { return nil }, true)
			if err != nil {
				return err
			}
			rec, _ := l.th.record()
			rec.Kept = rec.Epoch
			err = p.rewrite(ctx, l.th, rec)
			p.forgetAll()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if prune {
			_, err = f.Thread(testRef(thread)).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1})
		} else {
			_, err = f.Thread(nsRef(thread, "sub")).Delete(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if keeps, err := f.Thread(testRef(thread)).Upkeep().KeepsHistory(ctx); err != nil || keeps {
			t.Errorf("prune %v: it keeps the history, %v", prune, err)
		}
		if left := namespaceKeys(t, f, nsRef(thread, "sub")); len(left) != 0 {
			t.Errorf("prune %v: keys %v", prune, left)
		}
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}
