package codec

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/ckptd/ckptd/internal/alike"
)

// blockLen is the length of the blocks of a base that are hashed, and of the shortest copy worth an operation.
// Measured on 200 agent runs, bytes a step without/with copies of at least 48, 32, 16, 8: 219, 180, 168, 144, 139.
const blockLen = 16

// Op is one operation of a delta: take Literals bytes, then copy Copied bytes of the base from Offset on.
type Op struct {
	Literals, Copied, Offset int
}

// Index finds the 16-byte blocks of one value. It remembers places, not bytes: a place that no longer holds what was
// indexed costs a missed copy, never a wrong one. The zero Index is empty. Not safe for concurrent use.
type Index struct {
	table []uint32 // by hash of a block: 8 more bits of the hash, and 24 of the block's number + 1; 0 is none
	upTo  int      // blocks before this place are in the table
}

// maxIndex bounds the table to 16 KiB, whatever the value: of a value over 64 kB it knows the blocks that came last. A
// larger one gains nothing on real runs, and with a thousand hot threads each look into it is a cache miss.
const maxIndex = 1 << 12

// Bytes is the memory that x holds.
func (x *Index) Bytes() int { return 4 * cap(x.table) }

// Changed tells x that value kept only its first prefix bytes.
func (x *Index) Changed(prefix int) { x.upTo = min(x.upTo, prefix&^(blockLen-1)) }

// Extend brings the blocks of value into the table that are not in it yet. Of equal blocks the first stays: the nearer
// the start of a value the longer a block stays where it is, and the fewer links of a chain a restore follows it down.
func (x *Index) Extend(value []byte) {
	if want := len(value) / blockLen; want > len(x.table) && len(x.table) < maxIndex {
		x.table = make([]uint32, max(64, min(maxIndex, 1<<bits.Len(uint(want)))))
		x.upTo = 0
	}
	for ; x.upTo+blockLen <= len(value); x.upTo += blockLen {
		slot, tag := x.slot(value[x.upTo:])
		if place(x.table[slot], tag, value, value[x.upTo:]) < 0 {
			x.table[slot] = tag<<24 | uint32(x.upTo/blockLen+1)
		}
	}
}

// slot is where the block at the front of b belongs, and its tag.
func (x *Index) slot(b []byte) (slot uint64, tag uint32) {
	b = b[:blockLen]
	h := (binary.LittleEndian.Uint64(b) ^ binary.LittleEndian.Uint64(b[8:])*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	return h >> 32 & uint64(len(x.table)-1), uint32(h >> 56)
}

// place is where the entry e says that base has the block at the front of b, or -1 if it has not.
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

// next finds the next block of base in b, at i or after. Where nothing matches it strides ever wider, so that bytes
// without matches cost little. Without a match p is -1.
func (x *Index) next(base, b []byte, i int) (at, p int) {
	for from := i; i+blockLen <= len(b); i += 1 + (i-from)>>5 {
		slot, tag := x.slot(b[i:])
		if p := place(x.table[slot], tag, base, b[i:]); p >= 0 {
			return i, p
		}
	}
	return i, -1
}

// Differ encodes deltas. It holds buffers between calls and is not safe for concurrent use.
type Differ struct {
	z        *Zstd
	ops      []Op
	literals []byte
}

// NewDiffer returns a Differ that compresses with z.
func NewDiffer(z *Zstd) *Differ { return &Differ{z: z} }

// AppendDelta appends the payload of a delta: the target is base with insert in place of what stands between its
// first prefix and last suffix bytes, which must not overlap. A nil idx looks for no copies in the middle; an idx that
// is not base's costs missed copies.
func (d *Differ) AppendDelta(dst, base []byte, prefix, suffix int, insert []byte, idx *Index) []byte {
	d.ops, d.literals = d.ops[:0], d.literals[:0]
	lits := 0
	if prefix > 0 {
		d.ops = append(d.ops, Op{0, prefix, 0})
	}
	if idx != nil && len(idx.table) > 0 {
		lits = d.match(base, insert, idx)
	} else {
		d.literals = append(d.literals, insert...)
		lits = len(insert)
	}
	if lits > 0 || suffix > 0 {
		d.ops = append(d.ops, Op{lits, suffix, len(base) - suffix})
		if suffix == 0 {
			d.ops[len(d.ops)-1].Offset = 0
		}
	}
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

// match appends the operations and literals for insert, and returns how many literals are left after the last copy.
func (d *Differ) match(base, insert []byte, idx *Index) int {
	from := 0
	for {
		i, p := idx.next(base, insert, from)
		if p < 0 {
			break
		}
		back := alike.Suffix(base[:p], insert[from:i])
		n := blockLen + alike.Prefix(base[p+blockLen:], insert[i+blockLen:])
		d.literals = append(d.literals, insert[from:i-back]...)
		d.ops = append(d.ops, Op{i - back - from, back + n, p - back})
		from = i + n
	}
	d.literals = append(d.literals, insert[from:]...)
	return len(insert) - from
}

// Delta is a decoded operation list.
type Delta struct {
	Ops      []Op
	Literals []byte
	Target   int // length of what it builds
}

// Bounds are the leading and trailing bytes that the target shares with a base of baseLen bytes by d's first and last
// operation.
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

// Whole returns the block of the literals in payload, from which d was parsed, if they are all of the target: then it
// is a full encoding of that. Otherwise it is nil.
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

// ParseDelta decodes the payload of a delta that builds target bytes out of a base of baseLen bytes. Delta.Ops and
// Delta.Literals lie in what ops and scratch have free after their length, if that is room enough. The copies are within
// baseLen, so the delta must meet no shorter base.
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

// Builds reports whether d builds exactly base with insert between its first prefix and last suffix bytes, without
// building more than it has to look at. d must have been parsed for a base of len(base).
func (d *Delta) Builds(base []byte, prefix, suffix int, insert []byte) bool {
	if d.Target != prefix+len(insert)+suffix {
		return false
	}
	at, lits := 0, d.Literals
	for _, op := range d.Ops {
		if !sameAt(base, prefix, suffix, insert, at, lits[:op.Literals]) {
			return false
		}
		at, lits = at+op.Literals, lits[op.Literals:]
		// A copy from where the target has the same bytes by construction needs no look.
		inPrefix := at+op.Copied <= prefix && op.Offset == at
		inSuffix := at >= prefix+len(insert) && op.Offset-at == len(base)-d.Target
		if !inPrefix && !inSuffix && !sameAt(base, prefix, suffix, insert, at, base[op.Offset:op.Offset+op.Copied]) {
			return false
		}
		at += op.Copied
	}
	return at == d.Target && len(lits) == 0
}

// sameAt reports whether the target has the bytes p at place at.
func sameAt(base []byte, prefix, suffix int, insert []byte, at int, p []byte) bool {
	for len(p) > 0 {
		var have []byte
		switch {
		case at < prefix:
			have = base[at:prefix]
		case at < prefix+len(insert):
			have = insert[at-prefix:]
		default:
			have = base[len(base)-suffix+at-prefix-len(insert):]
		}
		n := min(len(have), len(p))
		if n == 0 || !bytes.Equal(have[:n], p[:n]) {
			return false
		}
		at, p = at+n, p[n:]
	}
	return true
}
