package sim

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestMain gives the simulation a single processor: which of several runnable goroutines runs first
// is then up to Go's scheduler alone, which decides the same way each time.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// slice is the number of seeds in the regular tests.
const slice = 160

// TestSimulation runs the plans of a few fixed seeds. With SIM_TIME it runs new seeds for that
// time, and with SIM_SEED the plan of one seed.
func TestSimulation(t *testing.T) {
	first, n, until := uint64(1), uint64(slice), time.Time{}
	if testing.Short() || raceEnabled {
		n = slice / 8
	}
	if text := os.Getenv("SIM_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		first, n, until = uint64(time.Now().UnixNano()/1000), 1<<62, time.Now().Add(d)
	}
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	var total counts
	for seed := first; seed < first+n && (until.IsZero() || time.Now().Before(until)); seed++ {
		r := Run(t, Plan{Seed: seed, Profile: os.Getenv("SIM_PROFILE")}, false)
		if total.add(r); len(r.Problems) > 0 {
			limit := 2 * time.Minute
			if os.Getenv("SIM_BROKEN") != "" { // on purpose
				limit = 0
			}
			Report(t, r, limit)
			break
		}
	}
	t.Log(&total)
}

// counts adds up what many runs did.
type counts struct {
	seeds, ops, gates, crashes int
	kinds                      map[string]int
}

func (c *counts) add(r *Result) {
	c.seeds, c.ops, c.gates, c.crashes = c.seeds+1, c.ops+r.Ops, c.gates+r.Gates, c.crashes+r.Crashes
	if c.kinds == nil {
		c.kinds = map[string]int{}
	}
	for k, n := range r.Kinds {
		c.kinds[k] += n
	}
}

func (c *counts) String() string {
	text := fmt.Sprintf("%d seeds, %d operations, %d gates, %d crashes", c.seeds, c.ops, c.gates, c.crashes)
	for _, k := range slices.Sorted(maps.Keys(c.kinds)) {
		text += fmt.Sprintf("\n%8d %s", c.kinds[k], k)
	}
	return text
}

// TestSamePlanSameRun ensures that failures can be reproduced. Besides the tests with the race
// detector, make test runs this package without it.
func TestSamePlanSameRun(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes Go's scheduler pick at random")
	}
	for _, name := range []string{"few", "upkeep", "wide"} {
		p := Plan{Seed: 7, Profile: name, Rounds: 2}
		seen := map[uint64]bool{}
		var runs []*Result
		// Go's scheduler preempts a goroutine after 10 ms, which a loaded machine can cause at any
		// point. So one run of several may differ.
		for len(runs) < 5 {
			r := Run(t, p, true)
			if seen[r.Trace] {
				break
			}
			seen[r.Trace], runs = true, append(runs, r)
		}
		if len(runs) < 5 {
			continue
		}
		a, b := runs[0], runs[1]
		for i := range min(len(a.Log), len(b.Log)) {
			if a.Log[i] != b.Log[i] {
				t.Errorf("%s: no two of five runs are the same; the first two differ:\n%s\n%s", name, a.Log[i], b.Log[i])
				break
			}
		}
	}
}
