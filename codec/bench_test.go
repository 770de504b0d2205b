package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// words makes text of n random words, as the content of a message.
func words(rng *rand.Rand, n int) string {
	var b bytes.Buffer
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		for range 2 + rng.IntN(9) {
			b.WriteByte("eeettaaoinshrdlucmfw"[rng.IntN(20)])
		}
	}
	return b.String()
}

// message makes a JSON message of exactly n bytes, n ≥ 64, with the comma in front that it has in
// an array.
func message(rng *rand.Rand, n int) []byte {
	m := fmt.Appendf(nil, `,{"role":%q,"name":null,"content":`, []string{"assistant", "user", "tool"}[rng.IntN(3)])
	text, _ := json.Marshal(words(rng, n/4))
	m = append(m, text[:n-len(m)-2]...)
	return append(m, `"}`...)
}

// history makes an array of messages of about n bytes, and the message that comes next.
func history(seed uint64, n int) (state, next []byte) {
	rng := rand.New(rand.NewPCG(seed, 1))
	state = []byte{'['}
	for len(state) < n {
		state = append(state, message(rng, 1000)...)
	}
	return append(state, ']'), message(rng, 1000)
}

// BenchmarkAppendDelta appends a message of 1 kB to a state of 100 kB.
func BenchmarkAppendDelta(b *testing.B) {
	state, next := history(1, 100_000)
	var idx Index
	idx.Extend(state)
	d := NewDiffer(NewZstd())
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = d.AppendDelta(dst[:0], state, between(state, len(state)-1, 1, next), &idx, nil)
	}
	b.ReportMetric(float64(len(dst)), "B/delta")
}

func BenchmarkParseDelta(b *testing.B) {
	state, next := history(1, 100_000)
	var idx Index
	idx.Extend(state)
	z := NewZstd()
	payload := NewDiffer(z).AppendDelta(nil, state, between(state, len(state)-1, 1, next), &idx, nil)
	var ops []Op
	var lits []byte
	b.ReportAllocs()
	for b.Loop() {
		d, err := z.ParseDelta(payload, len(state)+len(next), len(state), ops[:0], lits[:0])
		if err != nil || !d.Builds(state, between(state, len(state)-1, 1, next)) {
			b.Fatal("does not build:", err)
		}
		ops, lits = d.Ops, d.Literals
	}
}

func BenchmarkAppendBlock(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			state, _ := history(1, n)
			z := NewZstd()
			var dst []byte
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				dst = z.AppendBlock(dst[:0], state[:n])
			}
			b.ReportMetric(float64(len(dst)), "B/block")
		})
	}
}

// BenchmarkCompose restores a state of 1 MB that grew by 256 messages of 1 kB since its keyframe.
func BenchmarkCompose(b *testing.B) {
	full, _ := history(1, 750_000)
	rng := rand.New(rand.NewPCG(2, 2))
	d := NewDiffer(NewZstd())
	var idx Index
	var chain []Delta
	state := full
	for range 256 {
		next := message(rng, 1000)
		idx.Extend(state)
		payload := d.AppendDelta(nil, state, between(state, len(state)-1, 1, next), &idx, nil)
		delta, err := d.z.ParseDelta(payload, len(state)+len(next), len(state), nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		chain = append([]Delta{delta}, chain...)
		state = append(append(append([]byte(nil), state[:len(state)-1]...), next...), ']')
		idx.Changed(len(state) - len(next) - 1)
	}
	b.SetBytes(int64(len(state)))
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = Compose(dst[:0], chain, full)
	}
	if !bytes.Equal(dst, state) {
		b.Fatal("wrong bytes")
	}
}

// hotRecord is the record of a save that changes one channel.
func hotRecord() *Record {
	path := Path{{90, 3}, {80, 1}, {64, 1}}
	return &Record{
		Time: 1_700_000_000_000, Step: 100, Status: "running", Schema: 3, ParentDist: 1,
		Entries: []Entry{
			{Path: Path{{17, 1}}},
			{Number: 1, Mode: ByDelta, Path: path, Size: 100_000, Payload: bytes.Repeat([]byte{7}, 500)},
		},
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	rec := hotRecord()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendRecord(dst[:0], 91, rec)
	}
}

func BenchmarkParseRecord(b *testing.B) {
	enc := AppendRecord(nil, 91, hotRecord())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRecord(enc, 91); err != nil {
			b.Fatal(err)
		}
	}
}
