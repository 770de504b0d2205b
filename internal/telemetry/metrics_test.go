package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// scrape returns what Prometheus would read.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	MetricsHandler(m).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("reading the metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// fakeStore has a cache and files.
type fakeStore struct {
	cache upkeep.CacheStats
	disk  func() (int64, error)
}

func (f *fakeStore) CacheStats() upkeep.CacheStats                { return f.cache }
func (f *fakeStore) DiskBytes(ctx context.Context) (int64, error) { return f.disk() }

var _ Store = upkeep.Store(nil)

// busy returns metrics in which everything was counted.
func busy() *Metrics {
	m := NewMetrics(MetricsOptions{Version: "1.2.3"})
	m.ObserveStore(&fakeStore{upkeep.CacheStats{Hits: 30, Misses: 10, Bytes: 4096}, func() (int64, error) { return 1 << 20, nil }})
	for range 3 {
		m.Saved(engine.Cost{State: 1000, Stored: 100, Depth: 5})
	}
	m.SaveFailed()
	m.Loaded()
	m.ObserveGroup(backend.Group{Commits: 1, Bytes: 500, Took: 400 * time.Microsecond})
	m.ObserveGroup(backend.Group{Commits: 7, Bytes: 3500, Took: 2 * time.Millisecond})
	m.RequestDone(ckptdv1.CheckpointServiceSaveProcedure, "ok", 1200*time.Microsecond)
	m.RequestDone(ckptdv1.CheckpointServiceSaveProcedure, "aborted", time.Microsecond)
	m.RequestDone(ckptdv1.CheckpointServiceLoadProcedure, "ok", time.Minute)
	m.RequestDone(ckptdv1.CheckpointServiceLoadProcedure, "data_loss", time.Second)
	for range 2 {
		m.RequestBegan()
		m.WatcherBegan()
		m.ConnectionOpened()
	}
	m.RequestEnded()
	m.WatcherEnded()
	m.ConnectionClosed()
	m.Rejected("requests under way")
	m.Denied(ckptdv1.AdminServiceCreateTokenProcedure)
	m.PluginCalled("mail@1.0.0", "pre_save", "ok", 1000, 3*time.Microsecond)
	m.PluginCalled("mail@1.0.0", "pre_save", "fuel", 500, time.Second)
	m.PluginFound("redact", "email", 2)
	m.PluginFound("mail@1.0.0", "", 1)
	m.PluginSuspended("mail@1.0.0", true)
	m.PluginRestarted()
	return m
}

