package engine

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// checkpointState is a checkpoint with its whole state in memory. A save changes its parent's state
// in place into its own, so a save after a save reads nothing and copies only what changed.
type checkpointState struct {
	l           *storedLineage
	home        *lineage // in whose memory it is; nil: in none's
	generation  uint64   // of the thread
	seq         uint64
	id          string
	rec         header
	hash        [32]byte
	attrs       channelState
	meta        *codec.Attrs   // attrs, parsed; shared, never modified
	chans       []channelState // as meta.Channels
	names       nameIndex      // of them, if there are many
	tree        crypto.ChannelTree
	kept        []codec.Entry // runs of channels with the same path, as the next record lists them
	stored      int64         // bytes of the record
	ledger      codec.Ledger  // of its pending writes, if that is known
	ledgerKnown bool

	reads    reads // records that its channels and attributes need
	parts    int64 // bytes of the parts on their paths
	minFulls int64 // sum of their minFull
	values   int64 // their memory

	cached *list.Element // guarded by the cache's lock
	size   int64
}

// header is a record without its channels.
type header struct {
	parent     string // id, "" if there is none or if the parent's record is gone
	dangling   string // the parent's id if that checkpoint does not exist
	parentSeq  uint64
	parentHash [32]byte
	time       int64
	step       int64
	status     string
	schema     uint64
	origin     uint64 // seq of the first checkpoint with this id, which decides its order
	own        bool   // the id is of the engine's own
	ghost      bool   // it was pruned or replaced
	took       bool   // it took over its parent's pending writes
	fuel       uint64
	writes     codec.Ledger // of the parent's pending writes at the time of the save
}

// channelState is the value of a channel and how it is stored.
type channelState struct {
	number uint64
	value  []byte
	chunks crypto.Chunks
	commit [32]byte
	index  codec.Index

	// path lists the records that a restore of the value reads, starting with the one that holds
	// it; parts is the size of the parts that their entries for it name.
	path  codec.Path
	parts int64

	// measured is the size of a full encoding of an earlier version of the value, of which removed
	// bytes are gone. since records which of the others are still in place.
	measured int64
	removed  int
	since    overlap

	// longBase is the record on path to consolidate against: longSince records the bytes that value
	// still shares with the value in that record, and longParts is the size of the parts from there
	// on.
	longBase  uint64
	longSince overlap
	longParts int64
}

// minFull is a lower bound for the size of a full encoding of the value. Bytes added since it was
// measured cannot have made the encoding smaller, and removed ones took at most their own length of
// it. since counts a place once that is overwritten again and again; removed counts changes all
// over the value once each. If the value lost more than half, there is no bound: the rest may have
// been stored raw because the lost part did not compress.
func (c *channelState) minFull() int64 {
	lost := min(c.removed, c.since.lost())
	if 2*lost > c.since.length {
		return 0
	}
	return max(0, c.measured-int64(lost))
}

// unmeasured is by how much a full encoding can be larger than minFull.
func (c *channelState) unmeasured() int64 {
	return int64(c.since.fresh(len(c.value)) + min(c.removed, c.since.lost()))
}

// setMeasured records the size of a full encoding of the value as it was when it had length bytes.
func (c *channelState) setMeasured(size int64, length int) {
	c.measured, c.removed, c.since = size, 0, wholeOverlap(length)
}

// measuredNow reports whether measured is the size for the current value.
func (c *channelState) measuredNow() bool {
	return c.measured > 0 && c.removed == 0 && c.since.isWhole(len(c.value))
}

// Memory of a state besides its values, measured by the heap of 40,000 threads of one message each:
// the state itself, its attributes, the lineage and thread that stay in memory with it, and the
// thread's ciphers.
const (
	stateBytes   = 3000
	channelBytes = 300
)

func (c *channelState) memory() int64 {
	return int64(cap(c.value)+c.chunks.Bytes()+c.index.Bytes()+c.since.memory()+c.longSince.memory()) + channelBytes
}

// Memory of a channel's name, if there are many channels, and of a run of kept ones.
const (
	nameBytes = 64
	keptBytes = 160
)

func (t *checkpointState) memory() int64 {
	return t.values + stateBytes + t.reads.memory() + int64(t.tree.Bytes()) + keptBytes*int64(cap(t.kept)) + nameBytes*int64(len(t.names.sorted))
}

