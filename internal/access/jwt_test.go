package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine"
)

// claims are those of a good token, with changes: a nil one is left out.
func claims(changes ...any) map[string]any {
	c := map[string]any{"iss": "https://issuer.example", "aud": "ckptd", "sub": "alice", "tenant": "acme", "role": "writer",
		"exp": later.Unix(), "iat": now.Unix()}
	for i := 0; i < len(changes); i += 2 {
		if c[changes[i].(string)] = changes[i+1]; changes[i+1] == nil {
			delete(c, changes[i].(string))
		}
	}
	return c
}

func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(b)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func newECDSA(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keySet(t testing.TB, keys ...any) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for i, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k, KeyID: fmt.Sprint("key", i), Use: "sig"})
	}
	b, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// withKeys returns an authenticator for tokens signed with the keys of a set, and the file that the
// set is in.
func withKeys(t testing.TB, set []byte, change func(*JWT), clock func() time.Time) (*Authenticator, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	writeFile(t, path, set)
	o := &JWT{Issuer: "https://issuer.example", KeyFile: path, Audience: "ckptd"}
	if change != nil {
		change(o)
	}
	return newAuthenticator(t, openStore(t), Options{JWT: o, OwnerIsAdmin: true, Now: clock}), path
}

func TestJWT(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey := newECDSA(t)
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set := keySet(t, rsaKey.Public(), ecKey.Public(), edPublic)
	a, _ := withKeys(t, set, nil, nil)
	want := []Grant{{Writer, "acme", "alice", "", later}}
	for alg, key := range map[jose.SignatureAlgorithm]crypto.Signer{jose.RS256: rsaKey, jose.ES256: ecKey, jose.EdDSA: edKey} {
		raw := sign(t, alg, key, "", claims())
		for range 2 { // verified, and remembered
			c, err := a.Authenticate(t.Context(), bearer(raw))
			if err != nil || !regexp.MustCompile(`^jwt:[0-9a-f]{32}$`).MatchString(c.Name) {
				t.Fatalf("%s: %+v, %v", alg, c, err)
			}
			for i := range c.Grants {
				c.Grants[i].Expires = c.Grants[i].Expires.UTC()
			}
			if !cmp.Equal(c.Grants, want) {
				t.Fatalf("%s: %s", alg, cmp.Diff(want, c.Grants))
			}
		}
	}

	// An algorithm that was not asked for is refused, whatever the key; so is a key taken for a
	// secret.
	refused(t, a, "RS512", bearer(sign(t, jose.RS512, rsaKey, "", claims())))
	refused(t, a, "PS256", bearer(sign(t, jose.PS256, rsaKey, "", claims())))
	refused(t, a, "HS256", bearer(sign(t, jose.HS256, []byte(edPublic), "", claims())))
	refused(t, a, "HS256 with the set as secret", bearer(sign(t, jose.HS256, set, "", claims())))
	body, _ := json.Marshal(claims())
	for _, alg := range []string{"none", "None", ""} {
		header := fmt.Sprintf(`{"alg":%q}`, alg)
		refused(t, a, "alg "+alg, bearer(base64.RawURLEncoding.EncodeToString([]byte(header))+"."+base64.RawURLEncoding.EncodeToString(body)+"."))
	}
	refused(t, a, "another key", bearer(sign(t, jose.ES256, newECDSA(t), "", claims())))
	raw := sign(t, jose.ES256, ecKey, "", claims("sub", "eve"))
	good := sign(t, jose.ES256, ecKey, "", claims())
	first, second := strings.Split(raw, "."), strings.Split(good, ".")
	refused(t, a, "a signature of another token", bearer(first[0]+"."+first[1]+"."+second[2]))
	refused(t, a, "no signature", bearer(first[0]+"."+first[1]+"."))
	refused(t, a, "a key in the header", bearer(embedded(t)))
	for form, text := range map[string]string{"flattened JSON": `{"protected":%q,"payload":%q,"signature":%q}`,
		"general JSON": `{"signatures":[{"protected":%q,"signature":%[3]q}],"payload":%[2]q}`} {
		refused(t, a, form, bearer(fmt.Sprintf(text, second[0], second[1], second[2])))
	}
}

