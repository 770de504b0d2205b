package codec

import (
	"bytes"
	"testing"
)

// fuzzDecoder feeds bytes to a decoder: they must be refused as malformed, or encode to the same
// bytes again. Samples and vectors are the seeds.
func fuzzDecoder(f *testing.F, name string, def params) {
	n := 0
	add := func(decoder string, b []byte, p params) {
		if decoder != name {
			return
		}
		n++
		f.Add(b, max(p.seq, def.seq), uint32(max(p.target, p.most, def.target)), uint32(max(p.base, def.base)))
	}
	for _, s := range samples() {
		add(s.decoder, s.enc, s.params)
	}
	for _, v := range loadVectors(f) {
		add(v.decoder, v.body, v.params)
	}
	if n == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte, seq uint64, target, base uint32) {
		// Lengths up to 1 MiB: a decoder may use the memory that it is allowed.
		target, base = target%(1<<20), base%(1<<20)
		checkStrict(t, name, b, params{seq: seq, target: int(target), most: int(target), base: int(base)})
	})
}

func FuzzParseRecord(f *testing.F) { fuzzDecoder(f, "record", params{seq: 300}) }
func FuzzParsePath(f *testing.F)   { fuzzDecoder(f, "path", params{seq: 300}) }
func FuzzParseAttrs(f *testing.F)  { fuzzDecoder(f, "attrs", params{}) }
func FuzzParseDelta(f *testing.F)  { fuzzDecoder(f, "delta", params{target: 100, base: 100}) }
func FuzzAppendRaw(f *testing.F)   { fuzzDecoder(f, "block", params{target: 1000}) }

func FuzzSmallStub(f *testing.F)      { fuzzDecoder(f, "stub", params{seq: 300}) }
func FuzzSmallPart(f *testing.F)      { fuzzDecoder(f, "part", params{}) }
func FuzzSmallBlob(f *testing.F)      { fuzzDecoder(f, "blob", params{}) }
func FuzzSmallIndex(f *testing.F)     { fuzzDecoder(f, "index", params{}) }
func FuzzSmallStore(f *testing.F)     { fuzzDecoder(f, "store", params{}) }
func FuzzSmallRetention(f *testing.F) { fuzzDecoder(f, "retention", params{}) }
func FuzzSmallThread(f *testing.F)    { fuzzDecoder(f, "thread", params{}) }
func FuzzSmallID(f *testing.F)        { fuzzDecoder(f, "id", params{}) }
func FuzzSmallBranch(f *testing.F)    { fuzzDecoder(f, "branch", params{}) }
func FuzzSmallNamespace(f *testing.F) { fuzzDecoder(f, "namespace", params{}) }
func FuzzSmallName(f *testing.F)      { fuzzDecoder(f, "name", params{}) }
func FuzzSmallWrites(f *testing.F)    { fuzzDecoder(f, "writes", params{}) }

// FuzzDeltaRoundTrip encodes an insert with an index of base that was made before base changed at
// one place.
func FuzzDeltaRoundTrip(f *testing.F) {
	rng := newRand(60)
	base := []byte("[" + sampleText[1:] + "]")
	f.Add(base, []byte(sampleText), uint16(len(base)-1), uint16(1), uint16(7))
	f.Add([]byte{}, []byte{}, uint16(0), uint16(0), uint16(0))
	f.Add(base, base, uint16(0), uint16(0), uint16(40))
	f.Add(base, []byte{}, uint16(20), uint16(20), uint16(0))
	f.Add(text(rng, 500), text(rng, 500), uint16(100), uint16(300), uint16(0))
	f.Fuzz(func(t *testing.T, base, insert []byte, prefix, suffix, stale uint16) {
		var idx Index
		if len(base) > 0 {
			old := bytes.Clone(base)
			old[int(stale)%len(old)] ^= 0x20
			idx.Extend(old)
		}
		p := min(int(prefix), len(base))
		s := min(int(suffix), len(base)-p)
		roundTrip(t, NewDiffer(testZstd), base, p, s, insert, &idx)
	})
}
