package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/plugins/hook"
)

// saving is the working memory of one save. It is pooled: its buffers live until the save is durable.
type saving struct {
	z       *codec.Zstd
	differ  *codec.Differ
	l       *lineage
	passage *passage // by the hooks; nil if there are none
	known   uint64   // mark of what was submitted when the checkpoint with this id was saved; 0: not known

	crossings crossings // parents that were migrated for this save
	carry     *carrying // what moves on to the new checkpoint; nil but for migrated heads

	began   int64 // Unix milliseconds
	counted bool  // by the hub

	changes []change
	coded   []coded
	rec     codec.Record
	entries []codec.Entry

	sealing
	ops                             []codec.Op
	payload, literals, sealed, hash []byte
}

// change is what a draft does to one channel, found before anything is modified.
type change struct {
	name, typ      string
	number         uint64 // 0: a channel that the parent does not have
	prefix, suffix int
	insert         []byte
	same           bool
}

// coded is a changed channel and how it is stored.
type coded struct {
	c *chanState
	e encoded
}

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
	w.rec = codec.Record{}
	w.l, w.passage, w.crossings, w.carry, w.known = nil, nil, nil, nil, 0
	if cap(w.payload)+cap(w.literals)+cap(w.check)+cap(w.plain)+cap(w.sealed) < keepBuffers {
		s.savings.Put(w)
	}
}

// conflictRetries bounds how often a save is built anew because another process wrote to the lineage meanwhile.
const conflictRetries = 3

// Save adds a checkpoint to the lineage and returns it, without data, when it is durable. An error means that nothing
// was saved, except for one that matches ErrAmbiguous: then a save with the same id finds out. Once the save is in
// line its outcome is awaited even if ctx ends.
func (t *Thread) Save(ctx context.Context, d Draft) (*Checkpoint, error) {
	if err := t.checkDraft(&d); err != nil {
		return nil, fmt.Errorf("saving: %w", err)
	}
	for try := 1; ; try++ {
		cp, err := t.save(ctx, &d)
		if errors.Is(err, backend.ErrConflict) && try < conflictRetries {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("saving: %w", err)
		}
		return cp, nil
	}
}

func (t *Thread) save(ctx context.Context, d *Draft) (*Checkpoint, error) {
	chain, err := t.s.chain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err != nil {
		return nil, err
	}
	if chain != nil {
		given := *d // so that the draft is on the heap only where there are hooks
		return t.saveAcross(ctx, func(x crossings) (*Checkpoint, error) { return t.saveHooked(ctx, chain, &given, x) })
	}
	return t.saveAcross(ctx, func(x crossings) (*Checkpoint, error) { return t.saveDraft(ctx, d, nil, x) })
}

// saveDraft saves what hooks made of a draft, or the draft itself where there are none.
func (t *Thread) saveDraft(ctx context.Context, d *Draft, p *passage, x crossings) (*Checkpoint, error) {
	l, err := t.s.acquireLive(ctx, t.ref)
	if err != nil {
		return nil, err
	}
	defer l.release()
	return l.save(func(w *saving) (*pending, *Checkpoint, error) {
		w.passage, w.crossings = p, x
		return w.prepare(ctx, d)
	})
}

// save commits what prepare prepares under l.mu, and waits until it is durable. Nothing prepared and no error means that
// the checkpoint is there already. The caller has acquired l.
func (l *lineage) save(prepare func(*saving) (*pending, *Checkpoint, error)) (*Checkpoint, error) {
	w := l.s.newSaving()
	defer l.s.putSaving(w)
	w.l = l
	l.th.u.sweep.RLock()
	defer l.th.u.sweep.RUnlock()
	l.mu.Lock()
	p, cp, err := prepare(w)
	if p == nil || err != nil {
		l.mu.Unlock()
		return cp, err
	}
	lead := l.enqueue(p)
	l.s.cache.used(p.tip)
	l.mu.Unlock()
	if err := l.await(p, lead); err != nil {
		l.th.doubt(err)
		return nil, err
	}
	return cp, nil
}

// acquireLive acquires for a save: a thread that expired is deleted first, so that the save starts it afresh.
func (s *Store) acquireLive(ctx context.Context, ref Ref) (*lineage, error) {
	for {
		l, err := s.acquire(ctx, ref, true)
		if err != nil || !l.th.expired() {
			return l, err
		}
		l.release()
		if _, err := s.deleteThread(ctx, ref, true); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("removing expired thread: %w", err)
		}
	}
}

