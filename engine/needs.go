package engine

import (
	"context"
	"slices"
)

// Who needs what, for all that removes something: a prune, an erasure, the undoing of a migration, a collection.
//
// A record is needed by the records that stand on its values and, as a checkpoint, by those that were saved on it or
// replaced it: needs tells. Nothing outside of the epoch of its lineage stands on it, since a rewrite, a copy and a kept
// epoch have records of their own. Branches and pending writes name a checkpoint and keep no record: whoever removes
// the checkpoint takes care of them, and a branch ends at an ancestor then (see headAt).
//
// A part is needed by every record that names it, since ghosts hold values for others, and by pending writes. A blob is
// needed by checkpoints alone: who stands on a ghost stands on its values, and blobs are none (see keepsBlobs). What comes
// to be named while a collection runs is in user.naming.

// need is who needs a record.
type need struct {
	values bool // a record that is left stands on a value that it holds
	line   bool // a checkpoint was saved on it, or on what was saved on it, or replaced it
}

// needs finds out who needs the records of a lineage. It must see them all, newest first.
type needs struct {
	values map[uint64][]uint64 // numbers of the channels that are stood on, by the record that holds them
	line   map[uint64]bool
}

func newNeeds() *needs { return &needs{map[uint64][]uint64{}, map[uint64]bool{}} }

// of tells who needs r, which is the next record and, if stays is set, remains a checkpoint. A checkpoint stands on the
// records that hold its channels. Any other record passes on what is needed of it and, since these are what the terms of
// its children are compared with, its attributes.
func (n *needs) of(r *row, stays bool) need {
	numbers := n.values[r.seq]
	by := need{values: len(numbers) > 0, line: n.line[r.seq]}
	delete(n.values, r.seq)
	delete(n.line, r.seq)
	if stays {
		numbers = numbers[:0]
		for i := range r.stands {
			numbers = append(numbers, r.stands[i].number)
		}
	} else if by.values {
		numbers = append(numbers, 0)
	}
	for _, number := range numbers {
		if base := r.base(number); base != 0 && !slices.Contains(n.values[base], number) {
			n.values[base] = append(n.values[base], number)
		}
	}
	if (stays || by.line) && r.parent != 0 {
		n.line[r.parent] = true
	}
	if stays && r.origin != r.seq {
		n.line[r.origin] = true
	}
	return by
}

// needOf tells who needs the checkpoint or ghost at seq; where it has a child or was replaced, no more than that. The
// caller holds l.mu, with nothing pending.
func (l *lineage) needOf(ctx context.Context, seq uint64) (by need, err error) {
	var later []*row // oldest first
	err = l.eachRecord(ctx, seq, endSeq, false, func(r *record) error {
		if r.rec == nil {
			return nil
		}
		w := &row{seq: r.seq}
		w.take(&l.storedLineage, r)
		if later = append(later, w); r.visible() && r.seq != seq && (w.parent == seq || w.origin == seq) {
			by.line = true
			return errStop
		}
		return nil
	})
	if err != nil || by.line {
		return by, err
	}
	n := newNeeds()
	for _, w := range slices.Backward(later) {
		by = n.of(w, w.visible() && w.seq != seq)
	}
	return by, nil
}

// keepsBlobs reports whether the blobs that r names are kept for it.
func (r *record) keepsBlobs() bool { return r.visible() }

// keptBlobs are those of the blobs that t names which are certain to be there.
func (t *tip) keptBlobs() [][32]byte {
	if t.rec.ghost {
		return nil
	}
	return t.meta.Blobs
}
