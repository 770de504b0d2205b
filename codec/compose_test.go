package codec

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/internal/alike"
)

// lineage makes the values of a channel, each with a delta against an older one.
type lineage struct {
	t      *testing.T
	rng    *rand.Rand
	d      *Differ
	values [][]byte
	deltas []Delta // of values[i] against values[base[i]]; none for the first
	base   []int
}

func newLineage(t *testing.T, seed uint64, first []byte) *lineage {
	return &lineage{t: t, rng: newRand(seed), d: NewDiffer(testZstd), values: [][]byte{first}, deltas: make([]Delta, 1), base: make([]int, 1)}
}

// step changes the newest value, and encodes it against it or, to consolidate, against an older
// one.
func (l *lineage) step() {
	last := len(l.values) - 1
	value := l.values[last]
	prefix, suffix, insert := randomSplice(l.rng, value)
	if len(value) > 8000 { // summarise
		prefix, suffix, insert = 100, 50, append(text(l.rng, 200), value[3000:4000]...)
	}
	next := splice(value, prefix, suffix, insert)
	on := last
	if l.rng.IntN(10) == 0 {
		on = l.rng.IntN(len(l.values))
		value = l.values[on]
		prefix = alike.Prefix(value, next)
		suffix = alike.Suffix(value[prefix:], next[prefix:])
		insert = next[prefix : len(next)-suffix]
	}
	var idx Index
	idx.Extend(value)
	l.values = append(l.values, next)
	l.deltas = append(l.deltas, roundTrip(l.t, l.d, value, prefix, suffix, insert, &idx))
	l.base = append(l.base, on)
}

// chain is the list of deltas from value i down to the first, at most depth long.
func (l *lineage) chain(i, depth int) (chain []Delta, full []byte) {
	for ; i > 0 && len(chain) < depth; i = l.base[i] {
		chain = append(chain, l.deltas[i])
	}
	return chain, l.values[i]
}

func TestComposeEqualsApplyingStepByStep(t *testing.T) {
	for seed := range uint64(12) {
		l := newLineage(t, seed, text(newRand(seed), 2000))
		for range 256 {
			l.step()
		}
		for _, i := range []int{0, 1, 2, 3, 100, 255, 256} {
			for _, depth := range []int{1, 2, 7, 256} {
				chain, full := l.chain(i, depth)
				if got := Compose([]byte("keep"), chain, full); string(got[:4]) != "keep" || !bytes.Equal(got[4:], l.values[i]) {
					t.Fatalf("seed %d: value %d out of %d deltas is wrong", seed, i, len(chain))
				}
			}
		}
	}
}

func TestComposeOfAppendsAtDepth256(t *testing.T) {
	rng := newRand(7)
	l := newLineage(t, 7, []byte("[]"))
	for range 256 {
		value, insert := l.values[len(l.values)-1], message(rng, 300)
		var idx Index
		idx.Extend(value)
		l.values = append(l.values, splice(value, len(value)-1, 1, insert))
		l.deltas = append(l.deltas, roundTrip(t, l.d, value, len(value)-1, 1, insert, &idx))
		l.base = append(l.base, len(l.values)-2)
	}
	chain, full := l.chain(256, 256)
	if len(chain) != 256 || !bytes.Equal(Compose(nil, chain, full), l.values[256]) {
		t.Fatalf("chain of %d is wrong", len(chain))
	}
}

// TestComposeTouchesEachByteOnce observes the building of a value: at every level the bytes still
// to be found are disjoint, they only become fewer, and written bytes stay.
func TestComposeTouchesEachByteOnce(t *testing.T) {
	for seed := range uint64(8) {
		l := newLineage(t, seed, text(newRand(seed), 2000))
		for range 64 {
			l.step()
		}
		chain, full := l.chain(64, 256)
		c := composer{out: make([]byte, chain[0].Target), todo: spans{{0, 0, chain[0].Target}}}
		open := slices.Repeat([]bool{true}, len(c.out))
		var before []byte
		for i := range chain {
			before = append(before[:0], c.out...)
			c.descend(&chain[i])
			still := make([]bool, len(c.out))
			length := len(full)
			if i+1 < len(chain) {
				length = chain[i+1].Target
			}
			for _, s := range c.todo {
				if s.n < 0 || s.src < 0 || s.end() > length {
					t.Fatalf("seed %d, level %d: span %+v of %d bytes", seed, i, s, length)
				}
				for j := s.dst; j < s.dst+s.n; j++ {
					if still[j] || !open[j] {
						t.Fatalf("seed %d, level %d: byte %d is to be written twice", seed, i, j)
					}
					still[j] = true
				}
			}
			for j := range c.out {
				if (still[j] || !open[j]) && c.out[j] != before[j] {
					t.Fatalf("seed %d, level %d: byte %d was written too often", seed, i, j)
				}
			}
			open = still
		}
		for j, want := range l.values[64] {
			if !open[j] && c.out[j] != want {
				t.Fatalf("seed %d: byte %d is wrong", seed, j)
			}
		}
	}
}

func TestSpansComeOutLastEndFirst(t *testing.T) {
	rng := newRand(9)
	for range 200 {
		var h spans
		var ends []int
		for range rng.IntN(50) {
			s := span{rng.IntN(100), rng.IntN(100), rng.IntN(100)}
			h.push(s)
			ends = append(ends, s.end())
			if rng.IntN(3) == 0 {
				slices.Sort(ends)
				if got := h.pop().end(); got != ends[len(ends)-1] {
					t.Fatalf("popped the span to %d, want %d", got, ends[len(ends)-1])
				}
				ends = ends[:len(ends)-1]
			}
		}
		if len(h) != len(ends) {
			t.Fatalf("%d spans, want %d", len(h), len(ends))
		}
	}
}
