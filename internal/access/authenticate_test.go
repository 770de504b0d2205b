package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

func newAuthenticator(t testing.TB, s Store, o Options) *Authenticator {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return now }
	}
	a, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// refused wants credentials to be refused as all others are.
func refused(t testing.TB, a *Authenticator, name string, c Credentials) {
	t.Helper()
	caller, err := a.Authenticate(context.Background(), c)
	if caller != nil || !errors.Is(err, wire.ErrUnauthenticated) || err.Error() != wire.ErrUnauthenticated.Error() {
		t.Errorf("%s: %+v, %v", name, caller, err)
	}
	if r, ok := errors.AsType[*RefusedError](err); !ok || r.Why == "" {
		t.Errorf("%s: no reason in %#v", name, err)
	}
}

func bearer(secret string) Credentials {
	return Credentials{Authorization: "Bearer " + secret, PeerUID: UnknownUID}
}

func TestAuthenticateTokens(t *testing.T) {
	store := openStore(t)
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens"), store)
	made, secret, err := tokens.Create("", []Grant{{Reader, "acme", "alice", "", later}, {Reader, "acme", "bob", "", later.Add(time.Hour)}}, now)
	if err != nil {
		t.Fatal(err)
	}
	at := now
	a := newAuthenticator(t, store, Options{Tokens: tokens, OwnerIsAdmin: true, Now: func() time.Time { return at }})
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER "} {
		c, err := a.Authenticate(t.Context(), Credentials{Authorization: scheme + secret, PeerUID: UnknownUID})
		if err != nil || c.Name != "token:"+made.ID || len(c.Grants) != 2 {
			t.Errorf("%q: %+v, %v", scheme, c, err)
		}
	}
	for name, header := range map[string]string{
		"no scheme": secret, "other scheme": "Basic " + secret, "scheme alone": "Bearer", "nothing": "Bearer ", "two blanks": "Bearer  " + secret,
		"more behind": "Bearer " + secret + " x", "mistyped": "Bearer " + secret[:len(secret)-1] + "!", "unknown": "Bearer " + newSecret(),
		"a JSON web token": "Bearer eyJhbGciOiJub25lIn0.e30.", "long": "Bearer " + strings.Repeat("x", maxAuthorization),
	} {
		refused(t, a, name, Credentials{Authorization: header, PeerUID: UnknownUID})
		// Where the peer would do, what is given and wrong is wrong all the same.
		refused(t, a, name, Credentials{Authorization: header, PeerUID: os.Geteuid()})
	}
	at = later
	if c, err := a.Authenticate(t.Context(), bearer(secret)); err != nil || c.May(Read, "acme", "alice", "t", at) || !c.May(Read, "acme", "bob", "t", at) {
		t.Errorf("after the first of two grants expired: %+v, %v", c, err)
	}
	at = later.Add(time.Hour)
	refused(t, a, "all expired", bearer(secret))
	at = now
	if _, err := tokens.Revoke(made.ID, false); err != nil {
		t.Fatal(err)
	}
	refused(t, a, "revoked", bearer(secret))
	refused(t, newAuthenticator(t, store, Options{}), "without tokens", bearer(secret))
}