// embedded is a token that brings its own key.
func embedded(t *testing.T) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: newECDSA(t)}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(claims())
	jws, err := signer.Sign(b)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestJWTClaims(t *testing.T) {
	key := newECDSA(t)
	set := keySet(t, key.Public())
	wild := func(o *JWT) { o.Wildcards = true }
	for _, tt := range []struct {
		name   string
		change func(*JWT)
		claims map[string]any
		want   string // "" is refused
	}{
		{"good", nil, claims(), "writer acme alice "},
		{"threads", nil, claims("threads", "support-"), "writer acme alice support-"},
		{"several audiences", nil, claims("aud", []string{"x", "ckptd"}), "writer acme alice "},
		{"several roles", nil, claims("role", []string{"uma", "reader", "approver"}), "reader acme alice , approver acme alice "},
		{"other issuer", nil, claims("iss", "https://issuer.example/"), ""},
		{"no issuer", nil, claims("iss", nil), ""},
		{"other audience", nil, claims("aud", "other"), ""},
		{"no audience", nil, claims("aud", nil), ""},
		{"no role", nil, claims("role", nil), ""},
		{"unknown role", nil, claims("role", "root"), ""},
		{"unknown roles", nil, claims("role", []string{"root"}), ""},
		{"role is no text", nil, claims("role", 1), ""},
		{"no tenant", nil, claims("tenant", nil), ""},
		{"null tenant", nil, claims("tenant", json.RawMessage("null")), ""},
		{"empty tenant", nil, claims("tenant", ""), ""},
		{"tenant is a list", nil, claims("tenant", []string{"acme"}), ""},
		{"no user", nil, claims("sub", nil), ""},
		{"threads is no text", nil, claims("threads", 7), ""},
		{"threads is null", nil, claims("threads", json.RawMessage("null")), ""},
		{"long user", nil, claims("sub", strings.Repeat("x", 257)), ""},
		{"a user called *", nil, claims("sub", "*"), ""},
		{"a tenant called *", nil, claims("sub", "*", "tenant", "*"), ""},
		{"every user", wild, claims("sub", "*"), "writer acme * "},
		{"everything", wild, claims("sub", "*", "tenant", "*", "role", "admin"), "admin * * "},
		{"a user of every tenant", wild, claims("tenant", "*"), ""},
		{"other claims", func(o *JWT) {
			o.RoleClaim, o.TenantClaim, o.UserClaim, o.ThreadsClaim = "https://x/r", "org", "uid", "p"
		},
			claims("https://x/r", "reader", "org", "umbrella", "uid", "bob", "p", "x", "threads", 7), "reader umbrella bob x"},
	} {
		a, _ := withKeys(t, set, tt.change, nil)
		creds := bearer(sign(t, jose.ES256, key, "", tt.claims))
		if tt.want == "" {
			refused(t, a, tt.name, creds)
			continue
		}
		c, err := a.Authenticate(t.Context(), creds)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, g := range c.Grants {
			got = append(got, fmt.Sprintf("%s %s %s %s", g.Role, g.Tenant, g.User, g.ThreadPrefix))
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, s, tt.want)
		}
	}
}

func TestJWTTimes(t *testing.T) {
	key := newECDSA(t)
	set := keySet(t, key.Public())
	for _, tt := range []struct {
		name   string
		claims map[string]any
		leeway int
		at     time.Time
		good   bool
	}{
		{"in time", claims(), 0, now, true},
		{"just before its end", claims(), 0, later.Add(-time.Second), true},
		{"at its end", claims(), 0, later, false},
		{"within the leeway", claims(), 10, later.Add(9 * time.Second), true},
		{"past the leeway", claims(), 10, later.Add(10 * time.Second), false},
		{"without an end", claims("exp", nil), 0, now, false},
		{"end 0", claims("exp", 0), 0, now, false},
		{"end is a text", claims("exp", "tomorrow"), 0, now, false},
		{"not yet", claims("nbf", now.Unix()+1), 0, now, false},
		{"not yet, but within the leeway", claims("nbf", now.Unix()+10), 10, now, true},
		{"by now", claims("nbf", now.Unix()), 0, now, true},
		{"made later", claims("iat", now.Unix()+11), 10, now, false},
		{"nbf is a text", claims("nbf", "x"), 0, now, false},
		{"nbf is huge", claims("nbf", 1e300), 0, now, false},
	} {
		a, _ := withKeys(t, set, func(o *JWT) { o.LeewaySeconds = tt.leeway }, func() time.Time { return tt.at })
		creds := bearer(sign(t, jose.ES256, key, "", tt.claims))
		if !tt.good {
			refused(t, a, tt.name, creds)
		} else if c, err := a.Authenticate(t.Context(), creds); err != nil || !c.May(Write, "acme", "alice", "t", tt.at) {
			t.Errorf("%s: %+v, %v", tt.name, c, err)
		}
	}
}

