package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckptd/ckptd/codec"
)

// storeAs gives c the path of e, and takes it off the records that it does not need any more.
func (t *checkpointState) storeAs(c *channelState, e *encoded) {
	after := uint64(0)
	if len(e.entry.Path) > 0 {
		after = e.entry.Path[0].Last
	}
	t.reads.drop(c.path, after, noLimit)
	t.parts += e.parts - c.parts
	c.path, c.parts = e.entry.Path, e.parts
}

// noLimit is greater than every seq.
const noLimit = math.MaxUint64

// wholeSize is a lower bound for a record that holds all of t without a base.
func (t *checkpointState) wholeSize() int64 { return t.minFulls + entryBytes*int64(1+len(t.chans)) }

// tooManyReads reports whether a restore of t, once saved on a parent, would read too many records:
// those that its channels need, its own, and the parent's, for its id.
func (t *checkpointState) tooManyReads(parent uint64) bool {
	n := t.reads.records + 1
	if parent != 0 && !t.reads.has(parent) {
		n++
	}
	return n > codec.MaxPath
}

// newBytes estimates the size of the record with the entries in w.coded.
func (w *saving) newBytes() int64 {
	if len(w.coded) == 0 {
		return 0
	}
	n := int64(headerEstimate - entryEstimate)
	for i := range w.coded {
		n += w.coded[i].e.size()
	}
	return n
}

// size estimates the bytes of the entry in its record.
func (e *encoded) size() int64 { return int64(len(e.entry.Payload)) + entryEstimate }

// headroom is how many bytes t will at least be below the bound once it is saved, by the lower
// bounds of its full encodings.
func (w *saving) headroom(t *checkpointState) int64 {
	return pathFactor*t.wholeSize() + pathSlack - t.reads.bytes - t.parts - w.newBytes()
}

// bound keeps the cost of restoring t, to which a draft was applied, within bounds: if needed it
// stores channels again, including some that the draft did not change. parent is a seq, 0 for none.
func (w *saving) bound(t *checkpointState, parent uint64) error {
	if !t.tooManyReads(parent) && w.headroom(t) >= 0 {
		return nil
	}
	w.remeasure(t)
	// Deltas that leave little headroom would have the next save measure again.
	if !t.tooManyReads(parent) && w.headroom(t) >= t.wholeSize()/8 {
		return nil
	}
	changed := len(w.coded)
	for _, o := range w.cheapestOptions(t) {
		if err := w.reencode(t, o.c, o.full, changed); err != nil {
			return err
		}
	}
	w.sortCoded()
	if t.tooManyReads(parent) || w.headroom(t) < 0 { // the estimates were wrong
		changed = len(w.coded)
		for c := range t.all {
			if len(c.path) > 0 {
				if err := w.reencode(t, c, true, changed); err != nil {
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

// remeasure makes full encodings of values that have grown since the last one, until there is
// headroom for deltas.
func (w *saving) remeasure(t *checkpointState) {
	for _, c := range t.grownChannels() {
		if w.headroom(t) >= t.wholeSize()/8 {
			return
		}
		floor := c.minFull()
		w.measure(c)
		t.minFulls += c.minFull() - floor
		if w.codedOf(c, len(w.coded)) == nil {
			w.measures.note(c.path[0].Last, c)
		}
	}
}

// grownChannels lists the channels whose full encoding may be much larger than its lower bound, by
// how much, the largest first.
func (t *checkpointState) grownChannels() (all []*channelState) {
	for c := range t.all {
		if 2*c.unmeasured() > c.measured { // else measuring is not worth the time
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *channelState) int { return cmp.Compare(b.unmeasured(), a.unmeasured()) })
	return all
}

// codedOf finds a channel among the first n of w.coded, which are in order of number.
func (w *saving) codedOf(c *channelState, n int) *coded {
	i, ok := slices.BinarySearchFunc(w.coded[:n], c.number, func(k coded, number uint64) int { return cmp.Compare(k.c.number, number) })
	if !ok {
		return nil
	}
	return &w.coded[i]
}

// reencode stores a channel in full, or against its long base. It may be among the first n of
// w.coded already.
func (w *saving) reencode(t *checkpointState, c *channelState, full bool, n int) (err error) {
	var e encoded
	floor := c.minFull()
	if full {
		e, err = w.full(c)
	} else {
		e, err = w.consolidate(c)
	}
	if err != nil {
		return err
	}
	t.minFulls += c.minFull() - floor
	t.storeAs(c, &e)
	if k := w.codedOf(c, n); k != nil {
		k.e = e
	} else {
		w.coded = append(w.coded, coded{c, e})
	}
	return nil
}
