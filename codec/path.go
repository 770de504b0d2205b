package codec

import (
	"encoding/binary"
	"slices"
)

// Span is a range of consecutive seqs: Last, Last-1, … Last-Len+1.
type Span struct{ Last, Len uint64 }

// Path lists the records that a restore reads besides the one with the path, newest first, as
// maximal spans.
type Path []Span

// Extend puts seq, which must be greater than all of p, in front of p. The result shares no memory
// with p.
func (p Path) Extend(seq uint64) Path {
	if len(p) > 0 && p[0].Last+1 == seq {
		q := slices.Clone(p)
		q[0] = Span{seq, p[0].Len + 1}
		return q
	}
	return append(Path{{seq, 1}}, p...)
}

// Len is the number of seqs in p.
func (p Path) Len() (n uint64) {
	for _, r := range p {
		n += r.Len
	}
	return n
}

// From is the part of p that begins with seq, or nil if seq is not in p. It may share memory with
// p.
func (p Path) From(seq uint64) Path {
	for i, r := range p {
		if seq <= r.Last && r.Last-seq < r.Len {
			if seq == r.Last {
				return p[i:]
			}
			return append(Path{{seq, r.Len - (r.Last - seq)}}, p[i+1:]...)
		}
	}
	return nil
}

// All yields the seqs of p, newest first.
func (p Path) All(yield func(uint64) bool) {
	for _, r := range p {
		for i := range r.Len {
			if !yield(r.Last - i) {
				return
			}
		}
	}
}

func (p Path) append(dst []byte, seq uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	for _, r := range p {
		dst = binary.AppendUvarint(dst, seq-r.Last)
		dst = binary.AppendUvarint(dst, r.Len)
		seq = r.Last - r.Len + 1
	}
	return dst
}

// path reads a path into the memory of p.
func (r *reader) path(p Path, seq uint64) Path {
	n := r.count("spans of a path", MaxPath)
	p = p[:0]
	total := uint64(0)
	for i := range n {
		gap, length := r.uvarint(), r.count("records of a path", MaxPath)
		if gap == 0 || gap == 1 && i > 0 || length == 0 || gap >= seq || length > seq-gap {
			r.fail("bad path")
		}
		if total += length; total > MaxPath {
			r.fail("path is too long")
		}
		if r.err != nil {
			return nil
		}
		p = append(p, Span{seq - gap, length})
		seq = seq - gap - length + 1
	}
	return p
}
