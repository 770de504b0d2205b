package codec

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0xc0dec)) }

// text makes n bytes with few symbols, so that equal stretches are common.
func text(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcd"[rng.IntN(4)]
	}
	return b
}

// splice replaces the bytes of base between prefix and suffix.
func splice(base []byte, prefix, suffix int, insert []byte) []byte {
	return slices.Concat(base[:prefix], insert, base[len(base)-suffix:])
}

// randomSplice draws a change of base: an append, an edit, a deletion, a copy of base, or a new
// value.
func randomSplice(rng *rand.Rand, base []byte) (prefix, suffix int, insert []byte) {
	prefix = rng.IntN(len(base) + 1)
	suffix = rng.IntN(len(base) - prefix + 1)
	switch rng.IntN(8) {
	case 0: // an append before the last byte, as to a JSON array
		suffix = min(1, len(base))
		prefix = len(base) - suffix
	case 1: // an append
		prefix, suffix = len(base), 0
	case 2: // a deletion
		return prefix, suffix, nil
	case 3: // a new value, with parts of the old one
		prefix, suffix = 0, 0
	}
	for range rng.IntN(4) {
		if len(base) > 0 && rng.IntN(2) == 0 {
			from := rng.IntN(len(base))
			insert = append(insert, base[from:from+rng.IntN(min(400, len(base)-from)+1)]...)
		}
		insert = append(insert, text(rng, rng.IntN(100))...)
	}
	return prefix, suffix, insert
}

// roundTrip encodes and decodes a change of base, and checks the result.
func roundTrip(t *testing.T, d *Differ, base []byte, prefix, suffix int, insert []byte, idx *Index) Delta {
	t.Helper()
	want := splice(base, prefix, suffix, insert)
	payload := d.AppendDelta([]byte("before"), base, between(base, prefix, suffix, insert), idx, nil)[len("before"):]
	delta, err := testZstd.ParseDelta(payload, len(want), len(base), make([]Op, 3), []byte("scratch"))
	if err != nil {
		t.Fatalf("base of %d, prefix %d, suffix %d, insert %d: %v", len(base), prefix, suffix, len(insert), err)
	}
	if got := Compose([]byte("before"), []Delta{delta}, base); !bytes.Equal(got[len("before"):], want) {
		t.Fatalf("base of %d, prefix %d, suffix %d, insert %d: wrong bytes", len(base), prefix, suffix, len(insert))
	}
	if !delta.Builds(base, between(base, prefix, suffix, insert)) {
		t.Fatalf("base of %d, prefix %d, suffix %d, insert %d: Builds says no", len(base), prefix, suffix, len(insert))
	}
	p, s := delta.Bounds(len(base))
	if p+s > min(len(base), len(want)) || !bytes.Equal(base[:p], want[:p]) || !bytes.Equal(base[len(base)-s:], want[len(want)-s:]) {
		t.Fatalf("bounds %d, %d of %d bytes on %d are not common", p, s, len(want), len(base))
	}
	return delta
}

func TestDeltaRoundTrip(t *testing.T) {
	rng := newRand(2)
	d := NewDiffer(testZstd)
	for range 2000 {
		base := text(rng, rng.IntN(2000))
		prefix, suffix, insert := randomSplice(rng, base)
		roundTrip(t, d, base, prefix, suffix, insert, nil)
		roundTrip(t, d, base, prefix, suffix, insert, &Index{})
		var idx Index
		idx.Extend(base)
		delta := roundTrip(t, d, base, prefix, suffix, insert, &idx)
		if p, s := delta.Bounds(len(base)); p < prefix || s < min(suffix, len(base)-p, delta.Target-p) {
			t.Fatalf("bounds %d, %d are less than the splice's %d, %d", p, s, prefix, suffix)
		}
	}
}

func TestDeltaCopiesWhatTheBaseHas(t *testing.T) {
	rng := newRand(50)
	base := make([]byte, 128) // few blocks, which share no slot of the table
	for i := range base {
		base[i] = byte(rng.Uint32())
	}
	var idx Index
	idx.Extend(base)
	// 31 bytes hold a whole block wherever they begin.
	for at := range 64 {
		insert := slices.Concat([]byte("new"), base[at:at+2*blockLen-1], []byte("new"))
		delta := roundTrip(t, NewDiffer(testZstd), base, 10, 10, insert, &idx)
		if len(delta.Literals) != 6 {
			t.Errorf("%d literals for a copy from %d, want 6", len(delta.Literals), at)
		}
	}
}

