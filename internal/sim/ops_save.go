package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// save is a save of any kind.
type save struct {
	call
	draft  engine.Draft
	cp     *engine.Checkpoint
	repeat bool // the draft was acknowledged before
}

func (a *save) String() string {
	d := &a.draft
	var b strings.Builder
	fmt.Fprintf(&b, "step %d", d.Step)
	for _, p := range []struct{ name, v string }{{"id", d.ID}, {"parent", d.Parent}, {"branch", d.Branch}, {"run", d.RunID}, {"status", d.Status}, {"kind", d.Kind}} {
		if p.v != "" {
			fmt.Fprintf(&b, " %s %s", p.name, p.v)
		}
	}
	if seq, ok := d.Expect.Head(); ok {
		fmt.Fprintf(&b, " expect %d", seq)
	}
	fmt.Fprintf(&b, " root %v keep %v schema %d ttl %v generation %d labels %v blobs %d", d.Root, d.Keep, d.SchemaVersion, d.TTL, d.Generation, d.Labels, len(d.Blobs))
	for _, c := range d.Channels {
		fmt.Fprintf(&b, " %s:%d", c.Name, len(c.Data))
		for _, s := range c.Splices {
			fmt.Fprintf(&b, "[%d:%d]%d", s.From, s.To, len(s.Data))
		}
		if c.Base != 0 && c.Splices == nil {
			fmt.Fprintf(&b, "[%d,%d]", c.Prefix, c.Suffix)
		}
	}
	return b.String()
}

func (a *save) run(ctx context.Context, s *engine.Store) (err error) {
	a.cp, err = s.Thread(a.ref).Save(ctx, a.draft)
	return err
}

func (a *save) learn(m *model) { m.learn(a.ref, a.name, a.cp, &a.draft) }

func (a *save) saw() []*engine.Checkpoint {
	if a.acked() {
		return []*engine.Checkpoint{a.cp}
	}
	return nil
}

func (a *save) effect(f *facts) {
	if o := f.labeller(a); o != nil { // it existed before, with labels whose setter got no answer
		if r := f.madeLabel(&o.call, a.cp, o.labels); r != nil {
			r.born.hi = min(r.born.hi, a.res)
		}
		return
	}
	if a.acked() {
		if r := f.made(&a.call, a.cp, &rev{draft: &a.draft}); r != nil && r.by != &a.call {
			return // it existed before
		}
	}
	if a.draft.Branch != "" && (a.acked() || a.doubtful()) {
		// A replacement that is already on the branch moves nothing.
		f.branch(a.ref, a.draft.Branch).write(&a.call, headID(a.cp, a.draft.ID), a.acked() && a.draft.ID == "")
	}
	f.saved(&a.call, a.draft.TTL, a.repeat)
}

// labeller returns the call in doubt whose labels appear in the answer of a repeated save, or nil.
func (f *facts) labeller(a *save) *label {
	if !a.repeat || !a.acked() || f.find(a.ref, a.cp) != nil { // a new one has its parent's labels
		return nil
	}
	for _, o := range f.w.calls {
		l, ok := o.act.(*label)
		if ok && !o.acked() && o.doubtful() && l.named() && l.claim(f, a.cp) != nil {
			return l
		}
	}
	return nil
}

// headID returns the id at the end of a branch after a save; it is unknown if the save was not
// acknowledged and chose no id.
func headID(cp *engine.Checkpoint, id string) string {
	if cp != nil {
		return cp.ID
	}
	if id != "" {
		return id
	}
	return anyID
}

func (a *save) claim(f *facts, cp *engine.Checkpoint) *rev {
	if cp.Ref != a.ref || cp.Step != a.draft.Step || a.draft.ID != "" && a.draft.ID != cp.ID {
		return nil
	}
	return &rev{draft: &a.draft}
}

