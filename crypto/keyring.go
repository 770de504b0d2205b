package crypto

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"
)

const (
	storeName = "store" // the entry of the store in the keystore

	// maxCachedUsers bounds the memory of the cache, about 1 kB a user. The engine has its own
	// cache.
	maxCachedUsers = 1 << 10

	// createTries bounds the attempts after a lost race. One is enough unless entries are created
	// and deleted in between.
	createTries = 4
)

// Keyring provides the keys of one store. It is safe for concurrent use.
type Keyring struct {
	root   RootKey
	ks     Keystore
	domain *domain
	token  *secret
	sealer *Sealer
	keys   *dataKeys

	mu    sync.RWMutex
	users map[userRef]*UserKeys
}

type userRef struct{ tenant, user string }

// OpenKeyring opens the store's entry in the keystore. With create, it creates a missing entry, but
// only in an empty keystore: a store that has lost its entry must not get new keys. It copies the
// root key, so the caller can wipe its own. Errors: ErrWrongKey with the ids of the expected and
// the given key, ErrNoStore, ErrNewerFormat, ErrKeystoreEntry.
func OpenKeyring(ctx context.Context, root RootKey, ks Keystore, create bool) (*Keyring, error) {
	k, err := openKeyring(ctx, root, ks, create)
	if err != nil {
		return nil, fmt.Errorf("opening keystore: %w", err)
	}
	return k, nil
}

func openKeyring(ctx context.Context, root RootKey, ks Keystore, create bool) (*Keyring, error) {
	if root.key == nil {
		return nil, fmt.Errorf("%w: no root key given", ErrWrongKey)
	}
	own, err := root.key.clone()
	if err != nil {
		return nil, fmt.Errorf("root key: %w", err)
	}
	k := &Keyring{root: RootKey{id: root.id, key: own}, ks: ks, users: make(map[userRef]*UserKeys)}
	e, err := k.loadStore(ctx, create)
	if err != nil {
		own.wipe()
		return nil, err
	}
	k.domain = &domain{store: e.id}
	k.token, k.keys = e.token, e.keys
	if k.sealer, err = newSealer(k.domain, k.keys, "store"); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *Keyring) loadStore(ctx context.Context, create bool) (*storeEntry, error) {
	raw, err := k.getOrCreate(ctx, storeName, create, k.newStoreEntry)
	if errors.Is(err, ErrNotFound) {
		return nil, ErrNoStore
	}
	if err != nil {
		return nil, err
	}
	kind, plain, err := unwrap(k.root, place{name: storeName}, raw)
	defer clear(plain)
	if err != nil {
		return nil, err
	}
	if kind != kindStore {
		return nil, fmt.Errorf("%w: %s is of kind %d", ErrKeystoreEntry, storeName, kind)
	}
	e, err := decodeStoreEntry(plain)
	if err != nil {
		return nil, damaged(storeName, err)
	}
	return e, nil
}

func (k *Keyring) newStoreEntry(ctx context.Context) ([]byte, error) {
	for name, err := range k.ks.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if name != storeName { // concurrent creation of the same store is fine
			return nil, fmt.Errorf("%w: the keystore has users but the entry of the store is missing", ErrNoStore)
		}
	}
	e := &storeEntry{created: uint64(time.Now().UnixMilli()), token: randomSecret(), keys: newDataKeys()}
	defer e.token.wipe()
	defer e.keys.wipe()
	rand.Read(e.id[:])
	plain, err := e.encode()
	defer clear(plain)
	if err != nil {
		return nil, err
	}
	return wrap(k.root, place{name: storeName}, kindStore, plain)
}

