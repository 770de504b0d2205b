package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// numbered is a state of version 1 that does not compress, so that it is encoded on others like it.
func numbered(parent string, i int) Draft {
	text := words(rand.New(rand.NewPCG(3, 3)), 20_000)
	d := supportDraft(strings.Replace(supportV1, `"en"`, fmt.Sprintf("%q", fmt.Sprint(i, " ", string(text))), 1))
	d.Parent = parent
	return d
}

// An erasing prune encodes a checkpoint whose ancestors are all gone on the one that was written
// before it, which may be a migrated head. That is undone all the same, and takes nothing from the
// other.
func TestUndoHeadKeepsWhatOthersStandOn(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{Migrations: only(supportSet(t))})
	ref := testRef("t")
	th := f.Thread(ref)
	first := mustSave(t, f, ref, numbered("", 1))
	mustSave(t, f, ref, numbered("", 2))
	old := mustSave(t, f, ref, numbered("", 3))
	got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
	if err != nil {
		t.Fatal(err)
	}
	now := got.New
	fork := mustSave(t, f, ref, numbered(first.ID, 5))
	mustPrune(t, f, ref, upkeep.PruneOptions{Remove: []string{first.ID}, Erase: true})
	if l := f.Thread(ref); describe(mustLoad(t, l, At(fork.ID))) == "" {
		t.Fatal("the fork is not there")
	}
	want := describe(mustLoad(t, th, At(fork.ID)))
	for range 2 {
		if err := th.Upkeep().UndoHead(ctx, old.Seq, now.Seq, now.Hash); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := th.Load(ctx, At(now.ID)); !errors.Is(err, ErrNotFound) {
				t.Errorf("the head that was undone: %v", err)
			}
			if got := describe(mustLoad(t, th, At(fork.ID))); got != want {
				t.Errorf("a fork that it stands on is %.100s, was %.100s", got, want)
			}
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
			f.reopen()
			th = f.Thread(ref)
		}
	}
	mustPrune(t, f, ref, upkeep.PruneOptions{Remove: []string{old.ID}})
	if describe(mustLoad(t, th, At(fork.ID))) != want {
		t.Error("the fork changed")
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// No checkpoint but the migrated head itself is undone.
func TestUndoHeadOfAnotherCheckpoint(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	first := mustSave(t, f, ref, Draft{Channels: []Change{{Name: "m", Data: []byte("1")}}})
	second := mustSave(t, f, ref, Draft{Channels: []Change{{Name: "m", Data: []byte("2")}}})
	before := viewOf(t, f.Store, ref)
	th := f.Thread(ref)
	if err := th.Upkeep().UndoHead(ctx, 1, 2, first.Hash); !errors.Is(err, ErrInvalid) {
		t.Errorf("an ordinary checkpoint: %v, want ErrInvalid", err)
	}
	for _, seqs := range [][2]uint64{{3, 4}, {2, 3}, {0, 1}, {1, 0}, {2, 2}, {0, 0}} {
		if err := th.Upkeep().UndoHead(ctx, seqs[0], seqs[1], second.Hash); !errors.Is(err, ErrNotFound) {
			t.Errorf("seqs %v, as of a thread that was started again: %v, want ErrNotFound", seqs, err)
		}
	}
	if diff := cmp.Diff(before, viewOf(t, f.Store, ref)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

// A ghost does not keep the blobs of the checkpoint that it was, so a save on it looks whether they
// are there.
func TestSaveOnGhostLooksForBlobs(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	blob := putBlob(t, f, []byte("content of a blob"))
	base := bytes.Repeat([]byte("state "), 1000)
	state := func(s string) []Change { return []Change{{Name: "m", Data: append(bytes.Clone(base), s...)}} }
	mustSave(t, f, ref, Draft{ID: "parent", Blobs: []BlobID{blob}, Channels: state("1")})
	mustSave(t, f, ref, Draft{ID: "child", Channels: state("12")})
	mustSave(t, f, ref, Draft{ID: "head", Channels: state("123")})
	if rep := mustPrune(t, f, ref, upkeep.PruneOptions{Remove: []string{"parent"}}); rep.Ghosts != 1 {
		t.Fatalf("the parent is not a ghost: %+v", rep)
	}
	if got := mustGC(t, f, upkeep.GCOptions{Grace: -1}); got.Blobs != 1 {
		t.Fatalf("%d blobs were collected, want 1", got.Blobs)
	}
	for what, d := range map[string]Draft{
		"kept from the ghost": {ID: "child", Keep: true, Step: 9},
		"by name":             {ID: "child", Blobs: []BlobID{blob}, Channels: state("x")},
	} {
		if cp, err := f.Thread(ref).Save(ctx, d); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %+v, %v, want ErrNotFound", what, cp, err)
		}
	}
	if putBlob(t, f, []byte("content of a blob")) != blob {
		t.Fatal("the blob has another id")
	}
	mustSave(t, f, ref, Draft{ID: "child", Keep: true, Step: 9})
	mustGC(t, f, upkeep.GCOptions{Grace: -1})
	mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
}

// However many branches end at a checkpoint, it can be replaced, labelled, migrated, undone, pruned
// and copied, and they go with it.
func TestManyBranchesAtOneCheckpoint(t *testing.T) {
	const branches = 3 * backend.MaxBatchKeys
	ctx := context.Background()
	for kind, ids := range idKinds {
		f := newFixture(t, Options{Migrations: only(supportSet(t))})
		ref := testRef("t")
		th := f.Thread(ref)
		d := numbered("", 1)
		d.ID = ids(1)
		cp := mustSave(t, f, ref, d)
		for i := range branches {
			if err := th.SetBranch(ctx, fmt.Sprint("b", i), At(cp.ID)); err != nil {
				t.Fatal(err)
			}
		}
		ends := func(after string, at *Checkpoint) {
			t.Helper()
			for range 2 {
				all, err := f.Thread(ref).Branches(ctx)
				if err != nil || len(all) != branches {
					t.Fatalf("%s, %s: %d branches, %v", kind, after, len(all), err)
				}
				for _, b := range all {
					if b.HeadSeq != at.Seq || b.HeadID != at.ID {
						t.Fatalf("%s, %s: branch %s ends at seq %d, want %d", kind, after, b.Name, b.HeadSeq, at.Seq)
					}
				}
				if head := mustLoad(t, f.Thread(ref), HeadOf("b7")); head.ID != at.ID || head.Seq != at.Seq {
					t.Fatalf("%s, %s: the head is seq %d, want %d", kind, after, head.Seq, at.Seq)
				}
				mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
				f.reopen()
				th = f.Thread(ref)
			}
		}
		var err error
		for i := range 2 {
			if cp, err = th.SetLabels(ctx, At(cp.ID), map[string]string{"n": fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
			ends("labelled", cp)
		}
		for range 2 {
			got, err := th.Upkeep().MigrateHead(ctx, upkeep.HeadMigration{To: 4})
			if err != nil {
				t.Fatal(err)
			}
			ends("migrated", got.New)
			if err := th.Upkeep().UndoHead(ctx, got.Old.Seq, got.New.Seq, got.New.Hash); err != nil {
				t.Fatal(err)
			}
			ends("undone", cp)
		}
		if _, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{cp.ID}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: pruning a head: %v", kind, err)
		}
		if _, err := th.Upkeep().MigrateHistory(ctx, 4, false); err != nil {
			t.Fatal(err)
		}
		if err := th.Upkeep().RestoreHistory(ctx); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		ends("restored", cp)
		// A branch continues where it ended, and the others stay, when the record they name is gone
		// for good.
		next := mustSave(t, f, ref, Draft{Branch: "b7", SchemaVersion: 1, Keep: true, Step: 7})
		if next.Parent != cp.ID || next.ParentSeq != cp.Seq {
			t.Errorf("%s: a save on a branch stands on seq %d, want %d", kind, next.ParentSeq, cp.Seq)
		}
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1})
		if err := th.SetBranch(ctx, "b7", At(cp.ID)); err != nil {
			t.Fatal(err)
		}
		ends("pruned", cp)
		mustPrune(t, f, ref, upkeep.PruneOptions{KeepLast: 1, Erase: true})
		ends("erased", cp)
	}
}

// toldOfBranch signals when a branch was read.
type toldOfBranch struct {
	backend.Backend
	once sync.Once
	read chan struct{}
}

func (b *toldOfBranch) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	got, err := b.Backend.Get(ctx, keys...)
	if keys[0][space.PrefixLen-1] == space.KindBranch {
		b.once.Do(func() { close(b.read) })
	}
	return got, err
}

