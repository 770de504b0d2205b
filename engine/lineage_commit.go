package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/internal/panics"
)

// A lineage commits its changes in order, one batch at a time. Changes that arrive while a batch is
// under way are encoded on the pending state and go into the next batch. The order does not depend
// on the backend, so it holds on any driver, and a hot thread still shares the sync of a group
// commit.

// pending is a change of a lineage that is not durable yet: a save, a move of a branch, or the
// start of a thread.
type pending struct {
	seq        uint64 // of the new checkpoint; 0 if there is none
	headsAfter heads  // of the lineage once it is durable
	muts       []backend.Mut
	conds      []backend.Cond
	size       int   // bytes of muts
	parts      int64 // bytes of parts newly stored for it
	event      Event
	state      *checkpointState
	moved      []movedBranch
	calledFrom string // the id in the record of the namespace as muts write it; "": they write none
	// ledger is the ledger of the pending writes of ledgerOf as muts write it; writesKey is the key
	// of the writes of a task in muts.
	ledgerOf  string
	ledger    ledgerState
	writesKey []byte
	// replaces is the seq of the checkpoint that this one replaces; 0: none.
	replaces uint64
	// thread, if not nil, is the thread record as muts write it, with its version and that of the
	// record before.
	thread                    *codec.Thread
	threadVersion, threadBase string

	locks    changeLocks
	done     chan struct{} // closed when err is set; nil while nobody waits
	finished bool
	err      error

	// Buffers that suffice for an ordinary save, so that it takes one allocation.
	mutBuf  [2]backend.Mut
	condBuf [2]backend.Cond
	batch   [1]*pending
}

// movedBranch is the new head of a branch, or its deletion: then it has no version.
type movedBranch struct {
	name, version string
	head          uint64
}

// changeLocks are the locks and the memory that a change keeps until it is durable, though its
// caller may have returned.
type changeLocks struct {
	exclusive bool    // the thread is locked for writing
	sweep     bool    // u.sweep is locked for reading
	saving    *saving // with the bytes of muts; may be nil
}

// releaseLocks releases h.
func (l *lineage) releaseLocks(h changeLocks) {
	if h.sweep {
		l.u.sweep.rUnlock()
	}
	if h.saving != nil {
		l.s.putSaving(h.saving)
	}
	if h.exclusive {
		l.unlockThread()
	} else {
		l.runlockThread()
	}
}

func newPending(seq uint64, t *checkpointState) *pending {
	p := &pending{seq: seq, state: t}
	p.muts, p.conds = p.mutBuf[:0], p.condBuf[:0]
	return p
}

// change makes one change to the lineage: it commits the change that prepare returns under l.mu,
// and waits until it is durable. No change and no error means that there is nothing to do. Once
// enqueued a change cannot be withdrawn, since others may depend on it: if ctx ends then, that is
// ErrAmbiguous. It takes over h in any case.
func (l *lineage) change(ctx context.Context, h changeLocks, prepare func() (*pending, error)) error {
	inLine := false
	defer func() {
		if !inLine { // also if it panicked
			l.releaseLocks(h)
		}
	}()
	p, first, err := l.enqueue(ctx, h, prepare)
	if p == nil {
		return err
	}
	inLine = true
	return l.await(ctx, p, first)
}

// enqueue adds a change to the queue. first means that the caller has to commit it, since no batch
// is under way.
func (l *lineage) enqueue(ctx context.Context, h changeLocks, prepare func() (*pending, error)) (p *pending, first bool, err error) {
	if err := l.mu.lock(ctx); err != nil {
		return nil, false, err
	}
	defer l.mu.unlock()
	if p, err = prepare(); p == nil || err != nil {
		return nil, false, err
	}
	p.locks = h
	l.publish(p)
	if first = l.committing == nil; first {
		l.committing = append(p.batch[:0], p)
	} else {
		l.queue = append(l.queue, p)
	}
	if !first || ctx.Done() != nil {
		p.done = make(chan struct{})
	}
	return p, first, nil
}

