package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// A rewrite builds a new epoch of a thread: it reads the retained checkpoints and encodes them
// again, with the same ids, seqs, times and hashes, and replaces the rest by stubs. The new epoch
// is invisible until the thread record names it, so its batches need no order. If a rewrite fails,
// GC removes its records.

// erase removes the records of removed checkpoints, and everything encoded from them.
func (p *pruning) erase(ctx context.Context) error {
	rec, _ := p.th.record()
	kept := rec.Kept
	rec.Kept = 0
	if dead, last := p.goneNamespaces(); len(dead) > 0 {
		var err error
		if rec, err = p.th.counted(rec, last); err != nil {
			return err
		}
	}
	if err := p.rewrite(ctx, p.th, rec); err != nil {
		return err
	}
	if err := p.th.purgeEpoch(ctx, kept); err != nil {
		return fmt.Errorf("removing records of a kept epoch: %w", err)
	}
	p.forgetAll()
	return nil
}

// blobs returns the blobs that removed checkpoints name.
func (p *pruning) blobs() map[BlobID]bool {
	blobs := map[BlobID]bool{}
	for _, n := range p.lineages {
		for r := range n.newestFirst {
			if r.stub == nil && r.verdict != retained {
				for _, id := range r.attrs.Blobs {
					blobs[id] = true
				}
			}
		}
	}
	return blobs
}

// wipe removes data that only erased checkpoints named, from the backend and, if it can, from its
// files. The caller holds no lock of a thread.
func (s *Store) wipe(ctx context.Context, ref Ref, blobs map[BlobID]bool) (compacted bool, err error) {
	u, err := s.user(ctx, userName{ref.Tenant, ref.User}, false)
	if err != nil {
		return false, err
	}
	if err := u.sweepNow(ctx, blobs); err != nil {
		return false, fmt.Errorf("removing data of erased checkpoints: %w", err)
	}
	c, ok := s.be.(backend.Compactor)
	if !ok {
		return false, nil
	}
	if err := c.Compact(ctx); err != nil {
		return false, fmt.Errorf("compacting after an erasing prune: %w", err)
	}
	return true, nil
}

// rewrite builds a new epoch of to, which may be the thread itself, from the retained checkpoints
// of p. It makes rec, with that epoch, the thread record of to, and purges the previous epoch
// unless rec keeps it. The caller holds both threads' mu for writing.
func (p *pruning) rewrite(ctx context.Context, to *thread, rec codec.Thread) error {
	u := p.th.u
	if err := u.rewrites.rLock(ctx); err != nil {
		return err
	}
	defer u.rewrites.rUnlock()
	epoch, err := to.nextEpoch(ctx)
	if err != nil {
		return err
	}
	u.naming.begin()
	defer u.naming.end()
	was, old := to.version != "", to.in(to.Epoch)
	w := u.s.newSaving()
	defer u.s.putSaving(w)
	for _, n := range p.lineages {
		if n.gone {
			continue
		}
		c := &lineageCopy{lineagePruning: n, to: to.in(epoch).lineage(n.l.ref.Namespace), from: n.l.restorer(), w: w, out: batcher{s: u.s},
			history: p.history}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	rec.Epoch, rec.Used = uint64(epoch), 0
	if err := to.replace(ctx, rec); err != nil {
		return err
	}
	if was && rec.Kept != uint64(old.Epoch) {
		if err := old.purge(ctx); err != nil {
			return fmt.Errorf("removing records of an old epoch: %w", err)
		}
	}
	return nil
}

// lineageCopy builds one lineage of a new epoch.
type lineageCopy struct {
	*lineagePruning
	to    *storedLineage
	from  *restorer
	w     *saving
	state *checkpointState // of the last checkpoint copied
	out   batcher

	history *historyMigration // nil: all stays as it is
	hashes  map[uint64][32]byte
}

func (c *lineageCopy) run(ctx context.Context) error {
	c.w.u, c.w.measures = c.to.u, &measures{}
	if err := c.copyRest(ctx); err != nil {
		return err
	}
	err := c.l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		if r.rec == nil || c.rows[r.seq].verdict == removed {
			return nil
		}
		return c.copyRecord(ctx, r)
	})
	if err != nil {
		return err
	}
	return c.out.flush(ctx)
}

// copyRest copies everything but records, starting with the name of the namespace, by which GC
// finds the leftovers of a failed rewrite.
func (c *lineageCopy) copyRest(ctx context.Context) error {
	if c.space.Name != "" {
		if err := putInto(ctx, c, space.Namespaces, c.to.NamespaceKey(c.to.NS), c.space, space.Once); err != nil {
			return err
		}
	}
	runs, err := c.stubRanges(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		r.stub.FirstDist = r.last - r.first
		r.stub.Count = r.stub.FirstDist + 1
		if err := putInto(ctx, c, space.Stubs, c.to.RecordKey(r.last), &r.stub, versionStub); err != nil {
			return err
		}
	}
	headOf := c.headAfter()
	for name, seq := range c.branches {
		head := headOf(seq)
		if head == 0 {
			continue
		}
		b := &codec.Branch{Name: name, Head: head}
		if err := putInto(ctx, c, space.Branches, c.to.BranchKey(name), b, strconv.FormatUint(head, 10)); err != nil {
			return err
		}
	}
	return c.copyWrites(ctx)
}

