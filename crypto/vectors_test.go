package crypto

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"testing"
)

//go:embed testdata/*.txt
var vectorFiles embed.FS

// vector is one block of a file of test vectors: its values by name, in order.
type vector map[string][]string

func (v vector) text(t testing.TB, name string) string {
	t.Helper()
	if len(v[name]) != 1 {
		t.Fatalf("vector has %d values %q, want one", len(v[name]), name)
	}
	return v[name][0]
}

func (v vector) hex(t testing.TB, name string) []byte {
	t.Helper()
	return unhex(t, v.text(t, name))
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectors loads a file, which must not be empty.
func vectors(t testing.TB, file string) []vector {
	t.Helper()
	text, err := vectorFiles.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	all := parseVectors(t, string(text))
	if len(all) == 0 {
		t.Fatalf("no test vectors in %s", file)
	}
	return all
}

func parseVectors(t testing.TB, text string) []vector {
	t.Helper()
	var all []vector
	open := false
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		if line == "" || line[0] == '#' {
			open = false
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("malformed line %q", line)
		}
		if !open {
			all = append(all, vector{})
			open = true
		}
		v := all[len(all)-1]
		v[name] = append(v[name], value)
	}
	return all
}

func TestKeyLineVectors(t *testing.T) {
	for i, v := range vectors(t, "keys.txt") {
		k, err := parseKeyLine(v.text(t, "line"))
		switch want := v.text(t, "want"); want {
		case "ok":
			if err != nil {
				t.Errorf("vector %d: %v", i, err)
				continue
			}
			if got := secretBytes(t, k.key); !bytes.Equal(got, v.hex(t, "key")) {
				t.Errorf("vector %d: key %x", i, got)
			}
			if k.ID().String() != v.text(t, "id") {
				t.Errorf("vector %d: id %s", i, k.ID())
			}
			line, err := appendKeyLine(nil, k)
			if err != nil || string(line) != v.text(t, "line") {
				t.Errorf("vector %d: line %s, %v", i, line, err)
			}
		default:
			wantErr := map[string]error{"format": ErrKeyFileFormat, "newer": ErrNewerFormat}[want]
			if wantErr == nil || !errors.Is(err, wantErr) {
				t.Errorf("vector %d: error %v, want %v", i, err, wantErr)
			}
			if fields := strings.Split(v.text(t, "line"), ":"); len(fields) > 2 && err != nil && strings.Contains(err.Error(), fields[2]) {
				t.Errorf("vector %d: the error shows the key: %v", i, err)
			}
		}
	}
}

