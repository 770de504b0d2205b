package main

import (
	"slices"
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// topSample is the status of a server at one time.
type topSample struct {
	at     time.Time
	status *ckptdv1.GetStatusResponse
}

// topView is the activity of a server between two samples, in JSON. Unknown values are omitted.
type topView struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	Uptime  float64   `json:"uptime_seconds"`
	Seconds float64   `json:"interval_seconds"`

	Saves    float64 `json:"saves_per_second"`
	Loads    float64 `json:"loads_per_second"`
	Errors   float64 `json:"errors_per_second"`
	Rejected float64 `json:"rejected_per_second"`

	Save   *topLatency `json:"save,omitempty"`
	Load   *topLatency `json:"load,omitempty"`
	Commit *topLatency `json:"commit,omitempty"`
	Group  *float64    `json:"commits_per_group,omitempty"`

	InFlight    uint64 `json:"in_flight"` // without the request that asked
	Watchers    uint64 `json:"watchers"`
	Connections uint64 `json:"connections"`

	StateBytes  float64  `json:"state_bytes_per_second"`
	StoredBytes float64  `json:"stored_bytes_per_second"`
	CacheHits   *float64 `json:"cache_hit_ratio,omitempty"`
	CacheBytes  int64    `json:"cache_bytes"`
	MemoryBytes int64    `json:"memory_bytes"`
	DiskBytes   int64    `json:"disk_bytes"`
	Goroutines  uint64   `json:"goroutines"`
}

// topLatency has quantiles in milliseconds. One that is above all bounds of the histogram is given
// as the last bound.
type topLatency struct {
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
	most float64
}

// viewBetween compares two samples. Without the first it covers the whole uptime; if the server
// restarted in between, the time since then.
func viewBetween(before, now topSample) topView {
	old, s := before.status, now.status
	started := s.GetStarted().AsTime()
	seconds := now.at.Sub(before.at).Seconds()
	if old == nil {
		seconds = max(1, now.at.Sub(started).Seconds()) // the clocks may differ
	}
	if !old.GetStarted().AsTime().Equal(started) {
		old = nil
	}
	rate := func(old, now uint64) float64 { return since(old, now) / seconds }
	hits, misses := since(old.GetCacheHits(), s.GetCacheHits()), since(old.GetCacheMisses(), s.GetCacheMisses())
	return topView{
		Time: now.at, Version: s.GetVersion(), Uptime: max(0, now.at.Sub(started).Seconds()), Seconds: seconds,
		Saves: rate(old.GetSaves(), s.GetSaves()), Loads: rate(old.GetLoads(), s.GetLoads()),
		Errors: rate(old.GetErrors(), s.GetErrors()), Rejected: rate(old.GetRejected(), s.GetRejected()),
		Save: latencyBetween(old.GetSaveLatency(), s.GetSaveLatency()), Load: latencyBetween(old.GetLoadLatency(), s.GetLoadLatency()),
		Commit:   latencyBetween(old.GetCommitLatency(), s.GetCommitLatency()),
		Group:    share(since(old.GetGrouped(), s.GetGrouped()), since(old.GetGroups(), s.GetGroups())),
		InFlight: s.GetInFlight() - min(1, s.GetInFlight()), Watchers: s.GetWatchers(), Connections: s.GetConnections(),
		StateBytes: rate(old.GetStateBytes(), s.GetStateBytes()), StoredBytes: rate(old.GetStoredBytes(), s.GetStoredBytes()),
		CacheHits: share(hits, hits+misses), CacheBytes: s.GetCacheBytes(),
		MemoryBytes: s.GetMemoryBytes(), DiskBytes: s.GetDiskBytes(), Goroutines: s.GetGoroutines(),
	}
}

// since is how much a count grew.
func since(old, now uint64) float64 { return float64(now - min(old, now)) }

// share is part divided by whole, nil if whole is 0.
func share(part, whole float64) *float64 {
	if whole == 0 {
		return nil
	}
	part /= whole
	return &part
}

// latencyBetween has the new samples of a histogram; nil if there are none.
func latencyBetween(old, now *ckptdv1.Latency) *topLatency {
	bounds, counts := now.GetBoundsMs(), now.GetCounts()
	if len(bounds) == 0 || len(counts) != len(bounds)+1 {
		return nil
	}
	grown, total := make([]float64, len(counts)), 0.0
	for i, n := range counts {
		if len(old.GetCounts()) == len(counts) {
			n -= min(n, old.GetCounts()[i])
		}
		grown[i] = float64(n)
		total += grown[i]
	}
	if total == 0 {
		return nil
	}
	at := func(q float64) float64 { return quantile(bounds, grown, q*total) }
	return &topLatency{at(0.5), at(0.99), at(0.999), bounds[len(bounds)-1]}
}

// quantile is the value that rank values of a histogram do not exceed, taking those within a bucket
// to be spread evenly.
func quantile(bounds, counts []float64, rank float64) float64 {
	lower := 0.0
	for i, upper := range bounds {
		if rank <= counts[i] && counts[i] > 0 {
			return lower + (upper-lower)*rank/counts[i]
		}
		rank -= counts[i]
		lower = upper
	}
	return lower
}

// topHistory has the views of the last minute, the newest last. There is always one.
type topHistory struct {
	views []topView
	last  topSample
	first bool // the view is of all the time before, until there is something to compare with
}

const historyTime = time.Minute

func newTopHistory(s topSample) *topHistory {
	return &topHistory{[]topView{viewBetween(topSample{}, s)}, s, true}
}

func (h *topHistory) add(s topSample) {
	old := func(v topView) bool { return h.first || s.at.Sub(v.Time) >= historyTime }
	h.views = append(slices.DeleteFunc(h.views, old), viewBetween(h.last, s))
	h.last, h.first = s, false
}
