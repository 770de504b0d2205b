package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// endingAfter ends a context right after so many commits. A call that was given up may still commit
// when the next one begins.
type endingAfter struct {
	backend.Backend
	mu      sync.Mutex
	commits int
	end     context.CancelFunc
}

func (e *endingAfter) Commit(ctx context.Context, b backend.Batch) error {
	err := e.Backend.Commit(ctx, b)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.commits--; e.commits == 0 {
		e.end()
	}
	return err
}

// set is for the next call. It returns how many commits were left for the one before.
func (e *endingAfter) set(commits int, end context.CancelFunc) (left int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left, e.commits, e.end = e.commits, commits, end
	return left
}

// givenUp runs do with a context that ends after so many commits. It reports whether that many
// came.
func (f *fixture) givenUp(commits int, do func(context.Context)) bool {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	e, ok := f.Store.be.(*endingAfter)
	if !ok {
		e = &endingAfter{Backend: f.Store.be}
		f.Store.be = e
	}
	e.set(commits, end)
	do(ctx)
	return e.set(0, nil) <= 0
}

// Checkpoints that a call removed before its context ended are dropped from memory, too: none is
// loaded from there, and no save is based on one.
func TestNothingStandsOnWhatACallRemovedThatWasGivenUp(t *testing.T) {
	ref := testRef("t")
	for name, remove := range map[string]func(context.Context, *fixture) error{
		"DeleteRun": func(ctx context.Context, f *fixture) error {
			_, _, err := f.User("acme", "alice").Upkeep().DeleteRun(ctx, "run")
			return err
		},
		"Prune": func(ctx context.Context, f *fixture) error {
			_, err := f.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1})
			return err
		},
		"erasing Prune": func(ctx context.Context, f *fixture) error {
			_, err := f.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 1, Erase: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for commits := 1; removedAndGivenUp(t, ref, commits, remove) && !t.Failed(); commits++ {
			}
		})
	}
}

// removedAndGivenUp reports whether the call was given up after so many commits.
func removedAndGivenUp(t *testing.T, ref Ref, commits int, remove func(context.Context, *fixture) error) (was bool) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(ref)
	for i := range 4 {
		d := Draft{ID: fmt.Sprint("c", i), Branch: "main", Channels: []Change{{Name: "x", Data: fmt.Appendf(noiseBytes(300), "state %d", i)}}}
		if i > 1 {
			d.RunID = "run"
		}
		mustSave(t, f, ref, d)
	}
	mustLoad(t, th, Latest)
	if was = f.givenUp(commits, func(ctx context.Context) { remove(ctx, f) }); !was {
		return false
	}
	fresh := f.second()
	want, got := viewOf(t, fresh, ref), viewOf(t, f.Store, ref)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after %d commits memory has\n%v\nand storage\n%v", commits, got, want)
	}
	for _, branch := range []string{"", "main"} {
		d := Draft{Keep: true, Branch: branch, Channels: []Change{{Name: "more", Data: []byte("more")}}}
		cp := mustSave(t, f, ref, d)
		if _, err := f.second().Thread(ref).Load(ctx, At(cp.ID)); err != nil {
			t.Errorf("after %d commits: the next save: %v", commits, err)
		}
	}
	if err := remove(ctx, f); err != nil && !errors.Is(err, ErrNotFound) {
		t.Errorf("again, after %d commits: %v", commits, err)
	}
	return true
}

// Memory reflects all that an operation did before its context ended, including the many branches
// that end at the head, and later saves are based on it.
func TestMemoryIsAsStorageAfterWhatWasGivenUp(t *testing.T) {
	ref := testRef("t")
	type op struct {
		prepare func(f *fixture) error
		do      func(ctx context.Context, f *fixture) error
	}
	bg := context.Background()
	migrated := func(f *fixture) error {
		_, err := f.Thread(ref).Upkeep().MigrateHead(bg, upkeep.HeadMigration{To: 4})
		return err
	}
	history := func(f *fixture) error { _, err := f.Thread(ref).Upkeep().MigrateHistory(bg, 4, false); return err }
	for name, o := range map[string]op{
		"MigrateHead": {nil, func(ctx context.Context, f *fixture) error {
			_, err := f.Thread(ref).Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
			return err
		}},
		"UndoHead": {migrated, func(ctx context.Context, f *fixture) error {
			cp, err := f.Thread(ref).Load(bg, Latest)
			if err != nil {
				return err
			}
			return f.Thread(ref).Upkeep().UndoHead(ctx, cp.ParentSeq, cp.Seq, cp.Hash)
		}},
		"MigrateHistory": {nil, func(ctx context.Context, f *fixture) error {
			_, err := f.Thread(ref).Upkeep().MigrateHistory(ctx, 4, false)
			return err
		}},
		"RestoreHistory": {history, func(ctx context.Context, f *fixture) error { return f.Thread(ref).Upkeep().RestoreHistory(ctx) }},
		"DropHistory":    {history, func(ctx context.Context, f *fixture) error { return f.Thread(ref).Upkeep().DropHistory(ctx) }},
		"SetLabels": {nil, func(ctx context.Context, f *fixture) error {
			_, err := f.Thread(ref).SetLabels(ctx, Latest, map[string]string{"a": "b"})
			return err
		}},
		"Save of much": {nil, func(ctx context.Context, f *fixture) error {
			d := Draft{Labels: map[string]string{}, Keep: true, Channels: []Change{{Name: "big", Data: noiseBytes(900_000)}}}
			for i := range 200 {
				d.Labels[fmt.Sprint("l", i)] = "v"
			}
			_, err := f.Thread(ref).Save(ctx, d)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for commits := 1; commits < 40; commits++ {
				f := newFixture(t, Options{Migrations: only(supportSet(t))})
				l, err := f.refLineage(bg, ref, true)
				if err != nil {
					t.Fatal(err)
				}
				old := mendableHead(t, f, ref, idKinds["names"])
				for i := range 2 * backend.MaxBatchKeys {
					if err := f.Thread(ref).SetBranch(bg, fmt.Sprint("b", i), At(old.ID)); err != nil {
						t.Fatal(err)
					}
				}
				if o.prepare != nil {
					if err := o.prepare(f); err != nil {
						t.Fatal(err)
					}
				}
				var oerr error
				was := f.givenUp(commits, func(ctx context.Context) { oerr = o.do(ctx, f) })
				if err := l.waitPending(bg); err != nil {
					t.Fatal(err)
				}
				want, got := viewOf(t, f.second(), ref), viewOf(t, f.Store, ref)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("after %d commits (%v) memory has\n%v\nand storage\n%v", commits, oerr, got, want)
				}
				version := mustLoad(t, f.Thread(ref), Latest).SchemaVersion
				more := []Change{{Name: "more", Data: []byte("more")}}
				cp := mustSave(t, f, ref, Draft{Keep: true, SchemaVersion: version, Channels: more})
				if _, err := f.second().Thread(ref).Load(bg, At(cp.ID)); err != nil {
					t.Errorf("after %d commits (%v): the next save: %v", commits, oerr, err)
				}
				f.unrefLineage(l)
				if !was {
					break
				}
			}
		})
	}
}
