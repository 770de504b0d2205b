package engine

import (
	"context"
	"fmt"

	"github.com/ckptd/ckptd/engine/internal/space"
)

// gapCheck notices that a walk over the records of a lineage passes over a seq that is lost: at which nothing stands, and
// which no stub covers. A walk that left it out without a word would tell of a history that never was.
type gapCheck struct {
	l        *storedLineage
	from, to uint64 // the seqs that the walk goes over, to not included; what is beyond the newest record is not missed
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

// lostSeq is the error for a seq at which nothing stands, unless a stub covers it or it is beyond the newest record.
func (l *storedLineage) lostSeq(ctx context.Context, seq uint64) error {
	next, err := l.firstFrom(ctx, seq)
	if err != nil || next == nil || next.covers(seq) {
		return err
	}
	return corrupt(space.Describe(l.RecordKey(seq)), "missing", nil)
}

// firstFrom reads what stands at seq or next after it; nil if nothing does.
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

// covers reports whether r is a stub that says that the checkpoint at seq was removed.
func (r *record) covers(seq uint64) bool { return r.stub != nil && r.seq-r.stub.FirstDist <= seq }