// publish makes a change the base of the next one. The caller holds l.mu.
func (l *lineage) publish(p *pending) {
	for i := range p.muts {
		p.size += mutSize(&p.muts[i])
	}
	if t := p.state; t != nil {
		l.head, l.lastTime = p.seq, t.rec.time
		if t.rec.origin >= l.origin {
			l.latest, l.origin = p.seq, t.rec.origin
		}
		l.lastIssued = max(l.lastIssued, p.seq)
		l.remember(t)
		l.s.cache.used(t)
		if !t.rec.own {
			l.noteID(t.id)
		}
	}
	for _, b := range l.branches {
		if p.replaces != 0 && b.head == p.replaces {
			b.head = p.seq
		}
	}
	for _, b := range p.moved {
		l.branches[b.name] = &branchState{head: b.head, version: b.version, by: p}
	}
	if p.calledFrom != "" {
		l.called = calledFrom{p.calledFrom, true}
	}
	if p.ledgerOf != "" {
		l.putLedger(p)
	}
	if p.thread != nil {
		l.threadChange = p
	}
	p.headsAfter, l.last = l.heads, p
}

// await waits for the outcome of a change, and commits it if it is the first.
func (l *lineage) await(ctx context.Context, p *pending, first bool) error {
	switch {
	case first && ctx.Done() == nil: // the caller waits until it is durable in any case
		if next := l.commitBatch(p); next != nil {
			go l.commitFrom(next)
		}
		return p.err
	case first:
		go l.commitFrom(p)
	}
	return p.outcome(ctx)
}

// outcome waits until p is finished, or returns an error if ctx ends first.
func (p *pending) outcome(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		return p.err
	default:
		return fmt.Errorf("%w: the context ended while the change was being committed: %w", ErrAmbiguous, context.Cause(ctx))
	}
}

// commitFrom commits the batch that begins with p, and further ones until the queue is empty.
func (l *lineage) commitFrom(p *pending) {
	// After a panic the lineage is in an unknown state. Its callers end with their contexts, and
	// other threads continue.
	defer panics.To(func(error) {})
	for p != nil {
		p = l.commitBatch(p)
	}
}

// commitBatch commits a batch of p and as many queued changes as fit. It returns the first change
// of the next batch.
func (l *lineage) commitBatch(p *pending) (next *pending) {
	// The context of one caller must not decide about the changes of others.
	ctx := context.Background()
	l.mu.lock(ctx)
	batch := append(l.committing, l.takeQueued(p)...)
	l.committing = batch
	l.mu.unlock()
	err := l.s.commitOne(ctx, l.batchOf(batch))
	l.mu.lock(ctx)
	batch, next = l.finish(batch, err)
	l.mu.unlock()
	for _, p := range batch {
		l.releaseLocks(p.locks)
	}
	for _, p := range batch {
		if p.done != nil {
			close(p.done)
		}
	}
	return next
}

// commitOne commits a batch. If the backend panics, the outcome is unknown, and waiters must be
// told.
func (s *Store) commitOne(ctx context.Context, b backend.Batch) (err error) {
	defer panics.To(func(e error) { err = unknown(e) })
	return s.be.Commit(ctx, b)
}

func unknown(panicked error) error { return fmt.Errorf("%w: %w", backend.ErrAmbiguous, panicked) }

// takeQueued takes those changes from the queue that fit into a batch with p.
func (l *lineage) takeQueued(p *pending) []*pending {
	keys, size, n := len(p.muts)+len(p.conds), p.size, 0
	for n < len(l.queue) {
		q := l.queue[n]
		keys, size = keys+len(q.muts)+len(q.conds), size+q.size
		if keys > backend.MaxBatchKeys || size > backend.MaxBatchBytes {
			break
		}
		n++
	}
	taken := l.queue[:n:n]
	l.queue = l.queue[n:]
	return taken
}

