package engine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ckptd/ckptd/internal/alike"
)

// world is a store with a model of its expected content, and random operations on both.
type world struct {
	t     *testing.T
	f     *fixture
	r     *rand.Rand
	clock *testClock
	lines map[Ref]*modelLine
	next  int // makes names unique
}

// modelLine is the expected content of a lineage: its checkpoints in order of origin, oldest first.
type modelLine struct {
	line     []*modelPoint
	branches map[string]string // ids of heads
	writes   map[string]string // pending, by id
	gone     []string          // ids that were removed
}

// modelPoint is a checkpoint. It is never modified, since copies of threads share it.
type modelPoint struct {
	id, parent, run string
	caller          bool
	seq             uint64
	time            time.Time
	labels          map[string]string
	state           map[string][]byte
	blobs           []BlobID
	hash            [32]byte
}

func newWorld(t *testing.T, seed uint64) *world {
	clock := &testClock{ms: 1_700_000_000_000}
	return &world{t: t, f: newFixture(t, Options{Now: clock.now, CacheBytes: 1 << 20}), clock: clock,
		r: rand.New(rand.NewPCG(seed, 7)), lines: map[Ref]*modelLine{}}
}

func (w *world) fatal(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) name(prefix string) string {
	w.next++
	return prefix + strconv.Itoa(w.next)
}

// pick chooses a lineage that has checkpoints.
func (w *world) pick() (Ref, *modelLine) {
	refs := slices.SortedFunc(maps.Keys(w.lines), func(a, b Ref) int { return bytes.Compare([]byte(a.Thread+a.Namespace), []byte(b.Thread+b.Namespace)) })
	refs = slices.DeleteFunc(refs, func(r Ref) bool { return len(w.lines[r].line) == 0 })
	if len(refs) == 0 {
		return testRef("t0"), nil
	}
	ref := refs[w.r.IntN(len(refs))]
	return ref, w.lines[ref]
}

func (m *modelLine) find(id string) *modelPoint {
	for _, p := range m.line {
		if p.id == id {
			return p
		}
	}
	return nil
}

// step does one operation.
func (w *world) step() {
	w.clock.ms += int64(w.r.IntN(2000))
	switch n := w.r.IntN(1000); {
	case n < 780:
		w.save()
	case n < 840:
		w.replace()
	case n < 870:
		w.branch()
	case n < 880:
		w.label()
	case n < 895:
		w.write()
	case n < 930:
		w.prune()
	case n < 945:
		w.collect()
	case n < 960:
		w.copy()
	case n < 965:
		w.delete()
	case n < 980:
		w.deleteRun()
	default:
		w.f.reopen()
	}
}

func (w *world) save() {
	ref := testRef("t" + strconv.Itoa(w.r.IntN(3)))
	if w.r.IntN(4) == 0 {
		ref.Namespace = "sub"
	}
	m := w.lines[ref]
	if m == nil {
		m = &modelLine{branches: map[string]string{}, writes: map[string]string{}}
		w.lines[ref] = m
	}
	d := Draft{Step: int64(w.next)}
	var on *modelPoint
	switch n := len(m.line); {
	case n > 0 && w.r.IntN(10) == 0:
		on = m.line[w.r.IntN(n)]
		d.Parent = on.id
	case n > 0 && w.r.IntN(50) == 0:
		d.Root = true
	case n > 0:
		on = m.line[n-1]
	}
	if w.r.IntN(12) == 0 {
		d.Branch = "b" + strconv.Itoa(w.r.IntN(3))
		if head := m.branches[d.Branch]; head != "" && d.Parent == "" && !d.Root {
			on = m.find(head)
		}
	}
	if w.r.IntN(3) == 0 {
		if d.ID = w.name("id-"); w.r.IntN(2) == 0 {
			d.ID = fmt.Sprintf("00000000-0000-6000-8000-%012d", w.next)
		}
	}
	w.fill(ref, &d, on)
	w.commit(ref, m, &d, on)
}

// fill makes the content of d: changes to the state of on.
func (w *world) fill(ref Ref, d *Draft, on *modelPoint) {
	state := map[string][]byte{}
	if on != nil {
		maps.Copy(state, on.state)
	}
	d.Keep = on != nil && w.r.IntN(3) > 0
	for _, name := range []string{"messages", "files", "plan"} {
		if name != "messages" && w.r.IntN(3) > 0 {
			continue
		}
		old := state[name]
		if len(old) > 6000 || w.r.IntN(3) > 0 {
			old = old[:min(len(old), 6000)]
			state[name] = append(bytes.Clone(old), words(w.r, w.r.IntN(300))...)
		} else {
			state[name] = mutate(w.r, old)
		}
		if w.r.IntN(300) == 0 {
			state[name] = words(w.r, 200_000) // in parts
		}
	}
	for name, data := range state {
		if on == nil || !d.Keep || !bytes.Equal(data, on.state[name]) {
			d.Channels = append(d.Channels, Change{Name: name, Data: data})
		}
	}
	if d.RunID = "run" + strconv.Itoa(w.next/40); w.r.IntN(8) == 0 {
		d.RunID = ""
	}
	d.Labels = map[string]string{}
	switch w.r.IntN(40) {
	case 0:
		d.Labels[LabelPin] = "yes"
	case 1, 2:
		d.Labels["env"] = []string{"prod", "test"}[w.r.IntN(2)]
	case 3:
		d.Status = StatusFailed
	}
	if w.r.IntN(10) == 0 {
		d.Meta = fmt.Appendf(nil, `{"n":%d}`, w.next)
	}
	switch w.r.IntN(30) {
	case 0:
		d.Blobs = []BlobID{w.blob()}
	case 1, 2:
		d.Blobs = []BlobID{}
	}
	w.next++
	if on != nil && w.r.IntN(3) == 0 {
		w.splice(ref, d, on)
	}
}

