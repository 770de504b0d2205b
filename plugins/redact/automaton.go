package redact

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// automaton finds every occurrence of many short words in a single pass over a text. It is an
// Aho-Corasick machine in which every state has a successor for every class of bytes, so that a
// byte costs two loads. It ignores case, treats all digits as one class, and maps the bytes of
// other scripts to a few classes; code that examines a hit sees the real text.
type automaton struct {
	class  [256]uint8
	next   []uint16   // state<<classBits | class -> state
	accept uint16     // the first state in which words end
	ends   [][]uint16 // words that end in each state, by state-accept
	most   int        // length of the longest word in bytes
}

// hit is a position where words end.
type hit struct {
	end   int
	state uint16
}

const parts = 4 // number of parts of a text that are scanned at once

// hits is scratch for scan.
type hits [parts][]hit

// scan returns the hits in a text, in order. They are valid until the next call with h. Of
// consecutive digits only the first is a hit.
//
// Each step has to wait for the previous one, so a longer text is scanned as four parts at once.
func (a *automaton) scan(h *hits, text []byte) []hit {
	n := len(text) / parts
	h[0] = h[0][:0]
	if n < 2*a.most {
		h[0] = a.scanFrom(h[0], text, 0, 0)
		return h[0]
	}
	var states [parts - 1]uint16
	for k := range states {
		h[k+1] = h[k+1][:0]
		for _, b := range text[(k+1)*n-a.most : (k+1)*n] {
			states[k] = a.step(states[k], b)
		}
	}
	s0, s1, s2, s3 := uint16(0), states[0], states[1], states[2]
	t0, t1, t2, t3 := text[:n], text[n:2*n], text[2*n:3*n], text[3*n:4*n]
	for i := range t0 {
		s0, s1, s2, s3 = a.step(s0, t0[i]), a.step(s1, t1[i]), a.step(s2, t2[i]), a.step(s3, t3[i])
		if s0 >= a.accept {
			h[0] = a.note(h[0], text, i, s0)
		}
		if s1 >= a.accept {
			h[1] = a.note(h[1], text, n+i, s1)
		}
		if s2 >= a.accept {
			h[2] = a.note(h[2], text, 2*n+i, s2)
		}
		if s3 >= a.accept {
			h[3] = a.note(h[3], text, 3*n+i, s3)
		}
	}
	for _, more := range h[1:] {
		h[0] = append(h[0], more...)
	}
	h[0] = a.scanFrom(h[0], text, parts*n, s3)
	return h[0]
}

// scanFrom continues at text[at:].
func (a *automaton) scanFrom(hits []hit, text []byte, at int, state uint16) []hit {
	for i := at; i < len(text); i++ {
		if state = a.step(state, text[i]); state >= a.accept {
			hits = a.note(hits, text, i, state)
		}
	}
	return hits
}

func (a *automaton) note(hits []hit, text []byte, i int, state uint16) []hit {
	if i > 0 && isDigit(text[i]) && isDigit(text[i-1]) {
		return hits
	}
	return append(hits, hit{i + 1, state})
}

const classBits = 6 // of a class; the words have fewer than 64 classes of bytes

const digitByte = '0' // represents every digit in the words of an automaton

// fold maps a byte to the representative of its class.
func fold(b byte) byte {
	switch {
	case 'A' <= b && b <= 'Z':
		return b + 'a' - 'A'
	case '0' <= b && b <= '9':
		return digitByte
	case b >= 0x80:
		return 0x80 | b&0x0f
	}
	return b
}

// node is a state while the automaton is built.
type node struct {
	children map[byte]int
	fail     int
	ends     []uint16
}

// newAutomaton returns the automaton for the words. The number of a word is its index in the list.
func newAutomaton(words []string) (*automaton, error) {
	a := &automaton{}
	classes := uint8(1)
	nodes := []*node{{children: map[byte]int{}}}
	for i, word := range words {
		a.most = max(a.most, len(word))
		at := 0
		for _, b := range []byte(word) {
			b = fold(b)
			if a.class[b] == 0 {
				a.class[b] = classes
				classes++
			}
			if _, ok := nodes[at].children[b]; !ok {
				nodes[at].children[b] = len(nodes)
				nodes = append(nodes, &node{children: map[byte]int{}})
			}
			at = nodes[at].children[b]
		}
		nodes[at].ends = append(nodes[at].ends, uint16(i))
	}
	if len(nodes) > math.MaxUint16 || classes > 1<<classBits {
		return nil, fmt.Errorf("the keywords have %d characters, %d different ones: use fewer or shorter ones", len(nodes), classes)
	}
	for b := range a.class {
		a.class[b] = a.class[fold(byte(b))]
	}
	a.fill(nodes, link(nodes))
	return a, nil
}

// link sets the fail links and returns the nodes ordered by depth.
func link(nodes []*node) []int {
	order := []int{0}
	for k := 0; k < len(order); k++ {
		n := nodes[order[k]]
		for _, b := range sortedKeys(n.children) {
			child := n.children[b]
			order = append(order, child)
			if order[k] == 0 {
				continue
			}
			f := n.fail
			for f != 0 && nodes[f].children[b] == 0 {
				f = nodes[f].fail
			}
			nodes[child].fail = nodes[f].children[b]
			nodes[child].ends = append(nodes[child].ends, nodes[nodes[child].fail].ends...)
		}
	}
	return order
}

// fill builds the table. States in which words end come last.
func (a *automaton) fill(nodes []*node, order []int) {
	state := make([]uint16, len(nodes))
	byEnd := slices.Clone(order)
	slices.SortStableFunc(byEnd, func(x, y int) int { return cmp.Compare(min(1, len(nodes[x].ends)), min(1, len(nodes[y].ends))) })
	a.accept = uint16(len(nodes))
	for i, n := range byEnd {
		state[n] = uint16(i)
		if len(nodes[n].ends) > 0 {
			a.accept = min(a.accept, state[n])
			a.ends = append(a.ends, nodes[n].ends)
		}
	}
	row := func(n int) []uint16 { return a.next[int(state[n])<<classBits:][:1<<classBits] }
	a.next = make([]uint16, len(nodes)<<classBits)
	for _, n := range order {
		if n != 0 {
			copy(row(n), row(nodes[n].fail))
		}
		for b, child := range nodes[n].children {
			row(n)[a.class[b]] = state[child]
		}
	}
}

// step returns the state after a byte.
func (a *automaton) step(state uint16, b byte) uint16 {
	return a.next[uint(state)<<classBits|uint(a.class[b])]
}

// at returns the words that end in an accepting state.
func (a *automaton) at(state uint16) []uint16 { return a.ends[state-a.accept] }

func sortedKeys(m map[byte]int) []byte {
	keys := make([]byte, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
