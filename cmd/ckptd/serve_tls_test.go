//go:build unix

package main

import (
	"crypto/tls"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/certtest"
)

// address is what the daemon listens on over TCP.
func (d *served) address() string {
	d.t.Helper()
	m := regexp.MustCompile(`address (https?://\S+)`).FindStringSubmatch(d.out.String())
	if m == nil {
		d.t.Fatalf("no address in %q", d.out)
	}
	return m[1]
}

// TestServeTLS calls over TLS: with tokens, with client certificates of an authority that is
// accepted, of another one, and with none; and with certificates that are renewed while the daemon
// runs.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	servers, people, strangers := certtest.NewAuthority(t), certtest.NewAuthority(t), certtest.NewAuthority(t)
	d := newServed(t)
	write := func(name string, text []byte) string {
		t.Helper()
		must(t, os.WriteFile(d.path(name), text, 0o600))
		return d.path(name)
	}
	renew := func(by *certtest.Authority, valid time.Duration) {
		t.Helper()
		cert, key := by.Issue(t, "localhost", valid)
		write("cert.pem", cert)
		write("key.pem", key)
	}
	renew(servers, time.Hour)
	config := write("ckptd.toml", []byte(`owner-is-admin = true
[[certificate]]
common-name = "agent-7"
[[certificate.grant]]
role = "writer"
tenant = "acme"
user = "user-1"
`))
	d.args = []string{"--config", config, "--listen", "127.0.0.1:0", "--cert", d.path("cert.pem"), "--cert-key", d.path("key.pem"), "--client-ca", write("people.pem", people.PEM)}
	d.start()
	_, token, err := d.client(client.Options{}).CreateToken(t.Context(), "", client.Grant{Role: "writer", Tenant: "acme", User: "user-2"})
	must(t, err)

	with := func(roots *certtest.Authority, token string, certs ...tls.Certificate) *client.Store {
		t.Helper()
		c, err := client.Dial(d.address(), client.Options{Attempts: 1, Token: token, TLS: &tls.Config{RootCAs: roots.Pool, Certificates: certs, ServerName: "localhost"}})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	save := func(c *client.Store, user int) error {
		_, err := c.Thread(threadOf(user)).Save(t.Context(), textDraft("x"))
		return err
	}
	agent := people.Pair(t, "agent-7")
	tests := []struct {
		name string
		c    *client.Store
		user int
		want error
	}{
		{"a token", with(servers, token), 2, nil},
		{"a certificate", with(servers, "", agent), 1, nil},
		{"a certificate, for another user", with(servers, "", agent), 2, engine.ErrNotFound},
		{"a token beside a certificate", with(servers, token, agent), 2, nil},
		{"a bad token beside a certificate", with(servers, "ckptd_nonsense", agent), 1, client.ErrUnauthenticated},
		{"a certificate without a rule", with(servers, "", people.Pair(t, "agent-8")), 1, client.ErrUnauthenticated},
		{"neither", with(servers, ""), 1, client.ErrUnauthenticated},
		{"a certificate of another authority", with(servers, "", strangers.Pair(t, "agent-7")), 1, engine.ErrAmbiguous},
		{"a server that is not trusted", with(strangers, token), 2, client.ErrUnreachable},
	}
	for _, tt := range tests {
		if err := save(tt.c, tt.user); !errors.Is(err, tt.want) && !(tt.want == engine.ErrAmbiguous && turnedAway(err)) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := save(tests[len(tests)-1].c, 2); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the error of a server that is not trusted does not say why: %v", err)
	}

	// Connections go on, new ones get what is new.
	old := with(servers, token)
	must(t, save(old, 2))
	renew(strangers, time.Hour)
	d.hangup(reloaded)
	must(t, save(old, 2))
	if err := save(with(servers, token), 2); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a new connection gets the old certificate: %v", err)
	}
	must(t, save(with(strangers, token), 2))

	// What is broken is not taken, all of it or nothing.
	cert, _ := servers.Issue(t, "localhost", time.Hour)
	write("cert.pem", cert)
	d.hangup(keptAsWas)
	must(t, save(with(strangers, token), 2))
	renew(servers, time.Hour)
	write("people.pem", strangers.PEM)
	d.hangup(reloaded)
	if err := save(with(servers, "", agent), 1); !turnedAway(err) {
		t.Errorf("a certificate of an authority that is no longer accepted: %v", err)
	}
	must(t, save(with(servers, "", strangers.Pair(t, "agent-7")), 1))
	d.stop()
}

// turnedAway reports whether a connection came to its end in the handshake. With TLS 1.3 a client
// has sent its request already when the server refuses its certificate, so it may take the answer
// for lost.
func turnedAway(err error) bool {
	return errors.Is(err, client.ErrUnreachable) || errors.Is(err, engine.ErrAmbiguous)
}
