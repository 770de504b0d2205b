package engine

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Delete deletes the namespace of t or, if that is the unnamed one, the thread with all its
// namespaces. It returns the new generation: from then on a draft that names an old one is refused,
// and one that names none starts the namespace or the thread again. A thread that holds nothing but
// the namespace is deleted with it.
//
// The deletion is durable before the records are removed. The next operation on the thread, or GC,
// removes any that a crash leaves. GC also collects blobs and parts.
func (t *Thread) Delete(ctx context.Context) (uint64, error) {
	ctx = backend.MakingRoom(ctx)
	if t.ref.Namespace != "" {
		generation, err := t.s.deleteNamespace(ctx, t.ref)
		if err != nil {
			return generation, fmt.Errorf("deleting namespace: %w", err)
		}
		return generation, nil
	}
	generation, err := t.s.deleteThread(ctx, t.ref, false)
	if err != nil {
		return generation, fmt.Errorf("deleting thread: %w", err)
	}
	return generation, nil
}

// deleteThread deletes a thread, even an expired one. If expired is set it deletes only an expired
// thread, since a save may have started it again in the meantime.
func (s *Store) deleteThread(ctx context.Context, ref Ref, expired bool) (uint64, error) {
	l, err := s.lockThread(ctx, ref, false)
	if err != nil {
		return 0, err
	}
	defer l.unlockThread()
	if _, there := l.th.record(); !l.th.expired() && (expired || !there) {
		return 0, ErrNotFound
	}
	return l.th.remove(ctx)
}

// lockThread returns the lineage with its thread locked for writing and loaded. unlockThread ends
// it.
func (s *Store) lockThread(ctx context.Context, ref Ref, create bool) (*lineage, error) {
	l, err := s.refLineage(ctx, ref, create)
	if err != nil {
		return nil, err
	}
	if err := l.th.mu.lock(ctx); err != nil {
		s.unrefLineage(l)
		return nil, err
	}
	if err = l.th.loadWhole(ctx); err == nil {
		err = l.learnLife(ctx)
	}
	if err != nil {
		l.unlockThread()
		return nil, err
	}
	return l, nil
}

func (l *lineage) unlockThread() {
	l.th.mu.unlock()
	l.s.unrefLineage(l)
}

// remove deletes the thread and returns its new generation. The caller holds mu for writing.
func (t *thread) remove(ctx context.Context) (uint64, error) {
	if err := t.u.rewrites.rLock(ctx); err != nil {
		return 0, err
	}
	defer t.u.rewrites.rUnlock()
	epoch, err := t.nextEpoch(ctx)
	if err != nil {
		return 0, err
	}
	old := t.in(t.Epoch)
	rec, _ := t.record()
	kept := rec.Kept
	rec.Deleted, rec.Epoch, rec.Generation, rec.Kept, rec.Used, rec.Active = true, uint64(epoch), rec.Generation+1, 0, 0, 0
	rec.Cuts, rec.LastCut = 0, 0
	if err := t.replace(ctx, rec); err != nil {
		return 0, err
	}
	if err := errors.Join(old.purge(ctx), t.purgeEpoch(ctx, kept)); err != nil {
		return rec.Generation, fmt.Errorf("removing records of a deleted thread: %w", err)
	}
	return rec.Generation, nil
}

// nextEpoch returns an epoch of the thread that was never used, not even by an unfinished rewrite,
// which leaves records behind. The caller holds u.rewrites for reading until the thread record
// names the epoch.
func (t *thread) nextEpoch(ctx context.Context) (uint32, error) {
	r := t.Epochs(t.Tok)
	r.Reverse, r.Limit, r.KeysOnly = true, 1, true
	page, _, err := t.u.s.be.Scan(ctx, r)
	if err != nil {
		return 0, fmt.Errorf("looking for a new epoch: %w", err)
	}
	rec, _ := t.record()
	used := max(t.Epoch, uint32(rec.Used))
	if len(page) > 0 {
		used = max(used, space.EpochOf(page[0].Key))
	}
	if used == math.MaxUint32 {
		return 0, fmt.Errorf("%w: the thread was rewritten too often", ErrExhausted)
	}
	return used + 1, nil
}

// replace writes the thread record, with more in the same batch, and takes it over. The caller
// holds mu for writing.
func (t *thread) replace(ctx context.Context, rec codec.Thread, more ...backend.Mut) error {
	was, _ := t.record()
	muts, cond, err := t.recordMuts(was.Active, &rec, t.version) // unchanged while mu is held
	if err != nil {
		return err
	}
	err = t.u.s.commit(ctx, append(muts, more...), []backend.Cond{cond})
	t.recMu.Lock()
	defer t.recMu.Unlock()
	t.changes++
	if err != nil {
		t.loaded = false
		return err
	}
	t.version, t.exists = muts[0].Version, !rec.Deleted
	t.use(rec)
	return nil
}

// purge deletes everything stored of the thread's epoch, starting with its index entries: an index
// entry must not outlive its record unnoticed. It deletes damaged records, too, but leaves their
// index entries to GC.
func (t *storedThread) purge(ctx context.Context) error {
	names, err := t.namespaces(ctx)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	out := &batcher{s: t.u.s}
	for _, n := range names {
		v, err := t.lineage(n.Name).inventory(ctx)
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err == nil {
			err = v.unindex(ctx, out)
		}
		if err != nil {
			return err
		}
	}
	if err := out.flush(ctx); err != nil {
		return err
	}
	return t.u.s.purge(ctx, t.All())
}

// purgeEpoch is purge for another epoch of t; 0 is none.
func (t *thread) purgeEpoch(ctx context.Context, epoch uint64) error {
	if epoch == 0 {
		return nil
	}
	return t.in(uint32(epoch)).purge(ctx)
}

// purge deletes all keys of a range, in batches that are each durable.
func (s *Store) purge(ctx context.Context, r backend.Range) error {
	r.KeysOnly, r.Limit = true, backend.MaxBatchKeys
	for {
		page, next, err := s.be.Scan(ctx, r)
		if err != nil {
			return err
		}
		muts := make([]backend.Mut, len(page))
		for i, e := range page {
			muts[i] = backend.Mut{Key: e.Key, Delete: true}
		}
		if err := s.commitAll(ctx, muts); err != nil {
			return err
		}
		if next == nil {
			return nil
		}
		r.Start = next
	}
}