func (t *Thread) checkDraft(d *Draft) error {
	errs := []error{t.ref.check(), checkName("id", d.ID, true), checkName("parent", d.Parent, true),
		checkName("branch", d.Branch, true), checkName("status", d.Status, true), checkName("run id", d.RunID, true),
		checkName("kind", d.Kind, true)}
	if len(d.Labels) > codec.MaxLabels || len(d.Blobs) > codec.MaxBlobs || len(d.Channels) > codec.MaxChannels {
		errs = append(errs, fmt.Errorf("%w: %d labels, %d blobs, %d channels; at most %d, %d, %d are allowed", ErrInvalid,
			len(d.Labels), len(d.Blobs), len(d.Channels), codec.MaxLabels, codec.MaxBlobs, codec.MaxChannels))
	}
	for k, v := range d.Labels {
		errs = append(errs, checkName("label", k, false), checkName("value of a label", v, true))
	}
	if d.Root && d.Parent != "" {
		errs = append(errs, fmt.Errorf("%w: Root and a Parent exclude each other", ErrInvalid))
	}
	for i := range d.Channels {
		c := &d.Channels[i]
		errs = append(errs, checkName("channel", c.Name, false), checkName("type of a channel", c.Type, true))
		if c.Prefix < 0 || c.Suffix < 0 || c.Base == 0 && (c.Prefix != 0 || c.Suffix != 0) {
			errs = append(errs, fmt.Errorf("%w: channel %q: prefix and suffix go with a base and are not negative", ErrInvalid, c.Name))
		}
		for j := range i {
			if d.Channels[j].Name == c.Name {
				errs = append(errs, fmt.Errorf("%w: channel %q is given twice", ErrInvalid, c.Name))
			}
		}
		if err := t.s.checkSize(c.Name, c.Prefix+len(c.Data)+c.Suffix); err != nil {
			errs = append(errs, err)
		}
	}
	if len(d.Meta) > codec.MaxMeta {
		errs = append(errs, &LimitError{"metadata", int64(len(d.Meta)), codec.MaxMeta})
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) checkSize(channel string, n int) error {
	if n < 0 || int64(n) > s.maxChannel {
		return &LimitError{fmt.Sprintf("channel %q", channel), int64(n), s.maxChannel}
	}
	return nil
}

// errPending says that what a save depends on is pending. No lock may be given up between looking at the lineage and
// adding to it, so whoever finds this waits, and then looks at everything anew.
var errPending = errors.New("depends on a save under way")

// prepare turns a draft into a batch and the parent's tip into the new one. No batch and no error means that the
// checkpoint is there already. The caller holds l.mu.
func (w *saving) prepare(ctx context.Context, d *Draft) (*pending, *Checkpoint, error) {
	p, cp, err := w.tryPrepare(ctx, d)
	if err == errPending {
		w.l.drain()
		p, cp, err = w.tryPrepare(ctx, d)
	}
	return p, cp, err
}

// tryPrepare is prepare, but for errPending. It does not give up l.mu.
func (w *saving) tryPrepare(ctx context.Context, d *Draft) (*pending, *Checkpoint, error) {
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
		w.l.forget() // t may have changed
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
		return g, fmt.Errorf("%w: the draft names generation %d, the thread has %d", ErrGeneration, d.Generation, l.generation)
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
		return g, fmt.Errorf("%w: seq %d is the last", ErrExhausted, l.head)
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
			return g, corrupt(place(l.recordKey(parent)), "a head, but no checkpoint", nil)
		}
		if d.Keep {
			return g, fmt.Errorf("%w: the parent of %q was pruned, so nothing can be kept from it", ErrUnknownParent, d.ID)
		}
		g.parent.hash = g.old.rec.parentHash // only who replaces its child stands on it
	}
	return g, nil
}

// expect checks the draft's condition on the head. A head that is not durable yet is waited for: a conflict must not
// tell of a checkpoint that may never be.
func (l *lineage) expect(ctx context.Context, e Expect) error {
	if !e.set || e.seq == l.latest {
		return nil
	}
	if l.leading {
		return errPending
	}
	conflict := &ConflictError{HeadSeq: l.latest}
	if l.latest != 0 {
		r, err := l.visible(ctx, l.latest)
		if err != nil {
			return err
		}
		conflict.HeadID = l.recordID(r)
	}
	return conflict
}

// existing looks for a checkpoint with the draft's id, and whether the draft would make the same one: because it is what
// was submitted then, or because it makes the same content, by whatever hooks.
func (w *saving) existing(ctx context.Context, d *Draft) (old *tip, same bool, err error) {
	l := w.l
	if l.isPending(d.ID) {
		return nil, false, errPending
	}
	entry, err := l.findEntry(ctx, d.ID)
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if old, err = l.restoreTip(ctx, entry.Seq); err != nil {
		return nil, false, err
	}
	if w.known = entry.Submitted; w.known != 0 && w.isAgain(d) {
		return old, true, nil
	}
	if d.Root && old.rec.parent != "" || d.Parent != "" && d.Parent != old.rec.parent {
		return old, false, nil
	}
	t := &tip{l: l, meta: noAttrs}
	if old.rec.parentSeq != 0 {
		t, err = l.restoreTip(ctx, old.rec.parentSeq)
		if err == nil && t.pruned() { // then the draft made old if it changes nothing about that
			t, err = l.restoreTip(ctx, entry.Seq)
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
	if l.isPending(d.Parent) {
		return 0, "", errPending
	}
	seq, err = l.findID(ctx, d.Parent)
	if errors.Is(err, ErrNotFound) {
		if d.AllowDangling {
			return 0, d.Parent, nil
		}
		return 0, "", fmt.Errorf("%w: there is no checkpoint %q", ErrUnknownParent, d.Parent)
	}
	return seq, "", err
}

// takeTip returns the state of the parent, for the save to change; that of no parent is empty. latest is the record of the
// latest checkpoint, if it was just read.
func (l *lineage) takeTip(ctx context.Context, seq uint64, latest *record) (t *tip, err error) {
	if seq == 0 {
		return &tip{l: l, meta: noAttrs}, nil
	}
	if t := l.tips[seq]; t != nil {
		l.s.cache.hits.Add(1)
		return t, nil
	}
	if l.leading { // the parent may be pending, and its tip already a child's
		return nil, errPending
	}
	if latest != nil && latest.seq == seq {
		t, err = l.tipOf(ctx, latest)
	} else {
		t, err = l.restoreTip(ctx, seq)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the parent: %w", err)
	}
	l.s.cache.misses.Add(1)
	return t, nil
}
