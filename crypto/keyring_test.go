package crypto

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func mustUser(t testing.TB, ring *Keyring, tenant, user string, create bool) *UserKeys {
	t.Helper()
	u, err := ring.User(context.Background(), tenant, user, create)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Values sealed and tokens made by one keyring work with the next one over the same keystore.
func TestKeyringReopens(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		root := testRoot(t, 1)
		if _, err := OpenKeyring(t.Context(), root, ks, false); !errors.Is(err, ErrNoStore) {
			t.Fatalf("before it is created: %v", err)
		}
		if names := collect(t, ks.List(t.Context(), "")); len(names) != 0 {
			t.Fatalf("a refused open left %q", names)
		}
		type state struct {
			id                           [16]byte
			tenant, user, thread, status Token
			commit                       [32]byte
		}
		look := func(ring *Keyring, create bool) (state, *Sealer) {
			u := mustUser(t, ring, "acme", "alice", create)
			s, err := u.Sealer("thread", []byte("t"))
			if err != nil {
				t.Fatal(err)
			}
			if u.Token() != ring.UserToken("acme", "alice") || u.KeyNumber() != 1 || s.KeyNumber() != 1 {
				t.Errorf("token %v, key numbers %d and %d", u.Token(), u.KeyNumber(), s.KeyNumber())
			}
			return state{ring.StoreID(), ring.TenantToken("acme"), u.Token(), u.ThreadToken("t"),
				ring.IndexToken("acme", "status", "failed"), u.Derive("commit")}, s
		}
		ring := openRing(t, root, ks, true)
		first, s := look(ring, true)
		sealed := mustSeal(t, s, 1, "k", "plain")
		meta := mustSeal(t, ring.StoreSealer(), 1, "k", "meta")
		ring.Close()

		ring = openRing(t, root, ks, true)
		second, s := look(ring, false)
		if first != second {
			t.Errorf("%+v\n%+v", first, second)
		}
		if got, err := s.Open(nil, 1, []byte("k"), sealed); string(got) != "plain" {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := ring.StoreSealer().Open(nil, 1, []byte("k"), meta); string(got) != "meta" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestKeyringWrongKey(t *testing.T) {
	ks := NewMemKeystore()
	right, wrong := testRoot(t, 1), testRoot(t, 2)
	openRing(t, right, ks, true)
	for _, create := range []bool{false, true} {
		_, err := OpenKeyring(t.Context(), wrong, ks, create)
		if !errors.Is(err, ErrWrongKey) || !strings.Contains(err.Error(), right.ID().String()) || !strings.Contains(err.Error(), wrong.ID().String()) {
			t.Errorf("create %v: %v", create, err)
		}
		if _, err := OpenKeyring(t.Context(), RootKey{}, ks, create); !errors.Is(err, ErrWrongKey) {
			t.Errorf("no key: %v", err)
		}
	}
	wiped := testRoot(t, 1)
	wiped.Wipe()
	if _, err := OpenKeyring(t.Context(), wiped, ks, false); err == nil {
		t.Error("opened with a wiped key")
	}
	openRing(t, right, ks, false)
}

// A store that lost its entry, or has a damaged one, gets no new keys.
func TestKeyringLostStoreEntry(t *testing.T) {
	ks, root := NewMemKeystore(), testRoot(t, 1)
	mustUser(t, openRing(t, root, ks, true), "acme", "alice", true)
	raw, _ := ks.Get(t.Context(), storeName)
	for name, entry := range map[string][]byte{"cut": raw[:50], "empty": {0}, "user's": nil} {
		if entry == nil {
			entry, _ = wrap(root, place{name: storeName}, kindUser, []byte{1})
		}
		ks.entries[storeName] = entry
		if _, err := OpenKeyring(t.Context(), root, ks, true); !errors.Is(err, ErrKeystoreEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ks.Delete(t.Context(), storeName); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{false, true} {
		if _, err := OpenKeyring(t.Context(), root, ks, create); !errors.Is(err, ErrNoStore) {
			t.Errorf("create %v: %v", create, err)
		}
	}
}

func TestUserErrors(t *testing.T) {
	ks := NewMemKeystore()
	ring := openRing(t, testRoot(t, 1), ks, true)
	if _, err := ring.User(t.Context(), "acme", "nobody", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	for _, id := range []string{"", strings.Repeat("x", 257), "\xff"} {
		for _, ref := range []userRef{{"acme", id}, {id, "alice"}} {
			if _, err := ring.User(t.Context(), ref.tenant, ref.user, true); !errors.Is(err, ErrInvalidID) {
				t.Errorf("%q: %v", ref, err)
			}
		}
	}
	mustUser(t, ring, strings.Repeat("x", 256), "ü", true)

	// An entry moved to the place of another user is refused.
	mustUser(t, ring, "acme", "alice", true)
	name := func(user string) string {
		return ring.TenantToken("acme").String() + "/" + ring.UserToken("acme", user).String()
	}
	ks.entries[name("mallory")] = ks.entries[name("alice")]
	if _, err := ring.User(t.Context(), "acme", "mallory", true); !errors.Is(err, ErrKeystoreEntry) {
		t.Errorf("moved: %v", err)
	}
	// So is one that stands in its place, but names another user or tenant.
	for user, inside := range map[string]userRef{"eve": {"acme", "alice"}, "eva": {"other", "eva"}} {
		raw, err := ring.newUserEntry(name(user), inside)
		if err != nil {
			t.Fatal(err)
		}
		ks.entries[name(user)] = raw
		if _, err := ring.User(t.Context(), "acme", user, false); !errors.Is(err, ErrKeystoreEntry) {
			t.Errorf("%s holding %q: %v", user, inside, err)
		}
		if inside.tenant == "acme" {
			delete(ks.entries, name(user))
		}
	}
	var bad int
	for user, err := range ring.Users(t.Context(), "acme") {
		if err != nil {
			bad++
		} else if user != "alice" {
			t.Errorf("listed %q", user)
		}
	}
	if bad != 2 {
		t.Errorf("%d errors in the list of users, want 2", bad)
	}
}

// However many create a user at once, in one keyring or in several, there is one set of keys.
func TestUserCreationRaces(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		rings := make([]*Keyring, 3)
		var wg sync.WaitGroup
		for i := range rings {
			wg.Go(func() {
				ring, err := OpenKeyring(t.Context(), testRoot(t, 1), ks, true)
				if err != nil {
					t.Error(err)
				}
				rings[i] = ring
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		var mu sync.Mutex
		keys := map[[32]byte]bool{}
		for i := range 18 {
			wg.Go(func() {
				ring := rings[i%len(rings)]
				defer func() { mu.Unlock() }()
				u, err := ring.User(t.Context(), "acme", "alice", true)
				mu.Lock()
				if err != nil {
					t.Error(err)
					return
				}
				if again := mustUser(t, ring, "acme", "alice", false); again != u {
					t.Error("two sets of keys in one keyring")
				}
				key := u.Derive("x")
				udk, _ := u.keys.find(1)
				keys[key] = true
				keys[[32]byte(secretBytes(t, udk))] = true
			})
		}
		wg.Wait()
		if len(keys) != 2 {
			t.Errorf("%d keys, want one index key and one data key", len(keys))
		}
		if names := collect(t, ks.List(t.Context(), "")); len(names) != 2 {
			t.Errorf("entries %q", names)
		}
	})
}

// Two goroutines that read a user's keys at once both get the same ones.
func TestUserIsRememberedOnce(t *testing.T) {
	ring := openRing(t, testRoot(t, 1), NewMemKeystore(), true)
	u := mustUser(t, ring, "acme", "alice", true)
	ref := userRef{"acme", "alice"}
	e, err := ring.loadUser(t.Context(), ref, false)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ring.remember(ref, e); again != u || err != nil {
		t.Errorf("other keys: %v", err)
	}
	if e.index.use(func([]byte) {}) == nil {
		t.Error("the keys that were read in vain are in memory")
	}
}

// conflicted is a keystore in which a rival always creates and deletes the entry in between.
type conflicted struct{ *MemKeystore }

func (conflicted) Put(context.Context, string, []byte, []byte) error { return ErrKeystoreConflict }

func TestUserCreationGivesUp(t *testing.T) {
	ks := NewMemKeystore()
	ring := openRing(t, testRoot(t, 1), ks, true)
	ring.ks = conflicted{ks}
	if _, err := ring.User(t.Context(), "acme", "alice", true); !errors.Is(err, ErrKeystoreConflict) {
		t.Errorf("%v", err)
	}
}

func TestUsers(t *testing.T) {
	forEachKeystore(t, func(t *testing.T, ks Keystore) {
		ring := openRing(t, testRoot(t, 1), ks, true)
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprintf("user %02d", i))
			mustUser(t, ring, "acme", want[i], true)
			mustUser(t, ring, "other", "x"+want[i], true)
		}
		if got := collect(t, ring.Users(t.Context(), "acme")); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if got := collect(t, ring.Users(t.Context(), "none")); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}

// Users, tenants and stores share no token and no key, and no id runs into the next.
func TestSeparation(t *testing.T) {
	seen := map[string]string{}
	note := func(what string, value []byte) {
		t.Helper()
		if was, ok := seen[string(value)]; ok {
			t.Errorf("%s is equal to %s", what, was)
		}
		seen[string(value)] = what
	}
	for _, store := range []string{"s1", "s2"} {
		ring := openRing(t, testRoot(t, 1), NewMemKeystore(), true)
		id := ring.StoreID()
		note(store, id[:])
		for _, ref := range []userRef{{"a", "bc"}, {"ab", "c"}, {"c", "ab"}} {
			name := store + " " + ref.tenant + " " + ref.user
			tenant, user := ring.TenantToken(ref.tenant), ring.UserToken(ref.tenant, ref.user)
			note(name+" tenant", tenant[:])
			note(name+" user", user[:])
			for _, term := range [][2]string{{"x", "yz"}, {"xy", "z"}, {"yz", "x"}} {
				tok := ring.IndexToken(ref.tenant, term[0], term[1])
				note(name+" term "+term[0], tok[:])
			}
			u := mustUser(t, ring, ref.tenant, ref.user, true)
			thread, blind, commit, part := u.ThreadToken("x"), u.BlindToken("id", "x"), u.Derive("id", []byte("x")), u.Derive("part")
			note(name+" thread", thread[:])
			note(name+" id", blind[:])
			note(name+" derived", commit[:16])
			note(name+" part", part[:16])
		}
	}
}

func TestCachedUsersAreBounded(t *testing.T) {
	ring := openRing(t, testRoot(t, 1), NewMemKeystore(), true)
	for i := range maxCachedUsers {
		ring.users[userRef{"filler", strconv.Itoa(i)}] = &UserKeys{index: randomSecret(), keys: newDataKeys()}
	}
	u := mustUser(t, ring, "acme", "alice", true)
	if len(ring.users) != maxCachedUsers {
		t.Errorf("%d users cached", len(ring.users))
	}
	if mustUser(t, ring, "acme", "alice", false) != u {
		t.Error("the newest user is not cached")
	}
}

// After Close nothing can be sealed, opened or derived, and the keys are gone from memory.
func TestClose(t *testing.T) {
	root := testRoot(t, 1)
	ring := openRing(t, root, NewMemKeystore(), true)
	u := mustUser(t, ring, "acme", "alice", true)
	s, err := u.Sealer("thread")
	if err != nil {
		t.Fatal(err)
	}
	sealed := mustSeal(t, s, 1, "k", "plain")
	ring.Close()
	ring.Close()
	_, sealErr := s.Seal(nil, 1, nil, nil)
	_, openErr := s.Open(nil, 1, []byte("k"), sealed)
	_, storeErr := ring.StoreSealer().Seal(nil, 1, nil, nil)
	_, userErr := ring.User(t.Context(), "acme", "alice", true)
	_, sealerErr := u.Sealer("thread")
	var listErr error
	for _, err := range ring.Users(t.Context(), "acme") {
		listErr = err
	}
	for name, err := range map[string]error{"seal": sealErr, "open": openErr, "store": storeErr, "user": userErr, "sealer": sealerErr, "list": listErr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tok := range map[string]Token{"tenant": ring.TenantToken("a"), "user": ring.UserToken("a", "b"), "index": ring.IndexToken("a", "b", "c"), "thread": u.ThreadToken("t")} {
		if tok != (Token{}) {
			t.Errorf("%s token %s", name, tok)
		}
	}
	if u.Derive("x") != [32]byte{} {
		t.Error("a key is derived")
	}
	for name, k := range map[string]*secret{"root": ring.root.key, "token": ring.token, "store": ring.keys.list[0].key, "index": u.index, "data": u.keys.list[0].key} {
		if *k.b != [keySize]byte{} {
			t.Errorf("the %s key is in memory", name)
		}
	}
	if root.use(func([]byte) {}) != nil {
		t.Error("the caller's root key was wiped")
	}
}

// No way of printing a value shows a key.
func TestNothingPrintsKeys(t *testing.T) {
	root := testRoot(t, 0xAB)
	ring := openRing(t, root, NewMemKeystore(), true)
	u := mustUser(t, ring, "acme", "alice", true)
	s, err := u.Sealer("thread")
	if err != nil {
		t.Fatal(err)
	}
	keys := []*secret{root.key, ring.token, ring.keys.list[0].key, u.index, u.keys.list[0].key}
	values := map[string]any{
		"root": root, "*root": &root, "ring": ring, "user": u, "sealer": s, "secret": root.key, "keys": u.keys, "*keys": *u.keys,
		"nested": struct {
			root   RootKey
			ring   *Keyring
			user   *UserKeys
			sealer *Sealer
			key    *secret
			keys   dataKeys
			list   []RootKey
			entry  *userEntry
		}{root, ring, u, s, root.key, *u.keys, []RootKey{root}, nil},
		"entry":       userEntry{index: u.index, keys: u.keys},
		"store entry": &storeEntry{token: ring.token, keys: ring.keys},
		"map":         map[string]RootKey{"k": root},
		"error":       fmt.Errorf("%v %w", root, ErrWrongKey),
	}
	for name, v := range values {
		var out []string
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%08b"} {
			out = append(out, fmt.Sprintf(verb, v))
		}
		j, _ := json.Marshal(v)
		all := strings.Join(append(out, string(j)), "\n")
		for i, k := range keys {
			b := secretBytes(t, k)
			for _, form := range []string{string(b), hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)), keyBase64.EncodeToString(b),
				strings.Trim(fmt.Sprint(b), "[]"), strings.Trim(fmt.Sprintf("%#v", b), "[]byte{}"), strings.Trim(fmt.Sprintf("%08b", b), "[]")} {
				if strings.Contains(all, form) {
					t.Errorf("%s shows key %d as %.20s…", name, i, form)
				}
			}
		}
	}
	if got := root.String(); got != "root key "+root.ID().String() {
		t.Errorf("%q", got)
	}
}

// Nothing of a user is readable in the keystore, nor is the root key.
func TestKeystoreShowsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	ks := openFiles(t, dir, true)
	root := testRoot(t, 0x41)
	ring := openRing(t, root, ks, true)
	u := mustUser(t, ring, "MarkerTenant", "MarkerUser", true)
	udk, _ := u.keys.find(1)
	for _, name := range collect(t, ks.List(t.Context(), "")) {
		raw, err := ks.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		all := append([]byte(name), raw...)
		for _, secret := range [][]byte{[]byte("Marker"), secretBytes(t, root.key), secretBytes(t, u.index), secretBytes(t, udk), secretBytes(t, ring.token)} {
			if bytes.Contains(all, secret) {
				t.Errorf("%s shows %x", name, secret)
			}
		}
	}
}
