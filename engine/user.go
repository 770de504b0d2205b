package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"weak"

	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// User is a handle on one user. It is cheap to make and holds nothing open.
type User struct {
	s    *Store
	name userName
}

// User returns the handle of a user. Its methods report invalid names.
func (s *Store) User(tenant, name string) *User { return &User{s, userName{tenant, name}} }

// keys returns the keys derived for the user.
func (u *User) keys(ctx context.Context, create bool) (*user, error) {
	if err := (Ref{Tenant: u.name.tenant, User: u.name.name, Thread: "-"}).check(); err != nil {
		return nil, err
	}
	return u.s.user(ctx, u.name, create)
}

type userName struct{ tenant, name string }

// user holds the keys that the engine derives for a user. It is immutable, and several for one name
// can be in memory: one that the cache evicted lives on while it is in use, and new keys make a new
// user. All of one name share the guard.
type user struct {
	userName
	*space.User
	*guard
	s *Store
}

// guard holds the locks of one user's operations. There is one for a name at a time: it stays in
// memory as long as a user refers to it, and so as long as anyone can hold its locks.
type guard struct {
	// rewrites is held for reading from the choice of a new epoch of a thread until the thread
	// record names it, and for writing while leftovers of crashed rewrites are removed. It is
	// locked before sweep.
	rewrites rwLock

	// sweep is held for reading between finding a part and committing a record that names it, and
	// for writing while unreferenced parts are deleted.
	sweep  rwLock
	naming inFlight
}

// user returns the user. Without create, a user who never wrote is ErrNotFound. One with data but
// without keys is ErrKeyMissing either way.
func (s *Store) user(ctx context.Context, name userName, create bool) (*user, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	if u := s.cache.user(name); u != nil {
		return u, nil
	}
	keys, err := s.keys.User(ctx, name.tenant, name.name, false)
	if errors.Is(err, crypto.ErrNotFound) {
		if err := s.checkNoData(ctx, name); err != nil {
			return nil, err
		}
		if create {
			keys, err = s.keys.User(ctx, name.tenant, name.name, true)
		}
	}
	if errors.Is(err, crypto.ErrNotFound) {
		return nil, fmt.Errorf("user %q of tenant %q: %w", name.name, name.tenant, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading keys of user %q: %w", name.name, ofKeys(err))
	}
	at, err := s.space.User(name.tenant, keys)
	if err != nil {
		return nil, fmt.Errorf("deriving keys of user %q: %w", name.name, ofKeys(err))
	}
	return s.cache.keepUser(&user{userName: name, User: at, guard: s.guard(name), s: s}), nil
}

// guard returns the guard of a user, the one in memory if there is one.
func (s *Store) guard(name userName) *guard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.guards[name].Value(); g != nil {
		return g
	}
	g := &guard{rewrites: newRWLock(), sweep: newRWLock()}
	s.guards[name] = weak.Make(g)
	store := weak.Make(s) // the store has the guard: a cleanup that kept the store would keep both for ever
	runtime.AddCleanup(g, func(name userName) {
		if s := store.Value(); s != nil {
			s.forgetGuard(name)
		}
	}, name)
	return g
}

// forgetGuard forgets the guard of a user once it is unreachable, unless it has been replaced.
func (s *Store) forgetGuard(name userName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guards[name].Value() == nil {
		delete(s.guards, name)
	}
}

// checkNoData returns ErrKeyMissing for a user without keys who has data. The keystore is then
// older than the backend, or lost the entry: a read that finds nothing would hide the data, and new
// keys would make it unreadable.
func (s *Store) checkNoData(ctx context.Context, name userName) error {
	r := s.space.OfUser(name.tenant, name.name)
	r.KeysOnly, r.Limit = true, 1
	have, _, err := s.be.Scan(ctx, r)
	if err != nil {
		return fmt.Errorf("looking for data of a user without keys: %w", err)
	}
	if len(have) > 0 {
		// Somebody else may just have made the keys, and then written the data.
		_, err := s.keys.User(ctx, name.tenant, name.name, false)
		if err == nil {
			return nil
		}
		if !errors.Is(err, crypto.ErrNotFound) {
			return fmt.Errorf("reading keys of user %q: %w", name.name, ofKeys(err))
		}
		return fmt.Errorf("user %q has data, but no keys in the keystore; was the keystore restored from an old copy? %w", name.name, ErrKeyMissing)
	}
	return nil
}
