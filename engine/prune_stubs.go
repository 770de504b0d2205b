package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// stubRange is a range of seqs replaced by one stub, stored at the last of them.
type stubRange struct {
	last, first uint64
	stub        codec.Stub // without its numbers
	done        bool       // it is there already
}

// stubRanges lists the stub ranges of the lineage, newest first. A removed record that is the
// parent of a remaining one is the last of its range, so that the stub keeps its hash.
func (n *lineagePruning) stubRanges(ctx context.Context) ([]stubRange, error) {
	var runs []stubRange
	open := false
	for seq := n.head; seq > 0; seq-- {
		r := n.rows[seq]
		if r == nil {
			return nil, corrupt(space.Describe(n.l.RecordKey(seq)), "missing", nil)
		}
		if open = open && !r.remains(); r.remains() {
			continue
		}
		if open && n.children[seq] == nil {
			runs[len(runs)-1].first, runs[len(runs)-1].done = r.first(), false
		} else {
			stub, err := n.makeStub(ctx, r)
			if err != nil {
				return nil, err
			}
			runs = append(runs, stubRange{seq, r.first(), *stub, r.stub != nil})
			open = true
		}
		seq = r.first()
	}
	return runs, nil
}

// makeStub makes the stub of r, the last of a range, and compares its hash with those that its
// children name. The hash of a ghost is taken from its children, since some of its channels may be
// gone.
func (n *lineagePruning) makeStub(ctx context.Context, r *row) (*codec.Stub, error) {
	stub := &codec.Stub{ID: r.id}
	switch children := n.children[r.seq]; {
	case r.stub != nil:
		stub.Hash = r.stub.Hash
	case !r.ghost:
		rec, err := n.l.readRecord(ctx, r.seq)
		if err == nil && (rec == nil || rec.rec == nil) {
			err = corrupt(space.Describe(n.l.RecordKey(r.seq)), "missing", nil)
		}
		if err != nil {
			return nil, err
		}
		cp, err := n.l.restorer().checkpoint(ctx, rec, nil)
		if err != nil {
			return nil, err
		}
		stub.Hash = cp.Hash
	case len(children) > 0:
		stub.Hash = children[0].parentHash
	}
	for _, c := range n.children[r.seq] {
		if c.parentHash != stub.Hash {
			return nil, corrupt(space.Describe(n.l.RecordKey(c.seq)), "does not match the hash of its parent", nil)
		}
	}
	return stub, nil
}