func (a *save) check(f *facts) {
	d := &a.draft
	r := f.find(a.ref, a.cp)
	switch {
	case !a.acked():
		a.refused(f)
	case r == nil:
	default:
		f.show(&a.call, a.cp)
		if r.by != &a.call { // it existed before
			if d.ID == "" {
				f.problem(&a.call, "seq %d was assigned before, to %s", a.cp.Seq, r.by.name)
			}
			return
		}
		if d.ID != "" && a.cp.ID != d.ID {
			f.problem(&a.call, "it has the id %s", a.cp.ID)
		}
		if d.Generation != 0 && a.cp.Generation != d.Generation {
			f.problem(&a.call, "it is of generation %d", a.cp.Generation)
		}
		if a.repeat && f.untouched(&a.call, r) {
			f.problem(&a.call, "the repeated save was not answered like the first one but saved as seq %d", a.cp.Seq)
		}
		if r.draft != nil { // otherwise it may be the result of labelling
			f.stands(r, d)
		}
	}
}

// refused judges an error.
func (a *save) refused(f *facts) {
	d, c := &a.draft, &a.call
	var conflict *engine.ConflictError
	switch {
	case c.unknown:
	case a.repeat && f.repeatable(c, d) && !f.excused(c):
		f.problem(c, "an acknowledged save is refused when repeated: %v", c.err)
	case errors.As(c.err, &conflict):
		if _, ok := d.Expect.Head(); !ok {
			f.problem(c, "conflict without a condition: %v", c.err)
		} else {
			f.conflict(c, d, conflict)
		}
	case errors.Is(c.err, engine.ErrUnknownParent):
		if d.Parent == "" && d.ID == "" || d.Parent != "" && f.certain(c, d.Parent) {
			f.problem(c, "the parent exists: %v", c.err)
		}
	case errors.Is(c.err, engine.ErrNeedFull):
		if d.Parent != "" && f.certain(c, d.Parent) && f.unchanged(c, d.Parent) && f.quietHistory(c.ref) && f.splices(c, d) {
			f.problem(c, "the splice fits the parent: %v", c.err)
		}
	case errors.Is(c.err, engine.ErrGeneration):
		if f.generationCertain(c, d.Generation) {
			f.problem(c, "the generation is the one in the draft: %v", c.err)
		}
	case errors.Is(c.err, engine.ErrNotFound) && (len(d.Blobs) > 0 || d.Keep && d.Blobs == nil):
		if !f.blobsInDoubt() {
			f.problem(c, "the blob exists: %v", c.err)
		}
	default:
		f.plainError(c)
	}
}

// makeSave generates a save.
func makeSave(g *gen) action {
	a := &save{call: call{ref: g.ref()}}
	d := &a.draft
	d.Step = g.w.model.nextStep(g.name)
	on := g.known(a.ref)
	switch n := g.rand.IntN(20); {
	case on == nil || n < 6: // on the current head
		on = nil
	case n < 17:
		d.Parent = on.cp.ID
	case n == 17:
		d.Root, on = true, nil
	default:
		d.Parent, d.AllowDangling = on.cp.ID, true
	}
	if n := g.rand.IntN(6); n == 0 && !g.one(3) {
		d.Branch = g.branch()
	}
	if g.one(4) {
		d.ID = g.id()
	}
	if g.one(8) {
		d.Expect = engine.ExpectHead(0)
		if k := g.newest(a.ref); k != nil {
			d.Expect = engine.ExpectHead(k.cp.Seq)
		}
	}
	if k := g.known(a.ref); k != nil && g.one(12) {
		d.Generation = k.cp.Generation
	}
	g.describe(d)
	g.state(d, on, a.ref)
	return a
}

// id returns an id chosen by a caller: a name or a UUID.
func (g *gen) id() string {
	if g.one(2) {
		return fmt.Sprintf("1f0a0000-0000-6%03x-8000-%012x", g.rand.IntN(16), g.seed&0xffffffffffff)
	}
	return "id-" + g.name
}

