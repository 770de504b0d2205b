package codec

import "slices"

// Compose builds the target of chain[0], where the base of each delta is the target of the next and
// that of the last is full. It follows every range of the target down the operation lists to the
// bytes that it comes from, and writes it once. The result is appended to dst, which must share no
// memory with chain and full. Each delta must have been parsed for a base of the length that the
// next one builds, and the last for len(full).
func Compose(dst []byte, chain []Delta, full []byte) []byte {
	if len(chain) == 0 {
		return append(dst, full...)
	}
	start := len(dst)
	dst = slices.Grow(dst, chain[0].Target)[:start+chain[0].Target]
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

// spans is a heap, with the span that ends last in the target on top. (container/heap would
// allocate for every span.)
type spans []span

func (s span) end() int { return s.src + s.n }

func (h *spans) push(s span) {
	q := append(*h, s)
	i := len(q) - 1
	for i > 0 && q[(i-1)/2].end() < s.end() {
		q[i], i = q[(i-1)/2], (i-1)/2
	}
	q[i], *h = s, q
}

func (h *spans) pop() span {
	q := *h
	top, s := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	i := 0
	for c := 1; c < len(q); c = 2*i + 1 {
		if c+1 < len(q) && q[c+1].end() > q[c].end() {
			c++
		}
		if q[c].end() <= s.end() {
			break
		}
		q[i], i = q[c], c
	}
	if len(q) > 0 {
		q[i] = s
	}
	return top
}

type composer struct {
	out   []byte
	todo  spans
	moved []span
	at    []int // where each operation of the current delta starts in its target
	lit   []int // where its literals start
}

// descend maps todo from the target of d to its base. The common prefix of base and target stays as
// it is, so a span waits on the heap until a level concerns it: histories that append cost the
// number of their operations, not the product of their depth and their spans.
func (c *composer) descend(d *Delta) {
	prefix := 0
	if len(d.Ops) > 0 && d.Ops[0].Literals == 0 && d.Ops[0].Offset == 0 {
		prefix = d.Ops[0].Copied
	}
	c.at, c.lit, c.moved = c.at[:0], c.lit[:0], c.moved[:0]
	for len(c.todo) > 0 && c.todo[0].end() > prefix {
		s := c.todo.pop()
		if len(c.at) == 0 {
			c.locate(d)
		}
		c.split(d, s)
	}
	for _, s := range c.moved {
		c.todo.push(s)
	}
}

func (c *composer) locate(d *Delta) {
	at, lit := 0, 0
	for _, op := range d.Ops {
		c.at, c.lit = append(c.at, at), append(c.lit, lit)
		at, lit = at+op.Literals+op.Copied, lit+op.Literals
	}
}

// split writes the literal bytes of s in d, and moves the rest to the base.
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
