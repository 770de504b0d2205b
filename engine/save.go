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

// saving is the working memory of one save. It is pooled: its buffers live until the save is
// durable.
type saving struct {
	z                *codec.Zstd
	differ           *codec.Differ
	finder           crypto.Finder
	l                *lineage // to save to; nil while a lineage is rewritten
	u                *user
	measures         *measures    // of l
	hooked           *hookedDraft // the draft as hooks made it; nil without hooks
	savedFingerprint uint64       // of the draft that made the checkpoint with this id; 0: not known

	migrated migratedParents // parents that were migrated for this save
	transfer *headTransfer   // branches and writes to move; only for migrated heads

	began   int64 // Unix milliseconds
	counted bool  // by the hub

	changes []change
	edits   []codec.Edit // of all changes
	narrow  []codec.Edit // of one change
	coded   []coded
	rec     codec.Record
	entries []codec.Entry

	scratch                                       space.Scratch
	ops                                           []codec.Op
	payload, literals, check, plain, sealed, hash []byte
}

// change is the effect of a draft on one channel, determined before anything is modified.
type change struct {
	name, typ    string
	number       uint64
	index        int          // in the parent's channels; -1 if it has no such channel
	edits        []codec.Edit // of the parent's value
	same, remove bool
	rewritten    bool // by hooks, from bytes other than the caller's
}

// coded is a changed channel and how it is stored.
type coded struct {
	c *channelState
	e encoded
}

// on prepares w for a save to l.
func (w *saving) on(l *lineage) { w.l, w.u, w.measures = l, l.u, &l.measures }

func (s *Store) newSaving() *saving {
	if w, ok := s.savings.Get().(*saving); ok {
		return w
	}
	return &saving{z: s.z, differ: codec.NewDiffer(s.z)}
}

// keepBuffers bounds the buffers of a saving that goes back to the pool.
const keepBuffers = 1 << 20

func (s *Store) putSaving(w *saving) {
	clear(w.coded)
	clear(w.entries)
	clear(w.changes)
	clear(w.edits[:cap(w.edits)])
	w.rec = codec.Record{}
	w.l, w.u, w.measures, w.hooked, w.migrated, w.transfer, w.savedFingerprint = nil, nil, nil, nil, nil, nil, 0
	if cap(w.payload)+cap(w.literals)+cap(w.check)+cap(w.plain)+cap(w.sealed)+w.scratch.Cap() < keepBuffers {
		s.savings.Put(w)
	}
}

// Save adds a checkpoint to the lineage and returns it, without data, when it is durable. An error
// means that nothing was saved, unless it matches ErrAmbiguous: then saving again with the same id
// resolves the doubt. A save gets ErrAmbiguous if ctx ends while it is waiting to be committed.
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
	chain, err := t.s.hookChain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err != nil {
		return nil, err
	}
	a := attempt{t: t, chain: chain}
	if chain != nil {
		given := *d // to allocate the draft only if there are hooks
		return a.run(ctx, func() (*Checkpoint, error) { return t.saveHooked(ctx, &a, &given) })
	}
	return a.run(ctx, func() (*Checkpoint, error) { return t.saveDraft(ctx, &a, d) })
}

// saveHooked runs the hooks on a draft, unless they have run, and saves the result.
func (t *Thread) saveHooked(ctx context.Context, a *attempt, d *Draft) (*Checkpoint, error) {
	if a.hooked == nil {
		p, cp, err := t.runSaveHooks(ctx, a.chain, d, a.migrated)
		if err != nil || cp != nil {
			return cp, err
		}
		a.hooked = p
	}
	return t.saveDraft(ctx, a, &a.hooked.draft)
}

// saveDraft saves the draft that the hooks made or, without hooks, the caller's.
func (t *Thread) saveDraft(ctx context.Context, a *attempt, d *Draft) (*Checkpoint, error) {
	l, err := t.s.rlockLive(ctx, t.ref)
	if err != nil {
		return nil, err
	}
	return l.save(ctx, changeLocks{}, func(w *saving) (*pending, *Checkpoint, error) {
		w.hooked, w.migrated = a.hooked, a.migrated
		return w.prepare(ctx, d)
	})
}

