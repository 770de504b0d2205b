package pluginset

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/telemetry"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// seal is a Sealer that hides nothing.
type seal struct{}

func (seal) SealSidecar(dst []byte, name string, plain []byte) ([]byte, error) {
	return append(append(dst, name+"\n"...), plain...), nil
}

func (seal) OpenSidecar(name string, sealed []byte) ([]byte, error) {
	plain, ok := strings.CutPrefix(string(sealed), name+"\n")
	if !ok {
		return nil, engine.ErrCorrupt
	}
	return []byte(plain), nil
}

func (seal) Pseudonym(purpose string, names ...string) string { return purpose }

func open(t *testing.T, o Options) *Set {
	t.Helper()
	s := New(o)
	s.Open(seal{})
	t.Cleanup(func() { s.Close() })
	return s
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// archive is a plugin that runs before saves.
func archive(t *testing.T, version string, module []byte) []byte {
	t.Helper()
	b, err := bundle.Load([]bundle.File{{Path: "x.wasm", Data: module}, {Path: bundle.ManifestFile, Data: fmt.Appendf(nil,
		"name = \"x\"\nversion = %q\nabi = 1\nwasm = \"x.wasm\"\n[[hooks]]\nstage = \"pre_save\"\n", version)}})
	return must[*bundle.Bundle](t)(b, err).Archive()
}

// run passes a text through what runs before saves.
func run(t *testing.T, c hook.Chain) (string, error) {
	t.Helper()
	call := &hook.Call{Items: []hook.Item{{Kind: hook.Channel, Name: "a", Type: "text", Data: []byte("to bob@example.org")}}}
	err := c.Run(t.Context(), call)
	return string(call.Items[0].Data), err
}

// A store without plugins has nothing of them, and one that is not open lets nothing past.
func TestNothingInstalled(t *testing.T) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "plugins")
	s := New(Options{Dir: dir})
	if c, err := s.For(hook.PreSave, "acme", "t"); !errors.Is(err, hook.ErrUnavailable) || c != nil {
		t.Errorf("before the store is open: %v, %v", c, err)
	}
	s.Open(seal{})
	if c, err := s.For(hook.PreSave, "acme", "t"); c != nil || err != nil {
		t.Errorf("without plugins: %v, %v", c, err)
	}
	list, err := s.Plugins(ctx, "")
	if _, none := s.Plugin(ctx, "", "redact"); len(list) != 0 || err != nil || !errors.Is(none, engine.ErrNotFound) || s.Start(ctx) != nil || s.Reload(ctx) != nil {
		t.Errorf("without plugins: %v, %v, %v", list, err, none)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a directory was made")
	}
	if s.loader.load != nil || s.now.Load() != nil {
		t.Error("something was started")
	}
	if _, err := open(t, Options{}).InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Builtin: "redact"}); !errors.Is(err, hook.ErrUnavailable) {
		t.Errorf("installed nowhere: %v", err)
	}
}

// What is installed runs at once, is there again after a restart, and a chain that was begun goes
// on as it was.
func TestInstalled(t *testing.T) {
	ctx := t.Context()
	m := telemetry.NewMetrics(telemetry.MetricsOptions{})
	o := Options{Dir: filepath.Join(t.TempDir(), "plugins"), Metrics: m}
	s := open(t, o)
	plugin := must[*ckptdv1.Plugin](t)
	chain := must[hook.Chain](t)
	plugin(s.InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Archive: archive(t, "1.0.0", wasmtest.Echo())}))
	old := chain(s.For(hook.PreSave, "acme", "t"))
	plugin(s.InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Archive: archive(t, "2.0.0", wasmtest.Upper())}))
	plugin(s.InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Builtin: "redact"}))
	for _, tt := range []struct {
		chain hook.Chain
		want  string
	}{{old, "to bob@example.org"}, {chain(s.For(hook.PreSave, "acme", "t")), "TO [REDACTED:email]"}} {
		if got, err := run(t, tt.chain); got != tt.want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, tt.want)
		}
	}
	w := httptest.NewRecorder()
	telemetry.MetricsHandler(m).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`ckptd_plugin_calls_total{outcome="ok",plugin="x@2.0.0",stage="pre_save"} 1`, `ckptd_plugin_findings_total{plugin="redact",rule="email"} 1`} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	before := must[[]*ckptdv1.Plugin](t)(s.Plugins(ctx, ""))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.For(hook.PreSave, "acme", "t"); !errors.Is(err, hook.ErrUnavailable) {
		t.Errorf("closed: %v", err)
	}
	s = open(t, o)
	if got, err := run(t, chain(s.For(hook.PreSave, "acme", "t"))); got != "TO [REDACTED:email]" || err != nil {
		t.Errorf("after a restart %q, %v", got, err)
	}
	after := must[[]*ckptdv1.Plugin](t)(s.Plugins(ctx, ""))
	if diff := cmp.Diff(summaries(before), summaries(after)); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
}