// TestStaleIndexNeverGivesWrongBytes lets one index live through changes, told of them or not.
func TestStaleIndexNeverGivesWrongBytes(t *testing.T) {
	rng := newRand(4)
	d := NewDiffer(testZstd)
	for run := range 60 {
		var idx Index
		state := text(rng, rng.IntN(3000))
		for range 60 {
			if rng.IntN(3) > 0 {
				idx.Extend(state)
			}
			prefix, suffix, insert := randomSplice(rng, state)
			roundTrip(t, d, state, prefix, suffix, insert, &idx)
			state = splice(state, prefix, suffix, insert)
			if rng.IntN(20) == 0 {
				state = text(rng, rng.IntN(6000)) // replaced behind the back of the index
			} else if run%2 == 0 {
				idx.Changed(prefix)
			}
			if len(state) > 20_000 {
				state = state[:rng.IntN(1000)]
			}
		}
		if idx.Bytes() > 4*maxIndex {
			t.Fatalf("index takes %d bytes", idx.Bytes())
		}
	}
}

func TestIndexKeepsUpWithAppends(t *testing.T) {
	rng := newRand(5)
	var idx Index
	state := []byte("[]")
	for range 200 {
		insert := words(rng, 40)
		state = splice(state, len(state)-1, 1, []byte(insert))
		idx.Changed(len(state) - len(insert) - 1)
		idx.Extend(state)
		at := rng.IntN(len(state)/blockLen) * blockLen
		if i, p := idx.next(state, state[at:at+blockLen], 0); i != 0 || p < 0 || !bytes.Equal(state[p:p+blockLen], state[at:at+blockLen]) {
			// Two blocks may share a slot; half of them never do.
			if len(idx.table) >= 4*len(state)/blockLen {
				t.Fatalf("block at %d of %d is not found", at, len(state))
			}
		}
	}
	if want := 4 * 2 * len(state) / blockLen; idx.Bytes() < want/2 || idx.Bytes() > 2*want {
		t.Errorf("index of %d bytes takes %d", len(state), idx.Bytes())
	}
}

func TestIndexKeepsTheFirstOfEqualBlocks(t *testing.T) {
	value := []byte(words(newRand(9), 40)[:96])
	block := value[32 : 32+blockLen]
	copy(value[80:], block)
	var idx Index
	idx.Extend(value)
	if i, p := idx.next(value, append([]byte("xyz"), block...), 0); i != 3 || p != 32 {
		t.Errorf("found at %d in %d, want at 3 in 32", i, p)
	}
}

func TestIndexLearnsWhatChanged(t *testing.T) {
	rng := newRand(8)
	old, value := words(rng, 1000)[:4000], []byte(words(rng, 1000)[:4000])
	copy(value, old[:2000])
	var idx Index
	idx.Extend([]byte(old))
	found := func() (n int) {
		for at := 2000; at < 4000; at += blockLen {
			if _, p := idx.next(value, value[at:at+blockLen], 0); p >= 0 {
				n++
			}
		}
		return n
	}
	if n := found(); n != 0 {
		t.Errorf("%d blocks of a value are known before the index was told of it", n)
	}
	idx.Changed(2000)
	idx.Extend(value)
	if n := found(); n < 60 {
		t.Errorf("%d of 125 blocks are found", n)
	}
}