func (l *lineage) batchOf(changes []*pending) backend.Batch {
	b := backend.Batch{ID: l.s.newBatchID(), Muts: changes[0].muts, Conds: changes[0].conds}
	if len(changes) > 1 {
		b.Muts, b.Conds = nil, nil
		for _, p := range changes {
			b.Muts, b.Conds = merge(b.Muts, p.muts), append(b.Conds, p.conds...)
		}
		b.Conds = firstConds(b.Conds)
	}
	return b
}

// merge adds mutations. Of two on one key, such as a branch that moved twice, the later one wins.
func merge(muts, more []backend.Mut) []backend.Mut {
next:
	for _, m := range more {
		for i := range muts {
			if string(muts[i].Key) == string(m.Key) {
				muts[i] = m
				continue next
			}
		}
		muts = append(muts, m)
	}
	return muts
}

// firstConds keeps the first condition on each key: later ones refer to values that the batch
// itself writes.
func firstConds(conds []backend.Cond) []backend.Cond {
	kept := conds[:0:0]
next:
	for _, c := range conds {
		for _, k := range kept {
			if string(k.Key) == string(c.Key) {
				continue next
			}
		}
		kept = append(kept, c)
	}
	return kept
}

// finish records the outcome of a batch. It returns all changes that are finished, and the first of
// the next batch. After a failure nothing in memory can be trusted: the queued changes depend on
// the failed ones, so they fail too, and nothing is pending any more. The caller holds l.mu.
func (l *lineage) finish(batch []*pending, err error) (over []*pending, next *pending) {
	if err != nil {
		batch = append(batch, l.queue...)
		l.queue = nil
		l.forget()
		l.th.distrust(err)
	}
	for _, p := range batch {
		p.finished, p.err = true, err
		if p.thread != nil {
			l.th.wrote(p, err)
		}
		if p == l.threadChange {
			l.threadChange = nil
		}
		if s := l.ledgers[p.ledgerOf]; s != nil && s.by == p {
			delete(l.ledgers, p.ledgerOf)
		}
		for _, m := range p.moved {
			if b := l.branches[m.name]; b != nil && b.by == p {
				b.by = nil // which has the state of a checkpoint
			}
		}
		l.s.hub.finished(&p.event, err == nil)
	}
	if err == nil {
		l.durable.set(l.openEpoch, batch[len(batch)-1].headsAfter)
	}
	if l.last.finished {
		l.last = nil
	}
	if len(l.queue) == 0 {
		l.committing = nil
		return batch, nil
	}
	next = l.queue[0]
	l.queue, l.committing = l.queue[1:], append(next.batch[:0], next)
	return batch, next
}

// pendingError says that a change depends on a pending one. The lock must be held from looking at
// the lineage until adding to it, so the caller gives up, waits, and starts over.
type pendingError struct{ done <-chan struct{} }

func (*pendingError) Error() string { return "depends on a change under way" }

func (e *pendingError) wait(ctx context.Context) error {
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dependsOn is the error of a change that depends on p, which is not finished. The caller holds
// l.mu.
func (l *lineage) dependsOn(p *pending) *pendingError {
	if p.done == nil {
		p.done = make(chan struct{})
	}
	return &pendingError{p.done}
}

// pendingAt is the save of the checkpoint at seq if it is not durable yet, else nil. The caller
// holds l.mu.
func (l *lineage) pendingAt(seq uint64) *pending {
	return l.pendingFunc(func(p *pending) bool { return p.state != nil && p.seq == seq })
}

// pendingID is the save with an id if it is not durable yet, else nil. The caller holds l.mu.
func (l *lineage) pendingID(id string) *pending {
	return l.pendingFunc(func(p *pending) bool { return p.state != nil && p.event.ID == id })
}

func (l *lineage) pendingFunc(is func(*pending) bool) *pending {
	for _, ps := range [...][]*pending{l.committing, l.queue} {
		if i := slices.IndexFunc(ps, is); i >= 0 {
			return ps[i]
		}
	}
	return nil
}

// newBatchID returns an id that no other batch has, in this process or another.
func (s *Store) newBatchID() (id [16]byte) {
	copy(id[:8], s.batchSeed[:])
	binary.BigEndian.PutUint64(id[8:], s.batches.Add(1))
	return id
}
