package engine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// meter counts the traffic of a backend: bytes written, and records and parts that Get reads.
type meter struct {
	backend.Backend
	written int64
	records map[string]int64 // bytes by key
	parts   map[string]int64
}

func newMeter(b backend.Backend) *meter {
	return &meter{Backend: b, records: map[string]int64{}, parts: map[string]int64{}}
}

func (m *meter) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	got, err := m.Backend.Get(ctx, keys...)
	for _, e := range got {
		switch space.KindOf(e.Key) {
		case space.KindRecord:
			m.records[string(e.Key)] = int64(len(e.Value))
		case space.KindPart:
			m.parts[string(e.Key)] = int64(len(e.Value))
		}
	}
	return got, err
}

func (m *meter) Commit(ctx context.Context, b backend.Batch) error {
	for _, mut := range b.Muts {
		m.written += int64(len(mut.Key) + len(mut.Value))
	}
	return m.Backend.Commit(ctx, b)
}

func (m *meter) Close() error { return nil }

// restoreCost is the cost of a load from a fresh store.
type restoreCost struct {
	records int   // with its own and its parent's
	bytes   int64 // without these two, if only the parent's is needed
	most    int64 // that these may be
}

// loadCold loads a checkpoint from a fresh store, and asserts that it reads no more than
// docs/format.md §17 allows.
func loadCold(t *testing.T, f *fixture, ref Ref, id string) (*Checkpoint, restoreCost) {
	t.Helper()
	ctx := context.Background()
	m := newMeter(f.be)
	s, err := Open(ctx, m, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cp, err := s.Thread(ref).Load(ctx, At(id))
	if err != nil {
		t.Fatalf("loading %s: %v", id, err)
	}
	l, err := s.rlockThread(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	cost := restoreCost{records: len(m.records)}
	for key, size := range m.records {
		if key != string(l.RecordKey(cp.Seq)) {
			cost.bytes += size
		}
	}
	for _, size := range m.parts {
		cost.bytes += size
	}
	parent := m.records[string(l.RecordKey(cp.ParentSeq))] // before it is read again
	tip, err := l.restorer().stateAt(ctx, cp.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if cp.ParentSeq != 0 && !onPath(tip, cp.ParentSeq) {
		cost.bytes -= parent
	}
	full := int64(0)
	for c := range tip.all {
		full += int64(len(s.z.AppendBlock(nil, c.value))) + entryBytes
	}
	cost.most = pathFactor*full + pathSlack
	if cost.records > codec.MaxPath || cost.bytes > cost.most {
		t.Fatalf("seq %d, %d channels: a restore reads %d records and %d bytes, a full encoding has %d", cp.Seq, len(cp.Channels), cost.records, cost.bytes, full)
	}
	return cp, cost
}

// walk is a random history of a thread, with the expected content of each checkpoint.
type walk struct {
	t       *testing.T
	f       *fixture
	r       *rand.Rand
	ref     Ref
	appends bool // values only grow
	states  map[string]map[string][]byte
	ids     []string // oldest first
	head    string
	names   int
	loads   int
	worst   float64 // part of the bytes that are allowed
	most    int     // records
}

func newWalk(t *testing.T, seed uint64, channels, size int, appends bool) *walk {
	w := &walk{t: t, f: newFixture(t, Options{CacheBytes: 8 << 20}), r: rand.New(rand.NewPCG(seed, 256)), ref: testRef("t"), appends: appends,
		states: map[string]map[string][]byte{}}
	state, d := map[string][]byte{}, Draft{}
	for range channels {
		w.set(&d, state, w.name(), words(w.r, w.r.IntN(size+1)))
	}
	w.save(d, state)
	return w
}

func (w *walk) name() string {
	w.names++
	return fmt.Sprintf("channel-%04d", w.names)
}

func (w *walk) set(d *Draft, state map[string][]byte, name string, value []byte) {
	state[name] = value
	d.Channels = append(d.Channels, Change{Name: name, Data: value})
}

func (w *walk) save(d Draft, state map[string][]byte) {
	w.t.Helper()
	cp, err := w.f.Thread(w.ref).Save(context.Background(), d)
	if err != nil {
		w.t.Fatal(err)
	}
	w.states[cp.ID], w.ids, w.head = state, append(w.ids, cp.ID), cp.ID
}

// step saves once: mostly some messages more, also statuses, labels, and channels that come and go,
// and sometimes a fork.
func (w *walk) step() {
	w.t.Helper()
	d := Draft{Keep: true, Step: int64(len(w.ids))}
	if w.r.IntN(60) == 0 {
		w.head = w.ids[w.r.IntN(len(w.ids))]
		d.Parent = w.head
	}
	if w.r.IntN(150) == 0 {
		w.f.reopen()
	}
	state := maps.Clone(w.states[w.head])
	names := slices.Sorted(maps.Keys(state))
	switch n := w.r.IntN(100); {
	case n < 10:
		d.Status = StatusWaiting
	case n < 13:
		d.Labels = map[string]string{"phase": fmt.Sprint(w.r.IntN(4))}
	case n < 15 && len(names) > 1:
		name := names[w.r.IntN(len(names))]
		delete(state, name)
		d.Channels = append(d.Channels, Change{Name: name, Remove: true})
	case n < 17:
		w.set(&d, state, w.name(), words(w.r, w.r.IntN(500)))
	default:
		for range 1 + w.r.IntN(w.r.IntN(3)+1) {
			if len(names) == 0 {
				break
			}
			// The first is the chat: it grows most often.
			at := max(0, w.r.IntN(2*len(names))-len(names))
			name := names[at]
			names = slices.Delete(names, at, at+1)
			if w.appends || w.r.IntN(4) > 0 {
				w.set(&d, state, name, append(bytes.Clone(state[name]), words(w.r, w.r.IntN(300))...))
			} else {
				w.set(&d, state, name, mutate(w.r, state[name]))
			}
		}
	}
	w.save(d, state)
}

// look loads a checkpoint cold, and compares.
func (w *walk) look(id string) {
	w.t.Helper()
	cp, cost := loadCold(w.t, w.f, w.ref, id)
	want := w.states[id]
	if len(cp.Channels) != len(want) {
		w.t.Fatalf("seq %d has %d channels, want %d", cp.Seq, len(cp.Channels), len(want))
	}
	for _, ch := range cp.Channels {
		if !bytes.Equal(ch.Data, want[ch.Name]) {
			w.t.Fatalf("channel %s of seq %d differs", ch.Name, cp.Seq)
		}
	}
	w.loads++
	w.worst, w.most = max(w.worst, float64(cost.bytes)/float64(cost.most)), max(w.most, cost.records)
}

// thin removes about half of the checkpoints, or continues in a copy.
func (w *walk) thin() {
	w.t.Helper()
	ctx := context.Background()
	if w.r.IntN(3) == 0 {
		to := testRef(w.ref.Thread + "+")
		if err := w.f.Thread(w.ref).Copy(ctx, to); err != nil {
			w.t.Fatal(err)
		}
		w.ref = to
		return
	}
	o := upkeep.PruneOptions{Erase: w.r.IntN(2) == 0}
	stay := w.ids[:0:0]
	for i, id := range w.ids {
		if i < len(w.ids)-20 && id != w.head && w.r.IntN(2) == 0 {
			o.Remove = append(o.Remove, id)
		} else {
			stay = append(stay, id)
		}
	}
	if _, err := w.f.Thread(w.ref).Upkeep().Prune(ctx, o); err != nil {
		w.t.Fatal(err)
	}
	w.ids = stay
}

func campaign(usual, long int) int {
	if os.Getenv("CKPTD_LONG") != "" {
		return long
	}
	if testing.Short() {
		return usual / 3
	}
	return usual
}

// Whatever is done to a thread, with any number of channels, a restore of each checkpoint stays
// within its bound of reads.
func TestRestoresAreBounded(t *testing.T) {
	runsAlone(t)
	for i, c := range []struct {
		channels, size, steps int
		appends               bool
	}{
		{1, 2000, 500, false}, {3, 2000, 500, false}, {10, 300, 500, false}, {30, 2000, 400, false}, {30, 100, 500, true},
		{100, 300, 300, false}, {1000, 300, 90, false}, {1, 50_000, 800, true},
	} {
		t.Run(fmt.Sprintf("%d channels of %d", c.channels, c.size), func(t *testing.T) {
			t.Parallel()
			w := newWalk(t, uint64(i), c.channels, c.size, c.appends)
			steps := campaign(c.steps, 20*c.steps)
			for i := range steps {
				w.step()
				if w.r.IntN(8) == 0 {
					w.look(w.head)
				}
				if i%max(50, steps/4) == 49 {
					w.thin()
				}
			}
			for range 40 {
				w.look(w.ids[w.r.IntN(len(w.ids))])
			}
			t.Logf("%d cold loads read at most %d records, and %.2f of the bytes that they may", w.loads, w.most, w.worst)
		})
	}
}

// A chat that only grows, next to 29 other channels: every checkpoint can be restored cold, long
// after its paths have reached their maximum length.
func TestLongChats(t *testing.T) {
	runsAlone(t)
	w := newWalk(t, 7, 30, 400, true)
	messages := campaign(1500, 10_000)
	for i := range messages {
		w.step()
		if messages == 10_000 || w.r.IntN(12) == 0 {
			w.look(w.head)
		}
		if i%600 == 599 {
			w.thin()
		}
	}
	for i := 0; i < len(w.ids); i += 1 + w.r.IntN(max(1, len(w.ids)/80)) {
		w.look(w.ids[i])
	}
	t.Logf("%d cold loads read at most %d records, and %.2f of the bytes that they may", w.loads, w.most, w.worst)
}
