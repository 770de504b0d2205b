package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/hook"
)

// saving is the working memory of one save. It is pooled: its buffers live until the save is durable.
type saving struct {
	z        *codec.Zstd
	differ   *codec.Differ
	finder   crypto.Finder
	l        *lineage // that is saved to; nil while a lineage is rewritten
	u        *user
	measures *measures // of l
	passage  *passage  // by the hooks; nil if there are none
	known    uint64    // mark of what was submitted when the checkpoint with this id was saved; 0: not known

	crossings crossings // parents that were migrated for this save
	carry     *carrying // what moves on to the new checkpoint; nil but for migrated heads

	began   int64 // Unix milliseconds
	counted bool  // by the hub

	changes []change
	edits   []codec.Edit // of all changes
	narrow  []codec.Edit // of one
	coded   []coded
	rec     codec.Record
	entries []codec.Entry

	scratch                                       space.Scratch
	ops                                           []codec.Op
	payload, literals, check, plain, sealed, hash []byte
}

// change is what a draft does to one channel, found before anything is modified.
type change struct {
	name, typ    string
	number       uint64
	place        int          // in the parent's channels; -1: it does not have this one
	edits        []codec.Edit // of the parent's value
	same, remove bool
	rewritten    bool // by hooks, of another channel than the caller's
}

// coded is a changed channel and how it is stored.
type coded struct {
	c *chanState
	e encoded
}

// on makes w the memory of a save to l.
func (w *saving) on(l *lineage) { w.l, w.u, w.measures = l, l.u, &l.measures }

func (s *Store) newSaving() *saving {
	if w, ok := s.savings.Get().(*saving); ok {
		return w
	}
	return &saving{z: s.z, differ: codec.NewDiffer(s.z)}
}

// keepBuffers bounds what a pooled saving holds on to.
const keepBuffers = 1 << 20

func (s *Store) putSaving(w *saving) {
	clear(w.coded)
	clear(w.entries)
	clear(w.changes)
	clear(w.edits[:cap(w.edits)])
	w.rec = codec.Record{}
	w.l, w.u, w.measures, w.passage, w.crossings, w.carry, w.known = nil, nil, nil, nil, nil, nil, 0
	if cap(w.payload)+cap(w.literals)+cap(w.check)+cap(w.plain)+cap(w.sealed)+w.scratch.Cap() < keepBuffers {
		s.savings.Put(w)
	}
}

// Save adds a checkpoint to the lineage and returns it, without data, when it is durable. An error means that nothing
// was saved, except for one that matches ErrAmbiguous: then a save with the same id finds out. A save that is in line when
// ctx ends is one of these.
func (t *Thread) Save(ctx context.Context, d Draft) (*Checkpoint, error) {
	if err := t.checkDraft(&d); err != nil {
		return nil, fmt.Errorf("saving: %w", err)
	}
	cp, err := t.save(ctx, &d)
	if err != nil {
		return nil, fmt.Errorf("saving: %w", err)
	}
	return cp, nil
}

func (t *Thread) save(ctx context.Context, d *Draft) (*Checkpoint, error) {
	chain, err := t.s.chain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err != nil {
		return nil, err
	}
	a := attempt{t: t, chain: chain}
	if chain != nil {
		given := *d // so that the draft is on the heap only where there are hooks
		return a.run(ctx, func() (*Checkpoint, error) { return t.saveHooked(ctx, &a, &given) })
	}
	return a.run(ctx, func() (*Checkpoint, error) { return t.saveDraft(ctx, &a, d) })
}

// saveHooked passes a draft through the hooks, unless they saw it, and saves what they made of it.
func (t *Thread) saveHooked(ctx context.Context, a *attempt, d *Draft) (*Checkpoint, error) {
	if a.passage == nil {
		p, cp, err := t.pass(ctx, a.chain, d, a.crossings)
		if err != nil || cp != nil {
			return cp, err
		}
		a.passage = p
	}
	return t.saveDraft(ctx, a, &a.passage.draft)
}

// saveDraft saves what hooks made of a draft, or the draft itself where there are none.
func (t *Thread) saveDraft(ctx context.Context, a *attempt, d *Draft) (*Checkpoint, error) {
	l, err := t.s.acquireLive(ctx, t.ref)
	if err != nil {
		return nil, err
	}
	return l.save(ctx, hold{}, func(w *saving) (*pending, *Checkpoint, error) {
		w.passage, w.crossings = a.passage, a.crossings
		return w.prepare(ctx, d)
	})
}

