package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
)

func TestBeside(t *testing.T) {
	f, other := newFixture(t, Options{}), newFixture(t, Options{})
	plain := []byte("who may do what")
	sealed, err := f.Upkeep().SealSidecar([]byte("head"), "tokens", plain)
	if err != nil {
		t.Fatal(err)
	}
	sealed, ok := bytes.CutPrefix(sealed, []byte("head"))
	if !ok || bytes.Contains(sealed, plain) {
		t.Errorf("sealed is %q", sealed)
	}
	f.reopen()
	if got, err := f.Upkeep().OpenSidecar("tokens", sealed); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("opens as %q, %v", got, err)
	}
	if _, err := f.Upkeep().OpenSidecar("others", sealed); !errors.Is(err, ErrCorrupt) {
		t.Errorf("under another name: %v", err)
	}
	if _, err := other.Upkeep().OpenSidecar("tokens", sealed); !errors.Is(err, ErrCorrupt) {
		t.Errorf("in another store: %v", err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 4
		if _, err := f.Upkeep().OpenSidecar("tokens", changed); err == nil {
			t.Errorf("opens with byte %d changed", i)
		}
		if _, err := f.Upkeep().OpenSidecar("tokens", sealed[:i]); err == nil {
			t.Errorf("opens cut to %d bytes", i)
		}
	}
}

func TestPseudonym(t *testing.T) {
	f, other := newFixture(t, Options{}), newFixture(t, Options{})
	alice := f.Upkeep().Pseudonym("audit", "acme", "alice")
	f.reopen()
	if len(alice) != 32 || f.Upkeep().Pseudonym("audit", "acme", "alice") != alice {
		t.Errorf("alice is %q, then %q", alice, f.Upkeep().Pseudonym("audit", "acme", "alice"))
	}
	for _, p := range []string{f.Upkeep().Pseudonym("log", "acme", "alice"), f.Upkeep().Pseudonym("audit", "acmealice"), f.Upkeep().Pseudonym("audit", "acme", "alic", "e"),
		f.Upkeep().Pseudonym("audit", "alice", "acme"), other.Upkeep().Pseudonym("audit", "acme", "alice")} {
		if p == alice {
			t.Errorf("another purpose, other names or another store have the same pseudonym")
		}
	}
}

func TestTenantsAndUsers(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	for _, u := range [][2]string{{"acme", "bob"}, {"acme", "alice"}, {"evil", "eve"}, {"acme", "bob"}} {
		if err := f.User(u[0], u[1]).Upkeep().Create(ctx); err != nil {
			t.Fatal(err)
		}
	}
	mustSave(t, f, Ref{Tenant: "acme", User: "carol", Thread: "t"}, Draft{})
	f.reopen()
	var tenants, users []string
	for name, err := range f.Upkeep().Tenants(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		tenants = append(tenants, name)
	}
	for name, err := range f.Upkeep().Users(ctx, "acme") {
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, name)
	}
	slices.Sort(tenants)
	slices.Sort(users)
	if !slices.Equal(tenants, []string{"acme", "evil"}) || !slices.Equal(users, []string{"alice", "bob", "carol"}) {
		t.Errorf("tenants %q, users of acme %q", tenants, users)
	}
	if err := f.User("acme", "").Upkeep().Create(ctx); !errors.Is(err, ErrInvalid) {
		t.Errorf("a user without a name: %v", err)
	}
	f.Store.Close()
	for _, err := range f.Upkeep().Tenants(ctx) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}
