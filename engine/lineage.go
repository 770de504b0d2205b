package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// Thread is a handle on one lineage: a thread of a user and a namespace in it. It is cheap to make and holds nothing
// open.
type Thread struct {
	s   *Store
	ref Ref
}

// Thread returns the handle of a lineage. What is wrong with ref is reported by the methods.
func (s *Store) Thread(ref Ref) *Thread { return &Thread{s, ref} }

// Ref returns what t is a handle on.
func (t *Thread) Ref() Ref { return t.ref }

// thread is what the lineages of one thread share.
type thread struct {
	u    *user
	id   string
	tok  crypto.Token
	refs int // lineages in memory; guarded by Store.mu

	// mu is held for reading by every operation on the thread, and for writing by those that replace its epoch.
	mu sync.RWMutex

	// state guards what follows, which operations that hold mu for reading may load and refresh.
	state   sync.Mutex
	loaded  bool
	exists  bool // the thread record exists, and the thread is neither deleted nor expired
	rec     codec.Thread
	version string // of the thread record, "" when there is none
	named   map[crypto.Token]bool

	// Derived from rec, and constant while mu is held for reading.
	epoch  uint32
	sealer *crypto.Sealer
}

// lineage is the sequencer of one thread and namespace: it assigns seqs, holds the newest states, and commits.
type lineage struct {
	s    *Store
	ref  Ref
	th   *thread
	ns   crypto.Token
	refs int // operations under way; guarded by Store.mu

	mu         sync.Mutex
	idle       sync.Cond // on mu: nothing is pending
	opened     bool
	epoch      uint32 // of the thread, when opened
	generation uint64
	touched    bool   // a pending save writes the thread record
	head       uint64 // newest seq, pending ones included
	latest     uint64 // seq of the newest checkpoint, pending ones included; 0: none
	origin     uint64 // place in line of latest; differs from it if latest is a replacement
	lastTime   int64
	greatest   *[16]byte // of the UUIDs that callers chose as ids, pending ones included; nil: not known
	tips       map[uint64]*tip
	measures   measures
	branches   map[string]*branchState
	queue      []*pending // waiting for the batch under way
	leading    bool       // a batch is under way
	flying     []*pending // that batch
	last       *pending   // newest pending
}

type branchState struct {
	head    uint64 // where it ends, pending saves included
	version string // of the branch record; "": there is none
}

// acquire returns the lineage with its thread locked for reading and loaded. Every acquire is followed by a release.
func (s *Store) acquire(ctx context.Context, ref Ref, create bool) (*lineage, error) {
	l, err := s.hold(ctx, ref, create)
	if err != nil {
		return nil, err
	}
	l.th.mu.RLock()
	if err := l.th.load(ctx); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

func (l *lineage) release() {
	l.th.mu.RUnlock()
	l.s.letGo(l)
}

// hold returns the lineage, kept in memory until letGo, with no lock held.
func (s *Store) hold(ctx context.Context, ref Ref, create bool) (*lineage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if l := s.lineages[ref]; l != nil && !s.closed {
		l.refs++
		s.mu.Unlock()
		return l, nil
	}
	s.mu.Unlock()
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
			th = &thread{u: u, id: ref.Thread, tok: u.keys.ThreadToken(ref.Thread), named: map[crypto.Token]bool{}}
			s.threads[name] = th
		}
		th.refs++
		l = &lineage{s: s, ref: ref, th: th, tips: map[uint64]*tip{}, branches: map[string]*branchState{}}
		l.idle.L = &l.mu
		if ref.Namespace != "" {
			l.ns = u.keys.BlindToken("namespace", ref.Namespace)
		}
		s.lineages[ref] = l
	}
	l.refs++
	return l, nil
}

// letGo ends a hold, and forgets idle lineages of which nothing is cached.
func (s *Store) letGo(l *lineage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.refs--
	s.forgetIdle(l)
	for _, e := range s.cache.takeEmptied() {
		s.forgetIdle(e)
	}
}

// forgetIdle removes a lineage from memory if no operation holds it and nothing of it is cached. A lock that is held
// then is the cache's, which reports what it emptied. The caller holds s.mu.
func (s *Store) forgetIdle(l *lineage) {
	if l.refs > 0 || s.lineages[l.ref] != l || !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if len(l.tips) > 0 {
		return
	}
	delete(s.lineages, l.ref)
	if l.th.refs--; l.th.refs == 0 {
		delete(s.threads, threadName{l.ref.Tenant, l.ref.User, l.ref.Thread})
	}
}

