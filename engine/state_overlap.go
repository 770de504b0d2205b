package engine

import (
	"slices"

	"github.com/ckptd/ckptd/codec"
)

// overlap records which bytes a value still shares with an older one of length bytes: the leading
// and trailing ones, and stretches between them.
type overlap struct {
	length, prefix, suffix int

	inner []codec.Copy // in order of both values
	spare []codec.Copy // memory for the next inner
}

const (
	minInner = 32  // a shorter stretch is not worth an operation
	maxInner = 256 // the longest are kept
)

func wholeOverlap(n int) overlap { return overlap{length: n, prefix: n, suffix: n} }

// isWhole reports whether the value equals the older one.
func (o *overlap) isWhole(size int) bool {
	return o.length == size && o.prefix == size && o.suffix == size
}

// spliced narrows o by a splice that puts n bytes between the first prefix and the last suffix
// bytes of a value of size bytes.
func (o *overlap) spliced(size, prefix, suffix, n int) {
	had, end := *o, size-suffix // end is that of the replaced bytes
	o.prefix, o.suffix = min(o.prefix, prefix), min(o.suffix, suffix)
	if len(o.inner) == 0 && (had.prefix <= end || had.suffix >= suffix) && (size-had.suffix >= prefix || had.prefix >= prefix) {
		return // nothing is left between them
	}
	grown := prefix + n - end
	o.inner, o.spare = o.spare[:0], o.inner
	keep := func(c codec.Copy) {
		o.add(codec.Copy{At: c.At, From: c.From, N: min(c.N, prefix-c.At)}, size+grown)
		skip := max(0, end-c.At)
		o.add(codec.Copy{At: c.At + skip + grown, From: c.From + skip, N: c.N - skip}, size+grown)
	}
	keep(codec.Copy{N: had.prefix})
	for _, c := range had.inner {
		keep(c)
	}
	keep(codec.Copy{At: size - had.suffix, From: o.length - had.suffix, N: had.suffix})
	for least := 2 * minInner; len(o.inner) > maxInner; least *= 2 {
		o.inner = slices.DeleteFunc(o.inner, func(c codec.Copy) bool { return c.N < least })
	}
}

// add appends the part of c between the last stretch and the suffix, in a value of size bytes.
func (o *overlap) add(c codec.Copy, size int) {
	at, from := o.prefix, o.prefix
	if n := len(o.inner); n > 0 {
		last := o.inner[n-1]
		at, from = last.At+last.N, last.From+last.N
	}
	skip := max(0, at-c.At, from-c.From)
	c.At, c.From, c.N = c.At+skip, c.From+skip, c.N-skip
	if c.N = min(c.N, size-o.suffix-c.At, o.length-o.suffix-c.From); c.N >= minInner {
		o.inner = append(o.inner, c)
	}
}

func (o *overlap) innerBytes() (n int) {
	for i := range o.inner {
		n += o.inner[i].N
	}
	return n
}

// lost is the number of bytes of the older value that are gone.
func (o *overlap) lost() int { return max(0, o.length-o.prefix-o.suffix-o.innerBytes()) }

// ends returns how many leading and trailing bytes a value of size bytes shares with the older one,
// counting none twice.
func (o *overlap) ends(size int) (prefix, suffix int) {
	prefix = min(o.prefix, size, o.length)
	return prefix, min(o.suffix, size-prefix, o.length-prefix)
}

// fresh is the number of bytes, out of size, that are not from the older value.
func (o *overlap) fresh(size int) int {
	prefix, suffix := o.ends(size)
	return size - prefix - suffix - o.innerBytes()
}

// edits make value of the older one.
func (o *overlap) edits(value []byte) []codec.Edit {
	at, suffix := o.ends(len(value))
	from := at
	edits := make([]codec.Edit, 0, len(o.inner)+1)
	for _, c := range o.inner {
		edits = append(edits, codec.Edit{From: from, To: c.From, Data: value[at:c.At]})
		at, from = c.At+c.N, c.From+c.N
	}
	return append(edits, codec.Edit{From: from, To: o.length - suffix, Data: value[at : len(value)-suffix]})
}

// memory is the size of o's lists.
func (o *overlap) memory() int { return 24 * (cap(o.inner) + cap(o.spare)) }
