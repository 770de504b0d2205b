package engine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/codec"
)

// model is the expected content of a thread: every checkpoint's channels by id.
type model struct {
	states map[string]map[string][]byte
	ids    []string
}

// words makes n bytes that compress about as text does.
func words(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+16)
	for len(b) < n {
		w := r.IntN(2000)
		b = fmt.Appendf(b, "w%xq%d ", w*w, w%7)
	}
	return b[:n]
}

// mutate changes a value as agents do, at one place or at several.
func mutate(r *rand.Rand, old []byte) []byte {
	next := mutateOnce(r, old)
	for r.IntN(3) == 0 {
		next = mutateOnce(r, next)
	}
	return next
}

// mutateOnce changes a value mostly by appending, also by editing, moving, deleting, summarising,
// and starting over.
func mutateOnce(r *rand.Rand, old []byte) []byte {
	at := r.IntN(len(old) + 1)
	switch r.IntN(12) {
	case 0: // edit in place
		end := min(len(old), at+r.IntN(400))
		return append(append(append([]byte{}, old[:at]...), words(r, r.IntN(400))...), old[end:]...)
	case 1: // cut
		return append(append([]byte{}, old[:at]...), old[min(len(old), at+r.IntN(3000)):]...)
	case 2: // summarise
		if r.IntN(4) == 0 {
			return append(words(r, 300), old[len(old)-len(old)/20:]...)
		}
	case 3: // repeat itself
		return append(append([]byte{}, old...), old[at:min(len(old), at+2000)]...)
	case 4:
		if r.IntN(4) == 0 {
			return make([]byte, r.IntN(20000)) // all the same byte
		}
	case 5: // move
		end := min(len(old), at+r.IntN(9000))
		rest := append(append([]byte{}, old[:at]...), old[end:]...)
		to := r.IntN(len(rest) + 1)
		return slices.Concat(rest[:to], old[at:end], rest[to:])
	case 6:
		if r.IntN(6) == 0 {
			b := make([]byte, r.IntN(30000)) // not compressible
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		}
	}
	n := max(0, len(old)-1)
	return append(append(append([]byte{}, old[:n]...), words(r, r.IntN(900))...), ']')
}

// Random histories with branches load byte for byte, and cost a reader no more than the bound,
// whatever happened.
func TestChainsAreBoundedAndExact(t *testing.T) {
	runsAlone(t)
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runChain(t, seed, 700)
		})
	}
}

func runChain(t *testing.T, seed uint64, steps int) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(seed, 99))
	f := newFixture(t, Options{CacheBytes: 1 << 20})
	m := &model{states: map[string]map[string][]byte{}}
	names := []string{"messages", "files", "plan"}
	parent := ""
	for step := range steps {
		if r.IntN(100) == 0 && len(m.ids) > 0 {
			parent = m.ids[r.IntN(len(m.ids))]
		}
		if r.IntN(60) == 0 {
			f.reopen()
		}
		base := m.states[parent]
		d := Draft{Parent: parent, Step: int64(step), Keep: parent != ""}
		next := map[string][]byte{}
		for k, v := range base {
			next[k] = v
		}
		for _, name := range names {
			if base[name] != nil && r.IntN(3) > 0 && name != "messages" {
				continue
			}
			next[name] = mutate(r, base[name])
			d.Channels = append(d.Channels, Change{Name: name, Data: next[name]})
		}
		if r.IntN(20) == 0 {
			d.Meta = fmt.Appendf(nil, `{"step":%d}`, step)
		}
		cp, err := f.Thread(testRef("t")).Save(ctx, d)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		m.states[cp.ID], m.ids, parent = next, append(m.ids, cp.ID), cp.ID
	}
	f.reopen()
	for _, id := range m.ids {
		checkState(t, f, id, m.states[id])
	}
	checkBounds(t, f, testRef("t"))
}