// What is remembered of a token ends with the token, and with the keys it was verified with.
func TestJWTCache(t *testing.T) {
	key, at := newECDSA(t), now
	a, path := withKeys(t, keySet(t, key.Public()), nil, func() time.Time { return at })
	raw := sign(t, jose.ES256, key, "", claims("exp", now.Add(time.Minute).Unix()))
	authenticate := func() error {
		_, err := a.Authenticate(t.Context(), bearer(raw))
		return err
	}
	if err := authenticate(); err != nil {
		t.Fatal(err)
	}
	at = now.Add(time.Minute)
	refused(t, a, "expired", bearer(raw))
	at = now
	writeFile(t, path, keySet(t, newECDSA(t).Public()))
	if err := authenticate(); err != nil {
		t.Errorf("before the file is read again: %v", err)
	}
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	refused(t, a, "of a key that is gone", bearer(raw))
	writeFile(t, path, []byte("{"))
	if err := a.Reload(); err == nil {
		t.Error("a broken file was read")
	}
	writeFile(t, path, keySet(t, key.Public()))
	if err := a.Reload(); err != nil || authenticate() != nil {
		t.Errorf("with the key back: %v", err)
	}

	for i := range maxCachedJWTs + 10 {
		a.jwt.remember([32]byte{byte(i), byte(i >> 8), 1}, a.jwt.epoch, cachedJWT{&Caller{}, later})
	}
	if n := len(a.jwt.cached); n > maxCachedJWTs {
		t.Errorf("%d tokens are remembered", n)
	}
	a.jwt.remember([32]byte{9, 9, 9}, a.jwt.epoch-1, cachedJWT{&Caller{}, later})
	if _, ok := a.jwt.cached[[32]byte{9, 9, 9}]; ok {
		t.Error("what was verified with old keys is remembered")
	}
}