func TestMetrics(t *testing.T) {
	got := scrape(t, busy())
	for _, want := range []string{
		`ckptd_saves_total{outcome="ok"} 3`,
		`ckptd_saves_total{outcome="error"} 1`,
		`ckptd_loads_total 1`,
		`ckptd_state_bytes_total 3000`,
		`ckptd_stored_bytes_total 300`,
		`ckptd_chain_depth_bucket{le="4"} 0`,
		`ckptd_chain_depth_bucket{le="8"} 3`,
		`ckptd_group_commits_sum 8`,
		`ckptd_commit_bytes_total 4000`,
		`ckptd_commit_seconds_bucket{le="0.0005"} 1`,
		`ckptd_request_seconds_bucket{code="ok",method="ckptd.v1.CheckpointService/Save",le="0.001"} 0`,
		`ckptd_request_seconds_bucket{code="ok",method="ckptd.v1.CheckpointService/Save",le="0.0015"} 1`,
		`ckptd_request_seconds_count{code="aborted",method="ckptd.v1.CheckpointService/Save"} 1`,
		`ckptd_in_flight 1`,
		`ckptd_rejected_total{limit="requests under way"} 1`,
		`ckptd_watchers 1`,
		`ckptd_connections 1`,
		`ckptd_cache_hits_total 30`,
		`ckptd_cache_misses_total 10`,
		`ckptd_cache_bytes 4096`,
		`ckptd_denied_total{method="ckptd.v1.AdminService/CreateToken"} 1`,
		`ckptd_plugin_calls_total{outcome="fuel",plugin="mail@1.0.0",stage="pre_save"} 1`,
		`ckptd_plugin_seconds_bucket{plugin="mail@1.0.0",le="2e-06"} 0`,
		`ckptd_plugin_seconds_bucket{plugin="mail@1.0.0",le="5e-06"} 1`,
		`ckptd_plugin_fuel_total{plugin="mail@1.0.0"} 1500`,
		`ckptd_plugin_findings_total{plugin="redact",rule="email"} 2`,
		`ckptd_plugin_findings_total{plugin="mail@1.0.0",rule=""} 1`,
		`ckptd_plugin_suspended{plugin="mail@1.0.0"} 1`,
		`ckptd_plugin_restarts_total 1`,
		`ckptd_disk_bytes 1.048576e+06`,
		`version="1.2.3"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for _, family := range []string{"go_goroutines", "process_start_time_seconds"} {
		if !strings.Contains(got, "\n"+family+" ") {
			t.Errorf("missing: %s", family)
		}
	}
}

func TestMetricNames(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, busy()))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "ckptd_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// What callers make up does not become a label.
func TestLabelsAreBounded(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	m.RequestDone("/x", "ok", 0)
	m.RequestDone(ckptdv1.CheckpointServiceSaveProcedure, "ok", 0)
	m.Denied("/x")
	want := strings.Count(scrape(t, m), "\nckptd_")
	for i := range 100 {
		made := fmt.Sprintf("/ckptd.v1.CheckpointService/MARKER%d", i)
		m.RequestDone(made, "ok", 0)
		m.Denied(made)
	}
	m.RequestDone(strings.TrimPrefix(ckptdv1.CheckpointServiceSaveProcedure, "/"), "ok", 0)
	got := scrape(t, m)
	if n := strings.Count(got, "\nckptd_"); n != want {
		t.Errorf("%d lines, were %d before", n, want)
	}
	if strings.Contains(got, "MARKER") {
		t.Error("a method that does not exist is in the metrics")
	}
	m.RequestDone(ckptdv1.CheckpointServiceSaveProcedure, "MARKER", 0)
	if got := scrape(t, m); strings.Contains(got, "MARKER") || !strings.Contains(got, `code="unknown"`) {
		t.Error("a code that does not exist is in the metrics")
	}
}

func TestSnapshot(t *testing.T) {
	got := busy().Snapshot()
	if got.MemoryBytes == 0 || got.Goroutines == 0 {
		t.Errorf("%d bytes of memory, %d goroutines", got.MemoryBytes, got.Goroutines)
	}
	type summary struct {
		Saves, Loads, Errors, Rejected, InFlight, Watchers, Connections, State, Stored, Hits, Misses, Groups, Grouped uint64
		Cache, Disk                                                                                                   int64
	}
	want := summary{3, 1, 1, 1, 1, 1, 1, 3000, 300, 30, 10, 2, 8, 4096, 1 << 20}
	if diff := cmp.Diff(want, summary{got.Saves, got.Loads, got.Errors, got.Rejected, got.InFlight, got.Watchers, got.Connections,
		got.StateBytes, got.StoredBytes, got.CacheHits, got.CacheMisses, got.Groups, got.Grouped, got.CacheBytes, got.DiskBytes}); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		name string
		l    *ckptdv1.Latency
		want map[float64]uint64 // upper bound in ms to count, 0 for those over all bounds
	}{
		{"save", got.SaveLatency, map[float64]uint64{1.5: 1}},
		{"load", got.LoadLatency, map[float64]uint64{0: 1}},
		{"commit", got.CommitLatency, map[float64]uint64{0.5: 1, 2: 1}},
	} {
		if len(tt.l.Counts) != len(tt.l.BoundsMs)+1 {
			t.Errorf("%s: %d counts for %d bounds", tt.name, len(tt.l.Counts), len(tt.l.BoundsMs))
			continue
		}
		counted := map[float64]uint64{}
		for i, n := range tt.l.Counts {
			bound := 0.0
			if i < len(tt.l.BoundsMs) {
				bound = tt.l.BoundsMs[i]
			}
			if n > 0 {
				counted[bound] = n
			}
		}
		if diff := cmp.Diff(tt.want, counted); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// Without a store there is nothing to ask, and that is no error.
func TestSnapshotWithoutStore(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	if got := m.Snapshot(); got.DiskBytes != 0 || got.CacheHits != 0 || got.Saves != 0 {
		t.Errorf("nothing was counted, and it tells %v", got)
	}
	scrape(t, m)
}

// The directory is not walked at every look, and not forgotten when it cannot be.
func TestDiskBytesAreRemembered(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	asked := 0
	m.ObserveStore(&fakeStore{disk: func() (int64, error) {
		if asked++; asked > 1 {
			return 0, errors.New("gone")
		}
		return 7, nil
	}})
	for range 3 {
		if got := m.Snapshot().DiskBytes; got != 7 {
			t.Errorf("%d bytes, want 7", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times at once", asked)
	}
	m.disk.asked = time.Time{}
	if got := m.Snapshot().DiskBytes; got != 7 || asked != 2 {
		t.Errorf("%d bytes after asking %d times", got, asked)
	}
}

func TestMetricsTogether(t *testing.T) {
	m := busy()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				request(m)
				m.Snapshot()
			}
		})
	}
	wg.Wait()
	if got := m.Snapshot().Saves; got != 203 {
		t.Errorf("%d saves, want 203", got)
	}
}

// request counts what one save counts.
func request(m *Metrics) {
	m.RequestBegan()
	m.Saved(engine.Cost{State: 100_000, Stored: 900, Depth: 12})
	m.RequestDone(ckptdv1.CheckpointServiceSaveProcedure, "ok", 900*time.Microsecond)
	m.ObserveGroup(backend.Group{Commits: 1, Bytes: 1000, Took: 700 * time.Microsecond})
	m.RequestEnded()
}

func TestCountingAllocatesNothing(t *testing.T) {
	m := busy()
	if n := testing.AllocsPerRun(1000, func() { request(m); m.Rejected("requests under way"); m.Denied("/x") }); n != 0 {
		t.Errorf("a request allocates %v times", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := busy()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			request(m)
		}
	})
}