// all yields the attributes and the channels, in the order of their numbers.
func (t *checkpointState) all(yield func(*channelState) bool) {
	if !yield(&t.attrs) {
		return
	}
	for i := range t.chans {
		if !yield(&t.chans[i]) {
			return
		}
	}
}

// version is the name of a value for callers: the first bytes of its commitment. It depends only on
// the bytes, not on their location, so after an older copy of the store was restored it cannot name
// other bytes. It is never 0.
func version(commitment *[32]byte) Version {
	return Version(max(1, binary.BigEndian.Uint64(commitment[:])))
}

// manyEdits is the number of edits above which a value is rebuilt, since each edit may move all
// bytes after it.
const manyEdits = 32

// edit applies edits to the value, in place. lost is the number of its bytes that they remove.
func (c *channelState) edit(edits []codec.Edit, lost int) {
	size, hull := len(c.value), edits
	if len(edits) > manyEdits {
		from, to := edits[0].From, edits[len(edits)-1].To
		insert := codec.AppendEdited(nil, c.value, edits)[from:]
		hull = []codec.Edit{{From: from, To: to, Data: insert[:len(insert)-(size-to)]}}
	}
	for _, e := range slices.Backward(hull) { // so that the places of the others stay
		c.splice(e.From, len(c.value)-e.To, e.Data)
	}
	for _, e := range slices.Backward(edits) {
		c.spliced(size, e, len(e.Data))
		size += len(e.Data) - (e.To - e.From)
	}
	c.removed += lost
}

// spliced records that n bytes replace those that e replaces in a value of size bytes.
func (c *channelState) spliced(size int, e codec.Edit, n int) {
	c.since.spliced(size, e.From, size-e.To, n)
	c.longSince.spliced(size, e.From, size-e.To, n)
}

// splice replaces the bytes between the first prefix and the last suffix bytes of the value, in
// place.
func (c *channelState) splice(prefix, suffix int, insert []byte) {
	old, n := len(c.value), prefix+len(insert)+suffix
	if n > cap(c.value) {
		grown := make([]byte, n, n+n/8)
		copy(grown, c.value[:prefix])
		copy(grown[n-suffix:], c.value[old-suffix:])
		c.value = grown
	} else {
		v := c.value[:max(n, old)]
		if n != old {
			copy(v[n-suffix:n], v[old-suffix:old])
		}
		c.value = v[:n]
	}
	copy(c.value[prefix:], insert)
	c.chunks.Splice(c.value, prefix, suffix)
	c.index.Changed(prefix)
}

// setLongBase makes the record just written the one to consolidate against.
func (c *channelState) setLongBase(seq uint64) {
	c.longBase, c.longSince, c.longParts = seq, wholeOverlap(len(c.value)), c.parts
}

// hashOf is the hash of a checkpoint whose channels have the hash root, docs/format.md §10. buf is
// scratch.
func hashOf(buf []byte, id string, seq uint64, h *header, root [32]byte) ([]byte, [32]byte) {
	lp := func(s string) {
		buf = append(binary.BigEndian.AppendUint64(buf, uint64(len(s))), s...)
	}
	u64 := func(v uint64) { buf = binary.BigEndian.AppendUint64(buf, v) }
	buf = append(buf[:0], "ckptd/hash/2"...)
	lp(id)
	lp(h.dangling)
	buf = append(buf, h.parentHash[:]...)
	u64(seq)
	u64(uint64(h.time))
	u64(uint64(h.step))
	lp(h.status)
	u64(h.schema)
	buf = append(buf, root[:]...)
	u64(h.fuel)
	u64(h.writes.Changes)
	buf = append(buf, h.writes.Sum[:]...)
	return buf, sha256.Sum256(buf)
}

