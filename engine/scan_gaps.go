package engine

import (
	"context"
	"fmt"

	"github.com/ckptd/ckptd/engine/internal/space"
)

// gapCheck detects lost records in a walk over a lineage: seqs without a record that no stub
// covers. Skipping them silently would show a history that never existed.
type gapCheck struct {
	l        *storedLineage
	from, to uint64 // the walk covers from <= seq < to; seqs beyond the newest record are not missing
	reverse  bool
	begun    bool
}

// see takes the next record or stub.
func (u *gapCheck) see(ctx context.Context, r *record) error {
	first := r.seq
	if r.stub != nil {
		first -= r.stub.FirstDist
	}
	var lost uint64
	switch {
	case u.reverse && r.seq+1 < u.to && (u.begun || u.to < endSeq):
		lost = r.seq + 1
	case !u.reverse && first > u.from:
		lost = u.from
	}
	u.begun = true
	if u.reverse {
		u.to = first
	} else {
		u.from = r.seq + 1
	}
	if lost == 0 {
		return nil
	}
	return u.l.lostSeq(ctx, lost)
}

// end says that there are no more records.
func (u *gapCheck) end(ctx context.Context) error {
	if u.reverse && u.from < u.to && (u.begun || u.to < endSeq) {
		return u.l.lostSeq(ctx, u.from)
	}
	return nil
}

// lostSeq is the error for a seq without a record, unless a stub covers it or it is beyond the
// newest record.
func (l *storedLineage) lostSeq(ctx context.Context, seq uint64) error {
	next, err := l.firstFrom(ctx, seq)
	if err != nil || next == nil || next.covers(seq) {
		return err
	}
	return corrupt(space.Describe(l.RecordKey(seq)), "missing", nil)
}

// firstFrom reads the first record or stub from seq on; nil if there is none.
func (l *storedLineage) firstFrom(ctx context.Context, seq uint64) (*record, error) {
	r := l.RecordsFrom(seq, endSeq)
	r.Limit = 1
	page, _, err := l.s.be.Scan(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("looking for a checkpoint: %w", err)
	}
	if len(page) == 0 {
		return nil, nil
	}
	return l.openRecord(page[0].Key, page[0].Value)
}

// covers reports whether r is a stub for a range that includes seq.
func (r *record) covers(seq uint64) bool { return r.stub != nil && r.seq-r.stub.FirstDist <= seq }
