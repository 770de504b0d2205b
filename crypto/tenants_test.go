package crypto

import (
	"slices"
	"testing"
)

// Every tenant with a user is listed once, and one whose only entry is damaged is an error that
// does not end the list.
func TestTenants(t *testing.T) {
	ks := NewMemKeystore()
	root, err := GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	k, err := OpenKeyring(t.Context(), root, ks, true)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, u := range [][2]string{{"acme", "alice"}, {"acme", "bob"}, {"globex", "alice"}, {"initech", "carol"}} {
		if _, err := k.User(t.Context(), u[0], u[1], true); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (ids []string, errs int) {
		for id, err := range k.Tenants(t.Context()) {
			if err != nil {
				errs++
				continue
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids, errs
	}
	if got, errs := list(); !slices.Equal(got, []string{"acme", "globex", "initech"}) || errs != 0 {
		t.Errorf("tenants %q, %d errors", got, errs)
	}
	name := k.tenantPrefix("initech") + k.UserToken("initech", "carol").String()
	raw, err := ks.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(raw)
	bad[len(bad)-1] ^= 1
	if err := ks.Put(t.Context(), name, raw, bad); err != nil {
		t.Fatal(err)
	}
	if got, errs := list(); !slices.Equal(got, []string{"acme", "globex"}) || errs != 1 {
		t.Errorf("with a damaged entry: tenants %q, %d errors", got, errs)
	}
	tokens := map[Token]bool{}
	for token, err := range k.UserTokens(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tokens[token] = true
	}
	if len(tokens) != 4 || !tokens[k.UserToken("initech", "carol")] {
		t.Errorf("tokens of users %v, want 4, one of them that of the damaged entry", tokens)
	}
	for range k.Tenants(t.Context()) {
		break
	}
	for range k.UserTokens(t.Context()) {
		break
	}
	k.Close()
	for _, err := range k.Tenants(t.Context()) {
		if err != ErrClosed {
			t.Errorf("closed: %v", err)
		}
	}
	for _, err := range k.UserTokens(t.Context()) {
		if err != ErrClosed {
			t.Errorf("closed: %v", err)
		}
	}
}