// Branches that follow a replacement which is not durable yet are read where they will end.
func TestBranchFollowsPendingReplacement(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	mustSave(t, f, ref, Draft{ID: "a", Channels: []Change{{Name: "m", Data: []byte("1")}}})
	if err := f.Thread(ref).SetBranch(ctx, "side", At("a")); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	told := &toldOfBranch{Backend: f.Store.be, read: make(chan struct{})}
	g := &gated{Backend: told, entered: make(chan struct{}), outcome: make(chan error)}
	f.Store.be = g
	th := f.Thread(ref)
	mustLoad(t, th, Latest)
	g.closed.Store(true)
	replaced, saved := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := th.Save(ctx, Draft{ID: "a", Channels: []Change{{Name: "m", Data: []byte("2")}}})
		replaced <- err
	}()
	<-g.entered
	var child *Checkpoint
	go func() {
		var err error
		child, err = th.Save(ctx, Draft{Branch: "side", Keep: true, Step: 1})
		saved <- err
	}()
	<-told.read // while the replacement is under way
	g.closed.Store(false)
	g.outcome <- nil
	for _, done := range []chan error{replaced, saved} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if cp := mustLoad(t, th, At("a")); child.ParentSeq != cp.Seq || dataOf(t, f, ref, HeadOf("side"))["m"] != "2" {
		t.Errorf("the branch went on at seq %d, want %d", child.ParentSeq, cp.Seq)
	}
}
