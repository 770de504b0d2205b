package server

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/certtest"
)

// TestCurl works with the server as one does by hand: over the socket and over TLS, with POST and,
// where nothing changes, with GET.
func TestCurl(t *testing.T) {
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl on this machine")
	}
	authority := certtest.NewAuthority(t)
	b := newBed(t, Limits{})
	b.stop()
	b.more = func(o *Options) { o.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Pair(t, "localhost")}} }
	b.start()
	ca := filepath.Join(b.dir, "ca.pem")
	must(t, os.WriteFile(ca, authority.PEM, 0o600))
	ways := map[string][]string{
		"socket": {"--unix-socket", b.socket, "http://ckptd"},
		"tls":    {"--cacert", ca, "-H", "Authorization: Bearer " + b.token(access.Everything()), "https://" + b.serveTLS()},
	}
	for way, args := range ways {
		t.Run(way, func(t *testing.T) {
			curl := func(status, url string, more ...string) map[string]any {
				t.Helper()
				args := append([]string{"--silent", "--show-error", "--max-time", "10", "--write-out", "\n%{http_code}"}, args...)
				args[len(args)-1] += url
				out, err := exec.Command(path, append(args, more...)...).Output()
				must(t, err)
				body, got, _ := strings.Cut(string(out), "\n")
				if got != status {
					t.Errorf("%s: status %s, want %s: %s", url, got, status, body)
				}
				var answer map[string]any
				if status != "405" {
					must(t, json.Unmarshal([]byte(body), &answer))
				}
				return answer
			}
			post := func(status, procedure, body string) map[string]any {
				t.Helper()
				return curl(status, procedure, "-H", "Content-Type: application/json", "-d", body)
			}
			here := `{"tenant":"acme","user":"alice","thread":"` + way + `"}`
			saved := post("200", ckptdv1.CheckpointServiceSaveProcedure, `{"ref":`+here+`,"draft":{"channels":[{"name":"state","type":"json","text":"{\"n\":1}"}]}}`)
			id := saved["checkpoint"].(map[string]any)["id"]
			load := func(body string) string {
				return ckptdv1.CheckpointServiceLoadProcedure + "?connect=v1&encoding=json&message=" + body
			}
			loaded := curl("200", load(`%7B%22text%22:true,%22ref%22:`+strings.NewReplacer(`{`, "%7B", `}`, "%7D", `"`, "%22").Replace(here)+`%7D`))
			cp := loaded["checkpoint"].(map[string]any)
			if cp["id"] != id || cp["channels"].([]any)[0].(map[string]any)["text"] != `{"n":1}` {
				t.Errorf("loaded %v, saved %v", loaded, saved)
			}
			curl("405", ckptdv1.CheckpointServiceSaveProcedure+"?connect=v1&encoding=json&message=%7B%7D")
			stale := post("409", ckptdv1.CheckpointServiceSaveProcedure, `{"ref":`+here+`,"draft":{"expectHead":"0","channels":[{"name":"state","text":"x"}]}}`)
			detail := stale["details"].([]any)[0].(map[string]any)
			if stale["code"] != "aborted" || detail["type"] != "ckptd.v1.ErrorDetail" || detail["debug"].(map[string]any)["reason"] != "REASON_CONFLICT" {
				t.Errorf("a stale save is told %v", stale)
			}
			post("404", ckptdv1.CheckpointServiceLoadProcedure, `{"ref":{"tenant":"acme","user":"alice","thread":"none"}}`)
			post("400", ckptdv1.CheckpointServiceLoadProcedure, `{"reff":1}`)
		})
	}
}
