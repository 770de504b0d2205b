package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/wasmtest"
)

func (b *bed) plugins(token string) ckptdv1.PluginServiceClient {
	return ckptdv1.NewPluginServiceClient(b.httpClient(token), baseURL)
}

// Plugins change while saves go on: each save passes one version or the other, and none fails.
func TestPluginsChangeUnderSaves(t *testing.T) {
	b := newBed(t, Limits{})
	plugins := b.plugins("")
	install := func(module []byte) {
		t.Helper()
		_, err := plugins.InstallPlugin(t.Context(), connect.NewRequest(&ckptdv1.InstallPluginRequest{Archive: plugin("x", "", module).Archive()}))
		must(t, err)
	}
	install(wasmtest.Echo())
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			c := b.checkpoints("")
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				d := &ckptdv1.Draft{Channels: []*ckptdv1.Change{{Name: "x", Type: "text", Content: &ckptdv1.Change_Text{Text: "hello"}}}}
				res, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref(name), Draft: d}))
				if err != nil {
					t.Errorf("save %d of %s: %v", n, name, err)
					return
				}
				cp, err := b.store.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: name}).Load(t.Context(), engine.At(res.Msg.GetCheckpoint().GetId()))
				if err != nil {
					t.Error(err)
					return
				}
				rewritten := res.Msg.GetCheckpoint().GetChannels()[0].GetRewritten()
				if got := string(cp.Channels[0].Data); got != "hello" && got != "HELLO" || rewritten != (got == "HELLO") || len(cp.Hooks) != 1 {
					t.Errorf("stored %q, rewritten %v, hooks %v", got, rewritten, cp.Hooks)
				}
			}
		})
	}
	for n := range 10 {
		install([][]byte{wasmtest.Upper(), wasmtest.Echo()}[n%2])
		time.Sleep(10 * time.Millisecond)
	}
	close(done)
	wg.Wait()
}

// What is done with plugins is in the audit log, whoever does it, and what is not allowed as well.
func TestPluginsAreAudited(t *testing.T) {
	b := newBed(t, Limits{})
	boss := b.plugins(b.token(access.Grant{Role: access.Admin, Tenant: "acme", User: "*"}))
	_, err := boss.InstallPlugin(t.Context(), connect.NewRequest(&ckptdv1.InstallPluginRequest{Tenant: "acme", Archive: plugin("x", "", wasmtest.Upper()).Archive()}))
	must(t, err)
	_, err = boss.SetPluginEnabled(t.Context(), connect.NewRequest(&ckptdv1.SetPluginEnabledRequest{Tenant: "acme", Name: "x"}))
	must(t, err)
	_, err = boss.RemovePlugin(t.Context(), connect.NewRequest(&ckptdv1.RemovePluginRequest{Tenant: "acme", Name: "x"}))
	must(t, err)
	_, err = boss.InstallPlugin(t.Context(), connect.NewRequest(&ckptdv1.InstallPluginRequest{Builtin: "redact"}))
	wantCode(t, err, connect.CodePermissionDenied, ckptdv1.Reason_REASON_DENIED)
	_, err = boss.InstallPlugin(t.Context(), connect.NewRequest(&ckptdv1.InstallPluginRequest{Tenant: "umbrella", Builtin: "redact"}))
	wantCode(t, err, connect.CodeNotFound, ckptdv1.Reason_REASON_NOT_FOUND)
	_, err = boss.InstallPlugin(t.Context(), connect.NewRequest(&ckptdv1.InstallPluginRequest{Tenant: "acme", Builtin: "redact",
		Bindings: []*ckptdv1.PluginBinding{{Tenants: []string{"umbrella"}}}}))
	wantCode(t, err, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_PLUGIN_INVALID)
	log, err := os.ReadFile(filepath.Join(b.dir, "audit"))
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	for i, want := range []string{`PluginService/InstallPlugin","caller":"token:`, `PluginService/SetPluginEnabled`, `PluginService/RemovePlugin`,
		`"kind":"denied","method":"/ckptd.v1.PluginService/InstallPlugin"`, `"kind":"denied"`, `"code":"invalid_argument"`} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %s:\n%s", i, want, log)
		}
		if i < 3 && !strings.Contains(lines[i], `"about":"plugin:x@1.0.0 `) {
			t.Errorf("line %d does not name the plugin: %s", i, lines[i])
		}
	}
	if bytes.Contains(log, []byte("umbrella")) || bytes.Contains(log, []byte("acme")) {
		t.Errorf("the audit log names tenants:\n%s", log)
	}
}
