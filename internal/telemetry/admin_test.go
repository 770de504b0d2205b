package telemetry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(h http.Handler, path string) (code int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestAdminHandler(t *testing.T) {
	var notReady error
	h := AdminHandler(busy(), func() error { return notReady })
	for path, want := range map[string]string{
		"/":                              "/metrics\n",
		"/metrics":                       "ckptd_saves_total",
		"/healthz":                       "ok",
		"/readyz":                        "ok",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/debug/pprof/heap?debug=1":      "heap profile",
		"/debug/pprof/cmdline":           "telemetry",
	} {
		if code, body := get(h, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.80q, want it to have %q", path, code, body, want)
		}
	}
	if code, _ := get(h, "/other"); code != 404 {
		t.Errorf("a page that does not exist: %d", code)
	}
	notReady = errors.New("the store has stopped")
	if code, body := get(h, "/readyz"); code != 503 || body != "not ready: the store has stopped\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, _ := get(h, "/healthz"); code != 200 {
		t.Errorf("/healthz of a server that is not ready: %d", code)
	}
}

// What may be reached over the network has no profiles.
func TestMetricsHandler(t *testing.T) {
	h := MetricsHandler(busy())
	if code, body := get(h, "/metrics"); code != 200 || !strings.Contains(body, "ckptd_saves_total") {
		t.Errorf("/metrics: %d", code)
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/healthz", "/readyz"} {
		if code, _ := get(h, path); code != 404 {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
}
