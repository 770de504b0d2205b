package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// These functions walk over stored data a page at a time. They take no lock of a lineage, so fn
// can, and never call user code.

// eachThread calls fn with every thread record of the user, in the order of tokens, including
// deleted and expired threads (see live).
func (u *user) eachThread(ctx context.Context, fn func(tok crypto.Token, rec *codec.Thread) error) error {
	return u.s.scan(ctx, u.Threads(), func(e backend.Entry) error {
		rec, err := u.openThread(e.Key, e.Value)
		if err != nil {
			return err
		}
		return fn(crypto.Token(space.Tail(e.Key)), rec)
	})
}

// live reports whether a thread is neither deleted nor expired.
func (s *Store) live(rec *codec.Thread) bool {
	return !rec.Deleted && (rec.Expires == 0 || s.now().UnixMilli() < rec.Expires)
}

// liveThreads lists the ids of the user's threads that are neither deleted nor expired, in order.
// It holds all of them in memory, because tokens are in another order.
func (u *user) liveThreads(ctx context.Context) ([]string, error) {
	var ids []string
	err := u.eachThread(ctx, func(_ crypto.Token, rec *codec.Thread) error {
		if u.s.live(rec) {
			ids = append(ids, rec.ID)
		}
		return nil
	})
	slices.Sort(ids)
	return ids, err
}

// namespaces lists the namespaces of the thread's epoch: first the unnamed one, even if it is
// empty, then the others in the order of tokens. The caller holds t.mu, and the thread is loaded.
func (t *storedThread) namespaces(ctx context.Context) ([]*codec.Namespace, error) {
	all := []*codec.Namespace{{}}
	err := t.u.s.scan(ctx, t.Namespaces(), func(e backend.Entry) error {
		n, err := t.openNamespace(e)
		if err == nil {
			all = append(all, n)
		}
		return err
	})
	return all, err
}

func (t *storedThread) openNamespace(e backend.Entry) (*codec.Namespace, error) {
	return unseal(t, space.Namespaces, e.Key, e.Value)
}

// eachLineage calls fn for every lineage of a thread, with the thread locked for reading during the
// call. It ends early, without an error, if the thread is deleted in the meantime. An expired
// thread exists until it is deleted: to skip it, fn checks its record. The caller holds no lock of
// the thread.
func (s *Store) eachLineage(ctx context.Context, thread Ref, fn func(*lineage) error) error {
	thread.Namespace = ""
	var names []*codec.Namespace
	var generation uint64
	err := s.withLineage(ctx, thread, func(l *lineage) error {
		rec, stored, err := l.th.stored(ctx)
		if !stored || err != nil {
			return err
		}
		generation = rec.Generation
		names, err = l.th.namespaces(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range names {
		thread.Namespace = n.Name
		err := s.withLineage(ctx, thread, func(l *lineage) error {
			rec, stored, err := l.th.stored(ctx)
			if err == nil && (!stored || rec.Generation != generation) {
				err = errStop
			}
			if err != nil {
				return err
			}
			return fn(l)
		})
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withLineage calls fn with a lineage whose thread is locked for reading.
func (s *Store) withLineage(ctx context.Context, ref Ref, fn func(*lineage) error) error {
	l, err := s.rlockThread(ctx, ref, false)
	if err != nil {
		return err
	}
	defer l.runlockThread()
	return fn(l)
}

// withExclusive calls fn with a lineage whose thread is locked for writing: no other operation on
// it is under way.
func (s *Store) withExclusive(ctx context.Context, ref Ref, fn func(*lineage) error) error {
	l, err := s.lockThread(ctx, ref, false)
	if err != nil {
		return err
	}
	defer l.unlockThread()
	return fn(l)
}

const (
	endSeq     = codec.MaxSeq + 1 // after every seq
	recordPage = 4 << 20          // bounds the bytes of a page of records

	// Limits of the memory of a walk's restorer, after which the walk starts a new one.
	restorerRecords = 8 * historyPage
	restorerBytes   = 8 << 20
)

// visible reports whether r is a checkpoint that was neither pruned nor replaced.
func (r *record) visible() bool { return r.rec != nil && !r.rec.Ghost }

// eachRecord calls fn with the records and stubs of the lineage with from <= seq < to, newest first
// if reverse is set. A lost seq is an error. The caller holds l.th.mu, and the thread is loaded. It
// sees durable records, not pending ones.
func (l *storedLineage) eachRecord(ctx context.Context, from, to uint64, reverse bool, fn func(*record) error) error {
	if from >= to {
		return nil
	}
	r := l.RecordsFrom(from, to)
	r.Reverse, r.Limit, r.Bytes = reverse, historyPage, recordPage
	line := gapCheck{l: l, from: from, to: to, reverse: reverse}
	err := l.s.scan(ctx, r, func(e backend.Entry) error {
		rec, err := l.openRecord(e.Key, e.Value)
		if err == nil {
			err = line.see(ctx, rec)
		}
		if err != nil {
			return err
		}
		return fn(rec)
	})
	if err == nil {
		err = line.end(ctx)
	}
	if err != nil && !errors.Is(err, errStop) {
		return fmt.Errorf("reading checkpoints: %w", err)
	}
	return nil
}

// newestRecord is the durable checkpoint that Latest names; nil if there is none. The caller holds
// l.th.mu, and the thread is loaded.
func (l *storedLineage) newestRecord(ctx context.Context) (*record, error) {
	var found *record
	origin := uint64(0)
	r := l.RecordsFrom(1, endSeq)
	r.Reverse, r.Limit = true, 2
	line := gapCheck{l: l, from: 1, to: endSeq, reverse: true}
	err := l.s.scan(ctx, r, func(e backend.Entry) error {
		rec, err := l.openRecord(e.Key, e.Value)
		if err == nil {
			err = line.see(ctx, rec)
		}
		if err == nil && rec.visible() && rec.seq-rec.rec.Replaced > origin {
			found, origin = rec, rec.seq-rec.rec.Replaced
		}
		if err == nil && origin+1 >= rec.seq { // the remaining records have smaller origins
			err = errStop
		}
		return err
	})
	if err == nil {
		err = line.end(ctx)
	}
	if err != nil && !errors.Is(err, errStop) {
		return nil, fmt.Errorf("reading the newest checkpoint: %w", err)
	}
	return found, nil
}