func TestEntryVectors(t *testing.T) {
	for _, v := range append(vectors(t, "entries1.txt"), vectors(t, "entries.txt")...) {
		root := rootOf(t, v.hex(t, "root"))
		p := place{store: [16]byte(v.hex(t, "store")), name: v.text(t, "name")}
		kind, plain, err := unwrap(root, p, v.hex(t, "entry"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(plain, v.hex(t, "plain")) {
			t.Errorf("%s: plaintext %x", p.name, plain)
		}
		for i := range v.hex(t, "entry") {
			changed := v.hex(t, "entry")
			changed[i] ^= 4
			if _, plain, err := unwrap(root, p, changed); err == nil || plain != nil {
				t.Errorf("%s: with byte %d changed it opens: %v", p.name, i, err)
			}
		}
		if got, err := recode(kind, plain); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: encoded again as %x, %v", p.name, got, err)
		}
	}
}

// vectorRing is a keyring over the keystore of entries.txt.
func vectorRing(t testing.TB) (*Keyring, *UserKeys) {
	t.Helper()
	ks := NewMemKeystore()
	var root RootKey
	for _, v := range vectors(t, "entries.txt") {
		root = rootOf(t, v.hex(t, "root"))
		if err := ks.Put(context.Background(), v.text(t, "name"), nil, v.hex(t, "entry")); err != nil {
			t.Fatal(err)
		}
	}
	ring := openRing(t, root, ks, false)
	u, err := ring.User(context.Background(), "acme", "alice@example.org", false)
	if err != nil {
		t.Fatal(err)
	}
	return ring, u
}

func TestTokenVectors(t *testing.T) {
	ring, u := vectorRing(t)
	for i, v := range vectors(t, "tokens.txt") {
		var args []string
		for _, a := range v["arg"] {
			args = append(args, string(unhex(t, a)))
		}
		var got []byte
		switch call := v.text(t, "call"); call {
		case "tenant":
			tok := ring.TenantToken(args[0])
			got = tok[:]
		case "user":
			tok := ring.UserToken(args[0], args[1])
			got = tok[:]
		case "index":
			tok := ring.IndexToken(args[0], args[1], args[2])
			got = tok[:]
		case "thread":
			tok := u.ThreadToken(args[0])
			got = tok[:]
		case "blind":
			tok := u.BlindToken(args[0], args[1:]...)
			got = tok[:]
		case "derive":
			parts := [][]byte{}
			for _, a := range args[1:] {
				parts = append(parts, []byte(a))
			}
			key := u.Derive(args[0], parts...)
			got = key[:]
		default:
			t.Fatalf("unknown call %q", call)
		}
		if !bytes.Equal(got, v.hex(t, "want")) {
			t.Errorf("vector %d: %s%q = %x, want %s", i, v.text(t, "call"), args, got, v.text(t, "want"))
		}
	}
}

func TestEnvelopeVectors(t *testing.T) {
	ring, u := vectorRing(t)
	classes := map[string]error{"envelope": ErrEnvelope, "newer": ErrNewerFormat, "older": ErrOlderFormat, "open": ErrOpen,
		"destroyed": ErrKeyDestroyed, "unknown": ErrUnknownKeyNumber}
	seen := map[string]bool{}
	for i, v := range vectors(t, "envelopes.txt") {
		s := ring.StoreSealer()
		if v.text(t, "owner") == "user" {
			var scope [][]byte
			for _, h := range v["scope"] {
				scope = append(scope, unhex(t, h))
			}
			var err error
			if s, err = u.Sealer(v.text(t, "purpose"), scope...); err != nil {
				t.Fatal(err)
			}
		}
		key, value, typ := v.hex(t, "key"), v.hex(t, "value"), v.hex(t, "type")[0]
		got, err := s.Open([]byte("before"), typ, key, value)
		want := v.text(t, "want")
		seen[want] = true
		if want != "ok" {
			if classes[want] == nil || !errors.Is(err, classes[want]) || got != nil {
				t.Errorf("vector %d: %x, %v, want %v", i, got, err, classes[want])
			}
			continue
		}
		if err != nil || !bytes.Equal(got, append([]byte("before"), v.hex(t, "plain")...)) {
			t.Errorf("vector %d: %q, %v", i, got, err)
		}
		number, _ := parseHeader(typ, value)
		udk, err := s.keys.find(number)
		if err != nil {
			t.Fatal(err)
		}
		derived, err := hkdf.Key(sha256.New, secretBytes(t, udk), nil, s.info, keySize)
		if err != nil || !bytes.Equal(derived, v.hex(t, "derived")) {
			t.Errorf("vector %d: derived key %x, %v", i, derived, err)
		}
	}
	for class := range maps.Keys(classes) {
		if !seen[class] {
			t.Errorf("no vector of class %q", class)
		}
	}
}

// A user replaced by the marker is refused, with create or without, and not listed. The token is
// listed, since the keys are not missing.
func TestDestroyedUser(t *testing.T) {
	ring, _ := vectorRing(t)
	for _, create := range []bool{false, true} {
		if _, err := ring.User(t.Context(), "acme", "bob", create); !errors.Is(err, ErrKeyDestroyed) {
			t.Errorf("create %v: %v", create, err)
		} else if !strings.Contains(err.Error(), "2025-10-09T08:53:20Z") {
			t.Errorf("the time is not in %q", err)
		}
	}
	var users []string
	for u, err := range ring.Users(t.Context(), "acme") {
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, u)
	}
	if len(users) != 1 || users[0] != "alice@example.org" {
		t.Errorf("users %q", users)
	}
	tokens := map[Token]bool{}
	for token, err := range ring.UserTokens(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tokens[token] = true
	}
	for _, user := range []string{"alice@example.org", "bob"} {
		if !tokens[ring.UserToken("acme", user)] {
			t.Errorf("the token of %s is not listed", user)
		}
	}
}