// TestBuildsSeesEveryChange alters single bytes of the base, the insert and the delta: Builds must
// agree with a comparison of the bytes.
func TestBuildsSeesEveryChange(t *testing.T) {
	rng := newRand(6)
	d := NewDiffer(testZstd)
	lies := 0
	for range 150 {
		base := text(rng, 1+rng.IntN(300))
		prefix, suffix, insert := randomSplice(rng, base)
		var idx Index
		idx.Extend(base)
		delta := roundTrip(t, d, base, prefix, suffix, insert, &idx)
		check := func(what string, delta Delta, base []byte, prefix, suffix int, insert []byte) {
			t.Helper()
			built := Compose(nil, []Delta{delta}, base)
			want := bytes.Equal(built, splice(base, prefix, suffix, insert))
			if got := delta.Builds(base, between(base, prefix, suffix, insert)); got != want {
				t.Fatalf("%s: Builds says %v, the bytes say %v", what, got, want)
			}
			if !want {
				lies++
			}
		}
		for i := range base {
			base[i] ^= 1
			check("base", delta, base, prefix, suffix, insert)
			base[i] ^= 1
		}
		for i := range insert {
			insert[i] ^= 1
			check("insert", delta, base, prefix, suffix, insert)
			insert[i] ^= 1
		}
		for i := range delta.Literals {
			delta.Literals[i] ^= 1
			check("literals", delta, base, prefix, suffix, insert)
			delta.Literals[i] ^= 1
		}
		for i, op := range delta.Ops {
			for _, shift := range []int{-1, 1} {
				if at := op.Offset + shift; op.Copied > 0 && at >= 0 && at+op.Copied <= len(base) {
					delta.Ops[i].Offset = at
					check("offset", delta, base, prefix, suffix, insert)
					delta.Ops[i] = op
				}
			}
		}
		if prefix > 0 {
			check("shorter prefix", delta, base, prefix-1, suffix, append([]byte{base[prefix-1]}, insert...))
			check("other prefix", delta, base, prefix-1, suffix, append([]byte{base[prefix-1] ^ 1}, insert...))
			if delta.Builds(base, between(base, prefix-1, suffix, insert)) {
				t.Fatal("Builds accepts a target of another length")
			}
		}
	}
	if lies < 1000 {
		t.Errorf("only %d alterations changed what is built", lies)
	}
}

func TestParseDeltaLeavesWhatStandsInItsBuffers(t *testing.T) {
	base := []byte("0123456789abcdef")
	d := NewDiffer(testZstd)
	payload := d.AppendDelta(nil, base, between(base, 4, 4, []byte("new")), nil, nil)
	ops, scratch := make([]Op, 1, 8), append(make([]byte, 0, 64), "keep"...)
	ops[0] = Op{1, 2, 3}
	delta, err := testZstd.ParseDelta(payload, 11, len(base), ops, scratch)
	if err != nil {
		t.Fatal(err)
	}
	if string(scratch) != "keep" || ops[0] != (Op{1, 2, 3}) || string(delta.Literals) != "new" || len(delta.Ops) != 2 {
		t.Errorf("got %+v beside %q, %v", delta, scratch, ops)
	}
	if &delta.Ops[0] != &ops[:2][1] || &delta.Literals[0] != &scratch[:5][4] {
		t.Error("free room of the buffers was not used")
	}
}

// A delta that copies nothing is a full encoding, and only such a one.
func TestWhole(t *testing.T) {
	z := testZstd
	d := NewDiffer(z)
	r := newRand(5)
	base, insert := text(r, 3000), text(r, 2000)
	var idx Index
	idx.Extend(base)
	for _, c := range []struct {
		name           string
		prefix, suffix int
		insert         []byte
		whole          bool
	}{
		{"all is new", 0, 0, insert, true},
		{"short", 0, 0, []byte("5"), true},
		{"nothing is left", 0, 0, nil, false},
		{"a prefix is kept", 10, 0, insert, false},
		{"a suffix is kept", 0, 10, insert, false},
		{"a part is found in the base", 0, 0, append(append([]byte{}, base[160:400]...), insert...), false},
	} {
		payload := d.AppendDelta(nil, base, between(base, c.prefix, c.suffix, c.insert), &idx, nil)
		delta, err := z.ParseDelta(payload, c.prefix+len(c.insert)+c.suffix, len(base), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		whole := delta.Whole(payload)
		if (whole != nil) != c.whole {
			t.Errorf("%s: whole is %v, want %v", c.name, whole != nil, c.whole)
			continue
		}
		if c.whole && !bytes.Equal(whole, z.AppendBlock(nil, c.insert)) {
			t.Errorf("%s: the block is not the full encoding", c.name)
		}
	}
}

// between is the edit that puts insert between the first prefix and the last suffix bytes of base.
func between(base []byte, prefix, suffix int, insert []byte) []Edit {
	return []Edit{{prefix, len(base) - suffix, insert}}
}