// newest returns the newest acknowledged checkpoint, which may be gone, or nil.
func (g *gen) newest(ref engine.Ref) (newest *known) {
	for _, k := range g.w.model.known[ref] {
		if newest == nil || k.cp.Generation > newest.cp.Generation || k.cp.Generation == newest.cp.Generation && k.cp.Seq > newest.cp.Seq {
			newest = k
		}
	}
	return newest
}

// describe fills in everything except the state.
func (g *gen) describe(d *engine.Draft) {
	if g.one(3) {
		d.RunID = g.run()
	}
	switch g.rand.IntN(10) {
	case 0:
		d.Status = engine.StatusFailed
	case 1:
		d.Status = engine.StatusSucceeded
	}
	switch g.rand.IntN(10) {
	case 0:
		d.Labels = map[string]string{"env": []string{"prod", "test"}[g.rand.IntN(2)]}
	case 1:
		d.Labels = map[string]string{engine.LabelPin: "yes"}
	case 2:
		d.Labels = map[string]string{}
	}
	if g.one(8) {
		d.Meta = fmt.Appendf(nil, `{"n":%d}`, d.Step)
	}
	switch g.rand.IntN(24) {
	case 0:
		d.TTL = time.Duration(1+g.rand.IntN(120)) * time.Minute
	case 1:
		d.TTL = -1
	}
	if id, ok := g.blob(); ok && g.one(6) {
		d.Blobs = []engine.BlobID{id}
	} else if g.one(12) {
		d.Blobs = []engine.BlobID{}
	}
}

// versioned reports whether the states of a thread have versions.
func versioned(ref engine.Ref) bool { return (ref.Thread[len(ref.Thread)-1]-'0')%2 == 0 }

// state fills in the state: all of it, or changes to that of on, a known checkpoint; nil means an
// unknown one.
func (g *gen) state(d *engine.Draft, on *known, ref engine.Ref) {
	if versioned(ref) {
		d.Kind, d.SchemaVersion = agent, uint64(1+g.rand.IntN(2))
		if on != nil && !g.one(8) {
			d.SchemaVersion = on.cp.SchemaVersion
		}
	}
	if on == nil && !d.Root && !g.one(3) { // changes to the presumed head
		if on = g.newest(ref); on != nil && versioned(ref) {
			d.SchemaVersion = on.cp.SchemaVersion
		}
	}
	if on == nil || on.cp.SchemaVersion != d.SchemaVersion {
		if d.Keep = !d.Root && g.one(3); d.Keep && g.w.prof.clients > 1 && g.one(2) { // no change of the state itself
			return
		}
		g.whole(d, ref)
		return
	}
	d.Keep = !g.one(6)
	if g.one(4) && d.Keep { // only a status
		return
	}
	n := 1
	if g.one(6) {
		n = 1 + g.rand.IntN(len(on.cp.Channels)+1)
	}
	for range n {
		g.change(d, on.cp)
	}
	if g.one(10) && d.Keep {
		d.Channels = append(d.Channels, engine.Change{Name: "new-" + g.name, Data: g.text(g.rand.IntN(50))})
	}
	if !d.Keep {
		g.doc(d)
	}
}

// whole drafts a state with all channels: an old one plus an addition, or a different one.
func (g *gen) whole(d *engine.Draft, ref engine.Ref) {
	if old := g.old(ref); old != nil && !g.one(3) {
		for _, name := range old.names() {
			if name != "doc" {
				v := old.chans[name]
				d.Channels = append(d.Channels, engine.Change{Name: name, Type: v.typ, Data: append([]byte(v.data), g.text(g.rand.IntN(g.w.prof.add+1))...)})
			}
		}
		g.doc(d)
		return
	}
	for i := range g.w.prof.channels {
		if g.one(10) {
			continue
		}
		size := g.rand.IntN(g.w.prof.first + 1)
		if i > 20 {
			size = g.rand.IntN(40)
		}
		if i == 0 && g.one(12) && g.w.prof.channels < 10 {
			size = 70_000 + g.rand.IntN(30_000) // in parts
		}
		d.Channels = append(d.Channels, engine.Change{Name: fmt.Sprintf("c%d", i), Data: g.text(size)})
	}
	g.doc(d)
}

