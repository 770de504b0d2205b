package crypto

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// channelRoot is the root as docs/format.md §10 says it, written down without keeping anything.
func channelRoot(numbers []uint64, sums [][32]byte) [32]byte {
	for level := byte(0); ; level++ {
		var up []uint64
		var upSums [][32]byte
		for i := 0; i < len(numbers); {
			buf, index := []byte{level}, numbers[i]>>4
			for ; i < len(numbers) && numbers[i]>>4 == index; i++ {
				buf = append(binary.BigEndian.AppendUint64(buf, numbers[i]), sums[i][:]...)
			}
			up, upSums = append(up, index), append(upSums, sha256.Sum256(buf))
		}
		if numbers, sums = up, upSums; len(numbers) == 1 {
			return sums[0]
		}
	}
}

// TestChannelTree compares a tree that is updated while channels change, come and go with one that
// is rebuilt each time.
func TestChannelTree(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		numbers := []uint64{0}
		sums := [][32]byte{{1}}
		var tree ChannelTree
		root := func() [32]byte {
			return tree.Root(len(numbers), func(i int) (uint64, *[32]byte) { return numbers[i], &sums[i] })
		}
		for step := range 60 {
			switch {
			case r.IntN(4) == 0: // a channel more, or some
				for range 1 + r.IntN(1<<r.IntN(9)) {
					numbers = append(numbers, numbers[len(numbers)-1]+1+uint64(r.IntN(1<<r.IntN(12))))
					sums = append(sums, [32]byte{byte(step), byte(len(sums))})
				}
				tree.Reset()
			case r.IntN(8) == 0 && len(numbers) > 1: // one less
				i := 1 + r.IntN(len(numbers)-1)
				numbers, sums = slices.Delete(numbers, i, i+1), slices.Delete(sums, i, i+1)
				tree.Reset()
			default:
				for range 1 + r.IntN(3) {
					i := r.IntN(len(numbers))
					sums[i] = sha256.Sum256(sums[i][:])
					tree.Changed(numbers[i])
				}
			}
			if got, want := root(), channelRoot(numbers, sums); got != want {
				t.Fatalf("seed %d, step %d: the root of %d channels differs from that of a tree made anew", seed, step, len(numbers))
			}
		}
	}
}

// TestChannelTreeTellsApart shows that a channel that moves to another number, comes, goes or
// changes gives another root.
func TestChannelTreeTellsApart(t *testing.T) {
	a, b := [32]byte{1}, [32]byte{2}
	seen := map[[32]byte]string{}
	for _, c := range []struct {
		name    string
		numbers []uint64
		sums    [][32]byte
	}{
		{"attributes", []uint64{0}, [][32]byte{a}},
		{"others", []uint64{0}, [][32]byte{b}},
		{"a channel", []uint64{0, 1}, [][32]byte{a, b}},
		{"at another number", []uint64{0, 2}, [][32]byte{a, b}},
		{"in another node", []uint64{0, 17}, [][32]byte{a, b}},
		{"in a node of another level", []uint64{0, 257}, [][32]byte{a, b}},
		{"two of them", []uint64{0, 1, 17}, [][32]byte{a, b, b}},
		{"in another order", []uint64{0, 1, 17}, [][32]byte{b, a, b}},
	} {
		var tree ChannelTree
		root := tree.Root(len(c.numbers), func(i int) (uint64, *[32]byte) { return c.numbers[i], &c.sums[i] })
		if other := seen[root]; other != "" {
			t.Errorf("%s and %s have the same root", c.name, other)
		}
		seen[root] = c.name
	}
}
