package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// A namespace that hangs on a head that was migrated belongs to the migrated head, too: that took over
// the step under way.
func TestMigratedHeadKeepsCalledNamespaces(t *testing.T) {
	for _, erase := range []bool{false, true} {
		ctx := t.Context()
		f := newFixture(t, Options{Migrations: only(supportSet(t))})
		ref, sub := testRef("t"), nsRef("t", "sub")
		th := f.Thread(ref)
		deltaSupport(t, th, 2, "")
		mustSave(t, f, sub, Draft{CalledFrom: "1"})
		got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: erase})
			if len(rep.Namespaces) != 0 {
				t.Errorf("a prune that keeps the migrated head removed %q", rep.Namespaces)
			}
		}
		next := mustSave(t, f, ref, Draft{ID: "next", Parent: got.New.ID, Keep: true, SchemaVersion: 4})
		rep := mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: erase})
		if !slices.Equal(rep.Namespaces, []string{"sub"}) {
			t.Errorf("after %s: namespaces %q", next.ID, rep.Namespaces)
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}

// An undo of a migrated head is refused after a namespace was called from it.
func TestUndoHeadThatCalled(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref, sub := testRef("t"), nsRef("t", "sub")
	th := f.Thread(ref)
	deltaSupport(t, th, 2, "")
	old := mustLoad(t, th, At("1"))
	got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	if err != nil {
		t.Fatal(err)
	}
	mustSave(t, f, sub, Draft{CalledFrom: got.New.ID})
	if err := th.Upkeep().UndoHead(ctx, old.Seq, got.New.Seq, got.New.Hash); !errors.Is(err, ErrConflict) {
		t.Errorf("undo: %v", err)
	}
	mustDelete(t, f, sub)
	if err := th.Upkeep().UndoHead(ctx, old.Seq, got.New.Seq, got.New.Hash); err != nil {
		t.Errorf("undo after the namespace was deleted: %v", err)
	}
}
