package telemetry

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
)

// MetricsOptions configure the metrics.
type MetricsOptions struct {
	Version string // of the program
}

// Metrics counts the work of a server. Its methods are safe for concurrent use and take well under
// a microsecond, except Snapshot.
type Metrics struct {
	registry *prometheus.Registry
	process  *prometheus.Registry // memory and file handles of the process, which Snapshot asks for by themselves
	names    names

	saved, saveFailed, loaded           prometheus.Counter
	stateBytes, storedBytes, groupBytes prometheus.Counter
	depth, groupCommits, commitSeconds  prometheus.Histogram
	requests                            *prometheus.HistogramVec // by method, code
	rejected                            *prometheus.CounterVec   // by limit
	denied                              *prometheus.CounterVec   // by method

	// Totals over all methods and limits for GetStatus.
	failures, rejections atomic.Uint64

	inFlight, watchers, connections prometheus.Gauge

	plugins pluginMetrics

	store atomic.Pointer[Store]
	disk  diskSize
}

// NewMetrics makes metrics that have counted nothing yet.
func NewMetrics(o MetricsOptions) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), process: prometheus.NewRegistry(), names: newNames()}
	m.process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(collectors.NewGoCollector())
	m.makeSaves()
	m.makeRequests()
	m.makeStore()
	m.makePlugins()
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ckptd_build_info", Help: "The program that runs; always 1.",
		ConstLabels: prometheus.Labels{"version": o.Version, "goversion": runtime.Version()}}, func() float64 { return 1 }))
	return m
}

// makeSaves makes the metrics of saves, loads and commits.
func (m *Metrics) makeSaves() {
	saves := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ckptd_saves_total", Help: "Saves by outcome: ok, or error."}, []string{"outcome"})
	m.registry.MustRegister(saves)
	m.saved, m.saveFailed = saves.WithLabelValues("ok"), saves.WithLabelValues("error")
	m.loaded = m.counter("ckptd_loads_total", "Checkpoints loaded.")
	m.stateBytes = m.counter("ckptd_state_bytes_total", "Bytes of the states that were saved.")
	m.storedBytes = m.counter("ckptd_stored_bytes_total", "Bytes of the sealed records and parts that hold them.")
	m.groupBytes = m.counter("ckptd_commit_bytes_total", "Bytes of keys and values that were committed to the backend.")
	m.depth = m.histogram("ckptd_chain_depth", "Records that a restore of a saved checkpoint reads.", prometheus.ExponentialBuckets(1, 2, 9))
	m.groupCommits = m.histogram("ckptd_group_commits", "Commits that shared a transaction and its sync.", prometheus.ExponentialBuckets(1, 2, 11))
	m.commitSeconds = m.histogram("ckptd_commit_seconds", "Time that a group of commits took to become durable.", latencyBounds())
}

// makeRequests makes the metrics of requests.
func (m *Metrics) makeRequests() {
	m.requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ckptd_request_seconds", Help: "Time that requests took, by method and RPC code.",
		Buckets: latencyBounds()}, []string{"method", "code"})
	m.rejected = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ckptd_rejected_total", Help: "Requests and connections turned away, by the limit that was reached."}, []string{"limit"})
	m.denied = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ckptd_denied_total", Help: "Requests without valid credentials or the right to make them, by method."}, []string{"method"})
	m.registry.MustRegister(m.requests, m.rejected, m.denied)
	m.inFlight = m.gauge("ckptd_in_flight", "Requests in flight, including streams.")
	m.watchers = m.gauge("ckptd_watchers", "Open watches.")
	m.connections = m.gauge("ckptd_connections", "Open connections.")
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) histogram(name, help string, bounds []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds})
	m.registry.MustRegister(h)
	return h
}

// latencyBounds are six a decade from 50 µs to 10 s, in seconds: a quantile read off them is within
// a fifth of the truth.
func latencyBounds() (bounds []float64) {
	for decade := 10; decade <= 1_000_000; decade *= 10 { // microseconds
		for _, tenths := range []int{10, 15, 20, 30, 50, 70} {
			if us := decade * tenths / 10; us >= 50 {
				bounds = append(bounds, float64(us)/1e6)
			}
		}
	}
	return append(bounds, 10)
}

// Saved counts a checkpoint that was saved.
func (m *Metrics) Saved(cost engine.Cost) {
	m.saved.Inc()
	m.stateBytes.Add(float64(max(0, cost.State)))
	m.storedBytes.Add(float64(max(0, cost.Stored)))
	m.depth.Observe(float64(cost.Depth))
}

// SaveFailed counts a save that ended with an error.
func (m *Metrics) SaveFailed() { m.saveFailed.Inc() }

// Loaded counts a checkpoint that was loaded.
func (m *Metrics) Loaded() { m.loaded.Inc() }

// ObserveGroup counts a group of commits; the backend calls it.
func (m *Metrics) ObserveGroup(g backend.Group) {
	m.groupCommits.Observe(float64(g.Commits))
	m.groupBytes.Add(float64(g.Bytes))
	m.commitSeconds.Observe(g.Took.Seconds())
}

// RequestBegan counts a request as in flight until RequestEnded.
func (m *Metrics) RequestBegan() { m.inFlight.Inc() }
func (m *Metrics) RequestEnded() { m.inFlight.Dec() }

// RequestDone counts a request that was answered. The method is its path, the code an RPC code or
// "ok".
func (m *Metrics) RequestDone(method, code string, took time.Duration) {
	code = m.names.code(code)
	m.requests.WithLabelValues(m.names.method(method), code).Observe(took.Seconds())
	if ownFault(code) {
		m.failures.Add(1)
	}
}

// Rejected counts a request that was refused because of a limit. The limit is one of a few fixed
// names.
func (m *Metrics) Rejected(limit string) {
	m.rejected.WithLabelValues(limit).Inc()
	m.rejections.Add(1)
}

// Denied counts a request without valid credentials or the right to make it.
func (m *Metrics) Denied(method string) { m.denied.WithLabelValues(m.names.method(method)).Inc() }

// WatcherBegan counts a watch as open, WatcherEnded as closed.
func (m *Metrics) WatcherBegan() { m.watchers.Inc() }
func (m *Metrics) WatcherEnded() { m.watchers.Dec() }

// ConnectionOpened counts a connection as open, ConnectionClosed as closed.
func (m *Metrics) ConnectionOpened() { m.connections.Inc() }
func (m *Metrics) ConnectionClosed() { m.connections.Dec() }
