package engine

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
)

// A lineage commits its saves in order, one batch at a time: what comes in while a batch is under way is encoded on the
// pending state and goes into the next one. The order needs no help from the backend, so it holds on any driver, and a
// hot thread still shares the sync of a group commit.

// pending is a save that is encoded but not yet durable.
type pending struct {
	seq   uint64
	muts  []backend.Mut
	conds []backend.Cond
	size  int   // bytes of muts
	parts int64 // bytes of parts newly stored for it
	event Event
	tip   *tip
	// replaces is the seq of the checkpoint that it takes the place of; 0: none.
	replaces uint64
	// thread, if not nil, is the thread record as muts write it, with its version.
	thread        *codec.Thread
	threadVersion string

	lead chan struct{} // closed when the save at the head of the queue is to commit the next batch
	done chan struct{} // closed when err is the outcome; nil while nobody waits for it
	over bool
	err  error

	// Room for what an ordinary save needs, so that it takes one allocation.
	mutRoom  [2]backend.Mut
	condRoom [2]backend.Cond
	batch    [1]*pending
}

func newPending(seq uint64, t *tip) *pending {
	p := &pending{seq: seq, tip: t}
	p.muts, p.conds = p.mutRoom[:0], p.condRoom[:0]
	return p
}

// enqueue adds p and reports whether the caller is to commit it at once. The caller holds l.mu.
func (l *lineage) enqueue(p *pending) bool {
	l.last = p
	if !l.leading {
		l.leading = true
		l.flying = append(p.batch[:0], p)
		return true
	}
	p.done, p.lead = make(chan struct{}), make(chan struct{})
	l.queue = append(l.queue, p)
	return false
}

// await waits until p is durable or failed. Once a save is enqueued others may stand on it, so there is no way back.
func (l *lineage) await(p *pending, lead bool) error {
	if !lead {
		select {
		case <-p.done:
			return p.err
		case <-p.lead:
		}
	}
	l.mu.Lock()
	batch := append(l.flying, l.following(p)...)
	l.flying = batch
	l.mu.Unlock()
	err := l.commitBatch(batch)
	l.mu.Lock()
	l.finish(batch, err)
	l.mu.Unlock()
	return err
}

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

func (l *lineage) commitBatch(batch []*pending) error {
	b := backend.Batch{ID: l.s.newBatchID(), Muts: batch[0].muts, Conds: batch[0].conds}
	if len(batch) > 1 {
		b.Muts, b.Conds = nil, nil
		for _, p := range batch {
			b.Muts, b.Conds = merge(b.Muts, p.muts), append(b.Conds, p.conds...)
		}
		b.Conds = firstConds(b.Conds)
	}
	// The context of one caller must not decide over the saves of others.
	return l.s.be.Commit(context.Background(), b)
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

// finish tells the outcome of a batch to those who wait, and lets the next one begin. After a failure nothing in
// memory can be trusted: what is queued stands on what failed, so it fails too. The caller holds l.mu.
func (l *lineage) finish(batch []*pending, err error) {
	if err != nil {
		batch = append(batch, l.queue...)
		l.queue = nil
		l.forget()
	}
	for _, p := range batch {
		p.over, p.err = true, err
		if p.thread != nil {
			l.touched = false
			l.th.wrote(p, err)
		}
		if p.done != nil {
			close(p.done)
		}
		l.s.hub.settled(&p.event, err == nil)
	}
	if l.last.over {
		l.last = nil
	}
	if len(l.queue) == 0 {
		l.leading, l.flying = false, nil
		l.idle.Broadcast()
		return
	}
	next := l.queue[0]
	l.queue, l.flying = l.queue[1:], append(next.batch[:0], next)
	close(next.lead)
}

// isPending reports whether a save under that id is not durable yet. The caller holds l.mu.
func (l *lineage) isPending(id string) bool {
	named := func(p *pending) bool { return p.event.ID == id }
	return slices.ContainsFunc(l.flying, named) || slices.ContainsFunc(l.queue, named)
}

// drain waits until nothing is pending. The caller holds l.mu.
func (l *lineage) drain() {
	for l.leading {
		l.idle.Wait()
	}
}

// outcome waits for p, which was l.last. The caller holds l.mu, which is released meanwhile.
func (l *lineage) outcome(p *pending) error {
	if !p.over {
		if p.done == nil {
			p.done = make(chan struct{})
		}
		l.mu.Unlock()
		<-p.done
		l.mu.Lock()
	}
	return p.err
}

// newBatchID returns an id that no other batch has, of this process or another.
func (s *Store) newBatchID() (id [16]byte) {
	copy(id[:8], s.batchSeed[:])
	binary.BigEndian.PutUint64(id[8:], s.batches.Add(1))
	return id
}
