package codec

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/internal/alike"
)

// lines is a Far of the lines of a base.
type lines struct {
	base  []byte
	known map[string]int
}

func linesOf(base []byte) *lines {
	f := &lines{base, map[string]int{}}
	at := 0
	for line := range bytes.Lines(base) {
		if _, ok := f.known[string(line)]; !ok {
			f.known[string(line)] = at
		}
		at += len(line)
	}
	return f
}

func (f *lines) Cut(b []byte) (n, at int) {
	if n = bytes.IndexByte(b, '\n') + 1; n == 0 {
		n = len(b)
	}
	if at, ok := f.known[string(b[:n])]; ok {
		return n, at
	}
	return n, -1
}

func (f *lines) Start(i int) int {
	if i == len(f.base) {
		return i
	}
	return bytes.LastIndexByte(f.base[:i], '\n') + 1
}

// manyLines are n bytes in lines, a few of which come again.
func manyLines(rng *rand.Rand, n int) (b []byte) {
	for len(b) < n {
		if rng.IntN(8) == 0 && len(b) > 0 {
			at := rng.IntN(len(b))
			b = append(b, b[at:min(len(b), at+300)]...)
			continue
		}
		b = append(append(b, text(rng, rng.IntN(200))...), '\n')
	}
	return b[:n]
}

// randomEdits draws edits of a base in order, whose data may occur elsewhere in it.
func randomEdits(rng *rand.Rand, base []byte) []Edit {
	var places []int
	for range 2 * rng.IntN(6) {
		places = append(places, rng.IntN(len(base)+1))
	}
	slices.Sort(places)
	var edits []Edit
	for p := range slices.Chunk(places, 2) {
		e := Edit{From: p[0], To: p[1]}
		switch at := rng.IntN(len(base) + 1); rng.IntN(4) {
		case 0:
		case 1:
			e.Data = manyLines(rng, rng.IntN(50))
		case 2:
			e.Data = slices.Concat(manyLines(rng, 3), base[at:min(len(base), at+rng.IntN(3000))], manyLines(rng, 3))
		case 3: // the old bytes, with changes
			e.Data = AppendEdited(nil, base[p[0]:p[1]], []Edit{{(p[1] - p[0]) / 3, (p[1] - p[0]) / 2, manyLines(rng, rng.IntN(90))}})
		}
		edits = append(edits, e)
	}
	return edits
}

// Lists of edits, and the whole values that they make, are encoded to deltas that build them, and
// narrowed to equivalent edits.
func TestEditsRoundTrip(t *testing.T) {
	rng := newRand(70)
	d := NewDiffer(testZstd)
	for range 3000 {
		base := manyLines(rng, rng.IntN(8000))
		edits := randomEdits(rng, base)
		want := AppendEdited(nil, base, edits)
		if len(want) != Edited(len(base), edits) {
			t.Fatalf("edits make %d bytes, Edited says %d", len(want), Edited(len(base), edits))
		}
		prefix := alike.Prefix(base, want)
		suffix := alike.Suffix(base[prefix:], want[prefix:])
		for _, edits := range [][]Edit{edits, between(base, prefix, suffix, want[prefix:len(want)-suffix]), between(base, 0, 0, want)} {
			checkEdits(t, rng, d, base, edits, want)
		}
	}
}

func checkEdits(t *testing.T, rng *rand.Rand, d *Differ, base []byte, edits []Edit, want []byte) {
	t.Helper()
	var far Far
	if rng.IntN(4) > 0 {
		far = linesOf(base)
	}
	var idx Index
	if rng.IntN(2) == 0 {
		idx.Extend(base)
	}
	payload := d.AppendDelta(nil, base, edits, &idx, far)
	delta, err := testZstd.ParseDelta(payload, len(want), len(base), nil, nil)
	if err != nil {
		t.Fatalf("%d edits of %d bytes: %v", len(edits), len(base), err)
	}
	if got := Compose(nil, []Delta{delta}, base); !bytes.Equal(got, want) {
		t.Fatalf("%d edits of %d bytes: wrong bytes", len(edits), len(base))
	}
	if !delta.Builds(base, edits) {
		t.Fatalf("%d edits of %d bytes: Builds says no", len(edits), len(base))
	}
	narrow := delta.Narrow(nil, edits)
	at := 0
	for _, e := range narrow {
		if e.From < at || e.To < e.From {
			t.Fatalf("narrowed edits out of order: %v", narrow)
		}
		at = e.To
	}
	if !bytes.Equal(AppendEdited(nil, base, narrow), want) {
		t.Fatalf("%d edits of %d bytes: narrowed to %d, they make something else", len(edits), len(base), len(narrow))
	}
	at, from := 0, 0
	for _, k := range delta.Kept(nil, len(base)) {
		if k.At < at || k.From < from || !bytes.Equal(want[k.At:k.At+k.N], base[k.From:k.From+k.N]) {
			t.Fatalf("%+v is not kept, behind %d and %d", k, at, from)
		}
		at, from = k.At+k.N, k.From+k.N
	}
	if at != len(want) || from != len(base) {
		t.Fatalf("what is kept ends at %d of %d and %d of %d bytes", at, len(want), from, len(base))
	}
}

// Distant bytes of a base are copied whole: the cost of changes at many places is that of the
// changes.
func TestFarCopies(t *testing.T) {
	rng := newRand(71)
	base := manyLines(rng, 400_000)
	d := NewDiffer(testZstd)
	var idx Index
	idx.Extend(base)
	var edits []Edit
	for i := range 20 {
		edits = append(edits, Edit{i * 20_000, i*20_000 + 3, []byte("changed")})
	}
	value := AppendEdited(nil, base, edits)
	payload := d.AppendDelta(nil, base, between(base, 0, 0, value), &idx, linesOf(base))
	if len(payload) > 500 {
		t.Errorf("20 changes of 7 bytes take %d", len(payload))
	}
	delta, err := testZstd.ParseDelta(payload, len(value), len(base), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	narrow := delta.Narrow(nil, between(base, 0, 0, value))
	if len(narrow) != 21 { // with one of nothing at the end
		t.Errorf("20 changes are narrowed to %d", len(narrow))
	}
	if lost := delta.Lost(narrow); lost > 1000 {
		t.Errorf("%d bytes are lost, of 60", lost)
	}
	// Two halves change places.
	value = slices.Concat(base[200_000:], base[:200_000])
	payload = d.AppendDelta(nil, base, between(base, 0, 0, value), &idx, linesOf(base))
	if delta, err = testZstd.ParseDelta(payload, len(value), len(base), nil, nil); err != nil || len(payload) > 500 {
		t.Fatalf("halves that change places take %d bytes, %v", len(payload), err)
	}
	if lost := delta.Lost(delta.Narrow(nil, between(base, 0, 0, value))); lost > len(base)/8+1000 {
		t.Errorf("halves change places, %d of %d bytes are lost", lost, len(base))
	}
}

func FuzzEdits(f *testing.F) {
	f.Add(uint64(1), []byte("some base\nwith lines\n"), []byte("with lines\nsome base\n"))
	f.Add(uint64(2), manyLines(newRand(1), 3000), manyLines(newRand(1), 2500))
	f.Fuzz(func(t *testing.T, seed uint64, base, value []byte) {
		rng := newRand(seed)
		checkEdits(t, rng, NewDiffer(testZstd), base, between(base, 0, 0, value), value)
		edits := randomEdits(rng, base)
		checkEdits(t, rng, NewDiffer(testZstd), base, edits, AppendEdited(nil, base, edits))
	})
}
