package registry

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSpelling: the state is encoded as specified in docs/format.md §19.
func TestSpelling(t *testing.T) {
	const hash = "0100000000000000000000000000000000000000000000000000000000000000"
	const want = `{"version":1,"sequence":7,"keys":[{"key":"` + hash + `","note":"ours","trusted":"2026-01-02T03:04:05Z"}],"plugins":[` +
		`{"tenant":"acme","name":"mail","enabled":true,"active":0,"versions":[{"version":"1.0.0","digest":"` + hash + `","installed":"2026-01-02T03:04:05Z",` +
		`"signer":"0011223344556677","description":"about","stages":["pre_save","migrate"],"capabilities":["identity"],"migrations":[{"kind":"support","from":1,"to":2}],` +
		`"bindings":[{"tenants":["acme"],"thread_prefixes":["a-"],"order":-3,"config":{"a":"\u003c"}}]}]},` +
		`{"name":"redact","enabled":false,"active":0,"versions":[{"version":"builtin","digest":"` + hash + `","installed":"2026-01-02T03:04:05Z","stages":["pre_save"],"bindings":[{}]}]}]}`
	order, then := -3, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := state{Format: 1, Sequence: 7, Keys: []trustedKey{{digest{1}, "ours", then}}, Plugins: []plugin{
		{Tenant: "acme", Name: "mail", Enabled: true, Versions: []version{{
			Version: "1.0.0", Digest: digest{1}, Installed: then, Signer: "0011223344556677", Description: "about", Stages: []string{"pre_save", "migrate"},
			Capabilities: []string{"identity"}, Migrations: []migration{{"support", 1, 2}},
			Bindings: []binding{{[]string{"acme"}, []string{"a-"}, &order, []byte(`{"a":"\u003c"}`)}},
		}}},
		{Name: Redact, Versions: []version{{Version: builtinVersion, Digest: digest{1}, Installed: then, Stages: []string{"pre_save"}, Bindings: []binding{{}}}}},
	}}
	got, err := s.encode()
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(got)))
	}
	if back, err := parseState([]byte(want)); err != nil || cmp.Diff(s, back) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(s, back))
	}
	for i := range want {
		flipped := []byte(want)
		flipped[i] ^= 1
		if back, err := parseState(flipped); err == nil {
			if again, err := back.encode(); err != nil || !bytes.Equal(again, flipped) {
				t.Fatalf("byte %d is read and lost", i)
			}
		}
		if _, err := parseState([]byte(want[:i])); err == nil {
			t.Fatalf("cut to %d bytes it is taken", i)
		}
	}
}

// FuzzState: a state is accepted only in its canonical encoding.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"sequence":0,"keys":[],"plugins":[]}`))
	f.Add([]byte(`{"version":1,"sequence":0,"keys":[],"plugins":[{"name":"a","enabled":true,"active":0,"versions":[{"version":"1.0.0","digest":"` +
		`0100000000000000000000000000000000000000000000000000000000000000","installed":"2026-01-02T03:04:05Z","stages":["load"],"bindings":[{}]}]}]}`))
	f.Fuzz(func(t *testing.T, plain []byte) {
		s, err := parseState(plain)
		if err != nil {
			return
		}
		if again, err := s.encode(); err != nil || !bytes.Equal(again, plain) {
			t.Errorf("%v", err)
		}
	})
}
