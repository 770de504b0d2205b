package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/redact"
	"github.com/ckptd/ckptd/plugins/worker"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "plugin-worker" {
		os.Exit(worker.Main(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// loaders are the two ways to run plugins.
func loaders(t *testing.T) map[string]pipeline.Loader {
	h, err := plugins.New(plugins.Options{Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	all := map[string]pipeline.Loader{"in-process": pipeline.LoaderFunc(func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
		return h.Load(ctx, s)
	})}
	w, err := worker.New(worker.Options{Processes: 1, Memory: 256 << 20})
	if err != nil {
		t.Logf("only in this process: %v", err)
		return all
	}
	t.Cleanup(func() { w.Close() })
	all["process"] = pipeline.LoaderFunc(func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) { return w.Load(ctx, s) })
	return all
}

const apiKey = "sk-ant-api03-" + "Zk3vT9bQpL7xWm2RcN8sYd4HgJ6fKe1aUoViEtBnMqXrCzSwDyFhGlPjO5u0IAaLkMxNvBcZqWeRtYuIoPsDfGhJ-AbCdEfAA"

// bed is a store whose saves pass plugins.
type bed struct {
	t      *testing.T
	be     backend.Backend
	store  *engine.Store
	pipe   *pipeline.Pipeline
	loader pipeline.Loader
	head   *engine.Checkpoint
}

func newBed(t *testing.T, l pipeline.Loader) *bed {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, be: mem.Open(), pipe: pipeline.New(pipeline.Options{Failures: 1000}), loader: l}
	b.store, err = engine.Open(t.Context(), b.be, engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true, Hooks: b.pipe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.store.Close(); b.pipe.Close() })
	// The first save makes the user and the thread, with plugins that do nothing.
	b.bind(Returns(Unchanged))
	if b.head, err = b.thread().Save(t.Context(), draft(1)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) thread() *engine.Thread {
	return b.store.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: "t1"})
}

func draft(step int64) engine.Draft {
	return engine.Draft{Step: step, Meta: []byte(`{"by":"a test"}`), Labels: map[string]string{"env": "prod"},
		Channels: []engine.Change{{Name: "messages", Type: "json", Data: fmt.Appendf(nil, `["hello","step %d"]`, step)}}}
}

// bind makes a module what all that comes in passes, before the redactor. The one before it is
// closed.
func (b *bed) bind(module []byte) { b.bindWith(module, 100_000_000, "20s") }

func (b *bed) bindWith(module []byte, fuel uint64, call string) {
	b.t.Helper()
	manifest := fmt.Sprintf(`name = "hostile"
version = "1.0.0"
abi = 1
description = "hostile"
wasm = "hostile.wasm"
capabilities = ["blob_put"]

[[hooks]]
stage = "pre_save"
kinds = ["channel", "write", "meta", "label", "blob"]

[limits]
memory = "16MiB"
call = %q
fuel = %d
`, call, fuel)
	bu, err := bundle.Load([]bundle.File{{Path: bundle.ManifestFile, Data: []byte(manifest)}, {Path: "hostile.wasm", Data: module}})
	if err != nil {
		b.t.Fatal(err)
	}
	pl, err := pipeline.Load(b.t.Context(), b.loader, bu, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.pipe.Replace([]pipeline.Binding{{Bundle: bu, Plugin: pl}, b.redactor()})
}

func (b *bed) redactor() pipeline.Binding {
	r, err := pipeline.NewRedactor(redact.Config{})
	if err != nil {
		b.t.Fatal(err)
	}
	return pipeline.Binding{Redactor: r}
}

// stored returns all that the backend holds.
func (b *bed) stored() map[string]string {
	b.t.Helper()
	all := map[string]string{}
	r := backend.Range{}
	for {
		page, next, err := b.be.Scan(b.t.Context(), r)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range page {
			all[string(e.Key)] = string(e.Value)
		}
		if next == nil {
			return all
		}
		r.Start = next
	}
}

// ways are those by which something comes in.
func (b *bed) ways() map[string]func() error {
	ctx := b.t.Context()
	return map[string]func() error{
		"a save": func() error {
			d := draft(2)
			d.Parent = b.head.ID
			_, err := b.thread().Save(ctx, d)
			return err
		},
		"a splice": func() error {
			at := len(`["hello"`)
			_, err := b.thread().Save(ctx, engine.Draft{Keep: true, Parent: b.head.ID, Channels: []engine.Change{{Name: "messages",
				Base: b.head.Channels[0].Version, Prefix: at, Suffix: int(b.head.Channels[0].Size) - at, Data: []byte(`,"more"`)}}})
			return err
		},
		"a first save": func() error {
			_, err := b.store.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: "t2"}).Save(ctx, draft(1))
			return err
		},
		"writes": func() error {
			_, err := b.thread().PutWrites(ctx, b.head.ID, "task", "", engine.WriteMode(0), []engine.Write{{Channel: "messages", Type: "json", Data: []byte(`"w"`)}}, 0)
			return err
		},
		"labels": func() error {
			_, err := b.thread().SetLabels(ctx, engine.At(b.head.ID), map[string]string{"who": "alice"})
			return err
		},
		"a blob": func() error {
			_, _, err := b.store.User("acme", "alice").PutBlob(ctx, strings.NewReader("a text"))
			return err
		},
	}
}

