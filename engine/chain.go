package engine

import (
	"bytes"
	"fmt"

	"github.com/ckptd/ckptd/codec"
)

// The chain policy. What a reader pays is bounded whatever the history: the records on the path of a channel hold
// at most chainFactor times the bytes of a full encoding of its value, plus chainSlack and the record that asks, and there
// are at most codec.MaxPath of them. What that costs a writer is paid for by the deltas in between: a full encoding is
// written when the deltas since the last one are as large as itself.
//
// The bound is on the value as it is now, so the size of its full encoding must be known. Measuring it at every save
// would cost more than the save; floor is a lower bound that costs nothing, since bytes that were added cannot make an
// encoding smaller, and bytes that were removed took at most their own length of it. Only when the floor no longer
// allows a delta is the encoding made, and then it either is the keyframe or lifts the floor. Histories that append
// measure each time the state has about doubled.
const (
	chainFactor = 2
	chainSlack  = 16 << 10
	// headerEstimate is what a record takes besides its payload, for a decision made before it is sealed.
	headerEstimate = 200
	// maxConsolidated bounds the records that consolidate others on one path, so that half of it is left for deltas.
	maxConsolidated = codec.MaxPath / 2
)

// encoded is how a changed channel is to be stored.
type encoded struct {
	entry codec.Entry
	path  codec.Path // after the save, without the new record
	base  int64      // cost of path
	isFar bool
}

// encode decides how c is stored after its value changes to have insert between its first prefix and last suffix bytes,
// makes and checks the payload, and changes the value. On an error the value may have changed, and c must be dropped.
func (w *saving) encode(c *chanState, prefix, suffix int, insert []byte) (encoded, error) {
	c.index.Extend(c.value)
	start := len(w.payload)
	w.payload = w.differ.AppendDelta(w.payload, c.value, prefix, suffix, insert, &c.index)
	delta := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(delta, prefix+len(insert)+suffix, len(c.value), w.ops[:0], w.literals[:0])
	if err != nil || !d.Builds(c.value, prefix, suffix, insert) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not build the value (%v)", err)
	}
	w.ops, w.literals = d.Ops[:0], d.Literals[:0]
	c.splice(prefix, suffix, insert)
	c.commit = c.chunks.Commitment(&w.l.th.u.commitKey)
	e := encoded{path: c.path, base: c.cost}
	e.entry = codec.Entry{Number: c.number, Mode: codec.ByDelta, Path: c.path, Size: uint64(len(c.value)), Commitment: c.commit, Payload: delta}
	if c.path.Len() >= codec.MaxPath {
		if e.path = c.path.From(c.far); e.path == nil || e.path.Len() >= maxConsolidated {
			return w.full(c)
		}
		if e, err = w.consolidate(c, e); err != nil {
			return e, err
		}
	}
	size := int64(len(e.entry.Payload))
	room := c.room(e.base, size)
	if room >= 0 {
		return e, nil
	}
	// A full encoding is at hand now. Where a delta would leave so little room that one is due soon anyway, it is the
	// better use of it.
	if whole := w.measure(c); c.room(e.base, size) < c.measured/8 {
		return w.whole(c, whole)
	}
	return e, nil
}

// room is how many bytes a delta of size bytes on a path of base bytes leaves below the bound, as far as the floor tells;
// negative if the value must be measured. A delta not much smaller than a full encoding is none worth having.
func (c *chanState) room(base, size int64) int64 {
	floor := c.floor()
	if 4*size >= 3*floor {
		return -1
	}
	return chainFactor*floor + chainSlack - (base + size + headerEstimate)
}

// consolidate encodes the value against the far record, over all that came between.
func (w *saving) consolidate(c *chanState, e encoded) (encoded, error) {
	far := &c.farSince
	prefix := min(far.prefix, len(c.value), far.length)
	suffix := min(far.suffix, len(c.value)-prefix, far.length-prefix)
	insert := c.value[prefix : len(c.value)-suffix]
	base := make([]byte, far.length) // only its shape matters, since nothing in its middle is copied
	start := len(w.payload)
	w.payload = w.differ.AppendDelta(w.payload, base, prefix, suffix, insert, nil)
	payload := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(payload, len(c.value), far.length, nil, nil)
	if err != nil || !d.Builds(base, prefix, suffix, insert) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not build the value (%v)", err)
	}
	e.entry.Path, e.entry.Payload = e.path, payload
	e.base, e.isFar = c.farCost, true
	return e, nil
}

// full encodes the value by itself.
func (w *saving) full(c *chanState) (encoded, error) { return w.whole(c, w.measure(c)) }

// measure makes a full encoding, and so lifts the floor.
func (w *saving) measure(c *chanState) (payload []byte) {
	start := len(w.payload)
	w.payload = w.z.AppendBlock(w.payload, c.value)
	payload = w.payload[start:len(w.payload):len(w.payload)]
	c.isMeasured(int64(len(payload)))
	return payload
}

// whole checks a full encoding and stores the value by it.
func (w *saving) whole(c *chanState, payload []byte) (encoded, error) {
	check, err := w.z.AppendRaw(w.check[:0], payload, len(c.value))
	if err != nil || !bytes.Equal(check, c.value) {
		return encoded{}, fmt.Errorf("checking a value before commit: it does not restore (%v)", err)
	}
	w.check = check[:0]
	return encoded{isFar: true, entry: codec.Entry{Number: c.number, Mode: codec.Full, Size: uint64(len(c.value)), Commitment: c.commit, Payload: payload}}, nil
}

// stored tells c what its record took, after it was sealed with size bytes.
func (c *chanState) stored(e *encoded, seq uint64, size int64) {
	if e.entry.Mode == codec.Full {
		e.path = nil
	}
	if len(e.path) > 0 && len(c.path) > 0 && &e.path[0] == &c.path[0] && c.path[0].Last+1 == seq {
		c.path[0].Last, c.path[0].Len = seq, c.path[0].Len+1 // the tip owns its path
	} else {
		c.path = e.path.Extend(seq)
	}
	c.cost = e.base + size + int64(e.entry.PartBytes)
	if e.isFar {
		c.isFar(seq)
	}
}
