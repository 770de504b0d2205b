package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/redact"
)

// fake is a Plugin in Go.
type fake struct {
	run    func(*plugins.Call) (*plugins.Result, error)
	closed chan struct{}

	mu    sync.Mutex
	calls []plugins.Call
}

func newFake(run func(*plugins.Call) (*plugins.Result, error)) *fake {
	return &fake{run: run, closed: make(chan struct{})}
}

func (f *fake) Stages() []hook.Stage {
	return []hook.Stage{hook.PreSave, hook.Load, hook.Export, hook.Migrate}
}
func (f *fake) Digest() [32]byte { return [32]byte{1} }
func (f *fake) Close() error     { close(f.closed); return nil }

func (f *fake) Call(ctx context.Context, c *plugins.Call) (*plugins.Result, error) {
	f.mu.Lock()
	kept := *c
	kept.Payload = bytes.Clone(c.Payload)
	f.calls = append(f.calls, kept)
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return &plugins.Result{}, &hook.Error{Kind: hook.ErrTimeout, Reason: err.Error()}
	}
	return f.run(c)
}

// payloads returns the payloads that the plugin was called with, and forgets them.
func (f *fake) payloads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, c := range f.calls {
		all = append(all, string(c.Payload))
	}
	f.calls = nil
	return all
}

// replacing is a plugin that replaces one text with another.
func replacing(old, new string) *fake {
	return newFake(func(c *plugins.Call) (*plugins.Result, error) {
		out := bytes.ReplaceAll(c.Payload, []byte(old), []byte(new))
		if bytes.Equal(out, c.Payload) {
			return &plugins.Result{Unchanged: true, Fuel: 1}, nil
		}
		return &plugins.Result{Output: out, Fuel: 10, Findings: []hook.Finding{{Rule: "own", Path: "/0", Count: 2}}}, nil
	})
}

// failing is a plugin that fails.
func failing(err error) *fake {
	return newFake(func(*plugins.Call) (*plugins.Result, error) { return &plugins.Result{Fuel: 3}, err })
}

// answering is a plugin with a constant output.
func answering(out string) *fake {
	return newFake(func(*plugins.Call) (*plugins.Result, error) { return &plugins.Result{Output: []byte(out)}, nil })
}

// bundleOf creates a bundle. It prepends name, version and module to the manifest.
func bundleOf(t testing.TB, name, manifest string) *bundle.Bundle {
	t.Helper()
	text := fmt.Sprintf("name = %q\nversion = \"1.0.0\"\nabi = 1\nwasm = \"a.wasm\"\n%s", name, manifest)
	b, err := bundle.Load([]bundle.File{{Path: bundle.ManifestFile, Data: []byte(text)}, {Path: "a.wasm", Data: []byte("\x00asm")}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const preSave = "[[hooks]]\nstage = \"pre_save\"\n"

// bound returns a binding of a plugin to everything.
func bound(t testing.TB, name, manifest string, p Plugin) Binding {
	return Binding{Bundle: bundleOf(t, name, manifest), Plugin: p}
}

func redactor(t testing.TB) Binding {
	t.Helper()
	r, err := NewRedactor(redact.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return Binding{Redactor: r}
}

func pipelineOf(bindings ...Binding) *Pipeline {
	p := New(Options{})
	p.Replace(bindings)
	return p
}

// chainOf returns the chain of a thread of the tenant acme.
func chainOf(t testing.TB, p *Pipeline, stage hook.Stage) hook.Chain {
	t.Helper()
	c, err := p.For(stage, "acme", "support-1")
	if err != nil || c == nil {
		t.Fatalf("no chain: %v", err)
	}
	return c
}

func channel(name, data string) hook.Item {
	return hook.Item{Kind: hook.Channel, Name: name, Type: "json", Data: []byte(data)}
}

func callOf(items ...hook.Item) *hook.Call {
	return &hook.Call{Items: items, PseudonymKey: [32]byte{7}, Seed: [32]byte{8}, Place: hook.Place{Tenant: "acme", User: "alice", Thread: "support-1",
		Namespace: "ns", Checkpoint: "cp", Step: 4, Status: "running", SchemaVersion: 3, Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
}

// saved runs items through pre_save and returns their data.
func saved(t testing.TB, p *Pipeline, items ...hook.Item) []string {
	t.Helper()
	call := callOf(items...)
	if err := chainOf(t, p, hook.PreSave).Run(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range call.Items {
		out = append(out, string(it.Data))
	}
	return out
}

func wantStrings(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