// failing are plugins that fail in every call, and the kind of the failure.
func failing() map[string]struct {
	module []byte
	kind   error
} {
	type failure = struct {
		module []byte
		kind   error
	}
	hooked := func(body func(p *Plugin) Code) []byte {
		p := NewPlugin(-1)
		p.Hook("on_pre_save", I32, body(p))
		return p.Bytes()
	}
	write := func(p *Plugin, from, n int32) Code { return I32Const(from) + I32Const(n) + Call(p.OutputWrite) + Drop }
	return map[string]failure{
		"unreachable":      {Trap(), hook.ErrTrap},
		"spin":             {Spin(), hook.ErrTimeout},
		"recursion":        {Recurse(), hook.ErrTrap},
		"out of fuel":      {Explode(62), hook.ErrFuel},
		"rejection":        {Reject(), hook.ErrRejected},
		"failure":          {Fail(16), hook.ErrFailed},
		"0 without output": {Returns(0), hook.ErrFailed},
		"unknown code":     {Returns(99), hook.ErrFailed},
		"too much output": {hooked(func(p *Plugin) Code {
			return Loop(Void, write(p, 0, 65536)+LocalGet(0)+I32Const(1)+I32Add+LocalTee(0)+I32Const(1000)+I32Ne+BrIf(0)) + I32Const(Output)
		}), hook.ErrLimit},
		"output, then a trap": {hooked(func(p *Plugin) Code { return write(p, 0, 100) + Unreachable }), hook.ErrTrap},
		"memory over its limit": {hooked(func(p *Plugin) Code {
			return I32Const(5000) + MemoryGrow + I32Const(-1) + I32Eq + If(Void, Unreachable) + I32Const(Unchanged)
		}), hook.ErrLimit},
	}
}

// A plugin that fails leaves everything as it was, byte for byte, by whatever way something was to
// come in; and what comes after it, with a sound one, is stored.
func TestNothingIsStored(t *testing.T) {
	for mode, loader := range loaders(t) {
		for name, f := range failing() {
			t.Run(name+"/"+mode, func(t *testing.T) {
				b := newBed(t, loader)
				b.bind(f.module)
				if f.kind == hook.ErrTimeout {
					b.bindWith(f.module, 1e12, "300ms")
				}
				for way, do := range b.ways() {
					if name == "spin" && way != "a save" && way != "a blob" {
						continue // each costs its time limit
					}
					before := b.stored()
					b.fails(way, do(), f.kind)
					if diff := cmp.Diff(before, b.stored()); diff != "" {
						t.Errorf("%s: what is stored has changed: %.500s", way, diff)
					}
				}
				b.bind(Returns(Unchanged))
				for way, do := range b.ways() {
					if err := do(); err != nil && way != "a splice" { // of which the head is another now, perhaps
						t.Errorf("%s with a sound plugin: %v", way, err)
					}
				}
			})
		}
	}
}

// fails asserts that an error is of a kind, and names what failed, and nothing of what was to be
// stored.
func (b *bed) fails(way string, err, kind error) {
	b.t.Helper()
	var e *hook.Error
	switch {
	case err == nil:
		b.t.Errorf("%s succeeded", way)
	case !errors.As(err, &e) || !errors.Is(err, kind):
		b.t.Errorf("%s: got %v, want %v", way, err, kind)
	case strings.Contains(err.Error(), "hello"), strings.Contains(err.Error(), "\n"):
		b.t.Errorf("%s: the error %q is not one to log", way, err)
	}
}