// apply removes all records that do not remain. Dependents are removed before their bases, so the
// store is valid after every batch.
func (p *pruning) apply(ctx context.Context) error {
	// Namespaces go before the checkpoints that they hang on: after a crash the next prune finds the
	// rest.
	if dead, last := p.goneNamespaces(); len(dead) > 0 {
		if err := p.th.cut(ctx, dead, last); err != nil {
			return fmt.Errorf("removing namespaces: %w", err)
		}
	}
	for _, n := range p.lineages {
		if n.gone {
			continue
		}
		err := n.apply(ctx)
		n.forget(err != nil)
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *lineagePruning) apply(ctx context.Context) error {
	runs, err := n.stubRanges(ctx)
	if err != nil {
		return err
	}
	out := &batcher{s: n.l.s}
	if err := n.moveBranches(ctx, out); err != nil {
		return err
	}
	for r := range n.newestFirst {
		var err error
		switch {
		case r.verdict != hidden || r.stub != nil:
		case r.held != nil && !r.holds:
			err = n.makeAncestor(ctx, out, r)
		case r.held != nil:
			err = n.dropFreed(ctx, out, r)
		case !r.ghost || r.releases():
			err = n.makeGhost(ctx, out, r)
		}
		if err != nil {
			return err
		}
	}
	for i := range runs {
		if runs[i].done {
			continue
		}
		for seq := runs[i].last; seq >= runs[i].first; seq = n.rows[seq].first() - 1 {
			if err := n.replaceByStub(ctx, out, &runs[i], n.rows[seq]); err != nil {
				return err
			}
		}
	}
	return out.flush(ctx)
}

// makeGhost makes a ghost of r.
func (n *lineagePruning) makeGhost(ctx context.Context, out *batcher, r *row) error {
	rec, err := n.l.readRecord(ctx, r.seq)
	if err != nil {
		return err
	}
	if r.releases() {
		rec.rec.Holds = false // nobody else has this record
	}
	mut, err := n.l.ghostMut(rec)
	if err != nil {
		return err
	}
	if r.releases() {
		if err := out.add(ctx, mut); err != nil {
			return err
		}
		return n.dropHeld(ctx, out, r)
	}
	muts, err := n.l.dropWrites(ctx, out, r.id)
	if err != nil {
		return err
	}
	if muts = append(muts, mut); r.idKey != nil {
		muts = append(muts, backend.Mut{Key: r.idKey, Delete: true})
	}
	if err := out.add(ctx, muts...); err != nil {
		return err
	}
	return n.dropHeld(ctx, out, r)
}

// makeAncestor hides the checkpoint r and moves its pending writes from its id to its seq. That is one
// batch unless the writes are too many. Then they are copied first. Those of the id are deleted when r
// is hidden, the ledger first, and after that where these deletions are too many, too.
func (n *lineagePruning) makeAncestor(ctx context.Context, out *batcher, r *row) error {
	rec, err := n.l.readRecord(ctx, r.seq)
	if err != nil {
		return err
	}
	if rec == nil || rec.rec == nil {
		return corrupt(space.Describe(n.l.RecordKey(r.seq)), "missing", nil)
	}
	held := *rec
	copied := *rec.rec
	copied.Holds = true
	held.rec = &copied
	mut, err := n.l.ghostMut(&held)
	if err != nil {
		return err
	}
	hide := []backend.Mut{mut}
	if r.idKey != nil {
		hide = append(hide, backend.Mut{Key: r.idKey, Delete: true})
	}
	if err := n.dropHeld(ctx, out, r); err != nil { // of an interrupted prune
		return err
	}
	var put, drop []backend.Mut
	size := 0
	err = n.l.s.eachWrites(ctx, n.l, n.l.WritesOf(r.id), func(e backend.Entry, w *codec.Writes, ledger *codec.WritesLedger) error {
		key := n.l.LedgerKey(space.Held(r.seq))
		m, err := backend.Mut{}, error(nil)
		if ledger != nil {
			m, err = sealMut(n.l, space.Ledgers, key, ledger, e.Version)
		} else {
			for i := range w.Writes {
				n.l.u.naming.noteParts(w.Writes[i].Parts)
			}
			m, err = sealMut(n.l, space.Writes, n.l.WritesKey(space.Held(r.seq), w.Task), w, e.Version)
		}
		if err != nil {
			return err
		}
		put, drop = append(put, m), append(drop, backend.Mut{Key: e.Key, Delete: true})
		if size += mutSize(&m); len(put) == backend.MaxBatchKeys/4 || size > backend.MaxBatchBytes/4 {
			err, put, size = out.add(ctx, put...), nil, 0
		}
		return err
	})
	if err != nil {
		return err
	}
	with := min(len(drop), backend.MaxBatchKeys-len(put)-len(hide))
	if err := out.add(ctx, slices.Concat(put, hide, drop[:with])...); err != nil {
		return err
	}
	for _, m := range drop[with:] {
		if err := out.add(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// dropFreed deletes the writes that an interrupted prune left under the id of the ancestor r. They have
// no ledger: it was deleted when r was hidden.
func (n *lineagePruning) dropFreed(ctx context.Context, out *batcher, r *row) error {
	left := n.l.WritesOf(r.id)
	left.KeysOnly, left.Limit = true, 1
	page, _, err := n.l.s.be.Scan(ctx, left)
	if err != nil || len(page) == 0 || bytes.Equal(page[0].Key, n.l.LedgerKey(r.id)) || n.any(func(o *row) bool { return o.id == r.id }) {
		return err
	}
	left.Limit = 0
	return n.drop(ctx, out, left)
}

// dropHeld deletes the pending writes stored for r as an ancestor, which it is no longer, or which an
// interrupted prune did not make it.
func (n *lineagePruning) dropHeld(ctx context.Context, out *batcher, r *row) error {
	if r.holds {
		if err := n.dropFreed(ctx, out, r); err != nil {
			return err
		}
	}
	return n.drop(ctx, out, n.l.WritesOf(space.Held(r.seq)))
}

// drop deletes all keys in a range.
func (n *lineagePruning) drop(ctx context.Context, out *batcher, r backend.Range) error {
	r.KeysOnly = true
	return n.l.s.scan(ctx, r, func(e backend.Entry) error {
		return out.add(ctx, backend.Mut{Key: e.Key, Delete: true})
	})
}

// replaceByStub deletes the record or stub r and extends the stub of its range over it. The newer
// records of the range have been replaced before.
func (n *lineagePruning) replaceByStub(ctx context.Context, out *batcher, in *stubRange, r *row) error {
	stub := in.stub
	stub.FirstDist = in.last - r.first()
	stub.Count = stub.FirstDist + 1
	key := n.l.RecordKey(in.last)
	mut, err := sealMut(n.l, space.Stubs, key, &stub, versionStub)
	if err != nil {
		return err
	}
	muts := []backend.Mut{mut}
	if r.seq != in.last {
		muts = append(muts, backend.Mut{Key: n.l.RecordKey(r.seq), Delete: true})
	}
	if r.stub != nil {
		return out.add(ctx, muts...)
	}
	for _, c := range n.children[r.seq] { // without a parent they need index entries for all their terms
		for _, t := range c.terms(nil) {
			m, err := n.l.indexMut(t, c.seq, codec.IndexEntry{Time: c.time, Step: c.step})
			if err != nil {
				return err
			}
			if err := out.add(ctx, m); err != nil {
				return err
			}
		}
	}
	if !r.ghost {
		ledger, err := n.l.dropWrites(ctx, out, r.id)
		if err != nil {
			return err
		}
		if muts = append(muts, ledger...); r.idKey != nil {
			muts = append(muts, backend.Mut{Key: r.idKey, Delete: true})
		}
	}
	if err := out.add(ctx, muts...); err != nil {
		return err
	}
	if err := n.dropHeld(ctx, out, r); err != nil {
		return err
	}
	for _, t := range r.indexedTerms(n.rows[r.parent]) {
		if err := out.add(ctx, backend.Mut{Key: n.l.indexKey(t, r.seq), Delete: true}); err != nil {
			return err
		}
	}
	return nil
}

// versionStub is the version of stubs.
const versionStub = "3"

// moveBranches updates branch records to the heads they will have after the prune. A branch without
// a head is deleted.
func (n *lineagePruning) moveBranches(ctx context.Context, out *batcher) error {
	headOf := n.headAfter()
	for name, seq := range n.branches {
		to := headOf(seq)
		if to == seq {
			continue
		}
		mut := backend.Mut{Key: n.l.BranchKey(name), Delete: true}
		if to != 0 {
			var err error
			if mut, err = n.l.branchMut(name, to); err != nil {
				return err
			}
		}
		if err := out.add(ctx, mut); err != nil {
			return err
		}
	}
	return nil
}

// headAfter returns a function that finds the head of a branch whose record names a seq, as headAt
// does, among retained checkpoints; 0: none.
func (n *lineagePruning) headAfter() func(seq uint64) uint64 {
	now := map[uint64]uint64{} // by place in line
	for r := range n.newestFirst {
		if r.verdict == retained {
			now[r.origin] = r.seq
		}
	}
	return func(seq uint64) uint64 {
		for r := n.rows[seq]; r != nil && r.stub == nil; r = n.rows[r.parent] {
			if at := now[r.origin]; at != 0 {
				return at
			}
		}
		return 0
	}
}

// nearest finds the nearest retained checkpoint among seq and its known ancestors; 0: none.
func (n *lineagePruning) nearest(seq uint64) uint64 {
	for r := n.rows[seq]; r != nil && r.stub == nil; r = n.rows[r.parent] {
		if r.verdict == retained {
			return r.seq
		}
	}
	return 0
}

// forget drops removed data from memory: the whole lineage if all is set or its head was removed,
// else the states of removed checkpoints. It ignores the context of the call, since a state in
// memory of a removed record could be loaded, and saved on. The caller holds the thread's mu for
// writing.
func (n *lineagePruning) forget(all bool) {
	if n.gone {
		n.l.s.forgetLineage(n.l.ref)
		return
	}
	l := n.l.s.refInMemory(n.l.ref)
	if l == nil {
		return
	}
	defer l.s.unrefLineage(l)
	l.mu.lock(context.Background()) // no operation on the thread is under way, so it is free
	defer l.mu.unlock()
	clear(l.branches)
	if head := n.rows[l.latest]; all || head == nil || head.verdict != retained {
		l.forget()
		return
	}
	for seq, t := range l.states {
		if r := n.rows[seq]; r == nil || r.verdict != retained {
			l.s.cache.drop(t)
		}
	}
}
