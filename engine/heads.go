package engine

import (
	"context"
	"strconv"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// A branch record names a record. The branch ends at the checkpoint that has the id of that record; if there is none, at
// that of its parent, and so on. So a checkpoint is replaced, or hidden, in one batch, however many branches end there:
// their records may follow, but nobody needs to wait for it. Whoever removes the record that they name moves them first.

// headAt finds where a branch ends whose record names seq, among what is durable.
func (l *storedLineage) headAt(ctx context.Context, seq uint64) (*record, error) {
	for at := seq; at != 0; {
		r, err := l.readRecord(ctx, at)
		if err != nil {
			return nil, err
		}
		if r == nil || r.rec == nil {
			break
		}
		now, err := l.current(ctx, r)
		if now != nil || err != nil {
			return now, err
		}
		if at = 0; r.rec.ParentDist != 0 {
			at = r.seq - r.rec.ParentDist
		}
	}
	return nil, corrupt(space.Place(l.RecordKey(seq)), "missing, and a branch ends there", nil)
}

// headSeq is the seq that headAt finds, with what is pending. The caller holds l.mu.
func (l *lineage) headSeq(ctx context.Context, seq uint64) (uint64, error) {
	if now := l.successor(seq); now != seq || l.tips[seq] != nil {
		return now, nil
	}
	r, err := l.headAt(ctx, seq)
	if err != nil {
		return 0, err
	}
	return l.successor(r.seq), nil
}

// successor is the seq of what replaces the checkpoint at seq in saves that are pending, or seq itself.
func (l *lineage) successor(seq uint64) uint64 {
	for _, list := range [][]*pending{l.flying, l.queue} {
		for _, p := range list {
			if p.replaces == seq {
				seq = p.seq
			}
		}
	}
	return seq
}

// branchEnd is a branch with where it ends.
type branchEnd struct {
	name string
	seq  uint64 // that its record names
	at   *record
}

// branchEnds lists the branches of the lineage that are durable. The caller holds the thread's mu.
func (l *storedLineage) branchEnds(ctx context.Context) ([]branchEnd, error) {
	var ends []branchEnd
	var seqs []uint64
	err := l.eachBranch(ctx, func(b *codec.Branch) error {
		ends, seqs = append(ends, branchEnd{name: b.Name, seq: b.Head}), append(seqs, b.Head)
		return nil
	})
	if err != nil {
		return nil, err
	}
	records := map[uint64]*record{}
	if err := l.readRecords(ctx, records, seqs); err != nil {
		return nil, err
	}
	for i := range ends {
		seq := ends[i].seq
		if r := records[seq]; r == nil || r.rec.Ghost {
			if records[seq], err = l.headAt(ctx, seq); err != nil {
				return nil, err
			}
		}
		ends[i].at = records[seq]
	}
	return ends, nil
}

// branchMut makes a branch end at seq.
func (l *storedLineage) branchMut(name string, seq uint64) (backend.Mut, error) {
	key := l.BranchKey(name)
	return sealMut(l, space.Branches, key, &codec.Branch{Name: name, Head: seq}, strconv.FormatUint(seq, 10))
}