// state restores the whole checkpoint of r.
func (rs *restorer) state(ctx context.Context, r *record) (*checkpointState, error) {
	if err := rs.fetchAll(ctx, r, wanted(all)); err != nil {
		return nil, err
	}
	chans, err := rs.restore(ctx, r, all)
	if err != nil {
		return nil, err
	}
	meta, err := rs.parseMeta(chans[0].path[0].Last, r, chans[0].value)
	if err != nil {
		return nil, err
	}
	t := &checkpointState{l: rs.l, generation: rs.generation, seq: r.seq, id: rs.l.recordID(r), attrs: chans[0], meta: meta, chans: chans[1:], stored: r.size}
	if t.rec, err = rs.header(ctx, r); err != nil {
		return nil, err
	}
	t.reads = readsOf(t, rs.records)
	for c := range t.all {
		t.parts += c.parts
		t.minFulls += c.minFull()
	}
	t.tableChanged()
	_, t.hash = hashOf(nil, t.id, t.seq, &t.rec, t.root())
	return t, nil
}

// stateAt restores the whole checkpoint at seq, which must exist but may be a ghost. For a pruned
// one it returns only the id, with an empty state.
func (rs *restorer) stateAt(ctx context.Context, seq uint64) (*checkpointState, error) {
	r, err := rs.l.readRecord(ctx, seq)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, corrupt(space.Describe(rs.l.RecordKey(seq)), "missing", nil)
	}
	return rs.stateOf(ctx, r)
}

// stateOf is stateAt for a record that was read already.
func (rs *restorer) stateOf(ctx context.Context, r *record) (*checkpointState, error) {
	if r.stub != nil {
		return &checkpointState{l: rs.l, generation: rs.generation, seq: r.seq, id: r.stub.ID, meta: noAttrs}, nil
	}
	var t *checkpointState
	err := errGone
	if !r.rec.Abridged { // else its hash is another one
		t, err = rs.state(ctx, r)
	}
	if r.rec.Ghost && errors.Is(err, errGone) { // a prune left only values that others need
		return &checkpointState{l: rs.l, generation: rs.generation, seq: r.seq, id: rs.l.recordID(r), meta: noAttrs}, nil
	}
	return t, err
}

// errGone is the reason why a record does not restore whose base is missing.
var errGone = errors.New("no such record")

// pruned reports whether the state of t, a parent, is lost.
func (t *checkpointState) pruned() bool { return t.seq != 0 && len(t.attrs.path) == 0 }

// checkpoint returns t for callers, with the values of the channels that wants names; nil names
// none.
func (t *checkpointState) checkpoint(wants wanting) *Checkpoint {
	cp := newCheckpoint(t.l.ref, t.generation, t.seq, t.id, &t.rec, t.meta)
	cp.Hash = t.hash
	cp.Cost.Stored = t.stored
	var want func(name string) bool
	if wants != nil {
		want = wants(cp)
	}
	for i := range t.byName {
		c, info := &t.chans[i], &t.meta.Channels[i]
		ch := Channel{Name: info.Name, Type: info.Type, Size: int64(len(c.value))}
		if want != nil && want(info.Name) {
			ch.Data = append([]byte{}, c.value...) // make would clear the memory first
		}
		ch.describe(&c.commit, info)
		cp.Cost.State += ch.Size
		cp.Cost.Depth = max(cp.Cost.Depth, int(c.path.Len()))
		cp.Cost.Full = cp.Cost.Full || c.path[0].Last == t.seq && c.path.Len() == 1
		cp.Channels = append(cp.Channels, ch)
	}
	return cp
}

func sortChannels(chs []Channel) {
	slices.SortFunc(chs, func(a, b Channel) int { return strings.Compare(a.Name, b.Name) })
}

// newCheckpoint fills in all fields but the channels, the hash and the cost.
func newCheckpoint(ref Ref, generation, seq uint64, id string, h *header, meta *codec.Attrs) *Checkpoint {
	cp := &Checkpoint{
		Ref: ref, Generation: generation, ID: id, Seq: seq, Parent: h.parent, ParentSeq: h.parentSeq,
		Branch: meta.Branch, Time: time.UnixMilli(h.time).UTC(), Step: h.step, Status: h.status, Kind: meta.Kind, SchemaVersion: h.schema,
		RunID: meta.RunID, Labels: maps.Clone(meta.Labels), Meta: bytes.Clone(meta.Meta), Hooks: identities(meta.Hooks), Fuel: h.fuel,
		Delta: slices.Clone(meta.Delta),
	}
	for _, b := range meta.Blobs {
		cp.Blobs = append(cp.Blobs, BlobID(b))
	}
	if n := len(meta.Channels); n > 0 {
		cp.Channels = make([]Channel, 0, n)
	}
	return cp
}
