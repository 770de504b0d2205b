package telemetry

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AdminHandler serves the admin socket: metrics, profiles, liveness, and readiness as reported by
// ready. Profiles contain data from memory, so anyone who can open the socket can see that.
func AdminHandler(m *Metrics, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metricsPage(m))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "/metrics\n/debug/pprof/\n/healthz\n/readyz\n")
	})
	return mux
}

// MetricsHandler serves the metrics, and nothing else, at /metrics.
func MetricsHandler(m *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metricsPage(m))
	return mux
}

func metricsPage(m *Metrics) http.Handler {
	const readers = 4 // at a time; they cost more than requests do
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, m.process}, promhttp.HandlerOpts{MaxRequestsInFlight: readers})
}
