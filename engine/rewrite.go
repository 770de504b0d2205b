package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// A rewrite builds an epoch of a thread from another one: what stays is read and encoded anew, with its id, seq, time and
// hash, and nothing of the rest is left but stubs. The new epoch is nobody's until the thread record names it, so its
// batches need no order; one that fails leaves what it wrote to GC.

// Copy copies the thread with all its namespaces to a thread of the same user that does not exist yet (ErrConflict).
// Checkpoints keep their ids, seqs, times and hashes; the ghosts and stubs of what was removed become stubs. Both threads
// wait meanwhile. The copy appears at once, when all of it is durable. Where other hooks would have to run on what comes
// into dst than on what comes into the thread, that is ErrRejected.
func (t *Thread) Copy(ctx context.Context, dst Ref) error {
	if err := t.copy(ctx, dst); err != nil {
		return fmt.Errorf("copying thread: %w", err)
	}
	return nil
}

func (t *Thread) copy(ctx context.Context, dst Ref) error {
	if err := errors.Join(t.ref.check(), dst.check()); err != nil {
		return err
	}
	if dst.Tenant != t.ref.Tenant || dst.User != t.ref.User || dst.Namespace != "" {
		return fmt.Errorf("%w: only a whole thread can be copied, within one user", ErrInvalid)
	}
	if dst.Thread == t.ref.Thread {
		return &ConflictError{}
	}
	if err := t.s.sameHooks(t.ref, dst); err != nil {
		return err
	}
	from, to, err := t.s.seizeBoth(ctx, t.ref, dst)
	if err != nil {
		return err
	}
	defer from.vacate()
	defer to.vacate()
	source, there := from.th.record()
	if !there {
		return ErrNotFound
	}
	rec, taken := to.th.record()
	if taken {
		return fmt.Errorf("%w: thread %q already exists", ErrConflict, dst.Thread)
	}
	p, err := from.th.plan(ctx, func(string) *keeping { return nil }, true)
	if err != nil {
		return err
	}
	if to.th.expired() {
		rec.Generation++
	}
	now, err := t.s.time()
	if err != nil {
		return err
	}
	rec.Deleted, rec.Created, rec.TTL, rec.Expires, rec.Kept, rec.Active = false, now, source.TTL, 0, 0, source.Active
	if rec.TTL > 0 {
		rec.Expires = expiry(now, rec.TTL)
	}
	return p.rewrite(ctx, to.th, rec)
}

// seizeBoth seizes two threads of one user, always in the same order.
func (s *Store) seizeBoth(ctx context.Context, a, b Ref) (la, lb *lineage, err error) {
	if a.Thread > b.Thread {
		lb, la, err = s.seizeBoth(ctx, b, a)
		return la, lb, err
	}
	if la, err = s.seize(ctx, a, false); err != nil {
		return nil, nil, err
	}
	if lb, err = s.seize(ctx, b, false); err != nil {
		la.vacate()
		return nil, nil, err
	}
	return la, lb, nil
}

// erase removes the records of what does not stay, with all that is encoded on them.
func (p *pruning) erase(ctx context.Context) error {
	rec, _ := p.th.record()
	kept := rec.Kept
	rec.Kept = 0
	if err := p.rewrite(ctx, p.th, rec); err != nil {
		return err
	}
	if err := p.th.purgeEpoch(ctx, kept); err != nil {
		return fmt.Errorf("removing records of a kept epoch: %w", err)
	}
	p.forgetAll()
	return nil
}

// blobs are the blobs that checkpoints name which do not stay.
func (p *pruning) blobs() map[BlobID]bool {
	blobs := map[BlobID]bool{}
	for _, n := range p.lines {
		for r := range n.newestFirst {
			if r.stub == nil && r.fate != stays {
				for _, id := range r.attrs.Blobs {
					blobs[id] = true
				}
			}
		}
	}
	return blobs
}

