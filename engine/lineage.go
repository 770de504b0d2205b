package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Thread is a handle on one lineage: a thread of a user and a namespace in it. It is cheap to make
// and holds nothing open.
type Thread struct {
	s   *Store
	ref Ref
}

// Thread returns the handle of a lineage. Its methods report an invalid ref.
func (s *Store) Thread(ref Ref) *Thread { return &Thread{s, ref} }

// Ref returns the lineage of t.
func (t *Thread) Ref() Ref { return t.ref }

// lineage is the sequencer of one thread and namespace: it assigns seqs, holds the newest states,
// and commits.
//
// It has two heads. The pending one, guarded by mu, is the base of the next save; below it are
// saves that are not durable yet. Readers use the durable head: they neither take mu nor wait for a
// save.
type lineage struct {
	storedLineage
	th   *thread
	refs int // operations under way; guarded by Store.mu

	life atomic.Pointer[namespaceLife] // nil: the namespace has not begun, or its life is not known

	mu           lock
	opened       bool
	openEpoch    uint32 // of the thread, when opened
	heads               // pending ones included
	lastIssued   uint64 // the greatest seq ever issued in the epoch, also to saves that failed
	lastTime     int64
	greatest     *[16]byte // of the UUIDs that callers chose as ids, pending ones included; nil: not known
	states       map[uint64]*checkpointState
	measures     measures
	branches     map[string]*branchState
	called       calledFrom
	ledgers      map[string]*ledgerState // the pending ones, by checkpoint
	writes       writesKnown
	threadChange *pending   // the newest pending change that writes the thread record
	queue        []*pending // waiting for the batch after the one under way
	committing   []*pending // the batch under way
	last         *pending   // the newest pending one; nil: nothing is pending

	durable durableHeads
}

// heads is the position of a lineage.
type heads struct {
	head   uint64 // newest seq
	latest uint64 // seq of the newest checkpoint; 0: none
	origin uint64 // origin of latest; differs from it if latest is a replacement
}

// durableHeads are the heads of the durable state. The lock is held only to copy them.
type durableHeads struct {
	mu    sync.Mutex
	known bool
	epoch uint32 // of the thread, when they were read
	heads
}

func (d *durableHeads) get(epoch uint32) (heads, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heads, d.known && d.epoch == epoch
}

func (d *durableHeads) set(epoch uint32, h heads) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heads, d.epoch, d.known = h, epoch, true
}

func (d *durableHeads) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = false
}

// branchState is a named head as seen by the next save.
type branchState struct {
	head    uint64   // the seq where it ends, or the one that its record names
	version string   // of the branch record; "": there is none
	by      *pending // the change that is about to move it there; nil if that is durable
}

func newLineage(th *thread, namespace string) *lineage {
	return &lineage{storedLineage: *th.lineage(namespace), th: th, mu: newLock(), states: map[uint64]*checkpointState{},
		branches: map[string]*branchState{}, ledgers: map[string]*ledgerState{}}
}

// rlockThread returns the lineage with its thread locked for reading and loaded. runlockThread ends
// it.
func (s *Store) rlockThread(ctx context.Context, ref Ref, create bool) (*lineage, error) {
	for {
		l, err := s.refLineage(ctx, ref, create)
		if err != nil {
			return nil, err
		}
		if err := l.th.mu.rLock(ctx); err != nil {
			s.unrefLineage(l)
			return nil, err
		}
		err = l.th.load(ctx)
		rec, _ := l.th.record()
		if err == nil && !rec.Cutting {
			if err = l.learnLife(ctx); err == nil {
				return l, nil
			}
		}
		l.runlockThread()
		if err == nil { // only after a crash or a failure
			err = s.withExclusive(ctx, ref, func(*lineage) error { return nil })
		}
		if err != nil {
			return nil, err
		}
	}
}

func (l *lineage) runlockThread() {
	l.th.mu.rUnlock()
	l.s.unrefLineage(l)
}

// refLineage returns the lineage, which stays in memory until unrefLineage. It holds no lock.
func (s *Store) refLineage(ctx context.Context, ref Ref, create bool) (*lineage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l := s.refInMemory(ref); l != nil {
		return l, nil
	}
	if err := ref.check(); err != nil {
		return nil, err
	}
	u, err := s.user(ctx, userName{ref.Tenant, ref.User}, create)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	l := s.lineages[ref]
	if l == nil {
		name := threadName{ref.Tenant, ref.User, ref.Thread}
		th := s.threads[name]
		if th == nil {
			at, err := u.stored(u.ThreadToken(ref.Thread), 0)
			if err != nil {
				return nil, err
			}
			at.id = ref.Thread
			th = &thread{storedThread: *at, mu: newRWLock(), reading: newLock()}
			s.threads[name] = th
		}
		th.refs++
		l = newLineage(th, ref.Namespace)
		s.lineages[ref] = l
	}
	l.refs++
	return l, nil
}

// refInMemory is refLineage for a lineage that is in memory; nil if it is not.
func (s *Store) refInMemory(ref Ref) *lineage {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lineages[ref]
	if l == nil || s.closed {
		return nil
	}
	l.refs++
	return l
}

// unrefLineage undoes refLineage, and forgets idle lineages without cached states.
func (s *Store) unrefLineage(l *lineage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.refs--
	s.forgetIdle(l)
	for _, e := range s.cache.takeEmptied() {
		s.forgetIdle(e)
	}
}

