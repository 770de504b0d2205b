package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// DefaultCacheBytes is Options.CacheBytes when it is 0.
const DefaultCacheBytes = 64 << 20

// Options configure Open. Root and Keystore are required.
type Options struct {
	Root     crypto.RootKey
	Keystore crypto.Keystore // outside the backend and its backups, which must not restore destroyed keys

	// Create makes a new store if backend and keystore are both empty.
	Create bool
	// CacheBytes bounds the memory of the cache: the states of recent heads, so that a save after a
	// save reads nothing, and recently used parts and users. 0 is DefaultCacheBytes; negative
	// caches nothing. Go lets a heap grow to twice the memory in use before it collects: to keep a
	// process small, also set GOMEMLIMIT, to CacheBytes plus about 400 MB.
	CacheBytes int64
	// MaxChannel bounds the bytes of one channel. 0, and anything above it, means codec.MaxChannel
	// (256 MiB).
	MaxChannel int64
	// Hooks supplies the hooks that run on input (the channels, metadata and labels of saves,
	// SetLabels, pending writes, text blobs) and on the output of loads, lists, diffs and exports;
	// nil runs none. Saves, SetLabels and Fork return the stored data.
	Hooks hook.Hooks
	// Migrations returns the migrations of a kind, nil if it has none. It is called by every
	// operation that needs one, and can return another set later. A nil func means no migrations.
	Migrations func(tenant, kind string) *migrate.Set
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Store is an open checkpoint store. Methods are safe for concurrent use.
type Store struct {
	be         backend.Backend
	caps       backend.Caps
	keys       *crypto.Keyring
	space      *space.Store
	z          *codec.Zstd
	now        func() time.Time
	maxChannel int64
	hooks      hook.Hooks // nil: none
	migrations func(tenant, kind string) *migrate.Set
	cache      *cache
	hub        *hub
	batchSeed  [8]byte
	batches    atomic.Uint64
	savings    sync.Pool // of *saving

	mu       sync.Mutex
	closed   bool
	guards   map[userName]weak.Pointer[guard]
	threads  map[threadName]*thread
	lineages map[Ref]*lineage
}

type threadName struct{ tenant, user, thread string }

// Open opens the store on b, which it owns from then on: Close closes it, and so does a failed
// Open.
func Open(ctx context.Context, b backend.Backend, o Options) (*Store, error) {
	s, err := open(ctx, b, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

func open(ctx context.Context, b backend.Backend, o Options) (*Store, error) {
	if o.Keystore == nil {
		return nil, fmt.Errorf("opening store: %w: no keystore", ErrInvalid)
	}
	s := &Store{be: b, caps: b.Caps(), hooks: o.Hooks, migrations: o.Migrations, now: o.Now, maxChannel: o.MaxChannel, z: codec.NewZstd(),
		guards: map[userName]weak.Pointer[guard]{}, threads: map[threadName]*thread{}, lineages: map[Ref]*lineage{}}
	if s.now == nil {
		s.now = time.Now
	}
	if s.maxChannel <= 0 || s.maxChannel > codec.MaxChannel {
		s.maxChannel = codec.MaxChannel
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	s.cache = newCache(o.CacheBytes)
	s.hub = newHub()
	rand.Read(s.batchSeed[:])
	key := space.InfoKey()
	have, err := b.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("opening store: %w", err)
	}
	fresh := have[0].Version == ""
	if fresh {
		if err := s.checkEmpty(ctx); err != nil {
			return nil, fmt.Errorf("opening store: %w", err)
		}
	}
	if s.keys, err = crypto.OpenKeyring(ctx, o.Root, o.Keystore, o.Create && fresh); err != nil {
		return nil, err
	}
	s.space = space.NewStore(s.keys)
	if fresh {
		return s, s.create(ctx, key, o.Create)
	}
	info, err := space.StoreInfo.Open(s.space, key, have[0].Value)
	var unread *space.OpenError
	switch {
	case errors.As(err, &unread) && !unread.Parsed:
		if err = ofFormat(err); errors.Is(err, ErrNewerFormat) || errors.Is(err, ErrOlderFormat) {
			return nil, fmt.Errorf("opening store: %w", err)
		}
		return nil, fmt.Errorf("opening store: the keystore does not belong to this data: %w", crypto.ErrWrongKey)
	case err != nil:
		err = openError(err)
	case info.ID != s.keys.StoreID():
		err = corrupt(space.Describe(key), "is of another store", nil)
	}
	if err != nil {
		return nil, fmt.Errorf("opening store: %w", err)
	}
	return s, nil
}

// checkEmpty makes sure that a backend without a store record has no data, before anything is
// created for it.
func (s *Store) checkEmpty(ctx context.Context) error {
	first, _, err := s.be.Scan(ctx, backend.Range{Limit: 1, KeysOnly: true})
	if err == nil && len(first) > 0 {
		err = corrupt("store record", "missing, but the store has data", nil)
	}
	return err
}

func (s *Store) create(ctx context.Context, key []byte, allowed bool) error {
	if !allowed {
		return fmt.Errorf("opening store: %w: no store here", ErrNotFound)
	}
	now, err := s.time()
	if err != nil {
		return fmt.Errorf("creating store: %w", err)
	}
	info := codec.StoreInfo{ID: s.keys.StoreID(), Created: now}
	mut, err := sealMut(s.space, space.StoreInfo, key, &info, space.Once)
	if err != nil {
		return fmt.Errorf("creating store: %w", err)
	}
	return s.commit(ctx, []backend.Mut{mut}, []backend.Cond{{Key: key}})
}

// Close waits for running saves, closes the backend and forgets the keys. Operations after it
// return ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.hub.close()
	err := s.be.Close()
	s.keys.Close()
	return err
}

// ready returns an error if no operation can begin.
func (s *Store) ready(ctx context.Context) error {
	if s.isClosed() {
		return ErrClosed
	}
	return ctx.Err()
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// commit commits a batch that is not a save.
func (s *Store) commit(ctx context.Context, muts []backend.Mut, conds []backend.Cond) error {
	return s.be.Commit(ctx, backend.Batch{ID: s.newBatchID(), Muts: muts, Conds: conds})
}

// commitAll commits independent mutations in batches within the portable floor.
func (s *Store) commitAll(ctx context.Context, muts []backend.Mut) error {
	for len(muts) > 0 {
		n, size := 0, 0
		for n < len(muts) && n < backend.MaxBatchKeys {
			size += mutSize(&muts[n])
			if n > 0 && size > backend.MaxBatchBytes {
				break
			}
			n++
		}
		if err := s.commit(ctx, muts[:n], nil); err != nil {
			return err
		}
		muts = muts[n:]
	}
	return nil
}

func mutSize(m *backend.Mut) int { return len(m.Key) + len(m.Value) + len(m.Version) }

// scan yields all entries of a range, page by page.
func (s *Store) scan(ctx context.Context, r backend.Range, yield func(backend.Entry) error) error {
	for {
		page, next, err := s.be.Scan(ctx, r)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := yield(e); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		if r.Reverse {
			r.End = next
		} else {
			r.Start = next
		}
	}
}

func checkName(what, name string, emptyAllowed bool) error {
	if name == "" && !emptyAllowed {
		return fmt.Errorf("%w: %s is empty", ErrInvalid, what)
	}
	if err := codec.CheckName(name); err != nil {
		return fmt.Errorf("%w: %s %w", ErrInvalid, what, err)
	}
	return nil
}

// checkLongName checks a namespace or the path of a task, which may be empty.
func checkLongName(what, name string) error {
	if err := codec.CheckLongName(name); err != nil {
		return fmt.Errorf("%w: %s %w", ErrInvalid, what, err)
	}
	return nil
}

// Compare orders refs by tenant, user, thread and namespace, bytewise.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Tenant, o.Tenant), cmp.Compare(r.User, o.User), cmp.Compare(r.Thread, o.Thread),
		cmp.Compare(r.Namespace, o.Namespace))
}

func (r Ref) check() error {
	return errors.Join(checkName("tenant", r.Tenant, false), checkName("user", r.User, false),
		checkName("thread", r.Thread, false), checkLongName("namespace", r.Namespace))
}
