package engine

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// Delete deletes the thread with all its namespaces, and returns its new generation: a draft that names the old one is
// refused from then on, and one that names none starts the thread afresh. The thread is gone once the call is durable,
// which is before its records are removed; what a crash leaves of them is collected by GC. Blobs and parts are
// collected by GC too.
func (t *Thread) Delete(ctx context.Context) (uint64, error) {
	l, err := t.s.hold(ctx, t.ref, false)
	if err != nil {
		return 0, fmt.Errorf("deleting thread: %w", err)
	}
	defer t.s.letGo(l)
	th := l.th
	th.mu.Lock()
	defer th.mu.Unlock()
	if err := th.load(ctx); err != nil {
		return 0, fmt.Errorf("deleting thread: %w", err)
	}
	rec, there := th.record()
	if !there && !th.expired() {
		return 0, fmt.Errorf("deleting thread: %w", ErrNotFound)
	}
	old := th.epoch
	rec.Deleted, rec.Epoch, rec.Generation = true, rec.Epoch+1, rec.Generation+1
	if err := th.replace(ctx, rec); err != nil {
		return 0, fmt.Errorf("deleting thread: %w", err)
	}
	if err := t.s.purge(ctx, epochPrefix(th.u.tok, th.tok, old)); err != nil {
		return rec.Generation, fmt.Errorf("removing records of a deleted thread: %w", err)
	}
	return rec.Generation, nil
}

// replace writes the thread record and takes it over. The caller holds mu for writing.
func (t *thread) replace(ctx context.Context, rec codec.Thread) error {
	t.state.Lock()
	defer t.state.Unlock()
	mut, cond, err := t.recordMut(&rec)
	if err != nil {
		return err
	}
	if err := t.u.s.commit(ctx, []backend.Mut{mut}, []backend.Cond{cond}); err != nil {
		t.loaded = false
		return err
	}
	t.version, t.exists = mut.Version, !rec.Deleted
	return t.use(rec)
}

// epochPrefix begins all keys of one epoch of a thread.
func epochPrefix(user, thread crypto.Token, epoch uint32) []byte {
	p := append(append(make([]byte, 0, prefixLen), user[:]...), thread[:]...)
	return binary.BigEndian.AppendUint32(p, epoch)
}

// purge deletes all keys that begin with p, in batches that are each durable.
func (s *Store) purge(ctx context.Context, p []byte) error {
	r := prefixRange(p)
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