// save commits what prepare prepares under l.mu, and waits until it is durable. Nothing prepared and no error means that
// the checkpoint is there already. It takes over what the caller holds of l.
func (l *lineage) save(ctx context.Context, h hold, prepare func(*saving) (*pending, *Checkpoint, error)) (cp *Checkpoint, err error) {
	if err := l.u.sweep.rLock(ctx); err != nil {
		l.letGo(h)
		return nil, err
	}
	h.sweep, h.w = true, l.s.newSaving()
	h.w.on(l)
	err = l.change(ctx, h, func() (p *pending, err error) {
		p, cp, err = prepare(h.w)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	return cp, nil
}

// acquireLive acquires for a save. A thread that has expired must be deleted first, so that the save starts it afresh.
func (s *Store) acquireLive(ctx context.Context, ref Ref) (*lineage, error) {
	l, err := s.acquire(ctx, ref, true)
	if err != nil || !l.th.expired() {
		return l, err
	}
	l.release()
	return nil, &expiredError{}
}

// prepare turns a draft into a batch and the parent's tip into the new one. No batch and no error means that the
// checkpoint is there already. The caller holds l.mu, which is not given up.
func (w *saving) prepare(ctx context.Context, d *Draft) (*pending, *Checkpoint, error) {
	g, err := w.ground(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	if g.same {
		return nil, g.old.checkpoint(nil), nil
	}
	t := g.parent
	if err := w.carry.check(ctx, w.l, &g); err != nil {
		return nil, nil, err
	}
	given := d
	if d, err = w.settle(t, d); err != nil {
		return nil, nil, err
	}
	if t.seq != 0 {
		if err := w.l.knowLedger(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	meta, err := w.plan(ctx, t, d, w.passage.identities())
	if err == nil && w.passage != nil && w.passage.blobs != nil {
		err = w.passage.blobs.store(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	if w.began, w.counted, err = w.l.s.hub.begin(w.l.s.time); err != nil {
		return nil, nil, err
	}
	p, err := w.build(ctx, t, meta, d, given, g.dangling, g.old)
	if err != nil {
		if w.counted {
			w.l.s.hub.drop(w.began)
		}
		w.l.s.cache.drop(t) // it may have changed; saves that are pending do not need it
		return nil, nil, err
	}
	return p, t.checkpoint(nil), nil
}

// ground is what a draft stands on.
type ground struct {
	old      *tip // the checkpoint with the draft's id, if there is one
	same     bool // old is what the draft makes, and nothing else matters
	parent   *tip
	dangling string // id of a parent that does not exist
}

// ground finds what a draft stands on and checks its conditions. It modifies nothing, and does not give up l.mu.
func (w *saving) ground(ctx context.Context, d *Draft) (g ground, err error) {
	l := w.l
	latest, err := l.openLatest(ctx)
	if err != nil {
		return g, err
	}
	if d.Generation != 0 && d.Generation != l.generation {
		return g, fmt.Errorf("%w: the draft is for generation %d, but the thread has %d", ErrGeneration, d.Generation, l.generation)
	}
	if d.ID != "" {
		fresh, err := l.isFresh(ctx, d.ID)
		if err == nil && !fresh {
			g.old, g.same, err = w.existing(ctx, d)
		}
		if err != nil || g.same {
			return g, err
		}
	}
	if err := l.expect(ctx, d.Expect); err != nil {
		return g, err
	}
	if l.head >= codec.MaxSeq {
		return g, fmt.Errorf("%w: seq %d is the last possible one", ErrExhausted, l.head)
	}
	parent := uint64(0)
	if parent, g.dangling, err = l.parentOf(ctx, d, g.old); err != nil {
		return g, err
	}
	if g.parent, err = l.takeTip(ctx, parent, latest); err != nil {
		return g, err
	}
	if g.parent.pruned() {
		if g.old == nil {
			return g, corrupt(space.Place(l.RecordKey(parent)), "a head, but no checkpoint", nil)
		}
		if d.Keep {
			return g, fmt.Errorf("%w: the parent of %q was pruned, so its channels cannot be kept", ErrUnknownParent, d.ID)
		}
		g.parent.hash = g.old.rec.parentHash // only who replaces its child stands on it
	}
	return g, nil
}

// expect checks the draft's condition on the head. A save that is not durable yet and decides it is waited for: a conflict
// must not tell of a checkpoint that may never be.
func (l *lineage) expect(ctx context.Context, e Expect) error {
	if !e.set || e.seq == l.latest {
		return nil
	}
	durable, _ := l.durable.get(l.openEpoch)
	if p := l.pendingAt(e.seq); p != nil {
		return l.after(p)
	}
	if e.seq == durable.latest && len(l.flying) > 0 { // another head is on its way
		return l.after(l.flying[len(l.flying)-1])
	}
	return l.conflict(ctx)
}

// existing looks for a checkpoint with the draft's id, and whether the draft would make the same one: because it is what
// was submitted then, or because it makes the same content, by whatever hooks.
func (w *saving) existing(ctx context.Context, d *Draft) (old *tip, same bool, err error) {
	l := w.l
	if p := l.pendingID(d.ID); p != nil {
		return nil, false, l.after(p)
	}
	durable, _ := l.durable.get(l.openEpoch)
	entry, _, err := l.findEntry(ctx, durable.head, d.ID)
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if old, err = l.restorer().tipAt(ctx, entry.Seq); err != nil {
		return nil, false, err
	}
	if w.known = entry.Submitted; w.known != 0 && w.isAgain(d) {
		return old, true, nil
	}
	if d.Root && old.rec.parent != "" || d.Parent != "" && d.Parent != old.rec.parent {
		return old, false, nil
	}
	t := &tip{l: &l.storedLineage, generation: l.generation, meta: noAttrs}
	if old.rec.parentSeq != 0 {
		t, err = l.restorer().tipAt(ctx, old.rec.parentSeq)
		if err == nil && t.pruned() { // then the draft made old if it changes nothing about that
			t, err = l.restorer().tipAt(ctx, entry.Seq)
		}
		if err != nil {
			return nil, false, err
		}
	}
	if w.passage == nil || !w.passage.crossed {
		d, err = w.cross(t, d)
	} else if t.hash != w.passage.on {
		return old, false, nil
	}
	var meta *codec.Attrs
	if err == nil {
		meta, err = w.plan(ctx, t, d, old.meta.Hooks)
	}
	if errors.Is(err, ErrNeedFull) {
		return old, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if _, err = w.apply(t, meta); err != nil {
		return nil, false, err
	}
	return old, t.sameContent(old, d), nil
}

// sameContent reports whether t, to which d was applied, is what old holds.
func (t *tip) sameContent(old *tip, d *Draft) bool {
	if t.attrs.commit != old.attrs.commit || d.Step != old.rec.step || d.status() != old.rec.status ||
		d.SchemaVersion != old.rec.schema || len(t.chans) != len(old.chans) {
		return false
	}
	for i := range t.chans {
		if t.chans[i].commit != old.chans[i].commit {
			return false
		}
	}
	return true
}

func (d *Draft) status() string {
	if d.Status == "" {
		return StatusRunning
	}
	return d.Status
}

// parentOf finds the parent's seq; 0 is none, and then dangling is the id of one that does not exist.
func (l *lineage) parentOf(ctx context.Context, d *Draft, old *tip) (seq uint64, dangling string, err error) {
	switch {
	case d.Root:
		return 0, "", nil
	case d.Parent == "" && old != nil:
		return old.rec.parentSeq, old.rec.dangling, nil
	case d.Parent == "" && d.Branch == "":
		return l.latest, "", nil
	case d.Parent == "":
		b, err := l.branch(ctx, d.Branch)
		if err != nil || b.version == "" {
			return l.latest, "", err
		}
		return b.head, "", nil
	}
	if t := l.tips[l.latest]; t != nil && t.id == d.Parent {
		return l.latest, "", nil
	}
	if p := l.pendingID(d.Parent); p != nil {
		return 0, "", l.after(p)
	}
	durable, _ := l.durable.get(l.openEpoch)
	seq, err = l.findID(ctx, durable.head, d.Parent)
	if errors.Is(err, ErrNotFound) {
		if d.AllowDangling {
			return 0, d.Parent, nil
		}
		return 0, "", fmt.Errorf("%w: no checkpoint %q", ErrUnknownParent, d.Parent)
	}
	return seq, "", err
}

// takeTip returns the state of the parent, for the save to change; that of no parent is empty. latest is the record of the
// latest checkpoint, if it was just read.
func (l *lineage) takeTip(ctx context.Context, seq uint64, latest *record) (t *tip, err error) {
	if seq == 0 {
		return &tip{l: &l.storedLineage, generation: l.generation, meta: noAttrs}, nil
	}
	if t := l.tips[seq]; t != nil {
		l.s.cache.hits.Add(1)
		return t, nil
	}
	if p := l.pendingAt(seq); p != nil { // and its tip is already a child's
		return nil, l.after(p)
	}
	if latest != nil && latest.seq == seq {
		t, err = l.restorer().tipOf(ctx, latest)
	} else {
		t, err = l.restorer().tipAt(ctx, seq)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the parent: %w", err)
	}
	l.s.cache.misses.Add(1)
	return t, nil
}
