package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// thread is shared by the lineages of one thread.
type thread struct {
	storedThread     // of the current epoch, which does not change while mu is held for reading
	refs         int // lineages in memory; guarded by Store.mu

	// mu is held for reading by every operation on the thread, and for writing by those that
	// replace its epoch.
	mu rwLock

	reading lock // held while the thread record is read

	// recMu guards the following fields, which operations that hold mu for reading can load and
	// refresh.
	recMu   sync.Mutex
	loaded  bool
	exists  bool // the thread record exists, and the thread is neither deleted nor expired
	rec     codec.Thread
	version string // of the thread record, "" when there is none
	changes uint64 // how often rec was written or put in doubt
}

// load reads the thread record once, and notices if the thread has expired.
func (t *thread) load(ctx context.Context) error {
	if err := t.reload(ctx); err != nil {
		return err
	}
	t.recMu.Lock()
	defer t.recMu.Unlock()
	if t.exists && t.rec.Expires != 0 && t.u.s.now().UnixMilli() >= t.rec.Expires {
		t.exists = false
	}
	return nil
}

// reload reads the thread record if the one in memory cannot be trusted.
func (t *thread) reload(ctx context.Context) error {
	if _, known := t.known(); known {
		return nil
	}
	if err := t.reading.lock(ctx); err != nil {
		return err
	}
	defer t.reading.unlock()
	for {
		changes, known := t.known()
		if known {
			return nil
		}
		rec, version, err := t.read(ctx)
		if err != nil {
			return err
		}
		if t.adoptRecord(rec, version, changes) {
			return nil
		}
	}
}

// known reports whether the thread record is known, and how often it changed.
func (t *thread) known() (changes uint64, known bool) {
	t.recMu.Lock()
	defer t.recMu.Unlock()
	return t.changes, t.loaded
}

// read reads the thread record; a missing one has version "".
func (t *thread) read(ctx context.Context) (rec codec.Thread, version string, err error) {
	key := t.u.ThreadKey(t.Tok)
	got, err := t.u.s.be.Get(ctx, key)
	if err != nil {
		return rec, "", fmt.Errorf("reading thread: %w", err)
	}
	if got[0].Version == "" {
		return codec.Thread{ID: t.id, Epoch: 1, Generation: 1}, "", nil
	}
	r, err := t.u.openThread(key, got[0].Value)
	if err != nil {
		return rec, "", err
	}
	return *r, got[0].Version, nil
}

// adoptRecord takes over a thread record that was read, unless a save wrote one in the meantime.
func (t *thread) adoptRecord(rec codec.Thread, version string, changes uint64) (done bool) {
	t.recMu.Lock()
	defer t.recMu.Unlock()
	if t.changes != changes {
		return false
	}
	t.use(rec)
	t.version, t.loaded = version, true
	t.exists = t.present()
	return true
}

// record returns the thread record, and whether the thread exists.
func (t *thread) record() (codec.Thread, bool) {
	t.recMu.Lock()
	defer t.recMu.Unlock()
	return t.rec, t.exists
}

// stored returns the thread record, and whether the backend has the thread's records: it has them
// until the thread is deleted, even if it has expired. After a failed save it reads the record
// again: taking an existing thread for a new one would overwrite its records.
func (t *thread) stored(ctx context.Context) (codec.Thread, bool, error) {
	err := t.reload(ctx)
	t.recMu.Lock()
	defer t.recMu.Unlock()
	return t.rec, t.present(), err
}

// present reports whether there is a thread record that is not of a deleted thread. The caller
// holds recMu.
func (t *thread) present() bool { return t.version != "" && !t.rec.Deleted }

// generation returns the thread's number of deletions plus 1.
func (t *thread) generation() uint64 {
	t.recMu.Lock()
	defer t.recMu.Unlock()
	return t.rec.Generation
}

// expired reports whether the thread is stored but past its expiry.
func (t *thread) expired() bool {
	t.recMu.Lock()
	defer t.recMu.Unlock()
	return t.present() && !t.exists
}

// distrust makes the next operation read the thread record again, after a commit that found it
// changed.
func (t *thread) distrust(err error) {
	if errors.Is(err, backend.ErrConflict) || errors.Is(err, backend.ErrAmbiguous) {
		t.recMu.Lock()
		t.loaded = false
		t.changes++
		t.recMu.Unlock()
	}
}

