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

// A lineage commits its changes in order, one batch at a time: what comes in while a batch is under way is encoded on the
// pending state and goes into the next one. The order needs no help from the backend, so it holds on any driver, and a
// hot thread still shares the sync of a group commit.

// pending is a change of a lineage that is in line and not yet durable: a save, a move of a branch, or the beginning of a
// thread.
type pending struct {
	seq   uint64 // of the new checkpoint; 0 if there is none
	after heads  // of the lineage once it is durable
	muts  []backend.Mut
	conds []backend.Cond
	size  int   // bytes of muts
	parts int64 // bytes of parts newly stored for it
	event Event
	tip   *tip
	moved []movedBranch
	// ledger is that of the pending writes of ledgerOf as muts write it, wrote the key of those of a task.
	ledgerOf string
	ledger   ledgerState
	wrote    []byte
	// replaces is the seq of the checkpoint that it takes the place of; 0: none.
	replaces uint64
	// thread, if not nil, is the thread record as muts write it, with its version and that of the one before.
	thread                  *codec.Thread
	threadVersion, threadOn string

	held hold
	done chan struct{} // closed when err is the outcome; nil while nobody waits for it
	over bool
	err  error

	// Room for what an ordinary save needs, so that it takes one allocation.
	mutRoom  [2]backend.Mut
	condRoom [2]backend.Cond
	batch    [1]*pending
}

// movedBranch is where a pending change moves a branch, or deletes it: then there is no version.
type movedBranch struct {
	name, version string
	head          uint64
}

// hold is what a change keeps from when its lineage was acquired until it is durable, though its caller may have gone.
type hold struct {
	seized bool    // the thread is locked for writing
	sweep  bool    // u.sweep is locked for reading
	w      *saving // with the bytes of muts; may be nil
}

// letGo gives up what h holds of l.
func (l *lineage) letGo(h hold) {
	if h.sweep {
		l.u.sweep.rUnlock()
	}
	if h.w != nil {
		l.s.putSaving(h.w)
	}
	if h.seized {
		l.vacate()
	} else {
		l.release()
	}
}

func newPending(seq uint64, t *tip) *pending {
	p := &pending{seq: seq, tip: t}
	p.muts, p.conds = p.mutRoom[:0], p.condRoom[:0]
	return p
}

// change does one change of the lineage: it commits what prepare prepares under l.mu, and waits until that is durable.
// Nothing prepared and no error means that there is nothing to do. Once the change is in line there is no way back, since
// others may stand on it: if ctx ends then, that is ErrAmbiguous. It takes over h, in any case.
func (l *lineage) change(ctx context.Context, h hold, prepare func() (*pending, error)) error {
	inLine := false
	defer func() {
		if !inLine { // also if it panicked
			l.letGo(h)
		}
	}()
	p, first, err := l.enter(ctx, h, prepare)
	if p == nil {
		return err
	}
	inLine = true
	return l.await(ctx, p, first)
}

// enter puts a change in line. First says that the caller is to commit it, since nothing is under way.
func (l *lineage) enter(ctx context.Context, h hold, prepare func() (*pending, error)) (p *pending, first bool, err error) {
	if err := l.mu.lock(ctx); err != nil {
		return nil, false, err
	}
	defer l.mu.unlock()
	if p, err = prepare(); p == nil || err != nil {
		return nil, false, err
	}
	p.held = h
	l.publish(p)
	if first = l.flying == nil; first {
		l.flying = append(p.batch[:0], p)
	} else {
		l.queue = append(l.queue, p)
	}
	if !first || ctx.Done() != nil {
		p.done = make(chan struct{})
	}
	return p, first, nil
}

// publish makes a change what the next one stands on. The caller holds l.mu.
func (l *lineage) publish(p *pending) {
	for i := range p.muts {
		p.size += mutSize(&p.muts[i])
	}
	if t := p.tip; t != nil {
		l.head, l.lastTime = p.seq, t.rec.time
		if t.rec.origin >= l.origin {
			l.latest, l.origin = p.seq, t.rec.origin
		}
		l.given = max(l.given, p.seq)
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
	if p.ledgerOf != "" {
		l.putLedger(p)
	}
	if p.thread != nil {
		l.touching = p
	}
	p.after, l.last = l.heads, p
}

// await waits for the outcome of a change, and commits it if it is the first.
func (l *lineage) await(ctx context.Context, p *pending, first bool) error {
	switch {
	case first && ctx.Done() == nil: // nobody can ask the caller to go before it is durable
		if next := l.commitBatch(p); next != nil {
			go l.commitFrom(next)
		}
		return p.err
	case first:
		go l.commitFrom(p)
	}
	return p.outcome(ctx)
}

// outcome waits until p is over, or says that ctx ended first.
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
		return fmt.Errorf("%w: the commit was in progress when the context ended: %w", ErrAmbiguous, context.Cause(ctx))
	}
}