// Plugins that are not there fail what needs them.
func TestMissing(t *testing.T) {
	for mode, loader := range loaders(t) {
		t.Run(mode, func(t *testing.T) {
			b := newBed(t, loader)
			b.pipe.Replace([]pipeline.Binding{{Missing: "it is disabled: enable it", Name: "gone@1.0.0"}, b.redactor()})
			before := b.stored()
			for way, do := range b.ways() {
				b.fails(way, do(), hook.ErrUnavailable)
			}
			if diff := cmp.Diff(before, b.stored()); diff != "" {
				t.Errorf("what is stored has changed: %.500s", diff)
			}
		})
	}
}

// A blob that a plugin put before the save failed is not there afterwards.
func TestBlobOfFailedSave(t *testing.T) {
	for mode, loader := range loaders(t) {
		t.Run(mode, func(t *testing.T) {
			b := newBed(t, loader)
			p := NewPlugin(-1)
			p.Hook("on_pre_save", I32, p.ReadAll(0), I32Const(Buffer)+LocalGet(0)+I32Const(0)+Call(p.BlobPut)+Drop, Unreachable)
			b.bind(p.Bytes())
			before := b.stored()
			b.fails("a save", b.ways()["a save"](), hook.ErrTrap)
			if diff := cmp.Diff(before, b.stored()); diff != "" {
				t.Errorf("what is stored has changed: %.500s", diff)
			}
		})
	}
}

// Whatever a plugin writes, the redactor sees it last, and what is no JSON is not stored as such.
func TestWhatPluginsWrite(t *testing.T) {
	saying := func(output string) []byte {
		p := NewPlugin(-1)
		p.Data(0, output)
		p.Hook("on_pre_save", "", I32Const(0)+I32Const(int32(len(output)))+Call(p.OutputWrite)+Drop+I32Const(Output))
		return p.Bytes()
	}
	deep := strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000)
	for mode, loader := range loaders(t) {
		for name, c := range map[string]struct {
			output string
			fails  bool
		}{
			"reintroduced secret":          {`{"key":"` + apiKey + `"}`, false},
			"reintroduced secret, escaped": {`{"key":"\u0073k` + apiKey[2:] + `"}`, false},
			"reintroduced secret, nested":  {`{"args":"{\"key\":\"` + apiKey + `\"}"}`, false},
			"invalid UTF-8":                {"[\"\xff\xfe\"]", true},
			"invalid JSON":                 {`{"a":`, true},
			"two values":                   {`1 2`, true},
			"deep JSON":                    {deep, true},
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				b := newBed(t, loader)
				b.bind(saying(c.output))
				before := b.stored()
				_, err := b.thread().Save(t.Context(), engine.Draft{Channels: draft(2).Channels})
				if c.fails && err == nil {
					t.Errorf("it was stored")
				}
				if err != nil {
					if !c.fails {
						t.Errorf("a save: %v", err)
					}
					var e *hook.Error
					if !errors.As(err, &e) {
						t.Errorf("%v is no error of a hook", err)
					}
					if diff := cmp.Diff(before, b.stored()); diff != "" {
						t.Errorf("what is stored has changed")
					}
					return
				}
				b.pipe.Replace(nil)
				cp, err := b.thread().Load(t.Context(), engine.Latest)
				if err != nil {
					t.Fatal(err)
				}
				for _, ch := range cp.Channels {
					if bytes.Contains(ch.Data, []byte(apiKey[8:])) {
						t.Errorf("the secret is stored: %s", ch.Data)
					}
				}
			})
		}
	}
}

// JSON that is a million levels deep comes in from outside: it is stored or refused, at once.
func TestDeepJSON(t *testing.T) {
	for mode, loader := range loaders(t) {
		t.Run(mode, func(t *testing.T) {
			b := newBed(t, loader)
			for _, data := range []string{strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000), strings.Repeat(`{"a":`, 1_000_000)} {
				begin := time.Now()
				_, err := b.thread().Save(t.Context(), engine.Draft{Channels: []engine.Change{{Name: "deep", Type: "json", Data: []byte(data)}}})
				var e *hook.Error
				if err != nil && !errors.As(err, &e) || time.Since(begin) > 20*time.Second {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
			}
		})
	}
}
