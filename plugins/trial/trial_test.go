package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// fake is a plugin in Go.
type fake func(c *plugins.Call) (*plugins.Result, error)

func (fake) Close() error { return nil }

func (f fake) Call(_ context.Context, c *plugins.Call) (*plugins.Result, error) {
	r, err := f(c)
	if r == nil {
		r = &plugins.Result{}
	}
	return r, err
}

// outcomes runs fixtures with the given manifest entries on the input "in" and the output "out".
func outcomes(t *testing.T, manifest string, f fake) ([]Outcome, error) {
	t.Helper()
	manifest = "name = \"a\"\nversion = \"1.0.0\"\nabi = 1\nwasm = \"a.wasm\"\nidempotent = true\n" + manifest
	files := []bundle.File{{Path: "plugin.toml", Data: []byte(manifest)}, {Path: "a.wasm", Data: []byte("\x00asm")}, {Path: "in", Data: []byte("\"in\"\n")}}
	if strings.Contains(manifest, `"out"`) {
		files = append(files, bundle.File{Path: "out", Data: []byte("\"out\"\n")})
	}
	b, err := bundle.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return FixturesIn(t.Context(), func(context.Context, plugins.Spec) (Plugin, error) { return f, nil }, b)
}

func gives(out string) fake {
	return func(c *plugins.Call) (*plugins.Result, error) {
		if string(c.Payload) == out {
			return &plugins.Result{Unchanged: true, Fuel: 1}, nil
		}
		return &plugins.Result{Output: []byte(out), Fuel: 2}, nil
	}
}

func fails(kind error) fake {
	return func(*plugins.Call) (*plugins.Result, error) { return nil, &hook.Error{Kind: kind} }
}

// counting calls f with the number of earlier calls.
func counting(f func(n int) (*plugins.Result, error)) fake {
	n := -1
	return func(*plugins.Call) (*plugins.Result, error) { n++; return f(n) }
}

func TestFixtures(t *testing.T) {
	const begin = "[[hooks]]\nstage = \"pre_save\"\n[[fixtures]]\ninput = \"in\"\n"
	const output, unchanged, rejected, failure = "output = \"out\"", "expect = \"unchanged\"", "expect = \"rejected\"", "expect = \"error\""
	for _, tt := range []struct {
		fixture string
		plugin  fake
		problem string
	}{
		{output, gives(`"out"`), ""},
		{output, gives(`"other"`), "another output"},
		{output, gives(`"in"`), "unchanged"},
		{output, fails(hook.ErrTrap), "an error"},
		{output, fails(hook.ErrRejected), "an error"},
		{unchanged, gives(`"in"`), ""},
		{unchanged, gives(`"out"`), "it changes"},
		{unchanged, fails(hook.ErrFailed), "an error"},
		{rejected, fails(hook.ErrRejected), ""},
		{rejected, fails(hook.ErrFailed), "an error"},
		{rejected, gives(`"out"`), "does not reject"},
		{failure, fails(hook.ErrTrap), ""},
		{failure, fails(hook.ErrRejected), "an error"},
		{failure, gives(`"out"`), "no error"},
		{output, counting(func(n int) (*plugins.Result, error) {
			return &plugins.Result{Output: []byte([]string{`"out"`, `"oui"`}[n])}, nil
		}), "different result"},
		{output, counting(func(n int) (*plugins.Result, error) {
			if n > 0 {
				return nil, &hook.Error{Kind: hook.ErrTrap}
			}
			return &plugins.Result{Output: []byte(`"out"`)}, nil
		}), "different result"},
		{output, counting(func(n int) (*plugins.Result, error) {
			return &plugins.Result{Output: []byte(`"out"`), Fuel: uint64(n)}, nil
		}), "1 fuel instead of 0"},
		{output, counting(func(n int) (*plugins.Result, error) {
			return &plugins.Result{Output: []byte([]string{`"out"`, `"out"`, `"out2"`}[n])}, nil
		}), "its own output"},
	} {
		got, err := outcomes(t, begin+tt.fixture, tt.plugin)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if p := got[0].Problem; (p == "") != (tt.problem == "") || !strings.Contains(p, tt.problem) {
			t.Errorf("%s: the problem is %q, want %q", tt.fixture, p, tt.problem)
		}
	}
}

// In a trial a plugin gets the same input as from a store.
func TestCall(t *testing.T) {
	migration := bundle.Migration{Kind: "support", From: 1, To: 2}
	for _, it := range []Item{
		{Stage: hook.PreSave, Kind: hook.Channel, Name: "messages", Type: "json", Data: []byte("x@example.com")},
		{Stage: hook.Migrate, Migration: migration, Data: []byte("{}")},
	} {
		seen := false
		f := fake(func(c *plugins.Call) (*plugins.Result, error) {
			seen = true
			var meta map[string]any
			if err := json.Unmarshal(c.Meta, &meta); err != nil {
				return nil, err
			}
			if meta["stage"] != it.Stage.String() || c.Item != it.String() || !bytes.Equal(c.Payload, it.Data) || c.From != it.Migration.From || c.To != it.Migration.To {
				t.Errorf("%v: told %v, %q", it, meta, c.Item)
			}
			for _, set := range []string{"", "personal"} {
				if out, err := c.Redact(t.Context(), set, []byte("x@example.com")); err != nil || bytes.Contains(out, []byte("@")) {
					t.Errorf("redacted by %q: %s, %v", set, out, err)
				}
			}
			if out, err := c.Redact(t.Context(), "secrets", []byte("x@example.com")); err != nil || string(out) != "x@example.com" {
				t.Errorf("redacted by secrets: %s, %v", out, err)
			}
			if _, err := c.Redact(t.Context(), "colours", nil); err == nil {
				t.Error("there is a set of rules colours")
			}
			if id, err := c.PutBlob([]byte("a")); err != nil || fmt.Sprintf("%x", id[:2]) != "ca97" {
				t.Errorf("put %x, %v", id, err)
			}
			return nil, nil
		})
		if _, err := Call(t.Context(), f, it); err != nil || !seen {
			t.Error(err)
		}
	}
}
