package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

func openStore(t testing.TB) Store {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := engine.Open(context.Background(), mem.Open(), engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Upkeep()
}

func openTokens(t testing.TB, path string, s Store) *Tokens {
	t.Helper()
	tokens, err := OpenTokens(path, s)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestSecret(t *testing.T) {
	counting := make([]byte, secretSize)
	for i := range counting {
		counting[i] = byte(i)
	}
	for want, random := range map[string][]byte{ // made from docs/format.md §19 in another language
		"ckptd_00000000000000000000000000000000000000000001auF66": make([]byte, secretSize),
		"ckptd_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf2EcPRu": counting,
		"ckptd_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp14cmDHq": bytes.Repeat([]byte{0xff}, secretSize),
	} {
		if got := formatSecret(random); got != want || !WellFormed(got) {
			t.Errorf("the secret of %x is %s, want %s", random, got, want)
		}
	}
	seen := map[string]bool{}
	for range 200 {
		s := newSecret()
		if !WellFormed(s) || seen[s] {
			t.Fatalf("%s is malformed or there twice", s)
		}
		seen[s] = true
		for i := range len(s) {
			for _, c := range []string{"", "0", "z", "-", "é"} {
				if changed := s[:i] + c + s[i+1:]; changed != s && WellFormed(changed) {
					t.Fatalf("%s passes for %s", changed, s)
				}
			}
		}
	}
}

func TestTokens(t *testing.T) {
	path, store := filepath.Join(t.TempDir(), "data.tokens"), openStore(t)
	tokens := openTokens(t, path, store)
	if got := tokens.List(); len(got) != 0 {
		t.Fatalf("a new list has %v", got)
	}
	grants := []Grant{{Writer, "acme", "alice", "support-", later}, {Reader, "acme", "*", "", time.Time{}}}
	made, secret, err := tokens.Create("for <tests>", grants, now.Add(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	second, other, err := tokens.Create("", []Grant{Everything()}, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := []Token{{made.ID, "for <tests>", grants, now, ""}, {second.ID, "", []Grant{Everything()}, now.Add(time.Hour), ""}}
	for range 2 { // as they are, and read again
		if got := tokens.List(); !cmp.Equal(got, want) {
			t.Fatal(cmp.Diff(want, got))
		}
		if got := tokens.caller(secret); !cmp.Equal(got, &Caller{"token:" + made.ID, grants}) {
			t.Fatalf("the secret is that of %+v", got)
		}
		if got, err := tokens.Get(made.ID); err != nil || !cmp.Equal(got, want[0]) {
			t.Fatalf("got %+v, %v", got, err)
		}
		tokens = openTokens(t, path, store)
	}
	if made.ID == second.ID || secret == other || strings.Contains(secret, made.ID) {
		t.Errorf("ids %s and %s of %s and %s", made.ID, second.ID, secret, other)
	}
	for _, s := range []string{"", "ckptd_", secret[:len(secret)-1], secret + "0", strings.ToLower(secret), made.ID, newSecret()} {
		if got := tokens.caller(s); got != nil {
			t.Errorf("%q is the secret of %+v", s, got)
		}
	}

	if _, err := tokens.Revoke(made.ID, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if tokens.caller(secret) != nil || tokens.caller(other) == nil || len(tokens.List()) != 1 {
			t.Fatalf("after a revocation there are %+v", tokens.List())
		}
		if _, err := tokens.Revoke(made.ID, false); !errors.Is(err, engine.ErrNotFound) {
			t.Fatalf("revoked twice: %v", err)
		}
		if _, err := tokens.Get(made.ID); !errors.Is(err, engine.ErrNotFound) {
			t.Fatalf("got a revoked one: %v", err)
		}
		tokens = openTokens(t, path, store)
	}
}

// What List returns belongs to the caller.
func TestListIsACopy(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens"), openStore(t))
	made, secret, err := tokens.Create("", []Grant{{Role: Reader, Tenant: "acme", User: "alice"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := tokens.Get(made.ID)
	for _, g := range [][]Grant{made.Grants, tokens.List()[0].Grants, got.Grants} {
		g[0] = Everything()
	}
	if tokens.caller(secret).May(Manage, "", "", "", now) {
		t.Error("the grants of a token were changed from outside")
	}
}

func TestCreateRefuses(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens"), openStore(t))
	good := Grant{Role: Reader, Tenant: "acme", User: "alice"}
	for name, tt := range map[string]struct {
		note   string
		grants []Grant
	}{
		"no grants":       {"", nil},
		"too many grants": {"", make([]Grant, maxGrants+1)},
		"a bad grant":     {"", []Grant{good, {}}},
		"long note":       {strings.Repeat("x", maxNote+1), []Grant{good}},
		"broken note":     {"\xff", []Grant{good}},
		"expired":         {"", []Grant{{Reader, "acme", "alice", "", now}}},
	} {
		if _, _, err := tokens.Create(tt.note, tt.grants, now); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(tokens.path); !errors.Is(err, os.ErrNotExist) || len(tokens.List()) != 0 {
		t.Errorf("what was refused was written: %v", err)
	}
}

func TestTokenFile(t *testing.T) {
	path, store := filepath.Join(t.TempDir(), "tokens"), openStore(t)
	tokens := openTokens(t, path, store)
	_, secret, err := tokens.Create("a note", []Grant{{Role: Reader, Tenant: "acme", User: "alice"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	sealed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"acme", "alice", "a note", "reader", secret} {
		if bytes.Contains(sealed, []byte(word)) {
			t.Errorf("%q can be read in the file", word)
		}
	}
	if plain, err := store.OpenSidecar(tokenFileName, sealed); err != nil || bytes.Contains(plain, []byte(secret[len(TokenPrefix):20])) {
		t.Errorf("the secret is in the file, %v", err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Reload(); err == nil {
			t.Fatalf("byte %d changed: read again", i)
		}
	}
	if tokens.caller(secret) == nil {
		t.Error("a file that cannot be read took the tokens away")
	}
	if _, err := OpenTokens(path, openStore(t)); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("opened by another store: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); !errors.Is(err, os.ErrNotExist) || tokens.caller(secret) == nil {
		t.Errorf("reading a file that is gone: %v", err)
	}
	if err := os.WriteFile(path, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); err != nil || tokens.caller(secret) == nil {
		t.Errorf("reading the file that is back: %v", err)
	}
}

func TestDecodeTokensIsStrict(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	token := func(id, hash string) string {
		return fmt.Sprintf(`{"id":%q,"grants":[{"role":"reader","tenant":"acme","user":"alice"}],"created":"2026-03-01T12:00:00Z","sha256":%q}`, id, hash)
	}
	file := func(tokens ...string) string { return `{"version":1,"tokens":[` + strings.Join(tokens, ",") + `]}` }
	good := file(token("00000001", hash), token("00000002", strings.Repeat("cd", 32)))
	made := strings.NewReplacer(`"version":1`, `"version":2`, `"sha256"`, `"made_by":"peer:0","sha256"`).Replace(good)
	for _, text := range []string{good, made} {
		if got, err := decodeTokens([]byte(text)); err != nil || len(got) != 2 {
			t.Fatalf("%d tokens, %v", len(got), err)
		}
	}
	for name, text := range map[string]string{
		"empty":          "",
		"no JSON":        "tokens",
		"space":          good + " ",
		"more behind":    good + good,
		"version 0":      strings.Replace(good, `"version":1`, `"version":0`, 1),
		"unknown field":  strings.Replace(good, `"id"`, `"x":1,"id"`, 1),
		"field twice":    strings.Replace(good, `"version":1`, `"version":1,"version":1`, 1),
		"not in order":   file(token("00000002", hash), token("00000001", strings.Repeat("cd", 32))),
		"id twice":       file(token("00000001", hash), token("00000001", strings.Repeat("cd", 32))),
		"hash twice":     file(token("00000001", hash), token("00000002", hash)),
		"short id":       file(token("0001", hash)),
		"capital id":     file(token("0000000A", hash)),
		"short hash":     file(token("00000001", hash[2:])),
		"no grants":      strings.Replace(good, `[{"role":"reader","tenant":"acme","user":"alice"}]`, "[]", 1),
		"an early maker": strings.Replace(good, `"sha256"`, `"made_by":"peer:0","sha256"`, 1),
		"no maker":       strings.Replace(made, `peer:0`, ``, 1),
		"a named maker":  strings.Replace(made, `peer:0`, `jwt:alice`, 1),
		"a bad role":     strings.Replace(good, `"reader"`, `"root"`, 1),
		"every prefix 1": good[:len(good)-1],
	} {
		if got, err := decodeTokens([]byte(text)); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := decodeTokens([]byte(strings.Replace(good, `"version":1`, `"version":3`, 1))); !errors.Is(err, engine.ErrNewerFormat) {
		t.Errorf("a newer version: %v", err)
	}
}

// A folder that cannot be written to stands for a disk that fails.
func TestRevokeIsEffectiveThoughNotDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tokens := openTokens(t, filepath.Join(dir, "tokens"), openStore(t))
	made, secret, err := tokens.Create("", []Grant{Everything()}, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Create("", []Grant{Everything()}, now); err == nil || len(tokens.List()) != 1 {
		t.Errorf("a token that was not written is there: %v", err)
	}
	if _, err := tokens.Revoke(made.ID, false); err == nil || tokens.caller(secret) != nil {
		t.Errorf("after a revocation that was not written, %v, the token is good for %v", err, tokens.caller(secret))
	}
}

func TestTooManyTokens(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens"), openStore(t))
	stored := make([]storedToken, maxTokens)
	for i := range stored {
		stored[i] = storedToken{Token{ID: fmt.Sprintf("%08x", i), Grants: []Grant{Everything()}}, fmt.Sprintf("%064x", i)}
	}
	tokens.current.Store(newTokenSet(stored))
	if _, _, err := tokens.Create("", []Grant{Everything()}, now); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := tokens.Revoke("00000007", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Create("", []Grant{Everything()}, now); err != nil {
		t.Errorf("the last one: %v", err)
	}
}

func TestTokensAtOnce(t *testing.T) {
	path, store := filepath.Join(t.TempDir(), "tokens"), openStore(t)
	tokens := openTokens(t, path, store)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3 {
				made, secret, err := tokens.Create("", []Grant{Everything()}, now)
				if err != nil || tokens.caller(secret) == nil {
					t.Errorf("created: %v", err)
				}
				tokens.List()
				if err := tokens.Reload(); err != nil {
					t.Errorf("reloaded: %v", err)
				}
				if _, err := tokens.Revoke(made.ID, false); err != nil || tokens.caller(secret) != nil {
					t.Errorf("revoked: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := openTokens(t, path, store).List(); len(got) != 0 {
		t.Errorf("%d tokens are left", len(got))
	}
}

func FuzzDecodeTokens(f *testing.F) {
	s := storedToken{Token{"00000001", "note", []Grant{{Reader, "acme", "alice", "p", later}}, now, "token:00000002"}, strings.Repeat("ab", 32)}
	good, err := json.Marshal(tokenFile{2, []storedToken{s}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"tokens":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tokens, err := decodeTokens(b)
		if err != nil {
			return
		}
		version := 2
		if bytes.HasPrefix(b, []byte(`{"version":1,`)) {
			version = 1
		}
		again, err := json.Marshal(tokenFile{version, tokens})
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q was read as %q, %v", b, again, err)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	tokens := openTokens(b, filepath.Join(b.TempDir(), "tokens"), openStore(b))
	_, secret, err := tokens.Create("", []Grant{{Role: Writer, Tenant: "acme", User: "alice"}}, now)
	if err != nil {
		b.Fatal(err)
	}
	a, err := New(tokens.store, Options{Tokens: tokens})
	if err != nil {
		b.Fatal(err)
	}
	header := Credentials{Authorization: "Bearer " + secret, PeerUID: UnknownUID}
	b.ReportAllocs()
	for b.Loop() {
		c, err := a.Authenticate(b.Context(), header)
		if err != nil || !c.May(Write, "acme", "alice", "t", now) {
			b.Fatal(err)
		}
	}
}
