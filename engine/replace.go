package engine

import (
	"context"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// A checkpoint that is saved again with other content is replaced: a new record takes over its id and its place in line,
// and the old one stays as a ghost, since others may be encoded against it and hashed over it. Those who name it as
// their parent mean the id. So a replacement does not become the latest checkpoint unless it replaces that.

// ghost adds to a save that the checkpoint at seq is replaced by it: the record stays, since others may stand on it,
// but is no checkpoint any more. Branches that ended there end at the new one (see headAt).
func (l *lineage) ghost(ctx context.Context, p *pending, seq uint64) error {
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
		return corrupt(space.Place(key), "an id refers to a stub", nil)
	}
	mut, err := l.ghostMut(r)
	if err != nil {
		return err
	}
	p.muts = append(p.muts, mut)
	p.conds = append(p.conds, backend.Cond{Key: key, Version: got[0].Version})
	if t := l.tips[seq]; t != nil {
		l.s.cache.drop(t)
	}
	p.replaces = seq
	return nil
}

// versionGhost is the version of records that were written again as ghosts.
const versionGhost = "2"

// ghostMut writes a record again as a ghost.
func (l *storedLineage) ghostMut(r *record) (backend.Mut, error) {
	rec := *r.rec
	rec.Ghost = true
	key := l.RecordKey(r.seq)
	return sealMut(l, space.Records, key, &rec, versionGhost)
}

// current is the checkpoint that has r's id and place now: r itself, or what replaced it. Nil means that it is gone.
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

// standing is the checkpoint that is seen at r's place in line: that of a replacement is where the first record with its
// id is, as long as anything is left of it.
func (l *storedLineage) standing(ctx context.Context, r *record) (*record, error) {
	if r.rec == nil || r.rec.Replaced == 0 {
		return l.current(ctx, r)
	}
	first, err := l.readRecord(ctx, r.origin())
	if err != nil || first != nil && first.rec != nil {
		return nil, err
	}
	return l.current(ctx, r)
}

// originOf is the place in line of the checkpoint at seq.
func (l *storedLineage) originOf(ctx context.Context, seq uint64) (uint64, error) {
	r, err := l.readRecord(ctx, seq)
	if err != nil || r == nil || r.rec == nil {
		return seq, err
	}
	return r.origin(), nil
}

// origin is the seq of the first record with the id of r.
func (r *record) origin() uint64 { return r.seq - r.rec.Replaced }