// old picks the content of a checkpoint that existed at the start of the round; nil if there is
// none.
func (g *gen) old(ref engine.Ref) *content {
	st := g.w.model.lines[ref]
	if st == nil {
		return nil
	}
	var best *rev
	for _, r := range st.revs {
		if best == nil || hash(g.seed, "old", r.id) > hash(g.seed, "old", best.id) {
			best = r
		}
	}
	if best == nil {
		return nil
	}
	return best.want[0]
}

// doc adds the channel that migrations change.
func (g *gen) doc(d *engine.Draft) {
	if d.Kind == agent && !d.Keep {
		d.Channels = append(d.Channels, engine.Change{Name: "doc", Type: "json",
			Data: fmt.Appendf(nil, `{"text":%q,"v":%d}`, g.text(g.rand.IntN(200)), d.SchemaVersion)})
	}
}

// change drafts a change of one channel of cp: one or more splices, an append, a different value,
// or nothing at all.
func (g *gen) change(d *engine.Draft, cp *engine.Checkpoint) {
	if len(cp.Channels) == 0 {
		return
	}
	ch := cp.Channels[g.rand.IntN(len(cp.Channels))]
	if ch.Name == "doc" {
		return
	}
	for _, c := range d.Channels {
		if c.Name == ch.Name {
			return
		}
	}
	c := engine.Change{Name: ch.Name, Data: g.text(g.rand.IntN(g.w.prof.add + 1))}
	n := int(ch.Size)
	switch g.rand.IntN(8) {
	case 0:
		c.Data = g.text(g.rand.IntN(g.w.prof.first + 1))
	case 1:
		if !d.Keep {
			return
		}
		c = engine.Change{Name: ch.Name, Remove: true}
	case 2, 3:
		c.Base, c.Prefix = ch.Version, g.rand.IntN(n+1)
		c.Suffix = g.rand.IntN(n - c.Prefix + 1)
	case 4:
		c = engine.Change{Name: ch.Name, Base: ch.Version, Splices: g.splices(n)}
	default:
		c.Base, c.Prefix = ch.Version, n
	}
	d.Channels = append(d.Channels, c)
}

// splices drafts up to four splices of n bytes, some of which may change nothing.
func (g *gen) splices(n int) []engine.Splice {
	places := make([]int, 2*g.rand.IntN(5))
	for i := range places {
		places[i] = g.rand.IntN(n + 1)
	}
	slices.Sort(places)
	splices := []engine.Splice{}
	for p := range slices.Chunk(places, 2) {
		splices = append(splices, engine.Splice{From: p[0], To: p[1], Data: g.text(g.rand.IntN(g.w.prof.add + 1))})
	}
	return splices
}

// makeReplace saves different content under the id of an existing checkpoint.
func makeReplace(g *gen) action {
	a := &save{call: call{ref: g.ref()}}
	k := g.knownThat(a.ref, func(k *known) bool { return k.chosen })
	if k == nil || g.one(4) {
		k = g.known(a.ref)
	}
	if k == nil {
		return nil
	}
	d := &a.draft
	d.ID, d.Step = k.cp.ID, g.w.model.nextStep(g.name)
	g.describe(d)
	if versioned(a.ref) {
		d.Kind, d.SchemaVersion = agent, max(1, k.cp.SchemaVersion)
	}
	if k.cp.Parent != "" && g.one(2) {
		d.Keep = true
		if id, ok := g.blob(); ok && g.one(2) {
			d.Blobs = []engine.BlobID{id}
		}
	} else {
		g.whole(d, a.ref)
	}
	return a
}

// makeRepeat repeats an acknowledged save, like a client that lost the answer.
func makeRepeat(g *gen) action {
	ref := g.ref()
	k := g.knownThat(ref, func(k *known) bool { return k.draft != nil && k.draft.ID != "" })
	if k == nil {
		return nil
	}
	return &save{call: call{ref: ref}, draft: *k.draft, repeat: true}
}
