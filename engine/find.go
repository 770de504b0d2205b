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

// How the record is found that a Which names.

// find finds the record of a checkpoint among what is durable. It waits for no save.
func (l *lineage) find(ctx context.Context, w Which) (*record, error) {
	at, err := l.durableNow(ctx)
	if err != nil {
		return nil, err
	}
	return l.findAt(ctx, at, w)
}

// findAt is find for who knows how far the lineage has come. A checkpoint that is replaced meanwhile is what replaced it, unless
// it is asked for by its seq.
func (l *lineage) findAt(ctx context.Context, at heads, w Which) (*record, error) {
	if w.by == ByID {
		e, r, err := l.findEntry(ctx, at.head, w.name)
		if r == nil && err == nil {
			r, err = l.standsAt(ctx, e.Seq)
		}
		if errors.Is(err, ErrNotFound) {
			return nil, l.unlisted(ctx, at.head, w.name, err)
		}
		return r, err
	}
	seq, err := l.resolve(ctx, at, w)
	if err != nil {
		return nil, err
	}
	return l.foundAt(ctx, seq, w)
}

// unlisted is the error for an id that was not found: that, or damage if a checkpoint has it. The entry of an id that a
// caller chose can be removed from the disk, or put back as it was before the checkpoint was replaced, and whoever acts
// on "not found" saves the checkpoint a second time. So all of the lineage is read.
func (l *storedLineage) unlisted(ctx context.Context, head uint64, id string, missing error) error {
	has := func(r *record) error {
		if r.rec != nil && r.visible() && l.recordID(r) == id {
			return corrupt(space.Place(l.RecordKey(r.seq)), "its id entry is missing or has an earlier time", nil)
		}
		return nil
	}
	return cmp.Or(l.eachRecord(ctx, 1, head+1, true, has), missing)
}

// foundAt finds the record at the seq to which w was resolved.
func (l *lineage) foundAt(ctx context.Context, seq uint64, w Which) (*record, error) {
	switch w.by {
	case BySeq:
		return l.visible(ctx, seq)
	case ByBranch:
		if r, err := l.visible(ctx, seq); !errors.Is(err, ErrNotFound) {
			return r, err
		}
		return l.headAt(ctx, seq)
	case ByRun:
		return l.ofRun(ctx, seq, w)
	}
	return l.standsAt(ctx, seq)
}

// ofRun is the newest checkpoint of a run, which was found at seq. What replaced it since may be of another run: then
// the newest is another one.
func (l *lineage) ofRun(ctx context.Context, seq uint64, w Which) (*record, error) {
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

// standsAt finds the checkpoint at seq or, if it was replaced since it was found there, what replaced it.
func (l *storedLineage) standsAt(ctx context.Context, seq uint64) (*record, error) {
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
		return nil, l.absent(ctx, seq)
	}
	if r.rec == nil || r.rec.Ghost {
		return nil, fmt.Errorf("%w: no checkpoint at seq %d", ErrNotFound, seq)
	}
	return r, nil
}

// absent is the error for a seq that was given out and at which nothing stands: it was pruned if a stub covers it, else
// it is lost.
func (l *storedLineage) absent(ctx context.Context, seq uint64) error {
	next, err := l.notBefore(ctx, seq)
	if err != nil {
		return err
	}
	if next != nil && next.covers(seq) {
		return fmt.Errorf("%w: no checkpoint at seq %d", ErrNotFound, seq)
	}
	return corrupt(space.Place(l.RecordKey(seq)), "missing", nil)
}

// resolve finds the seq that w names otherwise than by id, among what is durable.
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
		return l.newest(ctx, at.head+1, func(rs *restorer, r *record) (bool, error) {
			meta, err := rs.meta(ctx, r)
			return err == nil && meta.RunID == w.name, err
		})
	default: // ByBranch
		b, err := l.readBranch(ctx, w.name) // which may name what was replaced since
		if err == nil && b.version == "" {
			err = fmt.Errorf("%w: branch %q", ErrNotFound, w.name)
		}
		if err != nil {
			return 0, err
		}
		return b.head, nil
	}
}

// findID finds the seq of the checkpoint with an id, among what is durable. Head is the newest seq that may be the engine's
// own id.
func (l *storedLineage) findID(ctx context.Context, head uint64, id string) (uint64, error) {
	e, _, err := l.findEntry(ctx, head, id)
	return e.Seq, err
}

// findEntry is findID that tells what the entry of the id tells, if there is one. The id of a record is the engine's own
// where it returns that as well.
func (l *storedLineage) findEntry(ctx context.Context, head uint64, id string) (none codec.IDEntry, _ *record, err error) {
	keys := [][]byte{l.IDKey(id)}
	gone := uint64(0) // seq of an id of the engine's own at which nothing stands
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
			return none, nil, corrupt(space.Place(entry.Key), "is for another id", nil)
		}
		return *e, nil, nil
	}
	if gone != 0 {
		return none, nil, l.absent(ctx, gone)
	}
	return none, nil, fmt.Errorf("%w: checkpoint %q", ErrNotFound, id)
}

func (l *storedLineage) openIDEntry(e backend.Entry) (*codec.IDEntry, error) {
	return unseal(l, space.IDs, e.Key, e.Value)
}

// greatestID finds the checkpoint with the greatest UUID that a caller chose, below a key if that is not nil; 0 if
// there is none.
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

// before finds the checkpoint before an id: by id among UUIDs that callers chose, else by seq.
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
	return l.newest(ctx, at, func(*restorer, *record) (bool, error) { return true, nil })
}

// beforeID finds the newest checkpoint with an id of the engine's own that is smaller than one that does not exist. These
// ids grow with the seq.
func (l *storedLineage) beforeID(ctx context.Context, head uint64, id [16]byte) (uint64, error) {
	from := head + 1
	if seq := idSeq(id); seq <= head && id == l.makeID(seq, idTime(id)) { // it was there
		from = seq
	}
	return l.newest(ctx, from, func(_ *restorer, r *record) (bool, error) {
		have, ok := space.ParseUUID(l.recordID(r))
		return ok && r.rec.ID == "" && bytes.Compare(have[:], id[:]) < 0, nil
	})
}

// newest finds the newest checkpoint that stands before seq in line and is ok.
func (l *storedLineage) newest(ctx context.Context, seq uint64, ok func(*restorer, *record) (bool, error)) (found uint64, err error) {
	rs := l.restorer()
	r := l.RecordsFrom(1, seq)
	r.Reverse, r.Limit = true, 32
	line := unbroken{l: l, from: 1, to: seq, reverse: true}
	err = l.s.scan(ctx, r, func(e backend.Entry) error {
		rec, err := l.openRecord(e.Key, e.Value)
		if err == nil {
			err = line.see(ctx, rec)
		}
		if err == nil {
			rec, err = l.standing(ctx, rec)
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
