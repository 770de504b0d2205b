package telemetry

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// Store provides metrics of its cache and its files: an upkeep.Store.
type Store interface {
	CacheStats() upkeep.CacheStats
	DiskBytes(context.Context) (int64, error)
}

// ObserveStore sets the store, which is created after the counters of its commits. Until then the
// metrics of its cache and files are 0.
func (m *Metrics) ObserveStore(s Store) { m.store.Store(&s) }

// makeStore makes the metrics that the store is asked for.
func (m *Metrics) makeStore() {
	hits := func() float64 { return float64(m.cache().Hits) }
	misses := func() float64 { return float64(m.cache().Misses) }
	m.registry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ckptd_cache_hits_total", Help: "States and parts that saves and loads found in memory."}, hits),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ckptd_cache_misses_total", Help: "States and parts that they had to read."}, misses),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ckptd_cache_bytes", Help: "Memory that cached states and parts take."},
			func() float64 { return float64(m.cache().Bytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ckptd_disk_bytes", Help: "Space that the files of the store take; at most ten seconds old."},
			func() float64 { return float64(m.diskBytes()) }))
}

func (m *Metrics) cache() upkeep.CacheStats {
	if s := m.store.Load(); s != nil {
		return (*s).CacheStats()
	}
	return upkeep.CacheStats{}
}

// diskSize remembers the size of the store, since finding it out walks through its directory.
type diskSize struct {
	mu    sync.Mutex
	bytes int64
	asked time.Time
}

const (
	diskEvery   = 10 * time.Second
	diskTimeout = 2 * time.Second
)

func (m *Metrics) diskBytes() int64 {
	s := m.store.Load()
	if s == nil {
		return 0
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if time.Since(m.disk.asked) < diskEvery {
		return m.disk.bytes
	}
	ctx, cancel := context.WithTimeout(context.Background(), diskTimeout)
	defer cancel()
	if n, err := (*s).DiskBytes(ctx); err == nil { // else the last that was known
		m.disk.bytes = n
	}
	m.disk.asked = time.Now()
	return m.disk.bytes
}

// Snapshot returns the current counts. The caller fills in version and start.
func (m *Metrics) Snapshot() *ckptdv1.GetStatusResponse {
	cache := m.cache()
	groups := read(m.groupCommits).GetHistogram()
	ok := func(method string) prometheus.Metric {
		return m.requests.WithLabelValues(m.names.method(method), "ok").(prometheus.Metric)
	}
	return &ckptdv1.GetStatusResponse{
		Saves: count(m.saved), Loads: count(m.loaded), Errors: m.failures.Load(), Rejected: m.rejections.Load(),
		InFlight: level(m.inFlight), Watchers: level(m.watchers), Connections: level(m.connections),
		StateBytes: count(m.stateBytes), StoredBytes: count(m.storedBytes),
		CacheHits: cache.Hits, CacheMisses: cache.Misses, CacheBytes: cache.Bytes,
		Groups: groups.GetSampleCount(), Grouped: uint64(groups.GetSampleSum()),
		MemoryBytes: m.memory(), DiskBytes: m.diskBytes(), Goroutines: uint64(runtime.NumGoroutine()),
		SaveLatency:   latency(ok(ckptdv1.CheckpointServiceSaveProcedure)),
		LoadLatency:   latency(ok(ckptdv1.CheckpointServiceLoadProcedure)),
		CommitLatency: latency(m.commitSeconds),
	}
}

// read returns the current value of a metric.
func read(m prometheus.Metric) *dto.Metric {
	var out dto.Metric
	if m.Write(&out) != nil {
		return &dto.Metric{} // only of metrics that were made with an error, which these were not
	}
	return &out
}

func count(c prometheus.Counter) uint64 { return uint64(read(c).GetCounter().GetValue()) }

func level(g prometheus.Gauge) uint64 { return uint64(max(0, read(g).GetGauge().GetValue())) }

// latency turns a histogram, whose buckets each count all that are below their bound, into one
// whose buckets do not.
func latency(m prometheus.Metric) *ckptdv1.Latency {
	h := read(m).GetHistogram()
	out := &ckptdv1.Latency{}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		out.BoundsMs = append(out.BoundsMs, math.Round(b.GetUpperBound()*1e6)/1e3)
		out.Counts = append(out.Counts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	out.Counts = append(out.Counts, h.GetSampleCount()-below)
	return out
}

// memory is the resident memory of the process in bytes, 0 if the platform does not report it.
func (m *Metrics) memory() int64 {
	families, err := m.process.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		if f.GetName() == "process_resident_memory_bytes" {
			return int64(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return 0
}
