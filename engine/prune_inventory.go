package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
)

// inventory lists all records of a lineage, without their payloads, for prunes, rewrites and
// deletions.
type inventory struct {
	l    *storedLineage
	head uint64 // newest seq with a record or stub
	rows map[uint64]*row
}

// row is a record or a stub in an inventory.
type row struct {
	seq  uint64
	id   string
	size int64       // bytes of the sealed value
	stub *codec.Stub // nil for a record; the following fields are of a record

	ghost      bool
	holds      bool   // an ancestor, which keeps its pending writes
	took       bool   // a migrated head, which took over the pending writes of its parent
	dangling   string // the parent's id if that checkpoint did not exist
	idKey      []byte // key of the id's entry, nil if it has none
	origin     uint64 // place in line
	parent     uint64 // 0: none
	parentHash [32]byte
	time, step int64
	status     string
	attrs      *codec.Attrs // without Meta; shared
	bases      []channelBase

	held []uint64 // channels that must restore even as a ghost; nil if it is not an ancestor

	verdict verdict
}

// channelBase is the record that a channel of another one is encoded against, or kept from.
type channelBase struct{ number, base uint64 }

// verdict is the decision of a prune about a record.
type verdict uint8

const (
	removed  verdict = iota // it is deleted
	hidden                  // it becomes or stays a ghost, as a base or an ancestor of others
	retained                // it remains a checkpoint
)

// remains reports whether the record at r's seq remains.
func (r *row) remains() bool { return r.stub == nil && r.verdict != removed }

// visible reports whether r is a checkpoint now.
func (r *row) visible() bool { return r.stub == nil && !r.ghost }

// first is the first seq of the range that r covers.
func (r *row) first() uint64 {
	if r.stub != nil {
		return r.seq - r.stub.FirstDist
	}
	return r.seq
}

// terms are the index terms of r as a child of parent, or as a root if there is no parent record.
func (r *row) terms(parent *row) []term {
	if parent == nil || parent.stub != nil {
		return terms(r.attrs, r.status)
	}
	return newTerms(parent.attrs, parent.status, r.attrs, r.status)
}

// indexedTerms are the terms that r may have index entries for. A replacement has all of them if
// its parent, though still a ghost, could not be restored.
func (r *row) indexedTerms(parent *row) []term {
	if r.origin != r.seq {
		parent = nil
	}
	return r.terms(parent)
}

// newestFirst yields the rows by seq, the greatest first.
func (v *inventory) newestFirst(yield func(*row) bool) {
	for seq := v.head; seq > 0; seq-- {
		r := v.rows[seq]
		if r == nil {
			continue
		}
		if !yield(r) {
			return
		}
		seq = r.first()
	}
}

// inventory reads the lineage. The caller holds the thread's mu, or nobody else uses this epoch.
func (l *storedLineage) inventory(ctx context.Context) (*inventory, error) {
	v := &inventory{l: l, rows: map[uint64]*row{}}
	attrs := map[uint64]*codec.Attrs{} // by the record that holds them
	var table []codec.ChannelInfo      // of the record before; most have the same
	rs := l.restorer()
	err := l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		v.head = r.seq
		w := &row{seq: r.seq, size: r.size, stub: r.stub}
		v.rows[r.seq] = w
		if r.stub != nil {
			w.id = r.stub.ID
			return nil
		}
		rs = rs.next()
		rs.remember(r)
		w.fill(l, r)
		holder := r.seq
		if e := &r.rec.Entries[0]; e.Mode == codec.Keep {
			holder = e.Path[0].Last
		}
		if w.attrs = attrs[holder]; w.attrs != nil {
			return nil
		}
		a, err := rs.meta(ctx, r)
		if err != nil {
			return err
		}
		if !sameTable(table, a.Channels) {
			table = a.Channels
		}
		w.attrs = &codec.Attrs{RunID: a.RunID, Labels: a.Labels, Blobs: a.Blobs, Kind: a.Kind, Delta: a.Delta, Channels: table}
		attrs[holder] = w.attrs
		return nil
	})
	return v, err
}

func (w *row) fill(l *storedLineage, r *record) {
	rec := r.rec
	w.id, w.ghost, w.origin = l.recordID(r), rec.Ghost, r.origin()
	w.holds, w.took, w.dangling = rec.Holds, rec.Took, rec.ParentID
	switch {
	case rec.Ghost:
	case rec.ID != "":
		w.idKey = l.IDKey(w.id)
	case rec.Replaced != 0:
		w.idKey = l.OwnIDKey(w.id)
	}
	w.time, w.step, w.status = rec.Time, rec.Step, rec.Status
	if rec.ParentDist != 0 {
		w.parent, w.parentHash = r.seq-rec.ParentDist, rec.ParentHash
	}
	w.bases = make([]channelBase, 0, rec.Count())
	for number, e := range rec.Channels {
		s := channelBase{number: number}
		if e.Mode != codec.Full {
			s.base = e.Path[0].Last
		}
		w.bases = append(w.bases, s)
	}
	if w.holds { // a prune finds out which of them are needed
		for _, s := range w.bases {
			w.held = append(w.held, s.number)
		}
	}
}

// base returns the base of channel number of r; 0: none.
func (r *row) base(number uint64) uint64 {
	i, ok := slices.BinarySearchFunc(r.bases, number, func(s channelBase, number uint64) int { return cmp.Compare(s.number, number) })
	if !ok {
		return 0
	}
	return r.bases[i].base
}

// unindex removes the index entries of all records.
func (v *inventory) unindex(ctx context.Context, out *batcher) error {
	for r := range v.newestFirst {
		if r.stub != nil {
			continue
		}
		for _, t := range r.indexedTerms(v.rows[r.parent]) {
			if err := out.add(ctx, backend.Mut{Key: v.l.indexKey(t, r.seq), Delete: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// batcher collects mutations into batches. Mutations added together are committed together, and
// batches in the order of their additions.
type batcher struct {
	s    *Store
	muts []backend.Mut
	size int
}

func (b *batcher) add(ctx context.Context, muts ...backend.Mut) error {
	size := 0
	for i := range muts {
		size += mutSize(&muts[i])
	}
	if len(b.muts)+len(muts) > backend.MaxBatchKeys || b.size+size > backend.MaxBatchBytes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.muts, b.size = merge(b.muts, muts), b.size+size
	return nil
}

func (b *batcher) flush(ctx context.Context) error {
	if len(b.muts) == 0 {
		return nil
	}
	err := b.s.commit(ctx, b.muts, nil)
	b.muts, b.size = nil, 0
	return err
}