// load reads the thread record once, and notices when the thread expired.
func (t *thread) load(ctx context.Context) error {
	t.state.Lock()
	defer t.state.Unlock()
	if err := t.reload(ctx); err != nil {
		return err
	}
	if t.exists && t.rec.Expires != 0 && t.u.s.now().UnixMilli() >= t.rec.Expires {
		t.exists = false
	}
	return nil
}

// reload reads the thread record if what is known of it cannot be trusted. The caller holds state.
func (t *thread) reload(ctx context.Context) error {
	if t.loaded {
		return nil
	}
	key := t.u.threadKey(t.tok)
	got, err := t.u.s.be.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading thread: %w", err)
	}
	rec := codec.Thread{ID: t.id, Epoch: 1, Generation: 1}
	if got[0].Version != "" {
		r, err := t.u.openThread(key, got[0].Value)
		if err != nil {
			return err
		}
		rec = *r
	}
	if err := t.use(rec); err != nil {
		return err
	}
	t.version, t.loaded = got[0].Version, true
	t.exists = t.present()
	return nil
}

// record is the thread record, and whether the thread is there.
func (t *thread) record() (codec.Thread, bool) {
	t.state.Lock()
	defer t.state.Unlock()
	return t.rec, t.exists
}

// stored is the thread record, and whether the backend has the thread's records, which it has until the thread is
// deleted, though it may have expired. What a save that failed left in doubt is read anew: to take a thread that is
// there for a new one would be to write over its records.
func (t *thread) stored(ctx context.Context) (codec.Thread, bool, error) {
	t.state.Lock()
	defer t.state.Unlock()
	err := t.reload(ctx)
	return t.rec, t.present(), err
}

// present reports whether the thread record is there and not of a deleted thread. The caller holds state.
func (t *thread) present() bool { return t.version != "" && !t.rec.Deleted }

// generation counts the deletions of the thread.
func (t *thread) generation() uint64 {
	t.state.Lock()
	defer t.state.Unlock()
	return t.rec.Generation
}

// expired reports whether the thread is there but past its time.
func (t *thread) expired() bool {
	t.state.Lock()
	defer t.state.Unlock()
	return t.present() && !t.exists
}

// doubt makes the next operation read the thread record again, after a commit that found it changed.
func (t *thread) doubt(err error) {
	if errors.Is(err, backend.ErrConflict) || errors.Is(err, backend.ErrAmbiguous) {
		t.state.Lock()
		t.loaded = false
		t.state.Unlock()
	}
}

// expiryBuckets is how many times within its time to live a thread's expiry is written: a refresh at every save would
// double the keys that a save writes. A thread lives up to a bucket longer, never shorter.
const expiryBuckets = 16

// touch adds the thread record to a save if it must change: the thread is new, or its expiry is due for a refresh.
func (t *thread) touch(p *pending, ttl time.Duration, now int64, l *lineage) error {
	t.state.Lock()
	defer t.state.Unlock()
	if l.touched {
		return nil // a save of this lineage that is not durable yet does it
	}
	rec := t.rec
	if !t.present() {
		rec.Deleted, rec.Created, rec.TTL, rec.Expires = false, now, 0, 0
	}
	if ttl != 0 {
		rec.TTL = wholeMillis(max(ttl, 0))
	}
	if rec.TTL == 0 {
		rec.Expires = 0
	} else if rec.Expires < now+rec.TTL || ttl > 0 && rec.TTL != t.rec.TTL {
		rec.Expires = now + rec.TTL + max(rec.TTL/expiryBuckets, 1)
	}
	if t.exists && rec == t.rec {
		return nil
	}
	mut, cond, err := t.recordMut(&rec)
	if err != nil {
		return err
	}
	p.thread, p.threadVersion, l.touched = &rec, mut.Version, true
	p.muts, p.conds = append(p.muts, mut), append(p.conds, cond)
	return nil
}

// recordMut writes the thread record, on condition that it is still what was read. The caller holds state.
func (t *thread) recordMut(rec *codec.Thread) (backend.Mut, backend.Cond, error) {
	key := t.u.threadKey(t.tok)
	value, err := t.u.dir.Seal(nil, kindThread, key, codec.AppendThread(nil, rec))
	if err != nil {
		return backend.Mut{}, backend.Cond{}, fmt.Errorf("sealing a thread record: %w", err)
	}
	id := t.u.s.newBatchID()
	return backend.Mut{Key: key, Value: value, Version: string(id[:])}, backend.Cond{Key: key, Version: t.version}, nil
}

