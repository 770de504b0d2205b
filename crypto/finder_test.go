package crypto

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// A finder finds every chunk of a value, in any order and in between other bytes, and nothing that
// is not there.
func TestFinderFindsChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var f Finder
	for range 20 {
		value := randomBytes(r, r.IntN(200_000))
		value = append(value, value[:len(value)/3]...) // chunks come twice
		var c Chunks
		c.Splice(value, 0, 0)
		f.In(&c)
		for _, i := range r.Perm(len(c.ends)) {
			chunk := value[c.start(i):c.ends[i]]
			n, at := f.Cut(chunk)
			if at < 0 || n != len(chunk) || !bytes.Equal(value[at:at+n], chunk) {
				t.Fatalf("chunk %d of %d: %d bytes at %d, want %d", i, len(c.ends), n, at, len(chunk))
			}
			if n, at := f.Cut(randomBytes(r, 2000)); at >= 0 || n == 0 {
				t.Fatalf("random bytes are found at %d", at)
			}
			for _, at := range []int{c.start(i), c.start(i) + len(chunk)/2, int(c.ends[i]) - 1} {
				if got := f.Start(at); got != c.start(i) {
					t.Fatalf("the chunk that holds %d begins at %d, want %d", at, got, c.start(i))
				}
			}
		}
	}
}

// Where a value has the same chunk at several places, the one behind the last that was found is
// meant.
func TestFinderGoesOn(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	same, a, b := randomBytes(r, chunkMax), randomBytes(r, 3*chunkMax), randomBytes(r, 3*chunkMax)
	value := slices.Concat(same, a, same, b, same)
	var c Chunks
	c.Splice(value, 0, 0)
	var f Finder
	f.In(&c)
	at := 0
	for at < len(value) {
		n, p := f.Cut(value[at:])
		if p != at {
			t.Fatalf("the chunk at %d is found at %d", at, p)
		}
		at += n
	}
	if n, p := f.Cut(nil); n != 0 || p >= 0 && p != len(value) {
		t.Errorf("nothing is found at %d", p)
	}
}