// expiryBuckets is how often a thread's expiry is refreshed within its time to live: a refresh at
// every save would double the keys that a save writes. A thread lives up to a bucket longer, never
// shorter.
const expiryBuckets = 16

// updateThread adds the thread record to a change of l if the record must change: the thread is
// new, its expiry is due for a refresh, the draft has another time to live, or the thread was not
// active in the last hour. It counts pending changes as done. The caller holds l.mu.
func (l *lineage) updateThread(p *pending, ttl time.Duration, now int64) error {
	was := l.threadNow()
	rec := was.rec
	if !was.present {
		rec.Deleted, rec.Created, rec.TTL, rec.Expires = false, now, 0, 0
	}
	rec.Created = min(rec.Created, now) // another lineage may have started the thread after this save began
	if ttl != 0 {
		rec.TTL = wholeMillis(max(ttl, 0))
	}
	if rec.TTL == 0 {
		rec.Expires = 0
	} else if rec.Expires < now+rec.TTL || ttl > 0 && rec.TTL != was.rec.TTL {
		rec.Expires = expiry(now, rec.TTL+max(rec.TTL/expiryBuckets, 1))
	}
	rec.Active = activeSince(rec.Active, now)
	return l.changeThread(p, &was, &rec)
}

// updateActivity adds the thread record to a change of l that adds a checkpoint but is not a save,
// if the thread was not active in the last hour. The caller holds l.mu.
func (l *lineage) updateActivity(p *pending, now int64) error {
	was := l.threadNow()
	rec := was.rec
	rec.Active = activeSince(rec.Active, now)
	return l.changeThread(p, &was, &rec)
}

// threadState is the thread record that the next change of a lineage starts from.
type threadState struct {
	rec             codec.Thread
	version         string
	exists, present bool
}

func (l *lineage) threadNow() threadState {
	if q := l.threadChange; q != nil {
		return threadState{*q.thread, q.threadVersion, true, true}
	}
	t := l.th
	t.recMu.Lock()
	defer t.recMu.Unlock()
	return threadState{t.rec, t.version, t.exists, t.present()}
}

// changeThread adds the thread record to a change of l if it differs from was.
func (l *lineage) changeThread(p *pending, was *threadState, rec *codec.Thread) error {
	if was.exists && *rec == was.rec {
		return nil
	}
	p.thread = new(codec.Thread) // only here, to save ordinary saves the allocation
	*p.thread = *rec
	muts, cond, err := l.th.recordMuts(was.rec.Active, p.thread, was.version)
	if err != nil {
		return err
	}
	p.threadVersion, p.threadBase = muts[0].Version, was.version
	p.muts, p.conds = append(p.muts, muts...), append(p.conds, cond)
	return nil
}

// recordMuts returns the mutations that write the thread record, on condition that the stored one
// has the given version, and then move the activity entry from active.
func (t *thread) recordMuts(active int64, rec *codec.Thread, version string) ([]backend.Mut, backend.Cond, error) {
	key := t.u.ThreadKey(t.Tok)
	id := t.u.s.newBatchID()
	mut, err := sealMut(t.u, space.Threads, key, rec, string(id[:]))
	if err != nil {
		return nil, backend.Cond{}, err
	}
	muts, err := t.moveActivity([]backend.Mut{mut}, active, rec.Active)
	return muts, backend.Cond{Key: key, Version: version}, err
}

// wrote takes over the thread record of a save that is now durable. If another lineage wrote it as
// well, storage must tell which one is newer: they may learn of their commits in another order.
func (t *thread) wrote(p *pending, err error) {
	t.recMu.Lock()
	defer t.recMu.Unlock()
	t.changes++
	if err != nil || t.version != p.threadBase {
		t.loaded = false
		return
	}
	t.rec, t.version, t.exists = *p.thread, p.threadVersion, true
}

// use makes rec the thread's record. The caller holds mu for writing, or recMu while the thread is
// not loaded.
func (t *thread) use(rec codec.Thread) {
	if epoch := uint32(rec.Epoch); t.Epoch != epoch {
		t.Epoch = epoch // only if it changes: others read it unlocked
	}
	t.rec = rec
}

func (u *user) openThread(key, value []byte) (*codec.Thread, error) {
	return unseal(u, space.Threads, key, value)
}