func TestJWTOptions(t *testing.T) {
	dir, key := t.TempDir(), newECDSA(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, b []byte) string {
		writeFile(t, filepath.Join(dir, name), b)
		return filepath.Join(dir, name)
	}
	good := JWT{Issuer: "https://issuer.example", Audience: "ckptd", KeyFile: file("good", keySet(t, key.Public()))}
	store := openStore(t)
	if _, err := New(store, Options{JWT: &good}); err != nil {
		t.Fatal(err)
	}
	if good.RoleClaim != "" {
		t.Error("the options were changed")
	}
	for name, change := range map[string]func(*JWT){
		"no issuer":          func(o *JWT) { o.Issuer = "" },
		"no audience":        func(o *JWT) { o.Audience = "" },
		"issuer by http":     func(o *JWT) { o.KeyFile, o.Issuer = "", "http://issuer.example" },
		"issuer no address":  func(o *JWT) { o.KeyFile, o.Issuer = "", "issuer" },
		"algorithm none":     func(o *JWT) { o.Algorithms = []string{"none"} },
		"algorithm HS256":    func(o *JWT) { o.Algorithms = []string{"RS256", "HS256"} },
		"negative leeway":    func(o *JWT) { o.LeewaySeconds = -1 },
		"long leeway":        func(o *JWT) { o.LeewaySeconds = 31 },
		"missing file":       func(o *JWT) { o.KeyFile = filepath.Join(dir, "missing") },
		"empty file":         func(o *JWT) { o.KeyFile = file("a", nil) },
		"no keys":            func(o *JWT) { o.KeyFile = file("b", []byte(`{"keys":[]}`)) },
		"a secret":           func(o *JWT) { o.KeyFile = file("c", keySet(t, []byte("a shared secret that is long enough"))) },
		"a private key":      func(o *JWT) { o.KeyFile = file("d", keySet(t, key)) },
		"a small key":        func(o *JWT) { o.KeyFile = file("e", keySet(t, small.Public())) },
		"a file without end": func(o *JWT) { o.KeyFile = file("f", make([]byte, maxKeySet+1)) },
		"keys for encryption": func(o *JWT) {
			o.KeyFile = file("g", []byte(strings.ReplaceAll(string(keySet(t, key.Public())), `"sig"`, `"enc"`)))
		},
	} {
		o := good
		change(&o)
		if _, err := New(store, Options{JWT: &o}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	bad := JWT{}
	if _, err := New(store, Options{JWT: &bad}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("no options: %v", err)
	}
}

// fakeIssuer is an issuer on this machine.
type fakeIssuer struct {
	*httptest.Server
	mu    sync.Mutex
	keys  []byte
	down  bool
	asked int
}

func newFakeIssuer(t *testing.T) *fakeIssuer {
	f := &fakeIssuer{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked++
		w.Header().Set("Content-Type", "application/json")
		switch {
		case f.down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/.well-known/openid-configuration":
			json.NewEncoder(w).Encode(map[string]any{"issuer": f.URL, "jwks_uri": f.URL + "/keys",
				"id_token_signing_alg_values_supported": []string{"HS256", "none", "RS256"}})
		case r.URL.Path == "/keys":
			w.Write(f.keys)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeIssuer) set(keys []byte, down bool) (asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys, f.down = keys, down
	return f.asked
}

func TestJWTDiscovery(t *testing.T) {
	f, first, second := newFakeIssuer(t), newECDSA(t), newECDSA(t)
	at := now
	a := newAuthenticator(t, openStore(t), Options{JWT: &JWT{Issuer: f.URL, Audience: "ckptd"}, Now: func() time.Time { return at }})
	if n := f.set(nil, true); n != 0 {
		t.Errorf("the issuer was asked %d times before there was a token", n)
	}
	raw := sign(t, jose.ES256, first, "key0", claims("iss", f.URL))
	refused(t, a, "the issuer is down", bearer(raw))
	asked := f.set(keySet(t, first.Public()), false)
	refused(t, a, "and was just now", bearer(raw))
	if n := f.set(keySet(t, first.Public()), false); n != asked {
		t.Error("the issuer was asked again at once")
	}
	at = at.Add(discoverAgain)
	if c, err := a.Authenticate(t.Context(), bearer(raw)); err != nil || !c.May(Write, "acme", "alice", "t", at) {
		t.Fatalf("%+v, %v", c, err)
	}
	refused(t, a, "an algorithm that only the issuer offers", bearer(sign(t, jose.HS256, make([]byte, 32), "key0", claims("iss", f.URL))))

	// The issuer's next key is found by itself. The library joins requests for keys, and an answer
	// can still be joined for a moment after it was given: a token that comes just then is judged
	// by the keys of before, and passes when it comes again.
	f.set(keySet(t, first.Public(), second.Public()), false)
	next := sign(t, jose.ES256, second, "key1", claims("iss", f.URL))
	_, err := a.Authenticate(t.Context(), bearer(next))
	for again := 0; err != nil && again < 100; again++ {
		time.Sleep(time.Millisecond)
		_, err = a.Authenticate(t.Context(), bearer(next))
	}
	if err != nil {
		t.Fatalf("the next key: %v", err)
	}

	// Tokens with keys that nobody has do not make it ask again and again.
	before := f.set(keySet(t, first.Public(), second.Public()), false)
	for i := range 100 {
		refused(t, a, "unknown key", bearer(sign(t, jose.ES256, first, fmt.Sprint("unknown", i), claims("iss", f.URL))))
	}
	if n := f.set(nil, false) - before; n > issuerBurst+2 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

func TestTrustworthy(t *testing.T) {
	for address, want := range map[string]bool{
		"https://issuer.example": true, "https://issuer.example:8443/realm": true, "http://127.0.0.1:1234": true, "http://[::1]/x": true,
		"http://issuer.example": false, "http://localhost": false, "http://10.0.0.1": false, "ftp://127.0.0.1": false, "issuer": false, "https://": false, "": false,
		"file:///etc/passwd": false,
	} {
		if got := trustworthy(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

// TestJWTClaimsAreExact: a claim that comes twice, or once more in other letters, must not stand in
// for the one that counts.
func TestJWTClaimsAreExact(t *testing.T) {
	key := newECDSA(t)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := withKeys(t, keySet(t, key.Public()), nil, nil)
	good, err := json.Marshal(claims())
	if err != nil {
		t.Fatal(err)
	}
	of := func(payload string) Credentials {
		signed, err := signer.Sign([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return bearer(raw)
	}
	with := func(first string) string { return "{" + first + "," + string(good[1:]) }
	after := func(last string) string { return string(good[:len(good)-1]) + "," + last + "}" }
	if _, err := a.Authenticate(t.Context(), of(after(`"custom":{"Exp":1},"Custom":2`))); err != nil {
		t.Errorf("claims that do not count: %v", err)
	}
	for _, other := range []string{`"iss":"https://evil.example"`, `"aud":"other"`, `"exp":1`, `"iat":1`, `"sub":"eve"`, `"role":"admin"`, `"tenant":"globex"`,
		`"Iss":"https://evil.example"`, `"AUD":"other"`, `"Exp":99999999999`, `"nbF":1`, `"Iat":1`, `"sUb":"eve"`, `"i\u017fs":"https://evil.example"`, `"Role":"admin"`} {
		refused(t, a, "before: "+other, of(with(other)))
		refused(t, a, "after: "+other, of(after(other)))
	}
	// What the library reads is one issuer, audience and end; what the issuer says of its own is
	// another.
	for claim, own := range map[string]any{"iss": "https://evil.example", "aud": "other", "exp": 1} {
		body, err := json.Marshal(claims(claim, own))
		if err != nil {
			t.Fatal(err)
		}
		spelled, err := json.Marshal(claims()[claim])
		if err != nil {
			t.Fatal(err)
		}
		refused(t, a, claim, of(fmt.Sprintf("%s,%q:%s}", body[:len(body)-1], strings.ToUpper(claim[:1])+claim[1:], spelled)))
	}
}
