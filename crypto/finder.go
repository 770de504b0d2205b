package crypto

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Finder finds the chunks of one value in other bytes, by their digests. It is for one goroutine at a time.
type Finder struct {
	c     *Chunks
	table []uint32 // by digest: the number of a chunk + 1; 0 is none
	made  bool     // table is that of c
	next  int      // the chunk after the one that was found last
}

// In makes f look for the chunks that c has now.
func (f *Finder) In(c *Chunks) { f.c, f.made, f.next = c, false, 0 }

// Cut returns how long the chunk at the front of b is, and where the value has a chunk of the same bytes, -1 for nowhere.
// Of several it finds the one behind the last that it found, else the first.
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

// Start is where the chunk begins that holds what stands at place i of the value, or i at the end.
func (f *Finder) Start(i int) int {
	k, found := slices.BinarySearch(f.c.ends, uint32(i))
	if found {
		k++
	}
	return f.c.start(k)
}

// start is where chunk number i begins.
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

// find is the number of the first chunk with a digest, -1 if there is none.
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

// slot is where to look for a digest first.
func (f *Finder) slot(sum []byte) int {
	return int(binary.BigEndian.Uint32(sum)) & (len(f.table) - 1)
}
