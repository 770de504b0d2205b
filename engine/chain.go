package engine

import (
	"bytes"
	"fmt"
	"sync"

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
	if whole := d.Whole(delta); whole != nil { // what copies nothing is a full encoding, checked above
		c.isMeasured(int64(len(whole)), len(c.value))
		return c.byFull(whole), nil
	}
	e := encoded{path: c.path, base: c.cost}
	e.entry = codec.Entry{Number: c.number, Mode: codec.ByDelta, Path: c.path, Size: uint64(len(c.value)), Commitment: c.commit, Payload: delta}
	if c.path.Len() < codec.MaxPath && c.room(&e) >= 0 {
		return e, nil
	}
	return w.shorten(c, e)
}

// shorten finds another way to store the value where e, the delta, is out of records or bytes.
func (w *saving) shorten(c *chanState, e encoded) (encoded, error) {
	outOfRecords := c.path.Len() >= codec.MaxPath
	rest, insert := c.path.From(c.far), c.sinceFar()
	// Where one place is written over and over, all that came between is hardly more than the last change.
	few := 16*(insert.to-insert.from) <= len(c.value)
	if rest != nil && rest.Len() < maxConsolidated && (outOfRecords || few) {
		far, err := w.consolidate(c, rest, insert)
		if err != nil {
			return e, err
		}
		if far.isFar = outOfRecords; outOfRecords || c.room(&far) >= c.measured/8 {
			e, outOfRecords = far, false
		}
		if c.room(&e) >= 0 {
			return e, nil
		}
	}
	// A full encoding is made now. Where a delta would leave so little room that one is due soon anyway, it is the
	// better use of it.
	if whole := w.measure(c); outOfRecords || c.room(&e) < c.measured/8 {
		return w.whole(c, whole)
	}
	return e, nil
}

// room is how many bytes a delta of size bytes on a path of base bytes leaves below the bound, as far as the floor tells;
// negative if the value must be measured. A delta not much smaller than a full encoding is none worth having.
func (c *chanState) room(e *encoded) int64 {
	size, floor := int64(len(e.entry.Payload)), c.floor()
	if 4*size >= 3*floor {
		return -1
	}
	return chainFactor*floor + chainSlack - (e.base + size + headerEstimate)
}

// between is the part of a value from one place to another.
type between struct{ from, to int }

// sinceFar is what value has between the ends that it shares with the far record's.
func (c *chanState) sinceFar() between {
	far := &c.farSince
	prefix := min(far.prefix, len(c.value), far.length)
	return between{prefix, len(c.value) - min(far.suffix, len(c.value)-prefix, far.length-prefix)}
}

// consolidate encodes the value against the far record, over all that came between: rest is the path from that record
// on, in is what changed since.
func (w *saving) consolidate(c *chanState, rest codec.Path, in between) (encoded, error) {
	base := make([]byte, c.farSince.length) // only its shape matters, since nothing in its middle is copied
	suffix, insert := len(c.value)-in.to, c.value[in.from:in.to]
	start := len(w.payload)
	w.payload = w.differ.AppendDelta(w.payload, base, in.from, suffix, insert, nil)
	payload := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(payload, len(c.value), len(base), nil, nil)
	if err != nil || !d.Builds(base, in.from, suffix, insert) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not build the value (%v)", err)
	}
	return encoded{path: rest, base: c.farCost, entry: codec.Entry{Number: c.number, Mode: codec.ByDelta, Path: rest,
		Size: uint64(len(c.value)), Commitment: c.commit, Payload: payload}}, nil
}

// full encodes the value by itself.
func (w *saving) full(c *chanState) (encoded, error) { return w.whole(c, w.measure(c)) }

// measure makes a full encoding, and so lifts the floor.
func (w *saving) measure(c *chanState) (payload []byte) {
	start := len(w.payload)
	w.payload = w.z.AppendBlock(w.payload, c.value)
	payload = w.payload[start:len(w.payload):len(w.payload)]
	c.isMeasured(int64(len(payload)), len(c.value))
	return payload
}

// whole checks a full encoding and stores the value by it.
func (w *saving) whole(c *chanState, payload []byte) (encoded, error) {
	check, err := w.z.AppendRaw(w.check[:0], payload, len(c.value))
	if err != nil || !bytes.Equal(check, c.value) {
		return encoded{}, fmt.Errorf("checking a value before commit: it does not restore (%v)", err)
	}
	w.check = check[:0]
	return c.byFull(payload), nil
}

func (c *chanState) byFull(payload []byte) encoded {
	return encoded{isFar: true, entry: codec.Entry{Number: c.number, Mode: codec.Full, Size: uint64(len(c.value)), Commitment: c.commit, Payload: payload}}
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

// measures remembers the sizes of full encodings that were made, of the values at some places of a lineage. Agents go back
// and branch: what is restored then need not be measured anew, which would take longer than all else of its first save.
// It may be used concurrently.
type measures struct {
	mu   sync.Mutex
	list []measured // the newest, in no order
	next int        // the one to be overwritten
}

type measured struct {
	seq, number uint64 // of a channel
	size        int64
}

const maxMeasures = 16

func (m *measures) note(seq uint64, c *chanState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) < maxMeasures {
		m.list = append(m.list, measured{})
		m.next = len(m.list) - 1
	}
	m.list[m.next] = measured{seq, c.number, c.measured}
	m.next = (m.next + 1) % maxMeasures
}

// of is the size of a full encoding of the value of a channel at seq, if it is known.
func (m *measures) of(seq, number uint64) (size int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.list {
		if k.seq == seq && k.number == number {
			return k.size, true
		}
	}
	return 0, false
}

// forget is for when seqs may come to name other values.
func (m *measures) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = nil
}
