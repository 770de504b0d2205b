package redact

import (
	"cmp"
	"slices"
)

// automaton finds every occurrence of many short words in one pass over a text: an Aho-Corasick machine in which every
// state knows its successor for every class of bytes, so that a byte costs two loads. Letters are taken without case,
// and all digits as one: whoever looks closer at a hit sees the text.
type automaton struct {
	class  [256]uint8
	width  uint32     // classes
	next   []uint32   // state and class -> state; states are counted in steps of width
	accept uint32     // the first state in which words end
	ends   [][]uint16 // the words that end there, by state/width - accept/width
}

const digitByte = '0' // stands for every digit in the words of an automaton

// fold is the byte that stands for b.
func fold(b byte) byte {
	switch {
	case 'A' <= b && b <= 'Z':
		return b + 'a' - 'A'
	case '0' <= b && b <= '9':
		return digitByte
	}
	return b
}

// node is a state while the automaton is built.
type node struct {
	children map[byte]int
	fail     int
	ends     []uint16
}

// newAutomaton returns the automaton of the words. The number of a word is its place in the list.
func newAutomaton(words []string) *automaton {
	a := &automaton{width: 1}
	nodes := []*node{{children: map[byte]int{}}}
	for i, word := range words {
		at := 0
		for _, b := range []byte(word) {
			b = fold(b)
			if a.class[b] == 0 {
				a.class[b] = uint8(a.width)
				a.width++
			}
			if _, ok := nodes[at].children[b]; !ok {
				nodes[at].children[b] = len(nodes)
				nodes = append(nodes, &node{children: map[byte]int{}})
			}
			at = nodes[at].children[b]
		}
		nodes[at].ends = append(nodes[at].ends, uint16(i))
	}
	for b := range a.class {
		a.class[b] = a.class[fold(byte(b))]
	}
	a.fill(nodes, link(nodes))
	return a
}

// link sets the fail links and returns the nodes by their depth.
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

// fill makes the table. States in which words end come last.
func (a *automaton) fill(nodes []*node, order []int) {
	state := make([]uint32, len(nodes))
	byEnd := slices.Clone(order)
	slices.SortStableFunc(byEnd, func(x, y int) int { return cmp.Compare(min(1, len(nodes[x].ends)), min(1, len(nodes[y].ends))) })
	a.accept = uint32(len(nodes)) * a.width
	for i, n := range byEnd {
		state[n] = uint32(i) * a.width
		if len(nodes[n].ends) > 0 {
			a.accept = min(a.accept, state[n])
			a.ends = append(a.ends, nodes[n].ends)
		}
	}
	a.next = make([]uint32, uint32(len(nodes))*a.width)
	for _, n := range order {
		row := a.next[state[n] : state[n]+a.width]
		if n != 0 {
			copy(row, a.next[state[nodes[n].fail]:][:a.width])
		}
		for b, child := range nodes[n].children {
			row[a.class[b]] = state[child]
		}
	}
}

// at returns the words that end in an accepting state.
func (a *automaton) at(state uint32) []uint16 { return a.ends[(state-a.accept)/a.width] }

func sortedKeys(m map[byte]int) []byte {
	keys := make([]byte, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