// wrote takes over the thread record of a save that is durable now.
func (t *thread) wrote(p *pending, err error) {
	t.state.Lock()
	defer t.state.Unlock()
	if err != nil {
		t.loaded = false
		return
	}
	t.rec, t.version, t.exists = *p.thread, p.threadVersion, true
}

// use makes rec the thread's record. The caller holds mu for writing, or state while the thread is not loaded.
func (t *thread) use(rec codec.Thread) error {
	if t.sealer == nil || t.epoch != uint32(rec.Epoch) {
		sealer, err := t.u.keys.Sealer("thread", t.tok[:])
		if err != nil {
			return fmt.Errorf("deriving keys of a thread: %w", err)
		}
		t.sealer, t.epoch = sealer, uint32(rec.Epoch) // only then: while they stay the same others read them
		t.named = map[crypto.Token]bool{}
	}
	t.rec = rec
	return nil
}

func (u *user) openThread(key, value []byte) (*codec.Thread, error) {
	plain, err := u.dir.Open(nil, kindThread, key, value)
	if err != nil {
		return nil, openError(key, err)
	}
	rec, err := codec.ParseThread(plain)
	if err != nil {
		return nil, corrupt(place(key), "does not parse", err)
	}
	return rec, nil
}

// openError tells a value that cannot be opened from a key that is gone.
func openError(key []byte, err error) error {
	switch {
	case errors.Is(err, crypto.ErrKeyDestroyed):
		return fmt.Errorf("opening %s: %w", place(key), ErrKeyDestroyed)
	case errors.Is(err, crypto.ErrNewerFormat):
		return fmt.Errorf("opening %s: %w", place(key), ErrNewerFormat)
	}
	return corrupt(place(key), "does not open", err)
}

// open finds the head, which is the newest record of the lineage, and the latest checkpoint, which is another one if
// the head replaces an older checkpoint. The caller holds l.mu.
func (l *lineage) open(ctx context.Context) error {
	_, err := l.openLatest(ctx)
	return err
}

// openLatest is open. It returns the record of the latest checkpoint if it had to read it, for who needs it next: it may
// change when l.mu is given up.
func (l *lineage) openLatest(ctx context.Context) (latest *record, err error) {
	if l.opened && l.epoch == l.th.epoch {
		return nil, nil
	}
	l.forget()
	rec, stored, err := l.th.stored(ctx)
	if err != nil {
		return nil, err
	}
	l.epoch, l.generation, l.head, l.latest, l.origin, l.lastTime = l.th.epoch, rec.Generation, 0, 0, 0, 0
	if stored {
		r := l.records(1, codec.MaxSeq+1)
		r.Reverse, r.Limit = true, 4
		line := unbroken{l: l, from: 1, to: endSeq, reverse: true}
		err := l.s.scan(ctx, r, func(e backend.Entry) error {
			seq := keySeq(e.Key)
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
			if l.origin+1 >= seq { // what comes stands before it
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			return nil, err
		}
	}
	l.opened = true
	return latest, nil
}

// errStop ends a scan early.
var errStop = errors.New("stop")

// forget drops all that is remembered of the lineage. The caller holds l.mu.
func (l *lineage) forget() {
	for _, t := range l.tips {
		l.s.cache.drop(t)
	}
	clear(l.tips)
	clear(l.branches)
	l.measures.forget()
	l.opened, l.touched, l.greatest = false, false, nil
}

// record is a stored checkpoint, or a stub.
type record struct {
	seq  uint64
	size int64         // bytes of the sealed value
	rec  *codec.Record // nil for a stub
	stub *codec.Stub
}

func (l *lineage) openRecord(key, value []byte) (*record, error) {
	r := &record{seq: keySeq(key), size: int64(len(value))}
	typ := byte(kindRecord)
	if len(value) > 3 && value[3] == typeStub {
		typ = typeStub
	}
	plain, err := l.th.sealer.Open(nil, typ, key, value)
	if err != nil {
		return nil, openError(key, err)
	}
	if typ == typeStub {
		r.stub, err = codec.ParseStub(plain, r.seq)
	} else {
		r.rec, err = codec.ParseRecord(plain, r.seq)
	}
	if err != nil {
		return nil, corrupt(place(key), "does not parse", err)
	}
	return r, nil
}

// readRecords reads the records at seqs, one batched read. Absent ones and stubs are left out.
func (l *lineage) readRecords(ctx context.Context, into map[uint64]*record, seqs []uint64) error {
	keys := make([][]byte, 0, len(seqs))
	for _, seq := range seqs {
		if into[seq] == nil {
			keys = append(keys, l.recordKey(seq))
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