// blob stores one of a few blobs, which share parts.
func (w *world) blob() BlobID {
	id, _, err := w.f.User("acme", "alice").PutBlob(context.Background(), bytes.NewReader(blobData(w.r.IntN(4))))
	w.fatal(err)
	return id
}

func blobData(n int) []byte { return append(noiseBytes(270_000), byte(n)) }

func (w *world) write() {
	if ref, m := w.pick(); m != nil {
		id, data := m.line[w.r.IntN(len(m.line))].id, w.name("write")
		putWrites(w.t, w.f, ref, id, "task", []byte(data))
		m.writes[id] = data
	}
}

// splice sends one of the channels as a splice.
func (w *world) splice(ref Ref, d *Draft, on *modelPoint) {
	i := slices.IndexFunc(d.Channels, func(c Change) bool { return on.state[c.Name] != nil })
	if i < 0 {
		return
	}
	cp, err := w.f.Thread(ref).Load(context.Background(), At(on.id), LoadOptions{HeadersOnly: true})
	w.fatal(err)
	c := &d.Channels[i]
	ch, _ := cp.Channel(c.Name)
	old := on.state[c.Name]
	c.Base, c.Type = ch.Version, ch.Type
	c.Prefix = alike.Prefix(old, c.Data)
	c.Data = c.Data[c.Prefix:]
}

// commit saves d, and enters it into the model.
func (w *world) commit(ref Ref, m *modelLine, d *Draft, on *modelPoint) {
	p := &modelPoint{labels: d.Labels, run: d.RunID, state: map[string][]byte{}}
	if p.blobs = d.Blobs; d.Keep && d.Blobs == nil {
		p.blobs = on.blobs
	}
	if d.Keep {
		maps.Copy(p.state, on.state)
		if p.run == "" {
			p.run = on.run
		}
	}
	for _, c := range d.Channels {
		data := c.Data
		if c.Base != 0 {
			data = append(bytes.Clone(on.state[c.Name][:c.Prefix]), data...)
		}
		p.state[c.Name] = data
	}
	cp, err := w.f.Thread(ref).Save(context.Background(), *d)
	if err != nil {
		w.t.Fatalf("saving %+v: %v", d.Parent, err)
	}
	p.id, p.seq, p.time, p.hash, p.parent, p.caller = cp.ID, cp.Seq, cp.Time, cp.Hash, cp.Parent, d.ID != ""
	if on != nil && cp.Parent != on.id {
		w.t.Fatalf("%s was saved on %s, want %s", cp.ID, cp.Parent, on.id)
	}
	m.line = append(m.line, p)
	if d.Branch != "" {
		m.branches[d.Branch] = p.id
	}
}

// replace saves another content under an id, of any checkpoint, whose parent may be gone.
func (w *world) replace() {
	ref, m := w.pick()
	if m == nil {
		return
	}
	i := w.r.IntN(len(m.line))
	old := m.line[i]
	d := Draft{ID: old.id, Channels: []Change{{Name: "messages", Data: words(w.r, 200+w.r.IntN(500))}}, Labels: map[string]string{}}
	cp, err := w.f.Thread(ref).Save(context.Background(), d)
	if err != nil {
		w.t.Fatalf("replacing: %v", err)
	}
	if cp.Parent != old.parent {
		w.t.Fatalf("the parent of a replacement is %q, was %q", cp.Parent, old.parent)
	}
	m.line[i] = &modelPoint{id: old.id, parent: old.parent, caller: old.caller, seq: cp.Seq, time: cp.Time, hash: cp.Hash, labels: d.Labels,
		state: map[string][]byte{"messages": d.Channels[0].Data}}
}

func (w *world) branch() {
	ref, m := w.pick()
	if m == nil {
		return
	}
	name, p := "b"+strconv.Itoa(w.r.IntN(3)), m.line[w.r.IntN(len(m.line))]
	if m.branches[name] != "" && w.r.IntN(2) == 0 {
		w.fatal(w.f.Thread(ref).DeleteBranch(context.Background(), name))
		delete(m.branches, name)
		return
	}
	w.fatal(w.f.Thread(ref).SetBranch(context.Background(), name, At(p.id)))
	m.branches[name] = p.id
}

func (w *world) label() {
	ref, m := w.pick()
	if m == nil {
		return
	}
	i := w.r.IntN(len(m.line))
	p := *m.line[i]
	p.labels = maps.Clone(p.labels)
	p.labels["env"] = "staging"
	cp, err := w.f.Thread(ref).SetLabels(context.Background(), At(p.id), map[string]string{"env": "staging"})
	w.fatal(err)
	p.seq, p.time, p.hash = cp.Seq, cp.Time, cp.Hash
	m.line[i] = &p
}
