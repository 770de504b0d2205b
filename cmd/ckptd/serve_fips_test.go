//go:build unix

package main

import (
	"crypto/tls"
	"os"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/certtest"
)

// TestServeWithFIPSOnly makes a store, saves and loads over TLS and after a restart, where whatever
// FIPS 140-3 does not approve fails.
func TestServeWithFIPSOnly(t *testing.T) {
	t.Parallel()
	authority := certtest.NewAuthority(t)
	d := newServed(t)
	d.env = []string{"GODEBUG=fips140=only"}
	cert, key := authority.Issue(t, "localhost", time.Hour)
	must(t, os.WriteFile(d.path("cert.pem"), cert, 0o600))
	must(t, os.WriteFile(d.path("key.pem"), key, 0o600))
	d.args = []string{"--listen", "127.0.0.1:0", "--cert", d.path("cert.pem"), "--cert-key", d.path("key.pem")}
	d.start()
	_, token, err := d.client(client.Options{}).CreateToken(t.Context(), "", client.Grant{Role: "writer", Tenant: "acme", User: "*"})
	must(t, err)
	dial := func() *client.Store {
		t.Helper()
		c, err := client.Dial(d.address(), client.Options{Token: token, TLS: &tls.Config{RootCAs: authority.Pool, ServerName: "localhost"}})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	for _, text := range []string{"x", "y"} {
		_, err := dial().Thread(threadOf(1)).Save(t.Context(), textDraft(text))
		must(t, err)
	}
	d.stop()
	d.start()
	cp, err := dial().Thread(threadOf(1)).Load(t.Context(), engine.Latest)
	if err != nil || string(cp.Channels[0].Data) != "y" {
		t.Errorf("after a restart: %v, %v", cp, err)
	}
}
