package examples

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// Every host function works in every language: the first byte of the payload selects the function
// that the plugins LANGUAGE/sdk call.
func (b *bed) sdk(t *testing.T) {
	const denied = "the host does not grant this: look at the capabilities in plugin.toml"
	redacted := []byte("redacted to what is somewhat longer than the plugins think that it would be: " + strings.Repeat("x", 1000))
	call := plugins.Call{Stage: hook.PreSave, Meta: []byte(`{"abi":1}`), PseudonymKey: [32]byte{1},
		PutBlob: func(data []byte) ([32]byte, error) { return sha256.Sum256(data), nil },
		Redact: func(_ context.Context, set string, data []byte) ([]byte, error) {
			if set != "personal" || string(data) != "r" {
				t.Errorf("redact by %q: %q", set, data)
			}
			return redacted, nil
		}}
	var pseudonym []byte
	for _, language := range []string{"go", "assemblyscript", "c", "rust"} {
		t.Run(language, func(t *testing.T) {
			spec := plugins.Spec{Name: language, Binary: b.Module(t, language+"/sdk"), Config: []byte(`{"a":1}`),
				Capabilities: plugins.Capabilities{RedactBuiltin: true, Pseudonym: true, PutBlob: true}}
			p, err := patient(b.host)(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			blob := sha256.Sum256([]byte("b"))
			for _, tt := range []struct {
				payload string
				want    plugins.Result
				kind    error
				code    int32
			}{
				{"m", plugins.Result{Output: call.Meta}, nil, 0},
				{"c", plugins.Result{Output: spec.Config}, nil, 0},
				{"x", plugins.Result{Error: "no"}, hook.ErrRejected, 0},
				{"f", plugins.Result{Error: "broken"}, hook.ErrFailed, 20},
				{"l", plugins.Result{Unchanged: true, Logs: []plugins.LogLine{{Level: 2, Text: "hello"}},
					Findings: []hook.Finding{{Rule: "rule", Path: "/path", Item: "item", Count: 3}}}, nil, 0},
				{"r", plugins.Result{Output: redacted}, nil, 0},
				{"b", plugins.Result{Output: blob[:]}, nil, 0},
				{"z", plugins.Result{Unchanged: true}, nil, 0},
			} {
				c := call
				c.Item, c.Payload = "item", []byte(tt.payload)
				got, err := p.Call(t.Context(), &c)
				got.Fuel = 0
				for i := range got.Findings {
					got.Findings[i].Item = "item"
				}
				if diff := cmp.Diff(&tt.want, got); diff != "" {
					t.Errorf("%s: %s", tt.payload, diff)
				}
				wantError(t, tt.payload, err, tt.kind, tt.code)
			}
			c := call
			c.Payload = []byte("p")
			got, err := p.Call(t.Context(), &c)
			if err != nil || len(got.Output) != 32 || pseudonym != nil && string(pseudonym) != string(got.Output) {
				t.Errorf("the pseudonym is %x, and in another language %x: %v", got.Output, pseudonym, err)
			}
			pseudonym = got.Output

			spec.Capabilities = plugins.Capabilities{}
			if p, err = patient(b.host)(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			for _, payload := range []string{"r", "p", "b"} {
				c.Payload = []byte(payload)
				got, err := p.Call(t.Context(), &c)
				if got.Error != denied {
					t.Errorf("%s without the capability: %q", payload, got.Error)
				}
				wantError(t, payload, err, hook.ErrFailed, 16)
			}
			spec.Config = []byte(`{"bad":true}`)
			if _, err := patient(b.host)(t.Context(), spec); !errors.Is(err, hook.ErrInvalid) {
				t.Errorf("a configuration that it refuses: %v", err)
			}
		})
	}
}

func wantError(t *testing.T, payload string, err, kind error, code int32) {
	t.Helper()
	e, _ := errors.AsType[*hook.Error](err)
	if (err == nil) != (kind == nil) || kind != nil && (e == nil || e.Kind != kind || code != 0 && e.Code != code) {
		t.Errorf("%s: %v", payload, err)
	}
}