// forgetIdle removes a lineage from memory if no operation uses it and no state of it is cached. If
// its lock is held then, the cache holds it, and will report what it emptied. The caller holds
// s.mu.
func (s *Store) forgetIdle(l *lineage) {
	if l.refs > 0 || s.lineages[l.ref] != l || !l.mu.tryLock() {
		return
	}
	defer l.mu.unlock()
	if len(l.states) > 0 {
		return
	}
	delete(s.lineages, l.ref)
	if l.th.refs--; l.th.refs == 0 {
		delete(s.threads, threadName{l.ref.Tenant, l.ref.User, l.ref.Thread})
	}
}

// open finds the head, which is the newest record of the lineage, and the latest checkpoint, which
// is a different one if the head replaces an older checkpoint. The caller holds l.mu.
func (l *lineage) open(ctx context.Context) error {
	_, err := l.openLatest(ctx)
	return err
}

// openLatest is open. It returns the record of the latest checkpoint if it had to read it, for
// immediate use: it may change when l.mu is released.
func (l *lineage) openLatest(ctx context.Context) (latest *record, err error) {
	if l.opened && l.openEpoch == l.th.Epoch {
		return nil, nil
	}
	if l.last != nil { // nothing in storage says how far the pending ones have come
		return nil, l.dependsOn(l.last)
	}
	l.forget()
	rec, stored, err := l.th.stored(ctx)
	if err != nil {
		return nil, err
	}
	if l.openEpoch != l.th.Epoch {
		l.lastIssued = 0
	}
	l.openEpoch, l.heads, l.lastTime = l.th.Epoch, heads{}, 0
	if stored {
		if latest, err = l.readHeads(ctx); err != nil {
			return nil, err
		}
	}
	if l.head == 0 && rec.Cuts != 0 { // an earlier life can have had the same seqs
		l.lastTime = rec.LastCut + 1
	}
	l.durable.set(l.openEpoch, l.heads)
	l.opened = true
	return latest, nil
}

// readHeads finds the heads in storage, and returns the record of the latest checkpoint.
func (l *lineage) readHeads(ctx context.Context) (latest *record, err error) {
	r := l.RecordsFrom(1, codec.MaxSeq+1)
	r.Reverse, r.Limit = true, 4
	line := gapCheck{l: &l.storedLineage, from: 1, to: endSeq, reverse: true}
	err = l.s.scan(ctx, r, func(e backend.Entry) error {
		seq := space.SeqOf(e.Key)
		l.head = max(l.head, seq)
		r, err := l.openRecord(e.Key, e.Value)
		if err == nil {
			err = line.see(ctx, r)
		}
		if err != nil {
			return err
		}
		if r.rec == nil || r.rec.Ghost {
			return nil
		}
		l.lastTime = max(l.lastTime, r.rec.Time)
		if origin := seq - r.rec.Replaced; origin > l.origin {
			l.latest, l.origin, latest = seq, origin, r
		}
		if l.origin+1 >= seq { // the remaining records have smaller origins
			return errStop
		}
		return nil
	})
	if err == errStop {
		err = nil
	}
	return latest, err
}

// durableNow returns the heads of the durable state. It waits only for a lineage that is not open
// yet.
func (l *lineage) durableNow(ctx context.Context) (heads, error) {
	if _, there := l.th.record(); !there {
		return heads{}, ErrNotFound
	}
	if h, ok := l.durable.get(l.th.Epoch); ok {
		return h, nil
	}
	if err := l.mu.lock(ctx); err != nil {
		return heads{}, err
	}
	defer l.mu.unlock()
	if err := l.open(ctx); err != nil {
		return heads{}, err
	}
	h, _ := l.durable.get(l.th.Epoch)
	return h, nil
}

// errStop ends a scan early.
var errStop = errors.New("stop")

// remember keeps a state in memory. The caller holds l.mu, and tells the cache. The cache reads the
// home of other lineages' states without their lock, so home is set once, before the cache knows
// the state.
func (l *lineage) remember(t *checkpointState) {
	if t.home == nil {
		t.home = l
	}
	l.states[t.seq] = t
}

// forget drops everything remembered of the lineage except lastIssued. Nothing is pending, and the
// caller holds l.mu.
func (l *lineage) forget() {
	for _, t := range l.states {
		l.s.cache.drop(t)
	}
	clear(l.states)
	clear(l.branches)
	clear(l.ledgers)
	l.measures.forget()
	l.durable.forget()
	l.opened, l.greatest, l.writes, l.called = false, nil, writesUnknown, calledFrom{}
}

// record is a stored checkpoint or a stub.
type record struct {
	seq  uint64
	size int64         // bytes of the sealed value
	rec  *codec.Record // nil for a stub
	stub *codec.Stub
}

func (l *storedLineage) openRecord(key, value []byte) (r *record, err error) {
	r = &record{seq: space.SeqOf(key), size: int64(len(value))}
	if space.Stubs.Is(value) {
		r.stub, err = unseal(l, space.Stubs, key, value)
	} else {
		r.rec, err = unseal(l, space.Records, key, value)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// readRecords reads the records at seqs in one batch. It leaves out missing ones and stubs.
func (l *storedLineage) readRecords(ctx context.Context, into map[uint64]*record, seqs []uint64) error {
	keys := make([][]byte, 0, len(seqs))
	for _, seq := range seqs {
		if into[seq] == nil {
			keys = append(keys, l.RecordKey(seq))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	got, err := l.s.be.Get(ctx, keys...)
	if err != nil {
		return fmt.Errorf("reading checkpoints: %w", err)
	}
	records, errs := make([]*record, len(got)), make([]error, len(got))
	share(len(got), func(i int) {
		if e := &got[i]; e.Version != "" {
			records[i], errs[i] = l.openRecord(e.Key, e.Value)
		}
	})
	for i, r := range records {
		if errs[i] != nil {
			return errs[i]
		}
		if r != nil && r.rec != nil {
			into[r.seq] = r
		}
	}
	return nil
}
