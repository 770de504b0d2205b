package codec

import (
	"cmp"
	"slices"
)

// Copy says that N bytes of a target, at offset At, are those of its base at offset From.
type Copy struct{ At, From, N int }

const (
	minCopy   = 64 // shorter copies are not worth an edit of their own
	maxCopies = 64 // maximum number of copies considered, the longest

	minMoved = 512 // shorter stretches that moved count as new bytes
)

// copies appends the longer copies of d within target[at:to] and base[from:upTo], in order in both.
// While there are few, it chooses those with the most bytes in all.
func (d *Delta) copies(dst []Copy, at, to, from, upTo int) []Copy {
	start, place := len(dst), 0
	for _, op := range d.Ops {
		place += op.Literals
		c := Copy{place, op.Offset, op.Copied}
		place += op.Copied
		if skip := max(0, at-c.At, from-c.From); skip > 0 {
			c = Copy{c.At + skip, c.From + skip, c.N - skip}
		}
		if c.N = min(c.N, to-c.At, upTo-c.From); c.N >= minCopy {
			dst = append(dst, c)
		}
	}
	return append(dst[:start], increasing(longest(dst[start:]))...)
}

// longest drops the shortest copies until there are at most maxCopies.
func longest(all []Copy) []Copy {
	for least := 2 * minCopy; len(all) > maxCopies; least *= 2 {
		all = slices.DeleteFunc(all, func(c Copy) bool { return c.N < least })
	}
	return all
}

// increasing returns those of some copies in order of the target that are in order of the base too,
// choosing the most bytes.
func increasing(all []Copy) []Copy {
	if slices.IsSortedFunc(all, func(b, a Copy) int { return cmp.Compare(b.From, a.From+a.N) }) {
		return all
	}
	type chain struct{ bytes, before int } // of the best list that ends with a copy
	best, last := make([]chain, len(all)), -1
	for i, c := range all {
		best[i] = chain{c.N, -1}
		for j, b := range all[:i] {
			if b.From+b.N <= c.From && best[j].bytes+c.N > best[i].bytes {
				best[i] = chain{best[j].bytes + c.N, j}
			}
		}
		if last < 0 || best[i].bytes > best[last].bytes {
			last = i
		}
	}
	n := len(all)
	kept := make([]Copy, n)
	for i := last; i >= 0; i = best[i].before {
		n--
		kept[n] = all[i]
	}
	return kept[n:]
}

// Kept appends the stretches that the target of d shares with a base of baseLen bytes, in order: a
// prefix and a suffix, each of which may be empty, and the longer copies between.
func (d *Delta) Kept(dst []Copy, baseLen int) []Copy {
	prefix, suffix := d.Bounds(baseLen)
	dst = append(dst, Copy{0, 0, prefix})
	if to, upTo := d.Target-suffix, baseLen-suffix; to-prefix >= minCopy && upTo-prefix >= minCopy {
		dst = d.copies(dst, prefix, to, prefix, upTo)
	}
	return append(dst, Copy{d.Target - suffix, baseLen - suffix, suffix})
}

// Narrow returns the edits from which d was made, without the bytes that d copies in place. It
// appends them to dst.
func (d *Delta) Narrow(dst, edits []Edit) []Edit {
	worth := func(e Edit) bool { return len(e.Data) >= minCopy && e.To-e.From >= minCopy }
	if !slices.ContainsFunc(edits, worth) {
		return append(dst, edits...)
	}
	var room [maxCopies]Copy
	copies := room[:0]
	grown := 0 // by the edits before
	for _, e := range edits {
		at, from := 0, e.From
		if start := e.From + grown; worth(e) {
			copies = d.copies(copies[:0], start, start+len(e.Data), e.From, e.To)
			for _, c := range copies {
				dst = append(dst, Edit{from, c.From, e.Data[at : c.At-start]})
				at, from = c.At-start+c.N, c.From+c.N
			}
		}
		dst = append(dst, Edit{from, e.To, e.Data[at:]})
		grown += len(e.Data) - (e.To - e.From)
	}
	return dst
}

// Lost is the number of bytes of the base that the edits, from Narrow, remove. Bytes that moved in
// longer stretches count a quarter: they may take less space where they went.
func (d *Delta) Lost(edits []Edit) int {
	replaced := 0
	for i := range edits {
		replaced += edits[i].To - edits[i].From
	}
	if replaced < minCopy {
		return replaced
	}
	return replaced - covered(d.Ops, edits)*3/4
}

// covered is how many of the bytes that the edits replace are in some longer copy.
func covered(ops []Op, edits []Edit) (n int) {
	byOffset := func(a, b Op) int { return cmp.Compare(a.Offset, b.Offset) }
	if !slices.IsSortedFunc(ops, byOffset) {
		ops = slices.Clone(ops)
		slices.SortFunc(ops, byOffset)
	}
	end := 0 // end of the last copy
	for _, op := range ops {
		if op.Copied < minMoved {
			continue
		}
		from, to := max(end, op.Offset), op.Offset+op.Copied
		for len(edits) > 0 && edits[0].To <= from {
			edits = edits[1:]
		}
		for _, e := range edits {
			if e.From >= to {
				break
			}
			n += max(0, min(to, e.To)-max(from, e.From))
		}
		end = max(end, to)
	}
	return n
}