// save commits the change that prepare returns under l.mu, and waits until it is durable. No change
// and no error means that the checkpoint exists already. It takes over the caller's locks.
func (l *lineage) save(ctx context.Context, h changeLocks, prepare func(*saving) (*pending, *Checkpoint, error)) (cp *Checkpoint, err error) {
	if err := l.u.sweep.rLock(ctx); err != nil {
		l.releaseLocks(h)
		return nil, err
	}
	h.sweep, h.saving = true, l.s.newSaving()
	h.saving.on(l)
	err = l.change(ctx, h, func() (p *pending, err error) {
		p, cp, err = prepare(h.saving)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	return cp, nil
}

// rlockLive is rlockThread for a save. A thread that has expired must be deleted first, so that the
// save starts it again.
func (s *Store) rlockLive(ctx context.Context, ref Ref) (*lineage, error) {
	l, err := s.rlockThread(ctx, ref, true)
	if err != nil || !l.th.expired() {
		return l, err
	}
	l.runlockThread()
	return nil, &expiredError{}
}

// prepare turns a draft into a batch and the parent's state into the new one. No batch and no error
// means that the checkpoint exists already. The caller holds l.mu throughout.
func (w *saving) prepare(ctx context.Context, d *Draft) (*pending, *Checkpoint, error) {
	g, err := w.resolve(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	if g.same {
		return nil, g.old.checkpoint(nil), nil
	}
	t := g.parent
	if err := w.transfer.check(ctx, w.l, &g); err != nil {
		return nil, nil, err
	}
	given := d
	if d, err = w.finalDraft(t, d); err != nil {
		return nil, nil, err
	}
	if t.seq != 0 {
		if err := w.l.loadLedger(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	meta, err := w.plan(ctx, t, d, w.hooked.identities())
	if err == nil && w.hooked != nil && w.hooked.blobs != nil {
		err = w.hooked.blobs.store(ctx)
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

// resolvedDraft is the draft's parent and the checkpoint that it replaces.
type resolvedDraft struct {
	old      *checkpointState // the checkpoint with the draft's id, if there is one
	same     bool             // the draft would make old again; the rest is not set
	parent   *checkpointState
	dangling string // id of a parent that does not exist
}

// resolve finds the parent of a draft and the checkpoint that it replaces, and checks its
// conditions. It modifies nothing, and holds l.mu throughout.
func (w *saving) resolve(ctx context.Context, d *Draft) (g resolvedDraft, err error) {
	l := w.l
	latest, err := l.openLatest(ctx)
	if err != nil {
		return g, err
	}
	if err := l.checkGeneration("draft is", d.Generation); err != nil {
		return g, err
	}
	if err := l.checkCalled(ctx, d.CalledFrom); err != nil {
		return g, err
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
	if g.parent, err = l.parentState(ctx, parent, latest); err != nil {
		return g, err
	}
	if g.parent.pruned() {
		if g.old == nil {
			return g, corrupt(space.Describe(l.RecordKey(parent)), "is a head, but not a checkpoint", nil)
		}
		if d.Keep {
			return g, fmt.Errorf("%w: the parent of %q was pruned, so its channels cannot be kept", ErrUnknownParent, d.ID)
		}
		g.parent.hash = g.old.rec.parentHash // only a replacement of its child uses it as a parent
	}
	return g, nil
}

// expect checks the draft's condition on the head. If a save that is not durable yet decides it,
// expect waits for that: a conflict must not name a checkpoint that may never exist.
func (l *lineage) expect(ctx context.Context, e Expect) error {
	if !e.set || e.seq == l.latest {
		return nil
	}
	durable, _ := l.durable.get(l.openEpoch)
	if p := l.pendingAt(e.seq); p != nil {
		return l.dependsOn(p)
	}
	if e.seq == durable.latest && len(l.committing) > 0 { // another head may become durable
		return l.dependsOn(l.committing[len(l.committing)-1])
	}
	return l.conflict(ctx)
}

// existing looks for a checkpoint with the draft's id, and reports whether the draft would make the
// same one: because the same draft was submitted then, or because it makes the same content, by
// whichever hooks.
func (w *saving) existing(ctx context.Context, d *Draft) (old *checkpointState, same bool, err error) {
	l := w.l
	if p := l.pendingID(d.ID); p != nil {
		return nil, false, l.dependsOn(p)
	}
	durable, _ := l.durable.get(l.openEpoch)
	entry, _, err := l.findEntry(ctx, durable.head, d.ID)
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if old, err = l.restorer().stateAt(ctx, entry.Seq); err != nil {
		return nil, false, err
	}
	if w.savedFingerprint = entry.Submitted; w.savedFingerprint != 0 && w.isRepeat(d) {
		return old, true, nil
	}
	if d.Root && old.rec.parent != "" || d.Parent != "" && d.Parent != old.rec.parent {
		return old, false, nil
	}
	t := &checkpointState{l: &l.storedLineage, generation: l.generation(), meta: noAttrs}
	if old.rec.parentSeq != 0 {
		t, err = l.restorer().stateAt(ctx, old.rec.parentSeq)
		if err == nil && t.pruned() { // then the draft made old if it changes nothing about it
			t, err = l.restorer().stateAt(ctx, entry.Seq)
		}
		if err != nil {
			return nil, false, err
		}
	}
	if w.hooked == nil || !w.hooked.rebased {
		d, err = w.rebase(t, d)
	} else if t.hash != w.hooked.parentHash {
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

// sameContent reports whether t, after d was applied, has the content of old.
func (t *checkpointState) sameContent(old *checkpointState, d *Draft) bool {
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

// parentOf finds the parent's seq; if that is 0, dangling is the id of a parent that does not
// exist, or "".
func (l *lineage) parentOf(ctx context.Context, d *Draft, old *checkpointState) (seq uint64, dangling string, err error) {
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
	if t := l.states[l.latest]; t != nil && t.id == d.Parent {
		return l.latest, "", nil
	}
	if p := l.pendingID(d.Parent); p != nil {
		return 0, "", l.dependsOn(p)
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

// parentState returns the state of the parent, for the save to change; without a parent it is
// empty. latest is the record of the latest checkpoint, if it was just read.
func (l *lineage) parentState(ctx context.Context, seq uint64, latest *record) (t *checkpointState, err error) {
	if seq == 0 {
		return &checkpointState{l: &l.storedLineage, generation: l.generation(), meta: noAttrs}, nil
	}
	if t := l.states[seq]; t != nil {
		l.s.cache.hits.Add(1)
		return t, nil
	}
	if p := l.pendingAt(seq); p != nil { // and its state is already a child's
		return nil, l.dependsOn(p)
	}
	if latest != nil && latest.seq == seq {
		t, err = l.restorer().stateOf(ctx, latest)
	} else {
		t, err = l.restorer().stateAt(ctx, seq)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the parent: %w", err)
	}
	l.s.cache.misses.Add(1)
	return t, nil
}