func summaries(all []*ckptdv1.Plugin) (texts []string) {
	for _, p := range all {
		texts = append(texts, fmt.Sprint(p.GetTenant(), " ", Summary(p), " ", p.GetBindings()))
	}
	return texts
}

// Tenants have their own plugins, which others neither see nor change.
func TestTenantsApart(t *testing.T) {
	ctx := t.Context()
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "plugins")})
	config := `{"disable":["email"]}`
	for _, m := range []*ckptdv1.InstallPluginRequest{
		{Tenant: "acme", Builtin: "redact", Bindings: []*ckptdv1.PluginBinding{{Config: config}}},
		{Tenant: "umbrella", Archive: archive(t, "1.0.0", wasmtest.Upper())},
		{Archive: archive(t, "2.0.0", wasmtest.Echo()), Bindings: []*ckptdv1.PluginBinding{{Tenants: []string{"acme", "initech"}, ThreadPrefixes: []string{"s-"}}}},
	} {
		must[*ckptdv1.Plugin](t)(s.InstallPlugin(ctx, m))
	}
	for tenant, want := range map[string][]string{"acme": {" x acme", "acme redact acme"}, "umbrella": {"umbrella x umbrella"}, "initech": {" x initech"}, "other": nil,
		"": {" x acme,initech", "acme redact acme", "umbrella x umbrella"}} {
		var got []string
		for _, p := range must[[]*ckptdv1.Plugin](t)(s.Plugins(ctx, tenant)) {
			got = append(got, p.GetTenant()+" "+p.GetName()+" "+strings.Join(p.GetBindings()[0].GetTenants(), ","))
			if p.GetBindings()[0].GetConfig() != "" {
				t.Errorf("the list for %q has the configuration of %s", tenant, p.GetName())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %q (-want +got):\n%s", tenant, diff)
		}
	}
	if p, err := s.Plugin(ctx, "acme", "redact"); err != nil || p.GetBindings()[0].GetConfig() != config {
		t.Errorf("acme's own: %v, %v", p, err)
	}
	for _, tenant := range []string{"acme", "initech", "other"} { // x is of umbrella, and of the store
		_, shown := s.Plugin(ctx, tenant, "x")
		_, disabled := s.SetPluginEnabled(ctx, tenant, "x", false)
		_, back := s.RollbackPlugin(ctx, tenant, "x", "")
		removed := s.RemovePlugin(ctx, tenant, "x")
		for _, err := range []error{shown, disabled, back, removed} {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%s reaches what is not its own: %v", tenant, err)
			}
		}
	}
	_, err := s.InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Tenant: "acme", Builtin: "redact", Bindings: []*ckptdv1.PluginBinding{{Tenants: []string{"umbrella"}}}})
	if !errors.Is(err, hook.ErrInvalid) {
		t.Errorf("a plugin of acme for umbrella: %v", err)
	}
}

// What cannot be read fails what hooks would concern, and is told when the store is opened.
func TestDamage(t *testing.T) {
	ctx := t.Context()
	o := Options{Dir: filepath.Join(t.TempDir(), "plugins")}
	s := open(t, o)
	must[*ckptdv1.Plugin](t)(s.InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Builtin: "redact"}))
	s.Close()
	if err := os.WriteFile(filepath.Join(o.Dir, "state"), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if err := s.Start(ctx); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("starting: %v", err)
	}
	for _, stage := range []hook.Stage{hook.PreSave, hook.Load, hook.Export, hook.Migrate} {
		_, err := s.For(stage, "acme", "t")
		if e, ok := errors.AsType[*hook.Error](err); !ok || e.Kind != hook.ErrUnavailable || e.Stage != stage {
			t.Errorf("%v: %v", stage, err)
		}
	}
	if _, err := s.InstallPlugin(ctx, &ckptdv1.InstallPluginRequest{Builtin: "redact"}); err == nil {
		t.Error("something is installed over what cannot be read")
	}
}

// A request that cannot be meant is refused before anything is made of it.
func TestRefusedInstalls(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins")
	s := open(t, Options{Dir: dir})
	for _, m := range []*ckptdv1.InstallPluginRequest{nil, {}, {Builtin: "other"}, {Builtin: "redact", Archive: []byte("x")}, {Archive: []byte("x")},
		{Builtin: "redact", Digest: []byte("short")}, {Builtin: "redact", Digest: make([]byte, 32)}} {
		if p, err := s.InstallPlugin(t.Context(), m); !errors.Is(err, engine.ErrInvalid) && !errors.Is(err, hook.ErrInvalid) {
			t.Errorf("%v: %v, %v", m, p, err)
		}
	}
	for _, key := range [][]byte{nil, make([]byte, 31), make([]byte, 33)} {
		if _, err := s.TrustKey(t.Context(), key, ""); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a directory was made")
	}
}
