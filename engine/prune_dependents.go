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
// to be named while a collection runs is in user.inFlight.

// dependents is who needs a record.
type dependents struct {
	asBase   bool // a record that is left stands on a value that it holds
	asParent bool // a checkpoint was saved on it, or on what was saved on it, or replaced it
}

// dependencies finds out who needs the records of a lineage. It must see them all, newest first.
type dependencies struct {
	bases   map[uint64][]uint64 // numbers of the channels that are stood on, by the record that holds them
	parents map[uint64]bool
}

func newDependencies() *dependencies { return &dependencies{map[uint64][]uint64{}, map[uint64]bool{}} }

// of tells who needs r, which is the next record and, if stays is set, remains a checkpoint. A checkpoint stands on the
// records that hold its channels. Any other record passes on what is needed of it and, since these are what the terms of
// its children are compared with, its attributes.
func (n *dependencies) of(r *row, stays bool) dependents {
	numbers := n.bases[r.seq]
	by := dependents{asBase: len(numbers) > 0, asParent: n.parents[r.seq]}
	delete(n.bases, r.seq)
	delete(n.parents, r.seq)
	if stays {
		numbers = numbers[:0]
		for i := range r.bases {
			numbers = append(numbers, r.bases[i].number)
		}
	} else if by.asBase {
		numbers = append(numbers, 0)
	}
	for _, number := range numbers {
		if base := r.base(number); base != 0 && !slices.Contains(n.bases[base], number) {
			n.bases[base] = append(n.bases[base], number)
		}
	}
	if (stays || by.asParent) && r.parent != 0 {
		n.parents[r.parent] = true
	}
	if stays && r.origin != r.seq {
		n.parents[r.origin] = true
	}
	return by
}

// dependentsOf tells who needs the checkpoint or ghost at seq; where it has a child or was replaced, no more than that. The
// caller holds l.mu, with nothing pending.
func (l *lineage) dependentsOf(ctx context.Context, seq uint64) (by dependents, err error) {
	var later []*row // oldest first
	err = l.eachRecord(ctx, seq, endSeq, false, func(r *record) error {
		if r.rec == nil {
			return nil
		}
		w := &row{seq: r.seq}
		w.fill(&l.storedLineage, r)
		if later = append(later, w); r.visible() && r.seq != seq && (w.parent == seq || w.origin == seq) {
			by.asParent = true
			return errStop
		}
		return nil
	})
	if err != nil || by.asParent {
		return by, err
	}
	n := newDependencies()
	for _, w := range slices.Backward(later) {
		by = n.of(w, w.visible() && w.seq != seq)
	}
	return by, nil
}

// keepsBlobs reports whether the blobs that r names are kept for it.
func (r *record) keepsBlobs() bool { return r.visible() }

// keptBlobs are those of the blobs that t names which are certain to be there.
func (t *checkpointState) keptBlobs() [][32]byte {
	if t.rec.ghost {
		return nil
	}
	return t.meta.Blobs
}
