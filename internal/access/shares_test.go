package access

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

func mustIssue(t *testing.T, tokens *Tokens, maker *Caller, g Grant) (Token, *Caller) {
	t.Helper()
	made, secret, err := tokens.Issue(maker, "", []Grant{g}, now)
	if err != nil {
		t.Fatal(err)
	}
	return made, tokens.caller(secret)
}

// TestRevokeTakesChildren: who had a token that was revoked must not go on with others that were
// made with it.
func TestRevokeTakesChildren(t *testing.T) {
	path, store := filepath.Join(t.TempDir(), "tokens"), openStore(t)
	for _, keep := range []bool{false, true} {
		tokens := openTokens(t, path, store)
		owner := &Caller{Name: "peer:0", Grants: []Grant{Everything()}}
		parent, admin := mustIssue(t, tokens, owner, Grant{Role: Admin, Tenant: "acme", User: "*"})
		child, below := mustIssue(t, tokens, admin, Grant{Role: Admin, Tenant: "acme", User: "alice"})
		grandchild, _ := mustIssue(t, tokens, below, Grant{Role: Reader, Tenant: "acme", User: "alice"})
		other, _ := mustIssue(t, tokens, owner, Grant{Role: Reader, Tenant: "acme", User: "alice"})
		if parent.MadeBy != "peer:0" || child.MadeBy != "token:"+parent.ID || grandchild.MadeBy != "token:"+child.ID {
			t.Errorf("made by %q, %q, %q", parent.MadeBy, child.MadeBy, grandchild.MadeBy)
		}
		tokens = openTokens(t, path, store) // as after a restart
		gone, err := tokens.Revoke(parent.ID, keep)
		if err != nil {
			t.Fatal(err)
		}
		want, left := []string{parent.ID, child.ID, grandchild.ID}, []string{other.ID}
		if keep {
			want, left = want[:1], []string{child.ID, grandchild.ID, other.ID}
		}
		if !slices.Equal(gone, want) {
			t.Errorf("keeping children %v: %q are revoked, want %q", keep, gone, want)
		}
		for _, id := range left {
			if _, err := tokens.Get(id); err != nil {
				t.Error(err)
			}
		}
		for _, id := range left {
			if _, err := tokens.Revoke(id, false); err != nil && !errors.Is(err, engine.ErrNotFound) {
				t.Error(err)
			}
		}
		if rest := openTokens(t, path, store).List(); len(rest) != 0 {
			t.Errorf("%d tokens are left", len(rest))
		}
	}
}

// TestKeptChildrenStayRevocable: who revokes a token in the middle and keeps its children does not
// take them out of the hand of the one above.
func TestKeptChildrenStayRevocable(t *testing.T) {
	path, store := filepath.Join(t.TempDir(), "tokens"), openStore(t)
	tokens := openTokens(t, path, store)
	owner := &Caller{Name: "peer:0", Grants: []Grant{Everything()}}
	top, admin := mustIssue(t, tokens, owner, Grant{Role: Admin, Tenant: "acme", User: "*"})
	middle, below := mustIssue(t, tokens, admin, Grant{Role: Admin, Tenant: "acme", User: "alice"})
	low, _ := mustIssue(t, tokens, below, Grant{Role: Reader, Tenant: "acme", User: "alice"})
	if _, err := tokens.Revoke(middle.ID, true); err != nil {
		t.Fatal(err)
	}
	tokens = openTokens(t, path, store) // as after a restart
	if gone, err := tokens.Revoke(top.ID, false); err != nil || !slices.Equal(gone, []string{top.ID, low.ID}) {
		t.Errorf("%q are revoked, %v; want those of %s and %s", gone, err, top.ID, low.ID)
	}
}

// TestSharesOfTokens: an admin of one user, or of one tenant, must not fill the file of all.
func TestSharesOfTokens(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens"), openStore(t))
	admin := func(tenant, user string) *Caller {
		return &Caller{Grants: []Grant{{Role: Admin, Tenant: tenant, User: user}}}
	}
	fill := func(n int, tenant, user, prefix string) {
		stored := slices.Clone(tokens.current.Load().tokens)
		for i := range n {
			at := len(stored)
			g := Grant{Role: Reader, Tenant: tenant, User: user, ThreadPrefix: fmt.Sprintf("%s%d", prefix, i)}
			stored = append(stored, storedToken{Token{ID: fmt.Sprintf("%08x", at), Grants: []Grant{g}}, fmt.Sprintf("%064x", at)})
		}
		tokens.current.Store(newTokenSet(stored))
	}
	try := func(what string, maker *Caller, tenant, user string, want bool) {
		t.Helper()
		_, _, err := tokens.Issue(maker, "", []Grant{{Role: Reader, Tenant: tenant, User: user}}, now)
		if (err == nil) != want || err != nil && !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fill(maxTokens/100, "acme", "alice", "")
	try("a user's admin at the share", admin("acme", "alice"), "acme", "alice", false)
	try("another user's", admin("acme", "bob"), "acme", "bob", true)
	try("the tenant's", admin("acme", "*"), "acme", "alice", true)
	try("who is both", &Caller{Grants: append(admin("acme", "alice").Grants, Everything())}, "acme", "alice", true)
	fill(maxTokens*8/100, "acme", "carol", "")
	try("a user's admin at nine tenths of the tenant's", admin("acme", "bob"), "acme", "bob", false)
	try("the tenant's", admin("acme", "*"), "acme", "bob", true)
	fill(maxTokens/100, "acme", "dave", "")
	try("the tenant's at the share", admin("acme", "*"), "acme", "bob", false)
	try("another tenant's", admin("globex", "*"), "globex", "bob", true)
	try("the store's", admin("*", "*"), "acme", "bob", true)

	fill(20, "initech", "eve", strings.Repeat("<", 200))
	try("before the share of bytes", admin("initech", "eve"), "initech", "eve", true)
	fill(maxTokenFile/100/1000, "initech", "eve", strings.Repeat("<", 200))
	try("a user's admin at the share of bytes", admin("initech", "eve"), "initech", "eve", false)

	fill(maxTokens*9/10-len(tokens.List()), "umbrella", "*", "")
	try("a tenant's admin where what is left is for the store's", admin("globex", "*"), "globex", "bob", false)
	try("the store's", admin("*", "*"), "globex", "bob", true)
}

// A token that was revoked while a request of its bearer was under way makes no other: that would
// outlive it.
func TestRevokedTokenMakesNoOther(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens"), openStore(t))
	grant := Grant{Role: Admin, Tenant: "acme", User: "*"}
	made, bearer := mustIssue(t, tokens, &Caller{Grants: []Grant{Everything()}}, grant)
	if _, err := tokens.Revoke(made.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Issue(bearer, "", []Grant{grant}, now); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("it made another: %v", err)
	}
	if n := len(tokens.List()); n != 0 {
		t.Errorf("there are %d tokens", n)
	}
}
