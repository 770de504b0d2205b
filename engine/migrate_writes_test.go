package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// Pending writes left by an interrupted migration are not taken for those of a later one that makes
// the same id: the head was pruned in between, and saved again with other writes.
func TestMigrateHeadFindsOldWrites(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	fault := backendtest.NewFault(f.be)
	f.be = fault.Backend()
	f.reopen()
	ref := testRef("asks")
	save := func(id string, schema uint64) {
		d := supportDraft(supportV1)
		d.ID, d.SchemaVersion = id, schema
		if schema != 1 {
			d.Channels = []Change{{Name: "state", Data: []byte("{}")}}
		}
		mustSave(t, f, ref, d)
	}
	put := func(tasks int) {
		for i := range tasks {
			putWrites(t, f, ref, "ask", fmt.Sprint("task ", i), []byte("yes"))
		}
	}
	save("ask", 1)
	put(2 * transferInlineKeys)
	fault.Arm(backendtest.Plan{Ops: backendtest.OpCommit, After: 1, Err: backend.ErrUnavailable})
	_, err := f.Thread(ref).Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	fault.Disarm()
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Fatal(err)
	}
	save("next", 4)
	if _, err := f.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{"ask"}}); err != nil {
		t.Fatal(err)
	}
	save("ask", 1)
	put(1)
	got, err := f.Thread(ref).Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	if err != nil || got.New == nil || got.New.ID != "ask~v4" {
		t.Fatalf("%+v, %v", got, err)
	}
	if ws, err := f.Thread(ref).Writes(ctx, got.New.ID); len(ws) != 1 || err != nil {
		t.Errorf("%d writes moved along, %v", len(ws), err)
	}
	rep, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	if err != nil || len(rep.Problems) > 0 {
		t.Errorf("verifying finds %v, %v", rep, err)
	}
}

// Pending writes that were put back on the disk do not move along with a head, where they would be
// as good as any.
func TestMigrateHeadRefusesOldWrites(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("asks")
	d := supportDraft(supportV1)
	d.ID = "ask"
	mustSave(t, f, ref, d)
	putWrites(t, f, ref, "ask", "human", []byte("yes"))
	tasks := func() (muts []backend.Mut) {
		for _, e := range allEntries(t, f.be) {
			if space.KindOf(e.Key) == space.KindWrites && e.Value[3] == space.KindWrites {
				muts = append(muts, backend.Mut{Key: e.Key, Value: e.Value, Version: e.Version})
			}
		}
		return muts
	}
	put := func(muts []backend.Mut) {
		if err := f.be.Commit(ctx, backend.Batch{ID: f.newBatchID(), Muts: muts}); err != nil || len(muts) != 1 {
			t.Fatal(len(muts), err)
		}
	}
	was := tasks()
	putWrites(t, f, ref, "ask", "human", []byte("no"))
	is := tasks()
	put(was)
	before := allEntries(t, f.be)
	if out, err := f.Thread(ref).Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%+v, %v", out, err)
	}
	if !sameEntries(before, allEntries(t, f.be)) {
		t.Error("something was written")
	}
	put(is)
}
