package crypto

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// ChannelTree is the hash tree over the channels of a checkpoint (docs/format.md §10). It keeps its
// nodes, so a checkpoint costs little more than its changed channels. The zero value is ready for
// use. It is not safe for concurrent use.
type ChannelTree struct {
	levels [][]treeNode // the parents of the channels first, the root last
	buf    []byte
}

// treeNode is a node. Its children are channels, or nodes of the level below: those whose number
// divided by fanout is index.
type treeNode struct {
	index uint64
	from  int // index of the first child
	stale bool
	sum   [32]byte
}

// fanout is the maximum number of children of a node. With 16 a checkpoint of few channels takes
// one hash, and one of 4,096 three of 640 bytes for a channel that changes.
const fanout = 16

// Channels returns a channel of the checkpoint by its index, in increasing order of numbers.
type Channels func(place int) (number uint64, commitment *[32]byte)

// Reset forgets all nodes, for another table of channels.
func (t *ChannelTree) Reset() { t.levels = t.levels[:0] }

// Changed notes that the channel with a number has a new commitment.
func (t *ChannelTree) Changed(number uint64) {
	if len(t.levels) == 0 {
		return
	}
	i, ok := slices.BinarySearchFunc(t.levels[0], number/fanout, func(n treeNode, index uint64) int {
		return int(int64(n.index) - int64(index))
	})
	if ok {
		t.levels[0][i].stale = true
	}
}

// Root returns the hash of n channels. There is at least the channel with number 0. Numbers are
// below 2^63. Only nodes above changed channels are hashed.
func (t *ChannelTree) Root(n int, channels Channels) [32]byte {
	if len(t.levels) == 0 {
		t.grow(n, channels)
	}
	for level, nodes := range t.levels {
		for i := range nodes {
			if !nodes[i].stale {
				continue
			}
			end := n
			switch {
			case i+1 < len(nodes):
				end = nodes[i+1].from
			case level > 0:
				end = len(t.levels[level-1])
			}
			t.hash(level, &nodes[i], end, channels)
			if level+1 < len(t.levels) {
				t.parent(level+1, nodes[i].index).stale = true
			}
		}
	}
	return t.levels[len(t.levels)-1][0].sum
}

// grow makes the nodes, all of them stale.
func (t *ChannelTree) grow(n int, channels Channels) {
	var nodes []treeNode
	add := func(number uint64, place int) {
		if index := number / fanout; len(nodes) == 0 || nodes[len(nodes)-1].index != index {
			nodes = append(nodes, treeNode{index: index, from: place, stale: true})
		}
	}
	for i := range n {
		number, _ := channels(i)
		add(number, i)
	}
	t.levels = append(t.levels, nodes)
	for len(nodes) > 1 {
		below := nodes
		nodes = nil
		for i := range below {
			add(below[i].index, i)
		}
		t.levels = append(t.levels, nodes)
	}
}

func (t *ChannelTree) parent(level int, index uint64) *treeNode {
	nodes := t.levels[level]
	i, _ := slices.BinarySearchFunc(nodes, index/fanout, func(n treeNode, index uint64) int {
		return int(int64(n.index) - int64(index))
	})
	return &nodes[i]
}

// hash hashes a node whose children end before an index.
func (t *ChannelTree) hash(level int, node *treeNode, end int, channels Channels) {
	t.buf = append(t.buf[:0], byte(level))
	for i := node.from; i < end; i++ {
		number, sum := uint64(0), (*[32]byte)(nil)
		if level == 0 {
			number, sum = channels(i)
		} else {
			child := &t.levels[level-1][i]
			number, sum = child.index, &child.sum
		}
		t.buf = append(binary.BigEndian.AppendUint64(t.buf, number), sum[:]...)
	}
	node.sum, node.stale = sha256.Sum256(t.buf), false
}

// Bytes is the memory of t.
func (t *ChannelTree) Bytes() int {
	n := cap(t.buf)
	for _, nodes := range t.levels {
		n += 56 * cap(nodes)
	}
	return n
}
