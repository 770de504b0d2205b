package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// These functions find the record that a Which names.

// find finds the record of a checkpoint in the durable state. It does not wait for saves.
func (l *lineage) find(ctx context.Context, w Which) (*record, error) {
	at, err := l.durableNow(ctx)
	if err != nil {
		return nil, err
	}
	return l.findAt(ctx, at, w)
}

// findAt is find with the heads given. If the checkpoint is replaced in the meantime, it returns
// the replacement, unless the checkpoint is named by seq.
func (l *lineage) findAt(ctx context.Context, at heads, w Which) (*record, error) {
	if w.by == ByID {
		e, r, err := l.findEntry(ctx, at.head, w.name)
		if r == nil && err == nil {
			r, err = l.currentAt(ctx, e.Seq)
		}
		if errors.Is(err, ErrNotFound) {
			return nil, l.idNotFound(ctx, at.head, w.name, err)
		}
		return r, err
	}
	seq, err := l.resolve(ctx, at, w)
	if err != nil {
		return nil, err
	}
	return l.recordAt(ctx, seq, w)
}

// idNotFound returns the error for an id without an entry: not found, or damage if a checkpoint has
// that id. The entry of an id that a caller chose can be removed from the disk, or reset to an
// older state, and a caller who gets "not found" may save the checkpoint a second time. So it reads
// the whole lineage.
func (l *storedLineage) idNotFound(ctx context.Context, head uint64, id string, missing error) error {
	has := func(r *record) error {
		if r.rec != nil && r.visible() && l.recordID(r) == id {
			return corrupt(space.Describe(l.RecordKey(r.seq)), "its id entry is missing or outdated", nil)
		}
		return nil
	}
	return cmp.Or(l.eachRecord(ctx, 1, head+1, true, has), missing)
}

// recordAt reads the record at the seq that w resolved to.
func (l *lineage) recordAt(ctx context.Context, seq uint64, w Which) (*record, error) {
	switch w.by {
	case BySeq:
		return l.visible(ctx, seq)
	case ByBranch:
		if r, err := l.visible(ctx, seq); !errors.Is(err, ErrNotFound) {
			return r, err
		}
		return l.headAt(ctx, seq)
	case ByRun:
		return l.newestOfRun(ctx, seq, w)
	}
	return l.currentAt(ctx, seq)
}

// newestOfRun returns the newest checkpoint of a run, which was found at seq. Its replacement may
// belong to another run: then it searches again.
func (l *lineage) newestOfRun(ctx context.Context, seq uint64, w Which) (*record, error) {
	for {
		r, err := l.visible(ctx, seq)
		if !errors.Is(err, ErrNotFound) {
			return r, err
		}
		at, err := l.durableNow(ctx)
		if err != nil {
			return nil, err
		}
		if seq, err = l.resolve(ctx, at, w); err != nil {
			return nil, err
		}
	}
}

// currentAt returns the checkpoint at seq or, if that was replaced in the meantime, the
// replacement.
func (l *storedLineage) currentAt(ctx context.Context, seq uint64) (*record, error) {
	r, missing := l.visible(ctx, seq)
	if !errors.Is(missing, ErrNotFound) {
		return r, missing
	}
	r, err := l.readRecord(ctx, seq)
	if err != nil || r == nil {
		return nil, cmp.Or(err, missing)
	}
	if r, err = l.current(ctx, r); err != nil || r == nil {
		return nil, cmp.Or(err, missing)
	}
	return r, nil
}

// visible reads the record at seq, which must be a checkpoint that was neither pruned nor replaced.
func (l *storedLineage) visible(ctx context.Context, seq uint64) (*record, error) {
	r, err := l.readRecord(ctx, seq)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, l.missingSeq(ctx, seq)
	}
	if r.rec == nil || r.rec.Ghost {
		return nil, fmt.Errorf("%w: no checkpoint at seq %d", ErrNotFound, seq)
	}
	return r, nil
}

// missingSeq is the error for an issued seq without a record: not found if a stub covers it, else
// it is lost.
func (l *storedLineage) missingSeq(ctx context.Context, seq uint64) error {
	next, err := l.firstFrom(ctx, seq)
	if err != nil {
		return err
	}
	if next != nil && next.covers(seq) {
		return fmt.Errorf("%w: no checkpoint at seq %d", ErrNotFound, seq)
	}
	return corrupt(space.Describe(l.RecordKey(seq)), "missing", nil)
}

// resolve finds the seq that w names, other than by id, in the durable state.
func (l *storedLineage) resolve(ctx context.Context, at heads, w Which) (uint64, error) {
	switch w.by {
	case ByNewest:
		if at.latest == 0 {
			return 0, fmt.Errorf("%w: the thread has no checkpoint", ErrNotFound)
		}
		return at.latest, nil
	case ByGreatestID:
		if seq, err := l.greatestID(ctx, nil); seq != 0 || err != nil {
			return seq, err
		}
		return l.resolve(ctx, at, Latest)
	case BySeq:
		if w.seq == 0 || w.seq > at.head {
			return 0, fmt.Errorf("%w: no checkpoint at seq %d", ErrNotFound, w.seq)
		}
		return w.seq, nil
	case ByBefore:
		return l.before(ctx, at.head, w.name)
	case ByRun:
		return l.newestWhere(ctx, at.head+1, func(rs *restorer, r *record) (bool, error) {
			meta, err := rs.meta(ctx, r)
			return err == nil && meta.RunID == w.name, err
		})
	default: // ByBranch
		b, err := l.readBranch(ctx, w.name) // which may name a replaced record
		if err == nil && b.version == "" {
			err = fmt.Errorf("%w: branch %q", ErrNotFound, w.name)
		}
		if err != nil {
			return 0, err
		}
		return b.head, nil
	}
}

