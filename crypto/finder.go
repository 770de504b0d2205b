package crypto

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Finder finds the chunks of one value in other bytes, by their digests. It is not safe for
// concurrent use.
type Finder struct {
	c     *Chunks
	table []uint32 // by digest: the number of a chunk + 1; 0 is none
	made  bool     // the table is that of c
	next  int      // the chunk after the one found last
}

// In makes f search the current chunks of c.
func (f *Finder) In(c *Chunks) { f.c, f.made, f.next = c, false, 0 }

// Cut returns the length of the chunk at the front of b, and the offset of a chunk of the value
// with the same bytes, or -1. Of several it chooses the one after the chunk it found last, else the
// first.
func (f *Finder) Cut(b []byte) (n, at int) {
	n = chunkLen(b)
	sum := sha256.Sum256(b[:n])
	i := f.next
	if !f.is(i, &sum) {
		i = f.find(&sum)
	}
	if i < 0 {
		return n, -1
	}
	f.next = i + 1
	return n, f.c.start(i)
}

// Start is the offset of the chunk that contains offset i of the value, or i at the end.
func (f *Finder) Start(i int) int {
	k, found := slices.BinarySearch(f.c.ends, uint32(i))
	if found {
		k++
	}
	return f.c.start(k)
}

// start is the offset of chunk number i.
func (c *Chunks) start(i int) int {
	if i == 0 {
		return 0
	}
	return int(c.ends[i-1])
}

func (c *Chunks) sum(i int) []byte { return c.sums[i*sha256.Size : (i+1)*sha256.Size] }

func (f *Finder) is(i int, sum *[sha256.Size]byte) bool {
	return i < len(f.c.ends) && bytes.Equal(f.c.sum(i), sum[:])
}

// find is the number of the first chunk with a digest, or -1.
func (f *Finder) find(sum *[sha256.Size]byte) int {
	if !f.made {
		f.index()
	}
	for slot := f.slot(sum[:]); f.table[slot] != 0; slot = (slot + 1) & (len(f.table) - 1) {
		if i := int(f.table[slot] - 1); f.is(i, sum) {
			return i
		}
	}
	return -1
}

// index fills the table, which is at most half full.
func (f *Finder) index() {
	n := 2 << bits.Len(uint(len(f.c.ends)))
	f.table = slices.Grow(f.table[:0], n)[:n]
	clear(f.table)
next:
	for i := range f.c.ends {
		sum := f.c.sum(i)
		slot := f.slot(sum)
		for ; f.table[slot] != 0; slot = (slot + 1) & (n - 1) {
			if bytes.Equal(f.c.sum(int(f.table[slot]-1)), sum) {
				continue next
			}
		}
		f.table[slot] = uint32(i + 1)
	}
	f.made = true
}

// slot is the first table index to probe for a digest.
func (f *Finder) slot(sum []byte) int {
	return int(binary.BigEndian.Uint32(sum)) & (len(f.table) - 1)
}
