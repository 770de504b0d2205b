package codec

import "container/heap"

// Compose builds the target of chain[0], where each delta stands on the target of the next and the last on full. It
// follows every range of the target down the operation lists to the bytes that it comes from, and writes it once.
// The result is appended to dst.
func Compose(dst []byte, chain []Delta, full []byte) []byte {
	if len(chain) == 0 {
		return append(dst, full...)
	}
	start := len(dst)
	dst = grow(dst, chain[0].Target)[:start+chain[0].Target]
	c := composer{out: dst[start:]}
	c.todo = spans{{0, 0, chain[0].Target}}
	for i := range chain {
		c.descend(&chain[i])
	}
	for _, s := range c.todo {
		copy(c.out[s.dst:s.dst+s.n], full[s.src:s.src+s.n])
	}
	return dst
}

// span says that out[dst:dst+n] is the current level's target[src:src+n].
type span struct{ dst, src, n int }

// spans is a heap, the span that ends last in the target on top.
type spans []span

func (h spans) Len() int           { return len(h) }
func (h spans) Less(i, j int) bool { return h[i].src+h[i].n > h[j].src+h[j].n }
func (h spans) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *spans) Push(x any)        { *h = append(*h, x.(span)) }
func (h *spans) Pop() any {
	s := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return s
}

type composer struct {
	out   []byte
	todo  spans
	moved []span
	at    []int // where each operation of the current delta starts in its target
	lit   []int // where its literals start
}

// descend maps todo from the target of d to its base. What lies in the prefix that base and target share stays as it
// is, so a span waits on the heap until a level concerns it: histories that append cost their operations, not the
// product of their depth and their spans.
func (c *composer) descend(d *Delta) {
	prefix := 0
	if len(d.Ops) > 0 && d.Ops[0].Literals == 0 && d.Ops[0].Offset == 0 {
		prefix = d.Ops[0].Copied
	}
	c.at, c.lit, c.moved = c.at[:0], c.lit[:0], c.moved[:0]
	for len(c.todo) > 0 && c.todo[0].src+c.todo[0].n > prefix {
		s := heap.Pop(&c.todo).(span)
		if len(c.at) == 0 {
			c.locate(d)
		}
		c.split(d, s)
	}
	for _, s := range c.moved {
		heap.Push(&c.todo, s)
	}
}

func (c *composer) locate(d *Delta) {
	at, lit := 0, 0
	for _, op := range d.Ops {
		c.at, c.lit = append(c.at, at), append(c.lit, lit)
		at, lit = at+op.Literals+op.Copied, lit+op.Literals
	}
}

// split writes the part of s that d has as literals, and moves the rest to the base.
func (c *composer) split(d *Delta, s span) {
	i, j := 0, len(c.at) // the last operation that starts at or before s.src
	for j-i > 1 {
		if m := int(uint(i+j) >> 1); c.at[m] <= s.src {
			i = m
		} else {
			j = m
		}
	}
	for ; s.n > 0; i++ {
		op, skip := d.Ops[i], s.src-c.at[i]
		if skip < op.Literals {
			n := copy(c.out[s.dst:s.dst+s.n], d.Literals[c.lit[i]+skip:c.lit[i]+op.Literals])
			s = span{s.dst + n, s.src + n, s.n - n}
			skip += n
		}
		if n := min(op.Literals+op.Copied-skip, s.n); n > 0 {
			c.moved = append(c.moved, span{s.dst, op.Offset + skip - op.Literals, n})
			s = span{s.dst + n, s.src + n, s.n - n}
		}
	}
}
