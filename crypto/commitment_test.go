package crypto

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// A value reached by any series of splices has the commitment of the same value taken whole.
func TestSpliceEqualsWhole(t *testing.T) {
	var key [32]byte
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var c Chunks
		value := []byte{}
		for step := range 60 {
			at := r.IntN(len(value) + 1)
			if step%3 == 0 {
				at = len(value)
			}
			cut := r.IntN(min(len(value)-at, 6000) + 1)
			ins := randomBytes(r, r.IntN(9000))
			if step%7 == 0 {
				ins = bytes.Repeat([]byte{'a'}, r.IntN(30000)) // never cut by content
			}
			next := append(append(append([]byte{}, value[:at]...), ins...), value[at+cut:]...)
			c.Splice(next, at, len(value)-at-cut)
			value = next
			if got, want := c.Commitment(&key), Commit(&key, value); got != want {
				t.Fatalf("seed %d step %d: splice at %d (cut %d, insert %d) of %d bytes: commitment differs", seed, step, at, cut, len(ins), len(value))
			}
		}
	}
}

// The cached states of the hash over many digests never outlive them: after any splices they match
// the current digests, however often the commitment was computed in between.
func TestManyDigests(t *testing.T) {
	var key [32]byte
	resumed := 0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		value := randomBytes(r, 900_000) // some 600 chunks
		var c Chunks
		c.Splice(value, 0, 0)
		for range 60 {
			if r.IntN(3) > 0 {
				c.Commitment(&key)
			}
			at := len(value)
			if r.IntN(2) == 0 {
				at = r.IntN(len(value) + 1)
			}
			cut := r.IntN(1 + min(len(value)-at, 1+r.IntN(200_000)))
			ins := randomBytes(r, r.IntN(20_000*(1+r.IntN(10))))
			value = append(append(append([]byte{}, value[:at]...), ins...), value[at+cut:]...)
			c.Splice(value, at, len(value)-at-len(ins))
			resumed += len(c.marks)
			if c.sumOfSums() != sha256.Sum256(c.sums) {
				t.Fatalf("seed %d: the hash over %d digests differs", seed, len(c.ends))
			}
			if c.Commitment(&key) != Commit(&key, value) {
				t.Fatalf("seed %d: the commitment differs from that of the whole", seed)
			}
		}
	}
	if resumed == 0 {
		t.Error("no hash ever went on from a mark")
	}
}

// A chunk ends where docs/format.md §11 says, byte by byte.
func TestChunkLen(t *testing.T) {
	naive := func(b []byte) int {
		var h uint64
		for i, x := range b {
			if i >= 448 {
				h = h<<1 + gear[x]
			}
			if i >= 511 && h>>54 == 0 || i == 4095 {
				return i + 1
			}
		}
		return len(b)
	}
	r := rand.New(rand.NewPCG(9, 9))
	seen := map[int]int{} // by the rest of the length divided by four
	for n := range 6000 {
		b := randomBytes(r, r.IntN(5000))
		if n%10 == 0 {
			b = bytes.Repeat([]byte{byte(n)}, len(b))
		}
		got, want := chunkLen(b), naive(b)
		if got != want {
			t.Fatalf("a chunk of %d bytes, want %d of %d", got, want, len(b))
		}
		if got < len(b) {
			seen[got%4]++
		}
	}
	if len(seen) != 4 {
		t.Errorf("chunks ended at %v", seen)
	}
}

// A splice in the middle of a large value must not read all of it.
func TestSpliceIsLocal(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	value := randomBytes(r, 1<<20)
	var c Chunks
	c.Splice(value, 0, 0)
	const at = 500_000
	next := append(append(append([]byte{}, value[:at]...), randomBytes(r, 1000)...), value[at:]...)
	c.Splice(next, at, len(value)-at)
	if n := len(c.next); n == 0 || n > 8 {
		t.Errorf("re-hashed %d chunks for a change of 1 kB, want 1 to 8", n)
	}
}

func TestCommitmentDependsOnEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	value := randomBytes(r, 20_000)
	var key [32]byte
	want := Commit(&key, value)
	seen := map[[32]byte]bool{want: true}
	for i := 0; i < len(value); i += 97 {
		value[i] ^= 1
		if got := Commit(&key, value); seen[got] {
			t.Fatalf("flip at %d: commitment seen before", i)
		} else {
			seen[got] = true
		}
		value[i] ^= 1
	}
	key[5]++
	if seen[Commit(&key, value)] {
		t.Error("another key gives the same commitment")
	}
}

// Vectors of docs/format.md §18.
func TestCommitmentVectors(t *testing.T) {
	key := [32]byte{1, 2, 3}
	long := make([]byte, 100_000)
	for i := range long {
		long[i] = byte(i * i >> 7)
	}
	for _, v := range []struct {
		name string
		in   []byte
		want string
	}{
		{"empty", nil, "96e3b3cb5f78d69407805890389395fb63f43a5ff428b6129feb0d7315fc71fe"}, {"abc", []byte("abc"), "f24b20ecbf40ee219061b517e4b4893b632109dc0c28731082f24e44aba68743"}, {"squares", long, "3f64203be31a392d5ad6dd3b550b7147b6ce9b10a7a47b6e5e3279ee06d8c95d"},
	} {
		if got := Commit(&key, v.in); hex.EncodeToString(got[:]) != v.want {
			t.Errorf("%s: %x, want %s", v.name, got, v.want)
		}
	}
}

func BenchmarkSplice1kOn100k(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 3))
	value := randomBytes(r, 100_000)
	var key [32]byte
	var c Chunks
	c.Splice(value, 0, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		value[99_500] = byte(i)
		c.Splice(value, 99_000, 0)
		c.Commitment(&key)
	}
}

func BenchmarkSplice1kOn10M(b *testing.B) {
	value := randomBytes(rand.New(rand.NewPCG(3, 3)), 10_000_000)
	var key [32]byte
	var c Chunks
	c.Splice(value, 0, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		value[9_999_500] = byte(i)
		c.Splice(value, 9_999_000, 0)
		c.Commitment(&key)
	}
}

func BenchmarkCommit1M(b *testing.B) {
	value := randomBytes(rand.New(rand.NewPCG(3, 3)), 1<<20)
	var key [32]byte
	b.SetBytes(1 << 20)
	for b.Loop() {
		Commit(&key, value)
	}
}