// commitFrom commits the batch that begins with p, and those after it until nothing is in line.
func (l *lineage) commitFrom(p *pending) {
	// Nothing is known of the thread then. Its callers end with their contexts, and those of other threads go on.
	defer panics.To(func(error) {})
	for p != nil {
		p = l.commitBatch(p)
	}
}

// commitBatch commits what is in line from p on, as far as it fits into a batch. It returns what is first then.
func (l *lineage) commitBatch(p *pending) (next *pending) {
	// The context of one caller must not decide over the changes of others.
	ctx := context.Background()
	l.mu.lock(ctx)
	batch := append(l.flying, l.following(p)...)
	l.flying = batch
	l.mu.unlock()
	err := l.s.commitOne(ctx, l.batchOf(batch))
	l.mu.lock(ctx)
	batch, next = l.finish(batch, err)
	l.mu.unlock()
	for _, p := range batch {
		l.letGo(p.held)
	}
	for _, p := range batch {
		if p.done != nil {
			close(p.done)
		}
	}
	return next
}

// commitOne commits a batch. What became of it is unknown if the backend panics: those who wait must be told.
func (s *Store) commitOne(ctx context.Context, b backend.Batch) (err error) {
	defer panics.To(func(e error) { err = unknown(e) })
	return s.be.Commit(ctx, b)
}

func unknown(panicked error) error { return fmt.Errorf("%w: %w", backend.ErrAmbiguous, panicked) }

// following takes from the queue what fits into a batch behind p.
func (l *lineage) following(p *pending) []*pending {
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

// merge adds mutations; of two on one key, such as a branch that moved twice, the later one wins.
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

// firstConds keeps the first condition on each key: a later one speaks of what the batch itself writes before.
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

// finish takes over the outcome of a batch. It returns all that are over, and the first of the next batch. After a failure
// nothing in memory can be trusted: what is queued stands on what failed, so it fails too, and nothing is pending any
// more. The caller holds l.mu.
func (l *lineage) finish(batch []*pending, err error) (over []*pending, next *pending) {
	if err != nil {
		batch = append(batch, l.queue...)
		l.queue = nil
		l.forget()
		l.th.doubt(err)
	}
	for _, p := range batch {
		p.over, p.err = true, err
		if p.thread != nil {
			l.th.wrote(p, err)
		}
		if p == l.touching {
			l.touching = nil
		}
		if s := l.ledgers[p.ledgerOf]; s != nil && s.by == p {
			delete(l.ledgers, p.ledgerOf)
		}
		for _, m := range p.moved {
			if b := l.branches[m.name]; b != nil && b.by == p {
				b.by = nil // which has the state of a checkpoint
			}
		}
		l.s.hub.settled(&p.event, err == nil)
	}
	if err == nil {
		l.durable.set(l.openEpoch, batch[len(batch)-1].after)
	}
	if l.last.over {
		l.last = nil
	}
	if len(l.queue) == 0 {
		l.flying = nil
		return batch, nil
	}
	next = l.queue[0]
	l.queue, l.flying = l.queue[1:], append(next.batch[:0], next)
	return batch, next
}

// pendingError says that what a change depends on is pending. No lock may be given up between looking at the lineage and
// adding to it, so whoever finds this gives up, waits, and looks at everything anew.
type pendingError struct{ done <-chan struct{} }

func (*pendingError) Error() string { return "depends on a change in progress" }

func (e *pendingError) wait(ctx context.Context) error {
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// after is the error of who depends on p, which is not over. The caller holds l.mu.
func (l *lineage) after(p *pending) *pendingError {
	if p.done == nil {
		p.done = make(chan struct{})
	}
	return &pendingError{p.done}
}

// pendingAt is the save of the checkpoint at seq if that is not durable yet, else nil. The caller holds l.mu.
func (l *lineage) pendingAt(seq uint64) *pending {
	return l.pendingFunc(func(p *pending) bool { return p.tip != nil && p.seq == seq })
}

// pendingID is the save under an id if that is not durable yet, else nil. The caller holds l.mu.
func (l *lineage) pendingID(id string) *pending {
	return l.pendingFunc(func(p *pending) bool { return p.tip != nil && p.event.ID == id })
}

func (l *lineage) pendingFunc(is func(*pending) bool) *pending {
	for _, ps := range [...][]*pending{l.flying, l.queue} {
		if i := slices.IndexFunc(ps, is); i >= 0 {
			return ps[i]
		}
	}
	return nil
}

// newBatchID returns an id that no other batch has, of this process or another.
func (s *Store) newBatchID() (id [16]byte) {
	copy(id[:8], s.batchSeed[:])
	binary.BigEndian.PutUint64(id[8:], s.batches.Add(1))
	return id
}
