package engine

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/codec"
)

// The chain policy. What a reader pays is bounded whatever the history: the records that the channels of a checkpoint stand
// on, each counted once, hold at most chainFactor times the bytes of a full encoding of all of them, plus chainSlack; with the
// record itself and that of its parent there are at most codec.MaxPath. What that costs a writer is paid for by the deltas in
// between: bound.go stores channels anew when these have become as large as a full encoding, or as many as that.
//
// The bound is on the values as they are now, so the sizes of their full encodings must be known. Measuring them at every
// save would cost more than the save; floor is a lower bound that costs nothing, since bytes that were added cannot make an
// encoding smaller, and bytes that were removed took at most their own length of it. Only when the floors no longer allow
// a delta are the encodings made, and then they either are stored or lift the floors. Histories that append measure each
// time the state has about doubled.
const (
	chainFactor = 2
	chainSlack  = 16 << 10
	// headerEstimate is what a record takes besides a payload, for a decision made before it is sealed, and entryEstimate
	// what another entry takes besides its own.
	headerEstimate = 200
	entryEstimate  = 44
	// entryBytes is what an entry takes at the least besides its payload.
	entryBytes = 36
)

// encoded is how a channel is to be stored.
type encoded struct {
	entry codec.Entry // its path is that of the channel, without the new record
	parts int64       // bytes of the parts on the path
	isFar bool
}

// encode decides how c is stored after edits of its value, makes and checks the payload, and changes the value. On an error
// the value may have changed, and c must be dropped.
func (w *saving) encode(c *chanState, edits []codec.Edit) (encoded, error) {
	c.index.Extend(c.value)
	start := len(w.payload)
	w.finder.In(&c.chunks)
	w.payload = w.differ.AppendDelta(w.payload, c.value, edits, &c.index, &w.finder)
	delta := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(delta, codec.Edited(len(c.value), edits), len(c.value), w.ops[:0], w.literals[:0])
	if err != nil || !d.Builds(c.value, edits) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not rebuild the value (%v)", err)
	}
	w.ops, w.literals = d.Ops[:0], d.Literals[:0]
	w.narrow = d.Narrow(w.narrow[:0], edits)
	c.edit(w.narrow, d.Lost(w.narrow))
	clear(w.narrow) // they hold the value, which may be large
	c.commit = c.chunks.Commitment(&w.u.CommitKey)
	if whole := d.Whole(delta); whole != nil { // what copies nothing is a full encoding, checked above
		c.isMeasured(int64(len(whole)), len(c.value))
		return c.byFull(whole), nil
	}
	if c.worthwhile(delta) {
		return c.byDelta(c.path, delta, c.parts), nil
	}
	if whole := w.measure(c); !c.worthwhile(delta) {
		return w.whole(c, whole)
	}
	return c.byDelta(c.path, delta, c.parts), nil
}

// worthwhile reports whether a delta is much smaller than a full encoding, as far as the floor tells.
func (c *chanState) worthwhile(delta []byte) bool { return 4*int64(len(delta)) < 3*c.floor() }

// consolidate encodes the value against the far record, over all that came between.
func (w *saving) consolidate(c *chanState) (encoded, error) {
	w.check = slices.Grow(w.check[:0], c.farSince.length)
	base := w.check[:c.farSince.length] // only its shape matters, since nothing is looked for in it
	edits := c.farSince.edits(c.value)
	start := len(w.payload)
	w.payload = w.differ.AppendDelta(w.payload, base, edits, nil, nil)
	payload := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(payload, len(c.value), len(base), nil, nil)
	if err != nil || !d.Builds(base, edits) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not rebuild the value (%v)", err)
	}
	if d.Whole(payload) != nil || !c.worthwhile(payload) {
		return w.full(c)
	}
	e := c.byDelta(c.path.From(c.far), payload, c.farParts)
	e.isFar = farShare*int64(len(payload)) > c.measured
	return e, nil
}

// farShare says when the next consolidating record is written against this one: if this holds 1 / farShare of the value or
// more. Else the next holds it again, and lets go of this one.
const farShare = 4

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

func (c *chanState) byDelta(path codec.Path, payload []byte, parts int64) encoded {
	return encoded{parts: parts, entry: codec.Entry{Number: c.number, Mode: codec.ByDelta, Path: path, Size: uint64(len(c.value)),
		Commitment: c.commit, Payload: payload}}
}

// partsSize is what the parts of an entry take, sealed.
func partsSize(e *codec.Entry) int64 { return int64(e.PartBytes) + partOverhead*int64(len(e.Parts)) }

// partOverhead is what a part takes besides its bytes: its envelope, and when it was created.
const partOverhead = 40

// stored tells t what became of the channels in w.coded: the record at seq, sealed with size bytes.
func (w *saving) stored(t *tip, seq uint64, size int64) {
	for i := range w.coded {
		c, e := w.coded[i].c, &w.coded[i].e
		if len(c.path) > 0 && c.path[0].Last+1 == seq {
			c.path[0].Last, c.path[0].Len = seq, c.path[0].Len+1 // the tip owns its path
		} else {
			c.path = c.path.Extend(seq)
		}
		parts := partsSize(&e.entry)
		c.parts += parts
		t.parts += parts
		if e.isFar {
			c.isFar(seq)
		}
	}
	t.reads.add(seq, size, len(w.coded))
	w.rekeep(t)
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
	if m == nil {
		return 0, false
	}
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