func TestAuthenticatePeers(t *testing.T) {
	store, me := openStore(t), os.Geteuid()
	reader := []Grant{{Role: Reader, Tenant: "acme", User: "alice"}}
	none := Credentials{PeerUID: UnknownUID}

	a := newAuthenticator(t, store, Options{})
	refused(t, a, "nobody is known", Credentials{PeerUID: me})
	refused(t, a, "no credentials", none)
	refused(t, a, "the zero value", Credentials{})

	a = newAuthenticator(t, store, Options{OwnerIsAdmin: true, Peers: []PeerRule{{UID: me + 1, Grants: reader}}})
	if c, err := a.Authenticate(t.Context(), Credentials{PeerUID: me}); err != nil || c.Name != peerName(me) || !cmp.Equal(c.Grants, []Grant{Everything()}) {
		t.Errorf("the owner: %+v, %v", c, err)
	}
	if c, err := a.Authenticate(t.Context(), Credentials{PeerUID: me + 1}); err != nil || c.Name != peerName(me+1) || !cmp.Equal(c.Grants, reader) {
		t.Errorf("a peer: %+v, %v", c, err)
	}
	refused(t, a, "another peer", Credentials{PeerUID: me + 2})
	refused(t, a, "no peer", none)

	a = newAuthenticator(t, store, Options{OwnerIsAdmin: true, Peers: []PeerRule{{UID: me, Grants: reader}}})
	if c, err := a.Authenticate(t.Context(), Credentials{PeerUID: me}); err != nil || !cmp.Equal(c.Grants, reader) {
		t.Errorf("the owner with a rule: %+v, %v", c, err)
	}

	for name, rules := range map[string][]PeerRule{
		"negative": {{-1, reader}}, "twice": {{7, reader}, {7, reader}}, "no grant": {{7, nil}}, "bad grant": {{7, []Grant{{}}}},
	} {
		if _, err := New(store, Options{Peers: rules}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPeerUID(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("this platform does not tell")
	}
	for network, want := range map[string]int{"unix": os.Geteuid(), "tcp": UnknownUID} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		near, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		if got := PeerUID(far); got != want {
			t.Errorf("%s: uid %d, want %d", network, got, want)
		}
		far.Close()
		if got := PeerUID(far); got != UnknownUID {
			t.Errorf("%s, closed: uid %d", network, got)
		}
	}
}

// certify makes a certificate as a handshake would have verified it.
func certify(t testing.TB, name string, sans ...string) *tls.ConnectionState {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: later}
	for _, san := range sans {
		kind, value, _ := strings.Cut(san, "=")
		switch kind {
		case "dns":
			template.DNSNames = append(template.DNSNames, value)
		case "email":
			template.EmailAddresses = append(template.EmailAddresses, value)
		case "uri":
			u, err := url.Parse(value)
			if err != nil {
				t.Fatal(err)
			}
			template.URIs = append(template.URIs, u)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
}

func TestAuthenticateCertificates(t *testing.T) {
	store := openStore(t)
	grants := func(user string) []Grant { return []Grant{{Role: Reader, Tenant: "acme", User: user}} }
	at := now
	a := newAuthenticator(t, store, Options{OwnerIsAdmin: true, Now: func() time.Time { return at }, Certificates: []CertificateRule{
		{CommonName: "alice", Grants: grants("cn")}, {DNS: "host.example", Grants: grants("dns")},
		{URI: "spiffe://example/agent", Grants: grants("uri")}, {Email: "alice@example", Grants: grants("email")}}})
	names := map[string]bool{}
	for _, tt := range []struct {
		state *tls.ConnectionState
		want  string
	}{
		{certify(t, "alice"), "cn"},
		{certify(t, "x", "dns=other.example", "dns=host.example"), "dns"},
		{certify(t, "x", "uri=spiffe://example/agent"), "uri"},
		{certify(t, "x", "email=alice@example"), "email"},
		{certify(t, "alice", "dns=host.example"), "cn dns"},
		{certify(t, "Alice"), ""},
		{certify(t, "alice "), ""},
		{certify(t, "host.example"), ""},
		{certify(t, "x", "dns=alice"), ""},
		{certify(t, "x", "dns=sub.host.example"), ""},
		{certify(t, "x", "uri=spiffe://example/agent/2"), ""},
		{certify(t, ""), ""},
	} {
		creds := Credentials{TLS: tt.state, PeerUID: UnknownUID}
		subject := tt.state.PeerCertificates[0].Subject.String()
		if tt.want == "" {
			refused(t, a, subject, creds)
			continue
		}
		c, err := a.Authenticate(t.Context(), creds)
		if err != nil {
			t.Errorf("%s: %v", tt.want, err)
			continue
		}
		var users []string
		for _, g := range c.Grants {
			users = append(users, g.User)
		}
		if got := strings.Join(users, " "); got != tt.want || !regexp.MustCompile(`^certificate:[0-9a-f]{32}$`).MatchString(c.Name) {
			t.Errorf("%s: %s, want %s", c.Name, got, tt.want)
		}
		names[c.Name] = true

		unverified := &tls.ConnectionState{PeerCertificates: tt.state.PeerCertificates}
		refused(t, a, "not verified", Credentials{TLS: unverified, PeerUID: UnknownUID})
		refused(t, a, "with a wrong token", Credentials{TLS: tt.state, Authorization: "Bearer x", PeerUID: UnknownUID})
		for _, when := range []time.Time{now.Add(-2 * time.Hour), later.Add(time.Second)} {
			at = when
			refused(t, a, "out of its time", creds)
		}
		at = now
	}
	if len(names) != 4 {
		t.Errorf("the callers are %v", names)
	}

	for name, rule := range map[string]CertificateRule{
		"no name": {Grants: grants("x")}, "two names": {CommonName: "a", DNS: "b", Grants: grants("x")},
		"no grant": {DNS: "b"}, "bad grant": {DNS: "b", Grants: []Grant{{}}},
	} {
		if _, err := New(store, Options{Certificates: []CertificateRule{rule}}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
