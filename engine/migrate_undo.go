package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

func (t threadUpkeep) UndoHead(ctx context.Context, oldSeq, newSeq uint64, hash [32]byte) error {
	if err := t.undoHead(ctx, oldSeq, newSeq, hash); err != nil {
		return fmt.Errorf("undoing the migration of a head: %w", err)
	}
	return nil
}

func (t threadUpkeep) undoHead(ctx context.Context, oldSeq, newSeq uint64, hash [32]byte) error {
	l, err := t.s.lockThread(ctx, t.ref, false)
	if err != nil {
		return err
	}
	defer l.unlockThread()
	if _, there := l.th.record(); !there {
		return ErrNotFound
	}
	if err := l.mu.lock(ctx); err != nil {
		return err
	}
	defer l.mu.unlock()
	if err := l.open(ctx); err != nil {
		return err
	}
	if oldSeq == 0 || newSeq <= oldSeq || newSeq > l.head {
		return fmt.Errorf("%w: no head at seq %d was migrated from seq %d", ErrNotFound, newSeq, oldSeq)
	}
	if _, err := l.visible(ctx, oldSeq); err != nil {
		return err
	}
	r, err := l.readRecord(ctx, newSeq)
	if err != nil {
		return err
	}
	if r == nil {
		return l.missingSeq(ctx, newSeq)
	}
	id, is, err := l.hashAt(ctx, r)
	if err != nil {
		return err
	}
	if is != noHash && is != hash || r.rec != nil && r.rec.ParentDist != newSeq-oldSeq {
		return fmt.Errorf("%w: seq %d is not the migrated head of seq %d", ErrInvalid, newSeq, oldSeq)
	}
	if r.rec != nil {
		by, err := l.checkUndo(ctx, r, oldSeq)
		if err != nil {
			return err
		}
		err = l.removeHead(ctx, r, oldSeq, is, by)
		l.forget()
		if err != nil {
			return err
		}
	}
	if is == noHash {
		return nil // a prune has been here since
	}
	return l.purgeWrites(ctx, id)
}

// purgeWrites removes the pending writes for an id without a checkpoint.
func (l *storedLineage) purgeWrites(ctx context.Context, id string) error {
	out := &batcher{s: l.s}
	ledger, err := l.dropWrites(ctx, out, id)
	if err == nil {
		err = out.add(ctx, ledger...)
	}
	if err != nil {
		return err
	}
	return out.flush(ctx)
}

// hashAt returns the id and the hash that r has or had as a checkpoint; noHash if the hash is lost.
func (l *storedLineage) hashAt(ctx context.Context, r *record) (id string, hash [32]byte, err error) {
	if r.stub != nil {
		return r.stub.ID, r.stub.Hash, nil
	}
	if r.rec.Abridged {
		return l.recordID(r), noHash, nil
	}
	cp, err := l.restorer().checkpoint(ctx, r, nil)
	if r.rec.Ghost && errors.Is(err, errGone) {
		return l.recordID(r), noHash, nil
	}
	if err != nil {
		return "", noHash, err
	}
	return cp.ID, cp.Hash, nil
}

// checkUndo makes sure that nothing was saved after the migrated head r of the checkpoint at
// oldSeq, and returns its dependents.
func (l *lineage) checkUndo(ctx context.Context, r *record, oldSeq uint64) (dependents, error) {
	by, err := l.dependentsOf(ctx, r.seq)
	if err == nil && by.asParent {
		err = l.conflict(ctx)
	}
	if err != nil || r.rec.Ghost { // writes to a ghost's id are not the head's
		return by, err
	}
	old, err := l.readRecord(ctx, oldSeq)
	if err != nil {
		return by, err
	}
	was, err := l.writesOf(ctx, l.recordID(old))
	if err != nil {
		return by, err
	}
	is, err := l.writesOf(ctx, l.recordID(r))
	if err != nil {
		return by, err
	}
	for task, plain := range is {
		if !bytes.Equal(plain, was[task]) {
			return by, fmt.Errorf("%w: writes were put on the migrated head since", ErrConflict)
		}
	}
	names, err := l.th.namespaces(ctx)
	for _, n := range names {
		if l.ref.Namespace == "" && n.CalledFrom == l.recordID(r) {
			return by, fmt.Errorf("%w: namespace %q was called from the migrated head since", ErrConflict, n.Name)
		}
	}
	return by, err
}

// writesOf returns the pending writes of a checkpoint by task, encoded without its id.
func (l *storedLineage) writesOf(ctx context.Context, id string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := l.s.eachWrites(ctx, l, l.WritesOf(id), func(_ backend.Entry, w *codec.Writes, _ *codec.WritesLedger) error {
		if w != nil {
			w.Checkpoint = ""
			out[w.Task] = codec.AppendWrites(nil, w)
		}
		return nil
	})
	return out, err
}

// removeHead turns r into a ghost, which completes the undo for readers: branches that ended at r
// then end at the checkpoint at oldSeq. It moves their records there and, if r has no dependents,
// turns the ghost into a stub, mostly in the same batch.
func (l *lineage) removeHead(ctx context.Context, r *record, oldSeq uint64, hash [32]byte, by dependents) error {
	id, out := l.recordID(r), &batcher{s: l.s}
	mut, err := l.ghostMut(r)
	if err != nil {
		return err
	}
	first := []backend.Mut{mut}
	if r.rec.ID != "" && !r.rec.Ghost {
		first = append(first, backend.Mut{Key: l.IDKey(id), Delete: true})
	}
	if err := out.add(ctx, first...); err != nil {
		return err
	}
	err = l.eachBranch(ctx, func(b *codec.Branch) error {
		if b.Head != r.seq {
			return nil
		}
		mut, err := l.branchMut(b.Name, oldSeq)
		if err != nil {
			return err
		}
		return out.add(ctx, mut)
	})
	if err != nil {
		return err
	}
	if by.asBase {
		return out.flush(ctx)
	}
	meta, err := l.restorer().meta(ctx, r) // which a ghost keeps, too
	if err != nil {
		return err
	}
	p := &pending{}
	stub := &codec.Stub{Count: 1, Hash: hash, ID: id}
	if err := addSealed(l, p, space.Stubs, l.RecordKey(r.seq), stub, versionStub); err != nil {
		return err
	}
	if err := out.add(ctx, p.muts...); err != nil {
		return err
	}
	for _, term := range terms(meta, r.rec.Status) { // they lead nowhere now
		if err := out.add(ctx, backend.Mut{Key: l.indexKey(term, r.seq), Delete: true}); err != nil {
			return err
		}
	}
	return out.flush(ctx)
}
