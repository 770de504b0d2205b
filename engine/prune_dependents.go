package engine

import (
	"context"
	"slices"
)

// The dependents of a record, for all operations that remove something: prunes, erasures, undone
// migrations and collections.
//
// A record is needed by the records that are encoded against it or keep channels from it and, as a
// checkpoint, by its children and its replacement: dependencies finds these. They all are in the
// epoch of its lineage, since rewrites, copies and kept epochs have their own records. Branches and
// pending writes name a checkpoint but do not keep its record: the operation that removes the
// checkpoint updates them, and a branch then ends at an ancestor (see headAt).
//
// A part is needed by every record that names it, since ghosts hold values for others, and by
// pending writes. A blob is needed only by checkpoints: records encoded against a ghost need its
// values, not its blobs (see keepsBlobs). Parts and blobs named while a collection runs are in
// user.inFlight.

// dependents says which kinds of records need a record.
type dependents struct {
	asBase   bool // a remaining record is encoded against it, or keeps a channel from it
	asParent bool // a descendant or a replacement of it remains
}

// dependencies finds the dependents of the records of a lineage. It must see all records, newest
// first.
type dependencies struct {
	bases   map[uint64][]uint64 // numbers of the channels needed from a record
	parents map[uint64]bool
}

func newDependencies() *dependencies { return &dependencies{map[uint64][]uint64{}, map[uint64]bool{}} }

// of returns the dependents of r, the next record. If stays is set, r remains a checkpoint, which
// needs the records that hold its channels. Any other record passes on the needs of its dependents
// and, since the index terms of its children depend on them, its own attributes.
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
	if !stays {
		numbers = append(numbers, r.held...)
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

// dependentsOf returns the dependents of the checkpoint or ghost at seq; if it has a child or a
// replacement, only asParent is set. The caller holds l.mu, with nothing pending.
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

// keepsBlobs reports whether r keeps the blobs that it names.
func (r *record) keepsBlobs() bool { return r.visible() }

// keptBlobs are those blobs of t that certainly exist.
func (t *checkpointState) keptBlobs() [][32]byte {
	if t.rec.ghost {
		return nil
	}
	return t.meta.Blobs
}
