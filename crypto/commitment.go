package crypto

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
)

// Chunk sizes of content commitments, docs/format.md §11.
const (
	chunkMin  = 512
	chunkMax  = 4 << 10
	chunkWarm = 64      // the rolling hash forgets a byte after 64 shifts
	chunkMask = 64 - 10 // the top 10 bits must be zero: 1 KiB beyond the minimum on average
)

var gear = makeGear() // read only

func makeGear() (g [256]uint64) {
	for b := range g {
		sum := sha256.Sum256([]byte{'c', 'k', 'p', 't', 'd', '/', 'g', 'e', 'a', 'r', byte(b)})
		g[b] = binary.BigEndian.Uint64(sum[:])
	}
	return g
}

// Chunks has the ends and digests of the content-defined chunks of a value (docs/format.md §11).
// With it the commitment of a changed value costs as much as the change. The zero Chunks is that of
// the empty value. Not safe for concurrent use.
type Chunks struct {
	ends []uint32
	sums []byte // sha256.Size bytes a chunk
	next []uint32
	add  []byte

	// marks are states of the hash over sums, one after every markEvery digests, as far as they are
	// valid: the digests of 10 MB take 0.14 ms to hash, and an appended message changes only their
	// end.
	marks [][]byte
}

const (
	markEvery = 128 * sha256.Size // bytes of sums
	markBytes = 160               // approximate size of a state with its slice
)

// Bytes is the memory of c.
func (c *Chunks) Bytes() int {
	return 4*(cap(c.ends)+cap(c.next)) + cap(c.sums) + cap(c.add) + markBytes*cap(c.marks)
}

// Splice makes c the chunks of value, whose first prefix and last suffix bytes are those of the
// previous value. It reads the bytes between and a few around them. Values can have at most 2^32-1
// bytes.
func (c *Chunks) Splice(value []byte, prefix, suffix int) {
	oldLen := 0
	if n := len(c.ends); n > 0 {
		oldLen = int(c.ends[n-1])
	}
	// The last chunk may have ended only because the value did, so it is never reused.
	keep, _ := slices.BinarySearch(c.ends, uint32(prefix)+1)
	keep = min(keep, max(len(c.ends)-1, 0))
	start := 0
	if keep > 0 {
		start = int(c.ends[keep-1])
	}
	c.next = c.next[:0]
	grown := len(value) - oldLen
	resync := len(c.ends)
	first := start
	for start < len(value) {
		end := start + chunkLen(value[start:])
		c.next = append(c.next, uint32(end))
		start = end
		if end >= len(value)-suffix && end < len(value) {
			if i, ok := slices.BinarySearch(c.ends, uint32(end-grown)); ok {
				resync = i + 1
				break
			}
		}
	}
	c.digest(value, first)
	for i := resync; i < len(c.ends); i++ {
		c.ends[i] = uint32(int(c.ends[i]) + grown)
	}
	c.marks = c.marks[:min(len(c.marks), keep*sha256.Size/markEvery)]
	c.ends = slices.Replace(c.ends, keep, resync, c.next...)
	c.sums = slices.Replace(c.sums, keep*sha256.Size, resync*sha256.Size, c.add...)
}

// manyChunks is the number of digests from which parallel hashing pays: it makes loading 1 MB 0.3
// ms faster.
const manyChunks = 64

// digest fills add with the digests of the chunks that end at next; the first begins at start.
func (c *Chunks) digest(value []byte, start int) {
	c.add = slices.Grow(c.add[:0], len(c.next)*sha256.Size)[:len(c.next)*sha256.Size]
	sum := func(from, to int) {
		begin := start
		if from > 0 {
			begin = int(c.next[from-1])
		}
		for i := from; i < to; i++ {
			d := sha256.Sum256(value[begin:c.next[i]])
			copy(c.add[i*sha256.Size:], d[:])
			begin = int(c.next[i])
		}
	}
	if len(c.next) < manyChunks {
		sum(0, len(c.next))
		return
	}
	var wg sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for i := range n {
		wg.Go(func() { sum(len(c.next)*i/n, len(c.next)*(i+1)/n) })
	}
	wg.Wait()
}

// chunkLen is the length of the first chunk of b.
func chunkLen(b []byte) int {
	if len(b) <= chunkMin {
		return len(b)
	}
	var h uint64
	for _, x := range b[chunkMin-chunkWarm : chunkMin-1] {
		h = h<<1 + gear[x]
	}
	end := min(len(b), chunkMax)
	i := chunkMin - 1
	// Four bytes at a time: each hash is computed from the one four bytes before, so they need not
	// wait for each other.
	for ; i+4 <= end; i += 4 {
		g0, g1, g2, g3 := gear[b[i]], gear[b[i+1]], gear[b[i+2]], gear[b[i+3]]
		g1 += g0 << 1
		g2 += g1 << 1
		g3 += g2 << 1
		switch {
		case (h<<1+g0)>>chunkMask == 0:
			return i + 1
		case (h<<2+g1)>>chunkMask == 0:
			return i + 2
		case (h<<3+g2)>>chunkMask == 0:
			return i + 3
		case (h<<4+g3)>>chunkMask == 0:
			return i + 4
		}
		h = h<<4 + g3
	}
	for ; i < end; i++ {
		if h = h<<1 + gear[b[i]]; h>>chunkMask == 0 {
			return i + 1
		}
	}
	return end
}

// Commitment is the keyed commitment to the value of c.
func (c *Chunks) Commitment(key *[32]byte) [32]byte {
	const label = "ckptd/commit/1"
	var b [len(label) + 32 + 8 + sha256.Size]byte
	n := copy(b[:], label)
	n += copy(b[n:], key[:])
	var size uint64
	if k := len(c.ends); k > 0 {
		size = uint64(c.ends[k-1])
	}
	binary.BigEndian.PutUint64(b[n:], size)
	sum := c.sumOfSums()
	copy(b[n+8:], sum[:])
	return sha256.Sum256(b[:])
}

// sumOfSums is the SHA-256 of sums. It continues from the last mark, and adds further ones.
func (c *Chunks) sumOfSums() (sum [sha256.Size]byte) {
	if len(c.sums) < 2*markEvery {
		return sha256.Sum256(c.sums)
	}
	h := sha256.New()
	at := 0
	if n := len(c.marks); n > 0 && h.(encoding.BinaryUnmarshaler).UnmarshalBinary(c.marks[n-1]) == nil {
		at = n * markEvery
	} else {
		c.marks = c.marks[:0]
	}
	for ; at+markEvery <= len(c.sums); at += markEvery {
		h.Write(c.sums[at : at+markEvery])
		mark, err := h.(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			return sha256.Sum256(c.sums)
		}
		c.marks = append(c.marks, mark)
	}
	h.Write(c.sums[at:])
	h.Sum(sum[:0])
	return sum
}

// Commit is the commitment to a whole value.
func Commit(key *[32]byte, value []byte) [32]byte {
	var c Chunks
	c.Splice(value, 0, 0)
	return c.Commitment(key)
}