// wipe removes from the backend, and from its files if it can do that, what only erased checkpoints named. The caller
// holds no lock of a thread.
func (s *Store) wipe(ctx context.Context, ref Ref, blobs map[BlobID]bool) (compacted bool, err error) {
	u, err := s.user(ctx, userName{ref.Tenant, ref.User}, false)
	if err != nil {
		return false, err
	}
	if err := u.sweepNow(ctx, blobs); err != nil {
		return false, fmt.Errorf("removing data that only erased checkpoints referred to: %w", err)
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

// rewrite builds a new epoch of to, which may be the thread itself, from what stays of p, makes rec with that epoch
// its record, and purges the epoch before unless rec keeps that. The caller holds both threads' mu for writing.
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
	for _, n := range p.lines {
		c := &copying{line: n, to: to.in(epoch).lineage(n.l.ref.Namespace), from: n.l.restorer(), w: w, out: batcher{s: u.s},
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

// copying builds one lineage of a new epoch.
type copying struct {
	*line
	to   *storedLineage
	from *restorer
	w    *saving
	tip  *tip // what was copied last
	out  batcher

	history *historyMigration // nil: all stays as it is
	hashes  map[uint64][32]byte
}

func (c *copying) run(ctx context.Context) error {
	c.w.u, c.w.measures = c.to.u, &measures{}
	if err := c.copyRest(ctx); err != nil {
		return err
	}
	err := c.l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		if r.rec == nil || c.rows[r.seq].fate != stays {
			return nil
		}
		return c.copyRecord(ctx, r)
	})
	if err != nil {
		return err
	}
	return c.out.flush(ctx)
}

// copyRest copies all that is not a record, the name of the namespace first: whoever removes the leftovers of a rewrite
// finds lineages by it.
func (c *copying) copyRest(ctx context.Context) error {
	if name := c.to.ref.Namespace; name != "" {
		if err := putInto(ctx, c, space.Namespaces, c.to.NamespaceKey(c.to.NS), name, space.Once); err != nil {
			return err
		}
	}
	runs, err := c.runs(ctx)
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

// putInto adds a value of the new epoch.
func putInto[T any](ctx context.Context, c *copying, k *space.Kind[T], key []byte, v T, version string) error {
	mut, err := sealMut(c.to, k, key, v, version)
	if err != nil {
		return err
	}
	return c.out.add(ctx, mut)
}

// copyWrites copies the pending writes, but for those of checkpoints that go.
func (c *copying) copyWrites(ctx context.Context) error {
	gone := map[string]bool{}
	for r := range c.newestFirst {
		if r.visible() && r.fate != stays {
			gone[r.id] = true
		}
	}
	return c.l.s.eachWrites(ctx, c.l, c.l.Writes(), func(e backend.Entry, w *codec.Writes, ledger *codec.WritesLedger) error {
		key := c.to.Moved(e.Key)
		switch {
		case ledger != nil && gone[ledger.Checkpoint], w != nil && gone[w.Checkpoint]:
			return nil
		case ledger != nil:
			return putInto(ctx, c, space.Ledgers, key, ledger, e.Version)
		}
		for i := range w.Writes {
			c.l.u.naming.noteParts(w.Writes[i].Parts)
		}
		return putInto(ctx, c, space.Writes, key, w, e.Version)
	})
}

// copyRecord encodes the checkpoint of r anew, on the nearest of its ancestors that stays.
func (c *copying) copyRecord(ctx context.Context, r *record) error {
	c.from = c.from.next()
	c.from.remember(r)
	row := c.rows[r.seq]
	t, err := c.base(ctx, row)
	if err != nil {
		return err
	}
	c.tip = nil // until it is whole again
	root := t.seq == 0
	rec := *r.rec
	if c.history == nil {
		err = c.change(ctx, t, r)
	} else {
		err = c.migrate(ctx, t, r, &rec)
	}
	if err != nil {
		return err
	}
	if err := c.w.bound(t, row.parent); err != nil {
		return err
	}
	p := &pending{seq: r.seq, tip: t}
	u := c.to.u
	u.naming.noteBlobs(t.meta.Blobs)
	if err := u.sweep.rLock(ctx); err != nil {
		return err
	}
	err = c.w.place(ctx, p, root)
	u.sweep.rUnlock()
	if err != nil {
		return err
	}
	rec.Ghost = false
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
	c.tip = t
	// The value lives in a buffer of w, and this batch may wait for others.
	muts := append(p.muts, backend.Mut{Key: key, Value: append([]byte(nil), value...), Version: space.Once})
	if err := c.out.add(ctx, muts...); err != nil {
		return err
	}
	return c.copyEntries(ctx, row)
}

// copyEntries adds what makes the checkpoint found by its id and its terms.
func (c *copying) copyEntries(ctx context.Context, r *row) error {
	if r.entry != nil {
		key := c.to.Moved(r.entry)
		id := &codec.IDEntry{Seq: r.seq, ID: r.id}
		if got, err := c.l.s.be.Get(ctx, r.entry); err != nil {
			return fmt.Errorf("reading an id: %w", err)
		} else if old, err := c.l.openIDEntry(got[0]); err == nil { // a damaged one is made anew
			id.Submitted = old.Submitted
		}
		if err := putInto(ctx, c, space.IDs, key, id, strconv.FormatUint(r.seq, 10)); err != nil {
			return err
		}
	}
	parent := c.rows[r.parent]
	if parent != nil && parent.fate != stays {
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

// base returns the state to encode r on. Where no ancestor is known, what was copied before it is most like it.
func (c *copying) base(ctx context.Context, r *row) (*tip, error) {
	on := uint64(0)
	if r.parent != 0 {
		on = c.nearest(r.parent)
		if on == 0 && c.tip != nil && c.history == nil {
			on = c.tip.seq
		}
	}
	switch {
	case on == 0:
		return &tip{l: c.to, meta: noAttrs}, nil
	case c.tip != nil && c.tip.seq == on:
		return c.tip, nil
	}
	if err := c.out.flush(ctx); err != nil {
		return nil, err
	}
	return c.to.restorer().tipAt(ctx, on)
}

// change makes t the state of r, and fills w.coded with how what differs is to be stored.
func (c *copying) change(ctx context.Context, t *tip, r *record) error {
	meta, err := c.from.meta(ctx, r)
	if err != nil {
		return err
	}
	c.w.coded, c.w.payload = c.w.coded[:0], c.w.payload[:0]
	t.retable(meta)
	t.meta = meta
	for number, e := range r.rec.Channels {
		s := t.numbered(number)
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
			return corrupt(space.Place(c.l.RecordKey(r.seq)), fmt.Sprintf("channel %d differs from its commitment", number), nil)
		}
	}
	return nil
}

// value restores the value that the link holds; where that was encoded on what s has, with no more than its delta.
func (c *copying) value(ctx context.Context, r *record, at link, s *chanState) ([]byte, error) {
	if at.e.Mode == codec.ByDelta && len(s.path) > 0 {
		base, err := c.from.link(ctx, at.r, s.number, at.e)
		if err != nil {
			return nil, err
		}
		if base.e.Commitment == s.commit {
			return c.from.apply(ctx, at, s.value)
		}
	}
	got, err := c.from.channels(ctx, r, func(number uint64) bool { return number == at.e.Number })
	if err != nil {
		return nil, err
	}
	return got[0].value, nil
}

// apply builds the value of a delta on its base.
func (rs *restorer) apply(ctx context.Context, at link, base []byte) ([]byte, error) {
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
	return nil, corrupt(space.Place(rs.l.RecordKey(at.r.seq)), fmt.Sprintf("channel %d does not restore", at.e.Number), err)
}
