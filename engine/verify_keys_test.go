package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// copyKeystore copies the entries of a keystore, except that of a user, into another one.
func copyKeystore(t *testing.T, from crypto.Keystore, except string) crypto.Keystore {
	t.Helper()
	ctx, to := context.Background(), crypto.NewMemKeystore()
	for name, err := range from.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		entry, err := from.Get(ctx, name)
		if err == nil && (except == "" || !strings.HasSuffix(name, except)) {
			err = to.Put(ctx, name, nil, entry)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// callsOn are operations on a user. Those that list end with the first error, and none is an empty
// list.
func callsOn(s *Store, user string) map[string]func() error {
	ctx := context.Background()
	ref := Ref{Tenant: "acme", User: user, Thread: "t"}
	th, u := s.Thread(ref), s.User("acme", user)
	return map[string]func() error{
		"Load":       func() error { _, err := th.Load(ctx, Latest); return err },
		"Branches":   func() error { _, err := th.Branches(ctx); return err },
		"Namespaces": func() error { _, err := th.Namespaces(ctx); return err },
		"Writes":     func() error { _, err := th.Writes(ctx, "c"); return err },
		"Tree":       func() error { _, err := th.Tree(ctx); return err },
		"Delete":     func() error { _, err := th.Delete(ctx); return err },
		"History": func() error {
			for _, err := range th.History(ctx, HistoryOptions{}) {
				return err
			}
			return nil
		},
		"Latest": func() error { _, err := u.Latest(ctx); return err },
		"Threads": func() error {
			for _, err := range u.Threads(ctx, ThreadOptions{}) {
				return err
			}
			return nil
		},
		"Threads by activity": func() error {
			for _, err := range u.Threads(ctx, ThreadOptions{ByActivity: true}) {
				return err
			}
			return nil
		},
		"Query": func() error {
			for _, err := range u.Query(ctx, Query{}) {
				return err
			}
			return nil
		},
		"GetBlob": func() error { _, err := u.GetBlob(ctx, BlobID{1}, io.Discard); return err },
		"Stats":   func() error { _, err := s.Upkeep().Stats(ctx, "acme", user); return err },
		"GC":      func() error { _, err := u.Upkeep().GC(ctx, upkeep.GCOptions{}); return err },
		"Create":  func() error { return u.Upkeep().Create(ctx) },
		"Verify": func() error {
			_, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{Tenant: "acme", User: user})
			return err
		},
		"Save": func() error { _, err := th.Save(ctx, Draft{Channels: []Change{jsonChannel("a", "2")}}); return err },
	}
}

// A user with data whose keys are not in the keystore is an error of every operation, and a problem
// that verify reports, never a user who has nothing. The newest copy of the keystore brings
// everything back.
func TestUsersWithoutKeys(t *testing.T) {
	ctx := context.Background()
	for _, lost := range []string{"a copy from before the user", "the entry removed"} {
		t.Run(lost, func(t *testing.T) {
			f := newFixture(t, Options{})
			save := func(user string) {
				mustSave(t, f, Ref{Tenant: "acme", User: user, Thread: "t"}, Draft{Channels: []Change{jsonChannel("a", "1")}})
			}
			save("alice")
			old := copyKeystore(t, f.opts.Keystore, "")
			save("bob")
			newest := f.opts.Keystore
			if lost == "the entry removed" {
				old = copyKeystore(t, newest, f.keys.UserToken("acme", "bob").String())
			}
			f.opts.Keystore = old
			f.reopen()
			for name, call := range callsOn(f.Store, "bob") {
				if err := call(); !errors.Is(err, ErrKeyMissing) || errors.Is(err, ErrNotFound) {
					t.Errorf("%s: %v, want ErrKeyMissing", name, err)
				}
			}
			if _, err := f.Thread(Ref{Tenant: "acme", User: "alice", Thread: "t"}).Load(ctx, Latest); err != nil {
				t.Errorf("the other user: %v", err)
			}
			if _, err := f.Thread(Ref{Tenant: "acme", User: "carol", Thread: "t"}).Load(ctx, Latest); !errors.Is(err, ErrNotFound) {
				t.Errorf("a user who never saved: %v, want ErrNotFound", err)
			}
			for _, deep := range []bool{false, true} {
				rep, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: deep})
				if err != nil {
					t.Fatal(err)
				}
				if len(rep.Problems) != 1 || !errors.Is(rep.Problems[0].Err, ErrKeyMissing) || !errors.Is(rep.Problems[0].Err, ErrCorrupt) ||
					!strings.Contains(rep.Problems[0].Err.Error(), "data of 1 user: ") {
					t.Errorf("verify, deep %v: %v, want a problem of 1 user", deep, rep.Problems)
				}
			}
			f.opts.Keystore = newest
			f.reopen()
			cp, err := f.Thread(Ref{Tenant: "acme", User: "bob", Thread: "t"}).Load(ctx, Latest)
			if err != nil || !bytes.Equal(cp.Channels[0].Data, []byte("1")) {
				t.Errorf("with the newest copy: %v", err)
			}
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		})
	}
}

// All users without keys are counted, whatever else is in the store: tenants, and keys that are
// none.
func TestVerifyCountsUsersWithoutKeys(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	f.broken = true
	if err := f.Upkeep().SetRetention(ctx, "nobody", upkeep.RetentionPolicy{KeepLast: 9}); err != nil { // no user is in it
		t.Fatal(err)
	}
	none := copyKeystore(t, f.opts.Keystore, "")
	for _, user := range []string{"alice", "bob", "carol"} {
		for _, tenant := range []string{"acme", "globex"} {
			mustSave(t, f, Ref{Tenant: tenant, User: user, Thread: "t"}, Draft{RunID: "r", Channels: []Change{jsonChannel("a", "1")}})
		}
	}
	mustBeClean(t, f.Store, upkeep.VerifyOptions{})
	f.opts.Keystore = none
	f.reopen()
	for _, key := range []string{"\x00", strings.Repeat("\xff", 15), strings.Repeat("\xff", 40)} { // 40: a 7th user, the last there can be
		if err := f.be.Commit(ctx, backend.Batch{ID: [16]byte{1}, Muts: []backend.Mut{{Key: []byte(key), Value: []byte("x"), Version: "1"}}}); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := f.Upkeep().Verify(ctx, upkeep.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0].Err.Error(), "data of 7 users: ") {
		t.Errorf("verify: %v, want a problem of 7 users", rep.Problems)
	}
}