// getOrCreate returns an entry as stored. It also reads back a new one: no key is used before it is
// known to be stored, and of two concurrent creators both get the same entry.
func (k *Keyring) getOrCreate(ctx context.Context, name string, create bool, make func(context.Context) ([]byte, error)) ([]byte, error) {
	for range createTries {
		raw, err := k.ks.Get(ctx, name)
		if !errors.Is(err, ErrNotFound) || !create {
			return raw, err
		}
		fresh, err := make(ctx)
		if err != nil {
			return nil, err
		}
		if err := k.ks.Put(ctx, name, nil, fresh); err != nil && !errors.Is(err, ErrKeystoreConflict) {
			return nil, fmt.Errorf("creating %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("creating %s: %w", name, ErrKeystoreConflict)
}

// damaged is the error for an authentic entry that does not decode.
func damaged(name string, err error) error {
	if errors.Is(err, ErrNewerFormat) {
		return fmt.Errorf("opening %s: %w", name, err)
	}
	return fmt.Errorf("opening %s: %w: %w", name, ErrKeystoreEntry, err)
}

// StoreID returns the random id of the store.
func (k *Keyring) StoreID() [16]byte { return k.domain.store }

// RootKeyID returns the id of the root key that the keyring was opened with.
func (k *Keyring) RootKeyID() KeyID { return k.root.id }

// StoreSealer returns the sealer of records of the whole store or of a tenant.
func (k *Keyring) StoreSealer() *Sealer { return k.sealer }

// TenantToken returns the token of a tenant. It never changes. After Close it is zero, like all
// tokens; nothing can be sealed or opened then.
func (k *Keyring) TenantToken(tenant string) Token { return k.token.token("tenant", tenant) }

// UserToken returns the token of a user. It never changes.
func (k *Keyring) UserToken(tenant, user string) Token { return k.token.token("user", tenant, user) }

// IndexToken returns the blind term of an index field and its value. It never changes; terms of two
// tenants have nothing in common.
func (k *Keyring) IndexToken(tenant, name, value string) Token {
	key := k.token.derive("term", []byte(tenant))
	sum := prf(key[:], labelToken, "term", name, value)
	clear(key[:])
	if k.domain.closed.Load() {
		return Token{}
	}
	return Token(sum[:16])
}

// User returns the keys of a user; with create it makes them if they are missing. Both ids are 1 to
// 256 bytes of UTF-8. The result is shared and cached. Errors: ErrNotFound, ErrKeyDestroyed (with
// create, too), ErrInvalidID, ErrWrongKey, ErrNewerFormat, ErrKeystoreEntry, ErrClosed.
func (k *Keyring) User(ctx context.Context, tenant, user string, create bool) (*UserKeys, error) {
	ref := userRef{tenant, user}
	k.mu.RLock()
	u := k.users[ref]
	k.mu.RUnlock()
	if u != nil {
		return u, nil
	}
	e, err := k.loadUser(ctx, ref, create)
	if err != nil {
		return nil, fmt.Errorf("reading the keys of a user: %w", err)
	}
	return k.remember(ref, e)
}

// remember caches the keys of a user, unless another goroutine did.
func (k *Keyring) remember(ref userRef, e *userEntry) (*UserKeys, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.domain.closed.Load() {
		e.wipe()
		return nil, ErrClosed
	}
	if u := k.users[ref]; u != nil {
		e.wipe()
		return u, nil
	}
	if len(k.users) >= maxCachedUsers {
		for victim := range k.users { // any one: those in use are referenced by the engine's threads
			delete(k.users, victim)
			break
		}
	}
	u := &UserKeys{domain: k.domain, token: k.UserToken(ref.tenant, ref.user), index: e.index, keys: e.keys}
	k.users[ref] = u
	return u, nil
}

func (k *Keyring) loadUser(ctx context.Context, ref userRef, create bool) (*userEntry, error) {
	for _, id := range []string{ref.tenant, ref.user} {
		if err := checkID(id); err != nil {
			return nil, err
		}
	}
	if k.domain.closed.Load() {
		return nil, ErrClosed
	}
	name := k.tenantPrefix(ref.tenant) + k.UserToken(ref.tenant, ref.user).String()
	raw, err := k.getOrCreate(ctx, name, create, func(context.Context) ([]byte, error) {
		return k.newUserEntry(name, ref)
	})
	if err != nil {
		return nil, err
	}
	e, err := k.openUser(name, raw)
	if err != nil {
		return nil, err
	}
	if e.tenant != ref.tenant || e.user != ref.user {
		e.wipe()
		return nil, fmt.Errorf("opening %s: %w: it belongs to another user", name, ErrKeystoreEntry)
	}
	return e, nil
}

// tenantPrefix returns the prefix of the names of a tenant's users.
func (k *Keyring) tenantPrefix(tenant string) string {
	return k.TenantToken(tenant).String() + "/"
}

func (k *Keyring) newUserEntry(name string, ref userRef) ([]byte, error) {
	e := &userEntry{
		created: uint64(time.Now().UnixMilli()),
		tenant:  ref.tenant,
		user:    ref.user,
		index:   randomSecret(),
		keys:    newDataKeys(),
	}
	defer e.wipe()
	plain, err := e.encode()
	defer clear(plain)
	if err != nil {
		return nil, err
	}
	return wrap(k.root, place{store: k.domain.store, name: name}, kindUser, plain)
}

// openUser unwraps and decodes the entry of a user, or returns an error for a marker in its place.
func (k *Keyring) openUser(name string, raw []byte) (*userEntry, error) {
	kind, plain, err := unwrap(k.root, place{store: k.domain.store, name: name}, raw)
	defer clear(plain)
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindUser:
		e, err := decodeUserEntry(plain)
		if err != nil {
			return nil, damaged(name, err)
		}
		return e, nil
	case kindDestroyed:
		e, err := decodeDestroyedEntry(plain)
		if err != nil {
			return nil, damaged(name, err)
		}
		when := time.UnixMilli(int64(e.destroyed)).UTC().Format(time.RFC3339)
		return nil, fmt.Errorf("%w on %s", ErrKeyDestroyed, when)
	}
	return nil, fmt.Errorf("opening %s: %w: kind %d", name, ErrKeystoreEntry, kind)
}

// Users yields the ids of the users of a tenant that have keys, in no particular order. For an
// entry that cannot be read it yields an error and continues; an error of the keystore ends it.
func (k *Keyring) Users(ctx context.Context, tenant string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if k.domain.closed.Load() {
			yield("", ErrClosed)
			return
		}
		for name, err := range k.ks.List(ctx, k.tenantPrefix(tenant)) {
			if err != nil {
				yield("", fmt.Errorf("listing users: %w", err))
				return
			}
			user, err := k.userAt(ctx, name, tenant)
			if errors.Is(err, ErrNotFound) || errors.Is(err, ErrKeyDestroyed) {
				continue
			}
			if err != nil {
				err = fmt.Errorf("listing users: %w", err)
			}
			if !yield(user, err) {
				return
			}
		}
	}
}

// userAt returns the id of the user whose entry has a name.
func (k *Keyring) userAt(ctx context.Context, name, tenant string) (string, error) {
	raw, err := k.ks.Get(ctx, name)
	if err != nil {
		return "", err
	}
	e, err := k.openUser(name, raw)
	if err != nil {
		return "", err
	}
	defer e.wipe()
	if e.tenant != tenant {
		return "", fmt.Errorf("opening %s: %w: it belongs to another tenant", name, ErrKeystoreEntry)
	}
	return e.user, nil
}

// Close overwrites the keys. Sealers and keys handed out return errors from then on.
func (k *Keyring) Close() {
	k.domain.closed.Store(true)
	k.root.Wipe()
	k.token.wipe()
	k.keys.wipe()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.users {
		u.wipe()
	}
	clear(k.users)
}

// Format hides the keys from every verb of fmt.
func (k *Keyring) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[keyring]") }
