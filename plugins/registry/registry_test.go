package registry

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
)

// bed is a directory of plugins with the environment that they run in.
type bed struct {
	*Registry
	t       *testing.T
	o       Options
	broken  map[string]bool // names of plugins that cannot be loaded
	unsaved bool            // writes fail
	open    atomic.Int64    // loaded plugins
}

// tracked is a plugin whose closing is recorded.
type tracked struct {
	pipeline.Plugin
	open *atomic.Int64
}

func (p tracked) Close() error {
	p.open.Add(-1)
	return p.Plugin.Close()
}

var ctx = context.Background()

func newBed(t *testing.T) *bed {
	t.Helper()
	h, err := plugins.New(plugins.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, broken: map[string]bool{}}
	t.Cleanup(func() {
		if err := errors.Join(b.Registry.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.o = Options{
		Dir: filepath.Join(t.TempDir(), "plugins"),
		Loader: pipeline.LoaderFunc(func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
			if b.broken[s.Name] {
				return nil, &hook.Error{Kind: hook.ErrTimeout, Plugin: s.Name, Reason: "it took too long"}
			}
			p, err := h.Load(ctx, s)
			if err != nil {
				return nil, err
			}
			b.open.Add(1)
			return tracked{p, &b.open}, nil
		}),
		Seal: func(plain []byte) ([]byte, error) {
			if b.unsaved {
				return nil, errors.New("the disk is full")
			}
			return append([]byte("sealed"), flip(plain)...), nil
		},
		Unseal: func(sealed []byte) ([]byte, error) {
			if !bytes.HasPrefix(sealed, []byte("sealed")) {
				return nil, errors.New("it does not open")
			}
			return flip(sealed[6:]), nil
		},
		Keep: 3, Now: func() time.Time { now = now.Add(time.Hour); return now },
	}
	b.reopen()
	return b
}

func flip(data []byte) []byte {
	out := bytes.Clone(data)
	for i := range out {
		out[i] ^= 0x55
	}
	return out
}

// reopen simulates a restart.
func (b *bed) reopen() {
	b.t.Helper()
	if b.Registry != nil {
		if err := b.Registry.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	r, err := Open(ctx, b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Registry = r
}

const preSave = "[[hooks]]\nstage = \"pre_save\"\n"

func bundleOf(t *testing.T, name, version, manifest string, module []byte, more ...bundle.File) *bundle.Bundle {
	t.Helper()
	text := fmt.Sprintf("name = %q\nversion = %q\nabi = 1\nwasm = \"a.wasm\"\n%s", name, version, manifest)
	b, err := bundle.Load(append([]bundle.File{{Path: bundle.ManifestFile, Data: []byte(text)}, {Path: "a.wasm", Data: module}}, more...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func upper(t *testing.T, version string) *bundle.Bundle {
	return bundleOf(t, "upper", version, preSave, wasmtest.Upper())
}

func (b *bed) install(in Install) Plugin {
	b.t.Helper()
	p, err := b.Install(ctx, in)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// save passes text through pre_save.
func (b *bed) save(tenant, thread, text string) (string, error) {
	c, err := b.Hooks().For(hook.PreSave, tenant, thread)
	if err != nil || c == nil {
		return text, err
	}
	call := &hook.Call{Items: []hook.Item{{Kind: hook.Channel, Name: "c", Type: "text", Data: []byte(text)}}}
	call.Place.Tenant = tenant
	err = c.Run(ctx, call)
	return string(call.Items[0].Data), err
}

func (b *bed) want(tenant, thread, text, want string) {
	b.t.Helper()
	if got, err := b.save(tenant, thread, text); err != nil || got != want {
		b.t.Errorf("%s %s: %q, %v, want %q", tenant, thread, got, err, want)
	}
}

func TestInstall(t *testing.T) {
	b := newBed(t)
	b.want("acme", "t", "hi jane@example.com", "hi jane@example.com")
	if _, err := os.Stat(b.o.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without plugins: %v", err)
	}
	up := upper(t, "1.0.0")
	p := b.install(Install{Bundle: up, Digest: up.Digest(), Bindings: []Binding{{Tenants: []string{"acme"}, Prefixes: []string{"support-"}}}})
	b.install(Install{Tenant: "other"})
	if p.Name != "upper" || p.Version != "1.0.0" || p.Digest != up.Digest() || !p.Enabled || len(p.Versions) != 1 || !p.Versions[0].Active {
		t.Errorf("%+v", p)
	}
	check := func() {
		t.Helper()
		b.want("acme", "support-1", "hi jane@example.com", "HI JANE@EXAMPLE.COM")
		b.want("acme", "x", "hi jane@example.com", "hi jane@example.com")
		b.want("other", "support-1", "hi jane@example.com", "hi [REDACTED:email]")
	}
	check()
	list := b.List()
	b.reopen()
	check()
	for i := range list {
		list[i].Calls = b.List()[i].Calls
	}
	if diff := cmp.Diff(list, b.List()); diff != "" || len(list) != 2 {
		t.Error(diff)
	}
	files, err := os.ReadDir(b.o.Dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	sealed, err := os.ReadFile(filepath.Join(b.o.Dir, stateFile))
	if err != nil || bytes.Contains(sealed, []byte("acme")) {
		t.Error("the tenant is readable")
	}
}

// TestRefused: a refused installation changes neither the files nor the running plugins.
func TestRefused(t *testing.T) {
	b := newBed(t)
	steps := "[[migrations]]\nkind = \"support\"\nfrom = 1\nto = 2\n"
	b.install(Install{Bundle: upper(t, "1.0.0")})
	files := func() map[string]string {
		all := map[string]string{}
		entries, err := os.ReadDir(b.o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(b.o.Dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] = string(data)
		}
		return all
	}
	before := files()
	fixture := func(in, out string) []bundle.File {
		return []bundle.File{{Path: "in.json", Data: []byte(in)}, {Path: "out.json", Data: []byte(out)}}
	}
	const fixtures = preSave + "[[fixtures]]\ninput = \"in.json\"\noutput = \"out.json\"\n"
	schema := bundle.File{Path: "s.json", Data: []byte(`{"properties":{"a":{"type":"string"}}}`)}
	for _, tt := range []struct {
		name string
		in   Install
		want string
	}{
		{"digest", Install{Bundle: upper(t, "2.0.0"), Digest: [32]byte{1}}, "get the right plugin"},
		{"fixture", Install{Bundle: bundleOf(t, "upper", "2.0.0", fixtures, wasmtest.Upper(), fixture(`"a"`, `"b"`)...)}, "its fixture in.json fails: it gives another output"},
		{"fixture of a disabled one", Install{Disabled: true, Bundle: bundleOf(t, "upper", "2.0.0", fixtures, wasmtest.Upper(), fixture(`"a"`, `"b"`)...)}, "fails: "},
		{"no module", Install{Bundle: bundleOf(t, "upper", "2.0.0", preSave, []byte("\x00asm"))}, "upper@2.0.0: "},
		{"other stage", Install{Bundle: bundleOf(t, "upper", "2.0.0", steps, wasmtest.Upper())}, "exports no on_migrate"},
		{"config", Install{Bundle: bundleOf(t, "upper", "2.0.0", "config_schema = \"s.json\"\n"+preSave, wasmtest.Upper(), schema), Bindings: []Binding{{Config: []byte(`{"a":1}`)}}},
			"does not fit s.json at /a"},
		{"no config", Install{Bundle: upper(t, "2.0.0"), Bindings: []Binding{{Config: []byte(`{`)}}}, "not JSON"},
		{"config of the redactor", Install{Bindings: []Binding{{Config: []byte(`{"disabled":["email"]}`)}}}, "redact: invalid plugin: its configuration is invalid"},
		{"stage of the redactor", Install{Bindings: []Binding{{Config: []byte(`{"stages":["boot"]}`)}}}, `the stage "boot"`},
		{"order of the redactor", Install{Bindings: []Binding{{Order: new(int)}}}, "it always runs last"},
		{"overlap", Install{Bundle: upper(t, "2.0.0"), Bindings: []Binding{{Prefixes: []string{"a"}}, {Tenants: []string{"x"}, Prefixes: []string{"ab"}}}}, "its bindings 1 and 2 cover the same threads"},
		{"any tenant", Install{Bundle: upper(t, "2.0.0"), Bindings: []Binding{{Tenants: []string{"*"}}}}, "omit it to match all"},
		{"any thread", Install{Bundle: upper(t, "2.0.0"), Bindings: []Binding{{Prefixes: []string{"*"}}}}, "omit it to match all"},
		{"other tenant", Install{Tenant: "acme", Bundle: upper(t, "2.0.0"), Bindings: []Binding{{Tenants: []string{"other"}}}}, "omit the tenants"},
		{"empty prefix", Install{Bundle: upper(t, "2.0.0"), Bindings: []Binding{{Prefixes: []string{""}}}}, "omit it to match all"},
	} {
		_, err := b.Install(ctx, tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		if diff := cmp.Diff(before, files()); diff != "" {
			t.Errorf("%s changed the files: %.300s", tt.name, diff)
		}
		b.want("any", "t", "a", "A")
		if list := b.List(); len(list) != 1 || list[0].Version != "1.0.0" {
			t.Errorf("%s: %+v", tt.name, list)
		}
	}
	b.unsaved = true
	for name, err := range map[string]error{
		"install": func() error { _, err := b.Install(ctx, Install{Bundle: upper(t, "2.0.0")}); return err }(),
		"disable": func() error { _, err := b.Disable(ctx, "", "upper"); return err }(),
		"remove":  b.Remove(ctx, "", "upper"),
	} {
		if err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.open.Load(); n != 1 {
		t.Errorf("%d plugins are loaded", n)
	}
	b.want("any", "t", "a", "A")
	if diff := cmp.Diff(before, files()); diff != "" {
		t.Errorf("the files changed: %.300s", diff)
	}
}

func TestVersions(t *testing.T) {
	b := newBed(t)
	one, two := bundleOf(t, "p", "1.0.0", preSave, wasmtest.Upper()), bundleOf(t, "p", "2.0.0", preSave, wasmtest.Echo())
	b.install(Install{Bundle: one})
	b.install(Install{Bundle: two, Bindings: []Binding{{Tenants: []string{"acme"}}}})
	b.want("acme", "t", "a", "a")
	p, err := b.Rollback(ctx, "", "p", "")
	if err != nil || p.Version != "1.0.0" || len(p.Bindings[0].Tenants) != 0 || p.Versions[0].Active || !p.Versions[1].Active {
		t.Fatalf("%+v, %v", p, err)
	}
	b.want("acme", "t", "a", "A")
	if _, err := b.Rollback(ctx, "", "p", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("back before the first: %v", err)
	}
	if p, err := b.Rollback(ctx, "", "p", "2.0.0"); err != nil || p.Version != "2.0.0" {
		t.Errorf("%+v, %v", p, err)
	}
	b.want("acme", "t", "a", "a")
	for _, v := range []string{"3.0.0", "4.0.0", "5.0.0"} {
		b.install(Install{Bundle: bundleOf(t, "p", v, preSave, wasmtest.Upper())})
	}
	p, err = b.Get("", "p")
	if err != nil || len(p.Versions) != 3 || p.Versions[0].Version != "5.0.0" || p.Versions[2].Version != "3.0.0" {
		t.Errorf("%+v, %v", p.Versions, err)
	}
	if archives, _ := filepath.Glob(filepath.Join(b.o.Dir, "*"+bundle.Extension)); len(archives) != 3 {
		t.Errorf("%d archives", len(archives))
	}
	if _, err := b.Rollback(ctx, "", "p", "1.0.0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a version that is gone: %v", err)
	}
	if again := b.install(Install{Bundle: bundleOf(t, "p", "5.0.0", preSave, wasmtest.Upper())}); !cmp.Equal(again.Versions, p.Versions) {
		t.Errorf("the same once more: %+v", again.Versions)
	}
	if _, err := b.Disable(ctx, "", "p"); err != nil {
		t.Fatal(err)
	}
	b.want("acme", "t", "a", "a")
	if p, err := b.Enable(ctx, "", "p"); err != nil || !p.Enabled {
		t.Fatal(err)
	}
	b.want("acme", "t", "a", "A")
	if err := b.Remove(ctx, "", "p"); err != nil {
		t.Fatal(err)
	}
	b.want("acme", "t", "a", "a")
	if archives, _ := filepath.Glob(filepath.Join(b.o.Dir, "*"+bundle.Extension)); len(archives) != 0 || len(b.List()) != 0 {
		t.Error("something is left")
	}
	for name, err := range map[string]error{
		"get": func() error { _, err := b.Get("", "p"); return err }(), "remove": b.Remove(ctx, "", "p"),
		"enable": func() error { _, err := b.Enable(ctx, "", "p"); return err }(), "untrust": b.Untrust(ctx, "0011223344556677"),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.reopen()
}

func TestSignatures(t *testing.T) {
	b := newBed(t)
	mine := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
	b.install(Install{Bundle: upper(t, "1.0.0")})
	if _, err := b.Trust(ctx, bundle.PublicKey(mine), "mine"); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	if keys := b.Keys(); len(keys) != 1 || keys[0].Key != bundle.PublicKey(mine) || keys[0].Note != "mine" {
		t.Errorf("%+v", keys)
	}
	b.want("a", "t", "a", "A") // installed plugins stay
	for _, in := range []*bundle.Bundle{upper(t, "2.0.0"), upper(t, "2.0.0").Sign(other)} {
		if _, err := b.Install(ctx, Install{Bundle: in}); !errors.Is(err, hook.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	p := b.install(Install{Bundle: upper(t, "2.0.0").Sign(mine)})
	if p.Versions[0].Signer != bundle.PublicKey(mine).ID() {
		t.Errorf("signed by %q", p.Versions[0].Signer)
	}
	if _, err := b.Rollback(ctx, "", "upper", ""); err == nil || !strings.Contains(err.Error(), "is not signed") {
		t.Errorf("back to a version that is not signed: %v", err)
	}
	if err := b.Untrust(ctx, bundle.PublicKey(mine).ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Rollback(ctx, "", "upper", ""); err != nil {
		t.Error(err)
	}
	b.reopen()
	b.install(Install{}) // the redactor needs no signature
}

// TestDamage: a store with plugins that cannot run still opens, and nothing bypasses them.
func TestDamage(t *testing.T) {
	b := newBed(t)
	up := upper(t, "1.0.0")
	b.install(Install{Bundle: up, Bindings: []Binding{{Tenants: []string{"acme"}}}})
	path := b.archive(up.Digest())
	for name, spoil := range map[string]func() error{
		"missing": func() error { return os.Remove(path) },
		"damaged": func() error { return os.WriteFile(path, up.Archive()[:1000], 0o600) },
		"another": func() error { return os.WriteFile(path, upper(t, "6.6.6").Archive(), 0o600) },
		"slow":    func() error { b.broken["upper@1.0.0"] = true; return nil },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		b.want("acme", "t", "a", "A") // loaded plugins keep running
		b.reopen()
		_, err := b.save("acme", "t", "a")
		if !errors.Is(err, hook.ErrUnavailable) || !strings.Contains(err.Error(), "upper@1.0.0") || !strings.Contains(err.Error(), "install it again, roll it back, or disable it") {
			t.Errorf("%s: %v", name, err)
		}
		b.want("other", "t", "a", "a")
		if p, err := b.Get("", "upper"); err != nil || p.Problem == "" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		b.install(Install{}) // other changes remain possible
		if _, err := b.save("acme", "t", "a"); !errors.Is(err, hook.ErrUnavailable) {
			t.Errorf("%s: after another change: %v", name, err)
		}
		if err := b.Remove(ctx, "", Redact); err != nil {
			t.Fatal(err)
		}
		delete(b.broken, "upper@1.0.0")
		if p := b.install(Install{Bundle: up, Bindings: []Binding{{Tenants: []string{"acme"}}}}); p.Problem != "" || len(p.Versions) != 1 {
			t.Errorf("%s: %+v", name, p)
		}
		b.want("acme", "t", "a", "A")
		b.reopen()
		b.want("acme", "t", "a", "A")
	}
}

func TestDamagedState(t *testing.T) {
	b := newBed(t)
	b.install(Install{Bundle: upper(t, "1.0.0")})
	path := filepath.Join(b.o.Dir, stateFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i <= len(good); i++ {
		if err := os.WriteFile(path, good[:i], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.Reload(ctx); (err == nil) != (i == len(good)) {
			t.Fatalf("cut to %d of %d: %v", i, len(good), err)
		}
		b.want("acme", "t", "a", "A")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, b.o); err == nil || !strings.Contains(err.Error(), "with the bindings of the plugins is missing: restore it") {
		t.Errorf("without state: %v", err)
	}
	for text, want := range map[string]string{
		`{"version":2}`: "use the program that wrote it", `{"version":1}`: "damaged", `[]`: "damaged", `{"version":1,"sequence":0,"keys":[],"plugins":[{"name":"a","enabled":true,"active":1,"versions":[]}]}`: "damaged",
		` {"version":1,"sequence":0,"keys":[],"plugins":[]}`: "damaged",
	} {
		if _, err := parseState([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := parseState([]byte(`{"version":1,"sequence":0,"keys":[],"plugins":[]}`)); err != nil {
		t.Error(err)
	}
}

// TestClaims: two plugins cannot both provide the same migration step for one thread.
func TestClaims(t *testing.T) {
	s := state{}
	add := func(tenant, name string, enabled bool, b binding) {
		p := s.add(tenant, name)
		p.Enabled = enabled
		p.Versions = []version{{Version: "1.0.0", Migrations: []migration{{"support", 1, 2}}, Bindings: []binding{b}}}
	}
	add("", "a", true, binding{Prefixes: []string{"x-"}})
	add("", "b", true, binding{Prefixes: []string{"y-"}})
	add("", "c", false, binding{})
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	s.plugin("", "c").Enabled = true
	if err := s.check(); err == nil || !strings.Contains(err.Error(), `c@1.0.0: invalid plugin: it makes the migration of "support" from 1 to 2, as does a@1.0.0: disable or remove one`) {
		t.Error(err)
	}
}
