package engine

import (
	"context"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Saving an id again with other content replaces the checkpoint: a new record takes over its id and
// origin, and the old one stays as a ghost, since others may be encoded against it and their hashes
// may cover it. A child names its parent by id, so it gets the replacement as its parent. A
// replacement does not become the latest checkpoint unless it replaces the latest.

// ghostReplaced makes a save replace the checkpoint at seq: the record stays, since others may
// depend on it, but stops being a checkpoint. Branches that ended there end at the new one (see
// headAt).
func (l *lineage) ghostReplaced(ctx context.Context, p *pending, seq uint64) error {
	key := l.RecordKey(seq)
	got, err := l.s.be.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading the replaced checkpoint: %w", err)
	}
	r, err := l.openRecord(key, got[0].Value)
	if err != nil {
		return err
	}
	if r.rec == nil {
		return corrupt(space.Describe(key), "an id names a stub", nil)
	}
	mut, err := l.ghostMut(r)
	if err != nil {
		return err
	}
	p.muts = append(p.muts, mut)
	p.conds = append(p.conds, backend.Cond{Key: key, Version: got[0].Version})
	if t := l.states[seq]; t != nil {
		l.s.cache.drop(t)
	}
	p.replaces = seq
	return nil
}

// versionGhost is the version of records that were rewritten as ghosts.
const versionGhost = "2"

// ghostMut rewrites a record as a ghost.
func (l *storedLineage) ghostMut(r *record) (backend.Mut, error) {
	rec := *r.rec
	rec.Ghost = true
	key := l.RecordKey(r.seq)
	return sealMut(l, space.Records, key, &rec, versionGhost)
}

// current is the checkpoint that has r's id and origin now: r itself or its replacement; nil if it
// was removed.
func (l *storedLineage) current(ctx context.Context, r *record) (*record, error) {
	if r.rec == nil {
		return nil, nil
	}
	if !r.rec.Ghost {
		return r, nil
	}
	id := l.recordID(r)
	key := l.OwnIDKey(id)
	if r.rec.ID != "" {
		key = l.IDKey(id)
	}
	for last := r.seq; ; {
		got, err := l.s.be.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("looking for an id: %w", err)
		}
		if got[0].Version == "" {
			return nil, nil
		}
		e, err := l.openIDEntry(got[0])
		if err != nil {
			return nil, err
		}
		now, err := l.readRecord(ctx, e.Seq)
		if err != nil || now == nil || now.rec == nil || now.origin() != r.origin() {
			return nil, err
		}
		if now.visible() {
			return now, nil
		}
		if e.Seq <= last { // an id entry does not go back
			return nil, nil
		}
		last = e.Seq // and was replaced since it was read
	}
}

// shownAt is the checkpoint that a history shows at r: a replacement is shown at the first record
// with its id, as long as that exists.
func (l *storedLineage) shownAt(ctx context.Context, r *record) (*record, error) {
	if r.rec == nil || r.rec.Replaced == 0 {
		return l.current(ctx, r)
	}
	first, err := l.readRecord(ctx, r.origin())
	if err != nil || first != nil && first.rec != nil {
		return nil, err
	}
	return l.current(ctx, r)
}

// originOf is the origin of the checkpoint at seq.
func (l *storedLineage) originOf(ctx context.Context, seq uint64) (uint64, error) {
	r, err := l.readRecord(ctx, seq)
	if err != nil || r == nil || r.rec == nil {
		return seq, err
	}
	return r.origin(), nil
}

// origin is the seq of the first record with the id of r.
func (r *record) origin() uint64 { return r.seq - r.rec.Replaced }