// Going back to a state that was measured does not measure it again.
func TestRewindsDoNotMeasure(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(3, 3))
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	value := []byte("[")
	var ids []string
	save := func(parent string, value []byte) {
		t.Helper()
		cp, err := th.Save(ctx, Draft{Parent: parent, Channels: []Change{{Name: "messages", Data: value}}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cp.ID)
	}
	for range 80 {
		value = append(value, words(r, 1500)...)
		save("", value)
	}
	l, err := f.rlockThread(ctx, testRef("t"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	known := len(l.measures.list)
	if known == 0 {
		t.Fatal("no state was measured, the test shows nothing")
	}
	for i := range 5 {
		save(ids[len(ids)-12-i], append(value[:len(value)-10*1500:len(value)-10*1500], words(r, 100)...))
	}
	if n := len(l.measures.list); n != known {
		t.Errorf("%d states were measured after going back", n-known)
	}
}

func checkState(t *testing.T, f *fixture, id string, want map[string][]byte) {
	t.Helper()
	cp, err := f.Thread(testRef("t")).Load(context.Background(), At(id))
	if err != nil {
		t.Fatalf("loading %s: %v", id, err)
	}
	if len(cp.Channels) != len(want) {
		t.Fatalf("%s has %d channels, want %d", id, len(cp.Channels), len(want))
	}
	for _, ch := range cp.Channels {
		if !bytes.Equal(ch.Data, want[ch.Name]) {
			t.Fatalf("channel %s of seq %d differs", ch.Name, cp.Seq)
		}
	}
}

// checkBounds asserts docs/format.md §17's bound on reads for every checkpoint: the records that
// its channels and attributes need hold, with their parts, at most twice the bytes of a full
// encoding and 16 KiB, and there are at most 256 with its own and its parent's.
func checkBounds(t *testing.T, f *fixture, ref Ref) {
	t.Helper()
	ctx := context.Background()
	l, err := f.rlockThread(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	l.mu.lock(context.Background())
	defer l.mu.unlock()
	if err := l.open(ctx); err != nil {
		t.Fatal(err)
	}
	worst, most := 0.0, 0
	for seq := uint64(1); seq <= l.head; seq++ {
		r, err := l.readRecord(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		if r == nil || r.rec == nil || r.rec.Ghost {
			continue
		}
		rs := l.restorer()
		tip, err := rs.state(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		share, records := checkBound(t, rs, r, tip)
		worst, most = max(worst, share), max(most, records)
	}
	t.Logf("worst read is %.2f of the bound, and %d records, over %d checkpoints", worst, most, l.head)
}

// checkBound asserts the bound for one checkpoint, restored by a fresh restorer. It returns the
// share of the allowed bytes that it takes, and the number of records read.
func checkBound(t *testing.T, rs *restorer, r *record, tip *checkpointState) (share float64, records int) {
	t.Helper()
	var bytes, full int64
	for seq, read := range rs.records {
		if seq != r.seq && (seq+r.rec.ParentDist != r.seq || onPath(tip, seq)) {
			bytes += read.size
		}
	}
	for _, data := range rs.parts {
		bytes += int64(len(data))
	}
	for c := range tip.all {
		whole := int64(len(rs.l.s.z.AppendBlock(nil, c.value)))
		if c.minFull() > whole+whole/50+16 { // an encoder is not quite monotonous: a block of one repeated byte has no headers
			t.Errorf("seq %d channel %d: a restore takes %d bytes for the least of a full encoding, which has %d", r.seq, c.number, c.minFull(), whole)
		}
		full += whole + entryBytes
	}
	most := pathFactor*full + pathSlack
	if bytes > most {
		t.Errorf("seq %d: a restore reads %d bytes, a full encoding has %d", r.seq, bytes, full)
	}
	if len(rs.records) > codec.MaxPath {
		t.Errorf("seq %d: a restore reads %d records", r.seq, len(rs.records))
	}
	return float64(bytes) / float64(most), len(rs.records)
}

// onPath reports whether some channel needs the record at seq.
func onPath(t *checkpointState, seq uint64) bool {
	for c := range t.all {
		if c.path.From(seq) != nil {
			return true
		}
	}
	return false
}
