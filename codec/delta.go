package codec

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/ckptd/ckptd/internal/alike"
)

// blockLen is the length of the hashed blocks of a base, and of the shortest copy worth an
// operation. Measured on 200 agent runs, bytes a step without copies and with copies of at least
// 48, 32, 16, 8: 219, 180, 168, 144, 139.
const blockLen = 16

// Op is one operation of a delta: take Literals bytes, then copy Copied bytes of the base from
// Offset on.
type Op struct {
	Literals, Copied, Offset int
}

// Index finds the 16-byte blocks of one value. It remembers offsets, not bytes: an offset whose
// bytes have changed costs a missed copy, never a wrong one. The zero Index is empty. Not safe for
// concurrent use.
type Index struct {
	table []uint32 // by hash of a block: 8 more bits of the hash, and 24 of the block's number + 1; 0 is none
	upTo  int      // blocks before this offset are in the table
}

// maxIndex bounds the table to 16 KiB, for values of any size: of a value over 64 kB it has only
// the last blocks. A larger table gains nothing on real runs, and with a thousand hot threads each
// lookup in it is a cache miss.
const maxIndex = 1 << 12

// reach is the maximum distance from the end of a value at which Extend begins. Earlier blocks have
// little chance to stay in a table of maxIndex entries, where newer blocks displace others.
const reach = 2 * maxIndex * blockLen

// Bytes is the memory of x.
func (x *Index) Bytes() int { return 4 * cap(x.table) }

// Changed says that only the first prefix bytes of the value are unchanged.
func (x *Index) Changed(prefix int) { x.upTo = min(x.upTo, prefix&^(blockLen-1)) }

// Extend adds the missing blocks of value to the table. Of equal blocks the first stays: the nearer
// a block is to the start of a value, the longer it stays in place, and the fewer deltas a restore
// follows it through.
func (x *Index) Extend(value []byte) {
	if want := len(value) / blockLen; want > len(x.table) && len(x.table) < maxIndex {
		x.table = make([]uint32, max(64, min(maxIndex, 1<<bits.Len(uint(want)))))
		x.upTo = 0
	}
	x.upTo = max(x.upTo, (len(value)-reach)&^(blockLen-1))
	for ; x.upTo+blockLen <= len(value); x.upTo += blockLen {
		slot, tag := x.slot(value[x.upTo:])
		if place(x.table[slot], tag, value, value[x.upTo:]) < 0 {
			x.table[slot] = tag<<24 | uint32(x.upTo/blockLen+1)
		}
	}
}

