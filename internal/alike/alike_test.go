package alike

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func naivePrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func naiveSuffix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func TestAtAllAlignments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	text := make([]byte, 9000)
	for i := range text {
		text[i] = "abcd"[rng.IntN(4)] // few symbols, so that equal stretches are common
	}
	check := func(a, b []byte) {
		t.Helper()
		if got, want := Prefix(a, b), naivePrefix(a, b); got != want {
			t.Fatalf("prefix of %d and %d bytes is %d, want %d", len(a), len(b), got, want)
		}
		if got, want := Suffix(a, b), naiveSuffix(a, b); got != want {
			t.Fatalf("suffix of %d and %d bytes is %d, want %d", len(a), len(b), got, want)
		}
	}
	for off := range 9 {
		for n := range 40 {
			a, b := bytes.Clone(text[:off+n])[off:], bytes.Clone(text[:n+9])[9:]
			copy(a, b)
			check(a, b)
			for i := range a {
				a[i] ^= 0x80
				check(a, b)
				check(a, append(bytes.Clone(b), 'x'))
				check(append([]byte{'x'}, a...), b)
				a[i] ^= 0x80
			}
		}
	}
	// Around the steps of 4 KiB.
	for _, at := range []int{0, 1, 4087, 4088, 4095, 4096, 4097, 4104, 8191, 8192, 8193, 8999} {
		for _, off := range []int{0, 1, 7} {
			a, b := text[off:], bytes.Clone(text[off:])
			b[min(at, len(b)-1)] ^= 1
			check(a, b)
			check(a[:len(a)-3], b)
			check(a[3:], b)
			check(a, a)
		}
	}
}

func BenchmarkPrefix(b *testing.B) {
	text := bytes.Repeat([]byte("what was said next "), 5000)
	other := bytes.Clone(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if Prefix(text, other) != len(text) {
			b.Fatal("prefix differs")
		}
	}
}
