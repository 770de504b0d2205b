package engine

import (
	"context"
	"errors"
	"fmt"
)

// Copy copies the thread with all its namespaces to a new thread of the same user (ErrConflict if
// that exists). Checkpoints keep their ids, seqs, times and hashes; ghosts and stubs become stubs.
// Operations on both threads wait in the meantime. The copy appears at once, when all of it is
// durable. If other hooks apply to dst than to the thread, that is ErrRejected.
func (t *Thread) Copy(ctx context.Context, dst Ref) error {
	if err := t.copy(ctx, dst); err != nil {
		return fmt.Errorf("copying thread: %w", err)
	}
	return nil
}

func (t *Thread) copy(ctx context.Context, dst Ref) error {
	if err := errors.Join(t.ref.check(), dst.check()); err != nil {
		return err
	}
	if dst.Tenant != t.ref.Tenant || dst.User != t.ref.User || dst.Namespace != "" {
		return fmt.Errorf("%w: a thread can only be copied as a whole, to the same user", ErrInvalid)
	}
	if dst.Thread == t.ref.Thread {
		return &ConflictError{}
	}
	if err := t.s.checkSameHooks(t.ref, dst); err != nil {
		return err
	}
	from, to, err := t.s.lockThreads(ctx, t.ref, dst)
	if err != nil {
		return err
	}
	defer from.unlockThread()
	defer to.unlockThread()
	source, there := from.th.record()
	if !there {
		return ErrNotFound
	}
	rec, taken := to.th.record()
	if taken {
		return fmt.Errorf("%w: thread %q already exists", ErrConflict, dst.Thread)
	}
	p, err := from.th.newPruning(ctx, func(string) *pruneRule { return nil }, true)
	if err != nil {
		return err
	}
	if to.th.expired() {
		rec.Generation++
	}
	now, err := t.s.time()
	if err != nil {
		return err
	}
	rec.Deleted, rec.Created, rec.TTL, rec.Expires, rec.Kept, rec.Active = false, now, source.TTL, 0, 0, source.Active
	rec.Cuts, rec.LastCut = source.Cuts, source.LastCut // namespaces keep their lives
	if rec.TTL > 0 {
		rec.Expires = expiry(now, rec.TTL)
	}
	return p.rewrite(ctx, to.th, rec)
}

// lockThreads locks two threads of one user for writing, always in the same order.
func (s *Store) lockThreads(ctx context.Context, a, b Ref) (la, lb *lineage, err error) {
	if a.Thread > b.Thread {
		lb, la, err = s.lockThreads(ctx, b, a)
		return la, lb, err
	}
	if la, err = s.lockThread(ctx, a, false); err != nil {
		return nil, nil, err
	}
	if lb, err = s.lockThread(ctx, b, false); err != nil {
		la.unlockThread()
		return nil, nil, err
	}
	return la, lb, nil
}