// putInto adds a value to the new epoch.
func putInto[T any](ctx context.Context, c *lineageCopy, k *space.Kind[T], key []byte, v T, version string) error {
	mut, err := sealMut(c.to, k, key, v, version)
	if err != nil {
		return err
	}
	return c.out.add(ctx, mut)
}

// copyWrites copies the pending writes of retained checkpoints and of ancestors, and those put for
// checkpoints that do not exist. It leaves out the remains of interrupted operations.
func (c *lineageCopy) copyWrites(ctx context.Context) error {
	to := map[string]string{} // names that change or, if "", are dropped, by the start of their keys
	visible := map[string]bool{}
	for r := range c.newestFirst {
		visible[r.id] = visible[r.id] || r.visible()
		switch {
		case r.stub != nil || r.verdict == retained || !r.visible() && !r.holds:
		case r.verdict == hidden:
			to[string(c.l.WritesPrefix(r.writesName()))] = space.Held(r.seq)
		default:
			to[string(c.l.WritesPrefix(r.writesName()))] = ""
		}
	}
	var of []byte // the start of the last key
	whole := false
	return c.l.s.eachWrites(ctx, c.l, c.l.Writes(), func(e backend.Entry, w *codec.Writes, ledger *codec.WritesLedger) error {
		if start := space.SameWrites(e.Key); !bytes.Equal(start, of) {
			of, whole = start, ledger != nil
		}
		var id string
		if ledger != nil {
			id = ledger.Checkpoint
		} else {
			id = w.Checkpoint
		}
		name, changes := to[string(of)]
		own := bytes.Equal(of, c.l.WritesPrefix(id))
		if changes && name == "" || !changes && !own || own && !whole && !visible[id] {
			return nil
		}
		key := c.to.Moved(e.Key)
		if changes && ledger != nil {
			key = c.to.LedgerKey(name)
		} else if changes {
			key = c.to.WritesKey(name, w.Task)
		}
		if ledger != nil {
			return putInto(ctx, c, space.Ledgers, key, ledger, e.Version)
		}
		for i := range w.Writes {
			c.l.u.naming.noteParts(w.Writes[i].Parts)
		}
		return putInto(ctx, c, space.Writes, key, w, e.Version)
	})
}

// copyRecord encodes the checkpoint of r again, against the nearest retained ancestor.
func (c *lineageCopy) copyRecord(ctx context.Context, r *record) error {
	c.from = c.from.next()
	c.from.remember(r)
	row := c.rows[r.seq]
	t, err := c.base(ctx, row)
	if err != nil {
		return err
	}
	c.state = nil // until it is whole again
	root := t.seq == 0
	rec := *r.rec
	switch {
	case row.verdict == hidden:
		if hash, ok := c.hashes[row.parent]; ok { // it was migrated
			rec.ParentHash = hash
		}
		err = c.changeAncestor(ctx, t, r)
	case c.history == nil:
		err = c.change(ctx, t, r)
	default:
		err = c.migrate(ctx, t, r, &rec)
	}
	if err != nil {
		return err
	}
	if err := c.w.bound(t, row.parent); err != nil {
		return err
	}
	p := &pending{seq: r.seq, state: t}
	u := c.to.u
	u.naming.noteBlobs(t.meta.Blobs) // of an ancestor none
	if err := u.sweep.rLock(ctx); err != nil {
		return err
	}
	err = c.w.spillParts(ctx, p, root)
	u.sweep.rUnlock()
	if err != nil {
		return err
	}
	rec.Ghost = row.verdict == hidden
	rec.Holds, rec.Abridged = rec.Ghost, rec.Ghost
	rec.Entries = c.w.table(t)
	if rec.ID == "" {
		rec.UUID, _ = space.ParseUUID(row.id)
	}
	key := c.to.RecordKey(r.seq)
	value, err := c.w.seal(c.to, key, &rec)
	if err != nil {
		return err
	}
	c.w.stored(t, r.seq, int64(len(value)))
	t.seq, t.id, t.stored = r.seq, row.id, int64(len(value))
	c.state = t
	// The value is in a buffer of w, and the batch may outlive it.
	muts := append(p.muts, backend.Mut{Key: key, Value: append([]byte(nil), value...), Version: space.Once})
	if err := c.out.add(ctx, muts...); err != nil {
		return err
	}
	return c.copyEntries(ctx, row)
}

