package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/codec"
)

// After any splices, an overlap knows which bytes a value still shares with an older one, except
// for short stretches, and its edits turn one into the other.
func TestOverlapAgainstReference(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		length := r.IntN(5000)
		o := wholeOverlap(length)
		was := make([]int, length)
		for i := range was {
			was[i] = i
		}
		value := slices.Clone(was) // it holds the offset of its bytes in the older one, -1 for none
		for step := range 60 {
			from := r.IntN(len(value) + 1)
			switch r.IntN(4) {
			case 0:
				from = len(value) - min(len(value), r.IntN(3))
			case 1:
				from = min(len(value), r.IntN(3))
			}
			to, n := from+r.IntN(min(200, len(value)-from)+1), r.IntN(200)
			o.spliced(len(value), from, len(value)-to, n)
			value = slices.Replace(value, from, to, slices.Repeat([]int{-1}, n)...)
			kept := slices.DeleteFunc(slices.Clone(value), func(at int) bool { return at < 0 })
			stretches := 1 // of those that are kept
			for i := range kept {
				if i > 0 && kept[i] != kept[i-1]+1 {
					stretches++
				}
			}
			lost, short := length-len(kept), minInner*(stretches+2*(step+1))
			if got := o.lost(); got < lost || got > lost+short {
				t.Fatalf("seed %d step %d: %d of %d bytes are lost, the overlap says %d", seed, step, lost, length, got)
			}
			if got, want := o.fresh(len(value)), len(value)-len(kept); got < want || got > want+short {
				t.Fatalf("seed %d step %d: %d of %d bytes are fresh, the overlap says %d", seed, step, want, len(value), got)
			}
			checkEdits(t, &o, was, value)
		}
	}
}

// checkEdits checks that the bytes in o are there, in order: -1 means any byte.
func checkEdits(t *testing.T, o *overlap, was, value []int) {
	t.Helper()
	edits := o.edits(make([]byte, len(value)))
	at, from := 0, 0
	for _, e := range append(edits, codec.Edit{From: o.length, To: o.length}) {
		if e.From < from || e.To < e.From || e.To > o.length {
			t.Fatalf("edits out of order: %v", edits)
		}
		if n := e.From - from; !slices.Equal(value[at:at+n], was[from:from+n]) {
			t.Fatalf("bytes from %d to %d are not those of the older value at %d", at, at+n, from)
		}
		at, from = at+e.From-from+len(e.Data), e.To
	}
	if at != len(value) {
		t.Fatalf("edits make %d bytes of %d", at, len(value))
	}
}
