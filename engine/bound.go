package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckptd/ckptd/codec"
)

// standOn takes c, and so t, off the records that it needs no more once it is stored as e.
func (t *tip) standOn(c *chanState, e *encoded) {
	after := uint64(0)
	if len(e.entry.Path) > 0 {
		after = e.entry.Path[0].Last
	}
	t.reads.release(c.path, after, newest)
	t.parts += e.parts - c.parts
	c.path, c.parts = e.entry.Path, e.parts
}

// newest is a seq after all.
const newest = math.MaxUint64

// wholeSize is a lower bound for the record that would hold all of t by itself.
func (t *tip) wholeSize() int64 { return t.floors + entryBytes*int64(1+len(t.chans)) }

// tooMany reports whether a restore of t, once it is saved on a parent, would read more records than it may: those that
// it stands on, its own, and that of its parent, which tells the parent's id.
func (t *tip) tooMany(parent uint64) bool {
	n := t.reads.records + 1
	if parent != 0 && !t.reads.has(parent) {
		n++
	}
	return n > codec.MaxPath
}

// adding is about how many bytes the record will have for what is in w.coded.
func (w *saving) adding() int64 {
	if len(w.coded) == 0 {
		return 0
	}
	n := int64(headerEstimate - entryEstimate)
	for i := range w.coded {
		n += w.coded[i].e.size()
	}
	return n
}

// size is about how many bytes the entry takes in its record.
func (e *encoded) size() int64 { return int64(len(e.entry.Payload)) + entryEstimate }

// room is how many bytes below the bound t will be once it is saved, as far as the floors tell.
func (w *saving) room(t *tip) int64 {
	return chainFactor*t.wholeSize() + chainSlack - t.reads.bytes - t.parts - w.adding()
}

// bound sees to it that a restore of t, to which a draft was applied, stays within bounds: where it would not, it stores
// channels anew, those that the draft did not change among them. The parent is a seq, 0 for none.
func (w *saving) bound(t *tip, parent uint64) error {
	if !t.tooMany(parent) && w.room(t) >= 0 {
		return nil
	}
	w.remeasure(t)
	// Deltas that leave little room would have the next save measure again.
	if !t.tooMany(parent) && w.room(t) >= t.wholeSize()/8 {
		return nil
	}
	changed := len(w.coded)
	for _, o := range w.cheapest(t) {
		if err := w.anew(t, o.c, o.full, changed); err != nil {
			return err
		}
	}
	w.sortCoded()
	if t.tooMany(parent) || w.room(t) < 0 { // what was estimated came out otherwise
		changed = len(w.coded)
		for c := range t.all {
			if len(c.path) > 0 {
				if err := w.anew(t, c, true, changed); err != nil {
					return err
				}
			}
		}
		w.sortCoded()
	}
	return nil
}

// sortCoded puts w.coded in order of number.
func (w *saving) sortCoded() {
	slices.SortFunc(w.coded, func(a, b coded) int { return cmp.Compare(a.c.number, b.c.number) })
}

// remeasure makes full encodings of values that have grown since one was made, until that gives room for deltas.
func (w *saving) remeasure(t *tip) {
	for _, c := range t.grown() {
		if w.room(t) >= t.wholeSize()/8 {
			return
		}
		floor := c.floor()
		w.measure(c)
		t.floors += c.floor() - floor
		if w.codedOf(c, len(w.coded)) == nil {
			w.measures.note(c.path[0].Last, c)
		}
	}
}

// grown lists the channels whose full encoding may be much larger than their floor tells, those first where it may be
// by the most.
func (t *tip) grown() (all []*chanState) {
	for c := range t.all {
		if 2*c.unmeasured() > c.measured { // else it is not worth the time
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *chanState) int { return cmp.Compare(b.unmeasured(), a.unmeasured()) })
	return all
}

// codedOf finds a channel among the first n of w.coded, which are in order of number.
func (w *saving) codedOf(c *chanState, n int) *coded {
	i, ok := slices.BinarySearchFunc(w.coded[:n], c.number, func(k coded, number uint64) int { return cmp.Compare(k.c.number, number) })
	if !ok {
		return nil
	}
	return &w.coded[i]
}

// anew stores a channel in full, or against its far record. It may be among the first n of w.coded already.
func (w *saving) anew(t *tip, c *chanState, full bool, n int) (err error) {
	var e encoded
	floor := c.floor()
	if full {
		e, err = w.full(c)
	} else {
		e, err = w.consolidate(c)
	}
	if err != nil {
		return err
	}
	t.floors += c.floor() - floor
	t.standOn(c, &e)
	if k := w.codedOf(c, n); k != nil {
		k.e = e
	} else {
		w.coded = append(w.coded, coded{c, e})
	}
	return nil
}