// copyEntries adds the entries of the checkpoint's id and index terms.
func (c *lineageCopy) copyEntries(ctx context.Context, r *row) error {
	if r.idKey != nil && r.verdict == retained {
		key := c.to.Moved(r.idKey)
		id := &codec.IDEntry{Seq: r.seq, ID: r.id}
		if got, err := c.l.s.be.Get(ctx, r.idKey); err != nil {
			return fmt.Errorf("reading an id: %w", err)
		} else if old, err := c.l.openIDEntry(got[0]); err == nil { // a damaged one is replaced
			id.Submitted = old.Submitted
		}
		if err := putInto(ctx, c, space.IDs, key, id, strconv.FormatUint(r.seq, 10)); err != nil {
			return err
		}
	}
	parent := c.rows[r.parent]
	if parent != nil && parent.verdict == removed {
		parent = nil
	}
	for _, t := range r.terms(parent) {
		m, err := c.to.indexMut(t, r.seq, codec.IndexEntry{Time: r.time, Step: r.step})
		if err != nil {
			return err
		}
		if err := c.out.add(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// base returns the state to encode r against. Without a known ancestor that is the last one copied,
// as the most similar.
func (c *lineageCopy) base(ctx context.Context, r *row) (*checkpointState, error) {
	on := uint64(0)
	if r.parent != 0 {
		on = c.nearest(r.parent)
		if on == 0 && c.state != nil && c.history == nil {
			on = c.state.seq
		}
	}
	switch {
	case on == 0:
		return &checkpointState{l: c.to, meta: noAttrs}, nil
	case c.state != nil && c.state.seq == on:
		return c.state, nil
	}
	if err := c.out.flush(ctx); err != nil {
		return nil, err
	}
	return c.to.restorer().stateAt(ctx, on)
}

// change makes t the state of r, and fills w.coded with the encodings of the differences.
func (c *lineageCopy) change(ctx context.Context, t *checkpointState, r *record) error {
	meta, err := c.from.meta(ctx, r)
	if err != nil {
		return err
	}
	c.w.coded, c.w.payload = c.w.coded[:0], c.w.payload[:0]
	t.setTable(meta)
	t.meta = meta
	for number, e := range r.rec.Channels {
		s := t.byNumber(number)
		at, err := c.from.holder(ctx, r, number, e)
		if err != nil {
			return err
		}
		if len(s.path) > 0 && s.commit == at.e.Commitment {
			continue
		}
		value, err := c.value(ctx, r, at, s)
		if err != nil {
			return err
		}
		if err := c.w.rewrite(t, s, value); err != nil {
			return err
		}
		if s.commit != at.e.Commitment {
			return corrupt(space.Describe(c.l.RecordKey(r.seq)), fmt.Sprintf("channel %d differs from its commitment", number), nil)
		}
	}
	return nil
}

// changeAncestor is change for an ancestor, of which only what its histories need is copied: they may
// outlive the rest by far, which was pruned.
func (c *lineageCopy) changeAncestor(ctx context.Context, t *checkpointState, r *record) error {
	row := c.rows[r.seq]
	was, err := c.from.meta(ctx, r)
	if err != nil {
		return err
	}
	meta := &codec.Attrs{RunID: was.RunID, Kind: was.Kind, Delta: was.Delta}
	for _, info := range was.Channels {
		if slices.Contains(row.held, info.Number) {
			meta.Channels = append(meta.Channels, info)
		}
	}
	c.w.coded, c.w.payload = c.w.coded[:0], c.w.payload[:0]
	t.setTable(meta)
	t.meta = meta
	if err := c.w.rewrite(t, &t.attrs, codec.AppendAttrs(nil, meta)); err != nil {
		return err
	}
	for i := range t.chans {
		s := &t.chans[i]
		got, err := c.from.channels(ctx, r, func(number uint64) bool { return number == s.number })
		if err != nil {
			return err
		}
		if len(s.path) > 0 && s.commit == got[0].commit {
			continue
		}
		if err := c.w.rewrite(t, s, got[0].value); err != nil {
			return err
		}
	}
	row.attrs = meta // for the index terms of its children
	return nil
}

// value restores the value of a link; if that is encoded against the value in s, only its delta is
// read.
func (c *lineageCopy) value(ctx context.Context, r *record, at link, s *channelState) ([]byte, error) {
	if at.e.Mode == codec.ByDelta && len(s.path) > 0 {
		base, err := c.from.link(ctx, at.r, s.number, at.e)
		if err != nil {
			return nil, err
		}
		if base.e.Commitment == s.commit {
			return c.from.applyDelta(ctx, at, s.value)
		}
	}
	got, err := c.from.channels(ctx, r, func(number uint64) bool { return number == at.e.Number })
	if err != nil {
		return nil, err
	}
	return got[0].value, nil
}

// applyDelta applies the delta of a link to its base.
func (rs *restorer) applyDelta(ctx context.Context, at link, base []byte) ([]byte, error) {
	if err := rs.l.u.readParts(ctx, rs.parts, at.e.Parts); err != nil {
		return nil, err
	}
	payload, err := rs.payload(at.e)
	if err == nil {
		var d codec.Delta
		if d, err = rs.l.s.z.ParseDelta(payload, int(at.e.Size), len(base), nil, nil); err == nil {
			return codec.Compose(nil, []codec.Delta{d}, base), nil
		}
	}
	return nil, corrupt(space.Describe(rs.l.RecordKey(at.r.seq)), fmt.Sprintf("channel %d does not restore", at.e.Number), err)
}