// slot is the table index of the block at the front of b, and its tag.
func (x *Index) slot(b []byte) (slot uint64, tag uint32) {
	b = b[:blockLen]
	h := (binary.LittleEndian.Uint64(b) ^ binary.LittleEndian.Uint64(b[8:])*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	return h >> 32 & uint64(len(x.table)-1), uint32(h >> 56)
}

// place is the offset in base of the block at the front of b according to the entry e, or -1.
func place(e, tag uint32, base, b []byte) int {
	if e>>24 != tag {
		return -1
	}
	p := (int(e&(1<<24-1)) - 1) * blockLen
	if p < 0 || p+blockLen > len(base) || !bytes.Equal(base[p:p+blockLen], b[:blockLen]) {
		return -1
	}
	return p
}

// next finds the next block of base in b, at i or later. Without matches its steps grow, so that
// such bytes cost little. p is -1 if there is none.
func (x *Index) next(base, b []byte, i int) (at, p int) {
	for from := i; i+blockLen <= len(b); i += 1 + (i-from)>>5 {
		slot, tag := x.slot(b[i:])
		if p := place(x.table[slot], tag, base, b[i:]); p >= 0 {
			return i, p
		}
	}
	return i, -1
}

// Edit replaces the bytes of a base from From up to To. Edits of one base are in order and do not
// overlap.
type Edit struct {
	From, To int
	Data     []byte
}

// Edited is the length of a base of baseLen bytes after edits.
func Edited(baseLen int, edits []Edit) int {
	for i := range edits {
		baseLen += len(edits[i].Data) - (edits[i].To - edits[i].From)
	}
	return baseLen
}

// AppendEdited appends base with the edits applied.
func AppendEdited(dst, base []byte, edits []Edit) []byte {
	at := 0
	for i := range edits {
		dst = append(append(dst, base[at:edits[i].From]...), edits[i].Data...)
		at = edits[i].To
	}
	return append(dst, base[at:]...)
}

// Far finds long stretches of a base in other bytes, at any offset. An Index finds shorter ones,
// but covers less of the base.
type Far interface {
	// Cut returns the length of the chunk at the front of b, and the offset of a chunk of the base
	// with the same bytes, or -1.
	Cut(b []byte) (n, at int)
	// Start is the offset of the chunk of the base that contains offset i, or i at the end.
	Start(i int) int
}

// far is used for replacements of farCut bytes or more, and for insertions of farData bytes or
// more: few appends repeat so much.
const (
	farCut  = 1 << 10
	farData = 64 << 10
)

// Differ encodes deltas. It holds buffers between calls and is not safe for concurrent use.
type Differ struct {
	z        *Zstd
	ops      []Op
	literals []byte
	pending  int // literals after the last copy
}

// NewDiffer returns a Differ that compresses with z.
func NewDiffer(z *Zstd) *Differ { return &Differ{z: z} }

// AppendDelta appends the payload of a delta whose target is base with the edits applied. The bytes
// between the edits are copied; copies in their data are searched with idx and far, unless these
// are nil. If idx is another base's, copies are missed.
func (d *Differ) AppendDelta(dst, base []byte, edits []Edit, idx *Index, far Far) []byte {
	d.find(base, edits, idx, far)
	dst = binary.AppendUvarint(dst, uint64(len(d.ops)))
	end := 0
	for _, op := range d.ops {
		dst = binary.AppendUvarint(dst, uint64(op.Literals))
		dst = binary.AppendUvarint(dst, uint64(op.Copied))
		if op.Copied == 0 {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendVarint(dst, int64(op.Offset-end))
		end = op.Offset + op.Copied
	}
	return d.z.AppendBlock(dst, d.literals)
}

// Edits splits an edit of base into edits that spare the bytes that idx and far find in place.
func (d *Differ) Edits(base []byte, e Edit, idx *Index, far Far) []Edit {
	d.find(base, []Edit{e}, idx, far)
	delta := Delta{Ops: d.ops, Literals: d.literals, Target: Edited(len(base), []Edit{e})}
	return delta.Narrow(nil, []Edit{e})
}

// find makes the operations and literals of a delta.
func (d *Differ) find(base []byte, edits []Edit, idx *Index, far Far) {
	d.ops, d.literals, d.pending = d.ops[:0], d.literals[:0], 0
	if idx != nil && len(idx.table) == 0 {
		idx = nil
	}
	at := 0
	for i := range edits {
		e := &edits[i]
		d.copy(at, e.From-at)
		if far != nil && len(e.Data) >= farCut && (e.To-e.From >= farCut || len(e.Data) >= farData) {
			d.search(base, e.Data, idx, far)
		} else {
			d.match(base, e.Data, idx)
		}
		at = e.To
	}
	if d.copy(at, len(base)-at); d.pending > 0 {
		d.ops = append(d.ops, Op{Literals: d.pending})
	}
}

// copy appends an operation that copies n bytes of the base.
func (d *Differ) copy(from, n int) {
	if n == 0 {
		return
	}
	d.ops = append(d.ops, Op{d.pending, n, from})
	d.pending = 0
}

// literal appends literal bytes.
func (d *Differ) literal(b []byte) {
	d.literals = append(d.literals, b...)
	d.pending += len(b)
}

// search appends the operations and literals for data: it copies stretches that far finds as long
// as they match, and leaves the bytes between to match. After a copy it cuts data where the base's
// chunks are cut, to fall in step again behind the change.
func (d *Differ) search(base, data []byte, idx *Index, far Far) {
	done := 0 // so much of data is encoded
	for at := 0; at < len(data); {
		n, p := far.Cut(data[at:])
		if p < 0 || at+n <= done {
			at += n
			continue
		}
		from := max(at, done)
		back := alike.Suffix(base[:p+from-at], data[done:from])
		end := at + n + alike.Prefix(base[p+n:], data[at+n:])
		d.match(base, data[done:from-back], idx)
		d.copy(p+from-at-back, end-from+back)
		done = end
		stop := p + end - at
		at = max(at+n, end-(stop-far.Start(stop)))
	}
	d.match(base, data[done:], idx)
}

// match appends the operations and literals for data, with copies of the blocks that idx finds.
func (d *Differ) match(base, data []byte, idx *Index) {
	from := 0
	for idx != nil {
		i, p := idx.next(base, data, from)
		if p < 0 {
			break
		}
		back := alike.Suffix(base[:p], data[from:i])
		n := blockLen + alike.Prefix(base[p+blockLen:], data[i+blockLen:])
		d.literal(data[from : i-back])
		d.copy(p-back, back+n)
		from = i + n
	}
	d.literal(data[from:])
}

// Delta is a decoded operation list.
type Delta struct {
	Ops      []Op
	Literals []byte
	Target   int // length of the target
}

// Bounds are the numbers of leading and trailing bytes that the target shares with a base of
// baseLen bytes by d's first and last operation.
func (d *Delta) Bounds(baseLen int) (prefix, suffix int) {
	if len(d.Ops) == 0 {
		return 0, 0
	}
	if first := d.Ops[0]; first.Literals == 0 && first.Offset == 0 {
		prefix = first.Copied
	}
	if last := d.Ops[len(d.Ops)-1]; last.Copied > 0 && last.Offset+last.Copied == baseLen {
		suffix = min(last.Copied, d.Target-prefix, baseLen-prefix)
	}
	return prefix, suffix
}

// Whole returns the block of literals in payload, from which d was parsed, if they are the whole
// target: then it is a full encoding. Otherwise it is nil.
func (d *Delta) Whole(payload []byte) []byte {
	if len(d.Ops) != 1 || d.Ops[0].Copied != 0 {
		return nil
	}
	r := reader{b: payload}
	r.uvarint() // the number of operations
	for range 3 {
		r.uvarint()
	}
	return r.b[:len(r.b):len(r.b)]
}

// ParseDelta decodes the payload of a delta that builds target bytes from a base of baseLen bytes.
// Delta.Ops and Delta.Literals use the free capacity of ops and scratch if it suffices. The copies
// are within baseLen, so the delta must not be applied to a shorter base.
func (z *Zstd) ParseDelta(payload []byte, target, baseLen int, ops []Op, scratch []byte) (Delta, error) {
	if target < 0 || target > MaxChannel || baseLen < 0 || baseLen > MaxChannel {
		return Delta{}, malformed("delta of %d bytes on %d, at most %d are allowed", target, baseLen, MaxChannel)
	}
	r := reader{b: payload}
	n := r.count("operations", uint64(target/8+64))
	built, lits, end := 0, 0, 0
	ops = ops[len(ops):]
	for i := range n {
		op := Op{Literals: int(r.count("literals", uint64(target-built)))}
		built += op.Literals
		lits += op.Literals
		op.Copied = int(r.count("copied bytes", uint64(target-built)))
		built += op.Copied
		skip := r.svarint()
		if op.Copied == 0 && (skip != 0 || i != n-1 || op.Literals == 0) {
			r.fail("empty operation")
		}
		if op.Copied > 0 {
			if skip < -int64(end) || skip > int64(baseLen-end) || int(skip)+end+op.Copied > baseLen {
				r.fail("copy leaves the base")
			}
			op.Offset = end + int(skip)
			end = op.Offset + op.Copied
		}
		if r.err != nil {
			return Delta{}, r.err
		}
		ops = append(ops, op)
	}
	if r.err == nil && built != target {
		r.fail("operations build %d of %d bytes", built, target)
	}
	if r.err != nil {
		return Delta{}, r.err
	}
	start := len(scratch)
	scratch, err := z.AppendRaw(scratch, r.b, lits)
	if err != nil {
		return Delta{}, err
	}
	if len(scratch)-start != lits {
		return Delta{}, malformed("%d literals, operations use %d", len(scratch)-start, lits)
	}
	return Delta{Ops: ops, Literals: scratch[start:], Target: target}, nil
}

// Builds reports whether d builds exactly base with the edits applied, reading only the bytes it
// has to. d must have been parsed for a base of len(base).
func (d *Delta) Builds(base []byte, edits []Edit) bool {
	if d.Target != Edited(len(base), edits) {
		return false
	}
	w := walk{base: base, edits: edits}
	lits := d.Literals
	for _, op := range d.Ops {
		if !w.goesOn(lits[:op.Literals], -1) || !w.goesOn(base[op.Offset:op.Offset+op.Copied], op.Offset) {
			return false
		}
		lits = lits[op.Literals:]
	}
	return len(lits) == 0
}

// walk goes through a base with edits, from left to right.
type walk struct {
	base  []byte
	edits []Edit // the remaining ones
	at    int    // offset in the base
	in    int    // bytes of the first edit already passed, once at is its start
}

// goesOn reports whether the bytes p come next, and moves past them. from is their offset in the
// base, or -1.
func (w *walk) goesOn(p []byte, from int) bool {
	for len(p) > 0 {
		have, known := w.base[w.at:], from == w.at // by construction such a copy needs no comparison
		if len(w.edits) > 0 {
			e := &w.edits[0]
			switch {
			case w.at < e.From:
				have = w.base[w.at:e.From]
			case w.in < len(e.Data):
				have, known = e.Data[w.in:], false
			default:
				w.edits, w.at, w.in = w.edits[1:], e.To, 0
				continue
			}
		}
		n := min(len(have), len(p))
		if n == 0 || !known && !bytes.Equal(have[:n], p[:n]) {
			return false
		}
		if len(w.edits) > 0 && w.at == w.edits[0].From {
			w.in += n
		} else {
			w.at += n
		}
		if p = p[n:]; from >= 0 {
			from += n
		}
	}
	return true
}