// findID finds the seq of the checkpoint with an id, in the durable state. head is the newest seq
// that can be in an id made by the engine.
func (l *storedLineage) findID(ctx context.Context, head uint64, id string) (uint64, error) {
	e, _, err := l.findEntry(ctx, head, id)
	return e.Seq, err
}

// findEntry is findID that returns the entry of the id. It returns a record if the id was made by
// the engine and needs no entry.
func (l *storedLineage) findEntry(ctx context.Context, head uint64, id string) (none codec.IDEntry, _ *record, err error) {
	keys := [][]byte{l.IDKey(id)}
	gone := uint64(0) // seq of an id made by the engine whose record is missing
	if uuid, ok := space.ParseUUID(id); ok {
		if seq := idSeq(uuid); seq >= 1 && seq <= head {
			r, err := l.readRecord(ctx, seq)
			if err != nil {
				return none, nil, err
			}
			if r != nil && r.rec != nil && r.rec.ID == "" && l.recordID(r) == id && !r.rec.Ghost {
				return codec.IDEntry{Seq: seq}, r, nil
			}
			if r == nil && uuid == l.makeID(seq, idTime(uuid)) {
				gone = seq
			}
			keys = append(keys, l.OwnIDKey(id)) // it may have been replaced
		}
	}
	got, err := l.s.be.Get(ctx, keys...)
	if err != nil {
		return none, nil, fmt.Errorf("looking for an id: %w", err)
	}
	for _, entry := range got {
		if entry.Version == "" {
			continue
		}
		e, err := l.openIDEntry(entry)
		if err != nil {
			return none, nil, err
		}
		if e.ID != id {
			return none, nil, corrupt(space.Describe(entry.Key), "is for another id", nil)
		}
		return *e, nil, nil
	}
	if gone != 0 {
		return none, nil, l.missingSeq(ctx, gone)
	}
	return none, nil, fmt.Errorf("%w: checkpoint %q", ErrNotFound, id)
}

func (l *storedLineage) openIDEntry(e backend.Entry) (*codec.IDEntry, error) {
	return unseal(l, space.IDs, e.Key, e.Value)
}

// greatestID finds the checkpoint with the greatest UUID chosen by a caller, below a key if that is
// not nil; 0 if there is none.
func (l *storedLineage) greatestID(ctx context.Context, below []byte) (uint64, error) {
	r := l.ChosenIDs()
	if below != nil {
		r.End = below
	}
	r.Reverse, r.Limit = true, 1
	page, _, err := l.s.be.Scan(ctx, r)
	if err != nil || len(page) == 0 {
		return 0, err
	}
	e, err := l.openIDEntry(page[0])
	if err != nil {
		return 0, err
	}
	return e.Seq, nil
}

// before finds the checkpoint before an id: by id among UUIDs chosen by callers, else by seq.
func (l *storedLineage) before(ctx context.Context, head uint64, id string) (uint64, error) {
	at, err := l.findID(ctx, head, id)
	if err == nil {
		at, err = l.originOf(ctx, at)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return 0, err
	}
	if uuid, ok := space.ParseUUID(id); ok {
		key := l.IDKey(id)
		seq, gerr := l.greatestID(ctx, key)
		if seq != 0 || gerr != nil {
			return seq, gerr
		}
		if err != nil {
			return l.beforeID(ctx, head, uuid)
		}
	}
	if err != nil {
		return 0, err
	}
	return l.newestWhere(ctx, at, func(*restorer, *record) (bool, error) { return true, nil })
}

// beforeID finds the newest checkpoint with an id made by the engine that is smaller than id, which
// does not exist. These ids grow with the seq.
func (l *storedLineage) beforeID(ctx context.Context, head uint64, id [16]byte) (uint64, error) {
	from := head + 1
	if seq := idSeq(id); seq <= head && id == l.makeID(seq, idTime(id)) { // it was there
		from = seq
	}
	return l.newestWhere(ctx, from, func(_ *restorer, r *record) (bool, error) {
		have, ok := space.ParseUUID(l.recordID(r))
		return ok && r.rec.ID == "" && bytes.Compare(have[:], id[:]) < 0, nil
	})
}

// newestWhere finds the newest checkpoint with an origin below seq that is ok.
func (l *storedLineage) newestWhere(ctx context.Context, seq uint64, ok func(*restorer, *record) (bool, error)) (found uint64, err error) {
	rs := l.restorer()
	r := l.RecordsFrom(1, seq)
	r.Reverse, r.Limit = true, 32
	line := gapCheck{l: l, from: 1, to: seq, reverse: true}
	err = l.s.scan(ctx, r, func(e backend.Entry) error {
		rec, err := l.openRecord(e.Key, e.Value)
		if err == nil {
			err = line.see(ctx, rec)
		}
		if err == nil {
			rec, err = l.shownAt(ctx, rec)
		}
		if err != nil || rec == nil {
			return err
		}
		rs = rs.next()
		yes, err := ok(rs, rec)
		if err == nil && yes {
			found, err = rec.seq, errStop
		}
		return err
	})
	if err == errStop {
		return found, nil
	}
	if err == nil {
		err = line.end(ctx)
	}
	if err == nil {
		err = fmt.Errorf("%w: no such checkpoint", ErrNotFound)
	}
	return 0, err
}
