package engine

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/codec"
)

// The path policy. The cost of a read is bounded for any history: the records that the channels of
// a checkpoint need, each counted once, hold at most pathFactor times the bytes of a full encoding
// of all channels, plus pathSlack. Including the record itself and that of its parent there are at
// most codec.MaxPath. The deltas in between pay for this: save_bound.go encodes channels again when
// their deltas have become as large as a full encoding, or too many.
//
// The bound refers to the current values, so the sizes of their full encodings must be known.
// Measuring them at every save would cost more than the save. minFull is a lower bound that costs
// nothing, since added bytes cannot make an encoding smaller, and removed bytes took at most their
// own length of it. Only when these bounds do not allow a delta are full encodings made, which are
// then either stored or raise the bounds. A history that appends measures each time the state has
// about doubled.
const (
	pathFactor = 2
	pathSlack  = 16 << 10
	// headerEstimate is the size of a record without payload, for decisions made before it is
	// sealed; entryEstimate is that of an entry.
	headerEstimate = 200
	entryEstimate  = 44
	// entryBytes is the minimum size of an entry without its payload.
	entryBytes = 36
)

// encoded is how a channel is to be stored.
type encoded struct {
	entry      codec.Entry // of the channel, without the new record
	parts      int64       // bytes of the parts on the path
	asLongBase bool
}

// encode decides how to store c after edits of its value, makes and checks the payload, and changes
// the value. On an error the value may have changed, and c must be dropped.
func (w *saving) encode(c *channelState, edits []codec.Edit) (encoded, error) {
	c.index.Extend(c.value)
	start := len(w.payload)
	w.finder.In(&c.chunks)
	w.payload = w.differ.AppendDelta(w.payload, c.value, edits, &c.index, &w.finder)
	delta := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(delta, codec.Edited(len(c.value), edits), len(c.value), w.ops[:0], w.literals[:0])
	if err != nil || !d.Builds(c.value, edits) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not restore the value (%v)", err)
	}
	w.ops, w.literals = d.Ops[:0], d.Literals[:0]
	w.narrow = d.Narrow(w.narrow[:0], edits)
	c.edit(w.narrow, d.Lost(w.narrow))
	clear(w.narrow) // they hold the value, which may be large
	c.commit = c.chunks.Commitment(&w.u.CommitKey)
	if whole := d.Whole(delta); whole != nil { // without copies it is a full encoding, checked above
		c.setMeasured(int64(len(whole)), len(c.value))
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

// worthwhile reports whether a delta is much smaller than the lower bound of a full encoding.
func (c *channelState) worthwhile(delta []byte) bool { return 4*int64(len(delta)) < 3*c.minFull() }

// consolidate encodes the value against its long base, over all records between.
func (w *saving) consolidate(c *channelState) (encoded, error) {
	w.check = slices.Grow(w.check[:0], c.longSince.length)
	base := w.check[:c.longSince.length] // nothing is searched in it, so only its length matters
	edits := c.longSince.edits(c.value)
	start := len(w.payload)
	w.payload = w.differ.AppendDelta(w.payload, base, edits, nil, nil)
	payload := w.payload[start:len(w.payload):len(w.payload)]
	d, err := w.z.ParseDelta(payload, len(c.value), len(base), nil, nil)
	if err != nil || !d.Builds(base, edits) {
		return encoded{}, fmt.Errorf("checking a delta before commit: it does not restore the value (%v)", err)
	}
	if d.Whole(payload) != nil || !c.worthwhile(payload) {
		return w.full(c)
	}
	e := c.byDelta(c.path.From(c.longBase), payload, c.longParts)
	e.asLongBase = longBaseShare*int64(len(payload)) > c.measured
	return e, nil
}

// longBaseShare decides whether the next consolidating delta uses this one as its base: if it holds
// at least 1 / longBaseShare of the value. Otherwise the next one includes it, and replaces it.
const longBaseShare = 4

// full encodes the value by itself.
func (w *saving) full(c *channelState) (encoded, error) { return w.whole(c, w.measure(c)) }

// measure makes a full encoding, which raises minFull to its size.
func (w *saving) measure(c *channelState) (payload []byte) {
	start := len(w.payload)
	w.payload = w.z.AppendBlock(w.payload, c.value)
	payload = w.payload[start:len(w.payload):len(w.payload)]
	c.setMeasured(int64(len(payload)), len(c.value))
	return payload
}

// whole checks a full encoding and stores the value by it.
func (w *saving) whole(c *channelState, payload []byte) (encoded, error) {
	check, err := w.z.AppendRaw(w.check[:0], payload, len(c.value))
	if err != nil || !bytes.Equal(check, c.value) {
		return encoded{}, fmt.Errorf("checking a value before commit: it does not restore (%v)", err)
	}
	w.check = check[:0]
	return c.byFull(payload), nil
}

func (c *channelState) byFull(payload []byte) encoded {
	return encoded{asLongBase: true, entry: codec.Entry{Number: c.number, Mode: codec.Full, Size: uint64(len(c.value)), Commitment: c.commit, Payload: payload}}
}

func (c *channelState) byDelta(path codec.Path, payload []byte, parts int64) encoded {
	return encoded{parts: parts, entry: codec.Entry{Number: c.number, Mode: codec.ByDelta, Path: path, Size: uint64(len(c.value)),
		Commitment: c.commit, Payload: payload}}
}

// partsSize is the size of an entry's parts, sealed.
func partsSize(e *codec.Entry) int64 { return int64(e.PartBytes) + partOverhead*int64(len(e.Parts)) }

// partOverhead is the size of a part besides its bytes: its envelope and creation time.
const partOverhead = 40

// stored updates t after its channels in w.coded were stored in the record at seq, with size sealed
// bytes.
func (w *saving) stored(t *checkpointState, seq uint64, size int64) {
	for i := range w.coded {
		c, e := w.coded[i].c, &w.coded[i].e
		if len(c.path) > 0 && c.path[0].Last+1 == seq {
			c.path[0].Last, c.path[0].Len = seq, c.path[0].Len+1 // the state owns its path
		} else {
			c.path = c.path.Extend(seq)
		}
		parts := partsSize(&e.entry)
		c.parts += parts
		t.parts += parts
		if e.asLongBase {
			c.setLongBase(seq)
		}
	}
	t.reads.add(seq, size, len(w.coded))
	w.updateKept(t)
}

// measures remembers the sizes of full encodings, by seq and channel. Agents go back and branch: a
// restored value then need not be measured again, which would take longer than the rest of the
// first save on it. It is safe for concurrent use.
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

func (m *measures) note(seq uint64, c *channelState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) < maxMeasures {
		m.list = append(m.list, measured{})
		m.next = len(m.list) - 1
	}
	m.list[m.next] = measured{seq, c.number, c.measured}
	m.next = (m.next + 1) % maxMeasures
}

// of returns the size of a full encoding of a channel's value at seq, if known.
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

// forget empties m, before seqs can name other values.
func (m *measures) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = nil
}
