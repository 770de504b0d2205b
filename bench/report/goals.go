package report

import (
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
)

// Goal is a target of ckptd against a rival or a limit, at every place of the run where it applies.
type Goal struct {
	Against string
	Want    string // in words
	Checks  []Check
	Whole   []Check // the same for ckptd with whole states; reported, but not a goal
}

// Check applies a goal at one place.
type Check struct {
	Where  string
	Rival  string
	Got    float64 // a ratio
	Want   float64
	AtMost bool // otherwise Got must be at least Want
}

// Met reports whether the goal is met there.
func (c Check) Met() bool {
	if c.AtMost {
		return c.Got <= c.Want
	}
	return c.Got >= c.Want
}

// Short is the factor by which the goal is missed; 1 or less if it is met.
func (c Check) Short() float64 {
	if c.AtMost {
		return c.Got / c.Want
	}
	return c.Want / c.Got
}

// Tally returns the number of places where the goal is met and where it was measured.
func (g Goal) Tally() (met, of int) {
	for _, c := range g.Checks {
		if c.Met() {
			met++
		}
	}
	return met, len(g.Checks)
}

// Worst returns the check that misses by the most; it is not ok if there are none.
func (g Goal) Worst() (worst Check, ok bool) { return worstOf(g.Checks) }

func worstOf(checks []Check) (worst Check, ok bool) {
	for _, c := range checks {
		if !ok || c.Short() > worst.Short() {
			worst, ok = c, true
		}
	}
	return worst, ok
}

// The rivals and the workload that goals name.
const (
	rawBadger   = "badger"
	zstdBadger  = "badger-zstd"
	bbolt       = "bbolt"
	sqlite      = "sqlite"
	files       = "files"
	postgres    = "postgres"
	langGraph   = "postgres-langgraph"
	redis       = "redis"
	growingChat = "chat"
)

// versus is a goal against rivals: at every point of the table that only selects, ckptd is better
// by the factor.
type versus struct {
	against, want string
	rivals        []string
	table, kind   string
	measure       string
	factor        float64
	only          func(p result.Point) bool
}

func rivalGoals() []versus {
	many := func(p result.Point) bool { return isChat100k(p) && (p.Writers == 64 || p.Writers == 256) }
	anywhere := func(result.Point) bool { return true }
	at100k := func(p result.Point) bool { return isSize(p, 100_000) }
	return []versus{
		{"raw Badger", "≥ 5 × saves/s with 64 and 256 writers, chat at 100 kB", []string{rawBadger},
			result.Durable, result.Speed, result.SaveRate, 5, many},
		{"raw Badger", "≥ 50 × fewer bytes on disk, chat at 100 kB", []string{rawBadger},
			result.Durable, result.Space, result.DiskBytes, 50, isChat100k},
		{"Badger + zstd + AES-GCM", "≥ 10 × saves/s at 100 kB states", []string{zstdBadger},
			result.Durable, result.Speed, result.SaveRate, 10, at100k},
		{"Badger + zstd + AES-GCM", "≥ 15 × fewer bytes on disk at 100 kB states", []string{zstdBadger},
			result.Durable, result.Space, result.DiskBytes, 15, at100k},
		{"SQLite, bbolt, files", "≥ 5 × saves/s with 64 writers, every workload", []string{sqlite, bbolt, files},
			result.Durable, result.Speed, result.SaveRate, 5, func(p result.Point) bool { return p.Writers == 64 }},
		{"SQLite, bbolt, files", "never behind with one writer, states ≥ 10 kB", []string{sqlite, bbolt, files},
			result.Durable, result.Speed, result.SaveRate, 1, func(p result.Point) bool { return p.Writers == 1 && sizeFrom(p, 10_000, true) }},
		{"PostgreSQL", "≥ 5 × saves/s, every workload", []string{postgres, langGraph},
			result.Durable, result.Speed, result.SaveRate, 5, anywhere},
		{"Redis, AOF always", "ahead, every workload", []string{redis},
			result.Durable, result.Speed, result.SaveRate, 1, anywhere},
		{"Redis, AOF everysec", "not behind at states ≥ 100 kB", []string{redis},
			result.Default, result.Speed, result.SaveRate, 1, func(p result.Point) bool { return sizeFrom(p, 100_000, false) }},
	}
}

func isChat100k(p result.Point) bool { return p.Workload == growingChat && isSize(p, 100_000) }

func isSize(p result.Point, size int) bool {
	got, ok := stateSize(p)
	return ok && got == size
}

// sizeFrom reports whether states have at least the given size; for real runs it returns real.
func sizeFrom(p result.Point, size int, real bool) bool {
	got, ok := stateSize(p)
	if !ok {
		return real
	}
	return got >= size
}

// Goals checks a run against the goals of the project, in their order. A goal without checks was
// not measured.
func Goals(run *result.Run) []Goal {
	v := newView(run)
	var goals []Goal
	for _, g := range rivalGoals() {
		goals = append(goals, Goal{g.against, g.want, v.versus(g, result.Ckptd), v.versus(g, result.CkptdWhole)})
	}
	for _, g := range []struct {
		want, over string
		to         float64
	}{
		{"save p50 ≤ 1.3 × from step 10 to step 10,000", result.OverSteps, 10_000},
		{"save p50 ≤ 1.3 × from 10 to 100,000 threads", result.OverThreads, 100_000},
	} {
		goals = append(goals, Goal{"growth", g.want, v.flat(g.over, g.to, result.Ckptd), v.flat(g.over, g.to, result.CkptdWhole)})
	}
	return append(goals,
		Goal{"growth", "peak RSS grows by no more than the configured cache", v.bounded(result.Ckptd), v.bounded(result.CkptdWhole)},
		Goal{"limit", "one writer: save p50 ≤ 2 × fdatasync of a preallocated file", v.nearSync(result.Ckptd), v.nearSync(result.CkptdWhole)},
		Goal{"limit", "256 writers: ≥ 50 % of the rate that the pipeline's CPU cost allows", v.nearPipeline(result.Ckptd), v.nearPipeline(result.CkptdWhole)})
}

// versus compares one of the two rows of ckptd with the rivals of a goal, wherever both were
// measured.
func (v *view) versus(g versus, ours string) []Check {
	var checks []Check
	for _, p := range v.run.Points {
		if p.Kind != g.kind || p.Table != g.table || p.Rate > 0 || !g.only(p) || !slices.Contains(g.rivals, p.Rival) {
			continue
		}
		k := keyOf(p)
		k.rival = ours
		own, ok := v.figure(k, g.measure)
		theirs, has := p.Figures[g.measure]
		if !ok || !has {
			continue
		}
		checks = append(checks, Check{place(p), p.Rival, v.advantage(own, theirs, g.measure), g.factor, false})
	}
	return sound(checks)
}

// flat compares the save time at the far end of a curve with the one at 10.
func (v *view) flat(over string, to float64, rival string) []Check {
	var checks []Check
	for _, c := range v.run.Curves {
		if c.Over != over || c.Rival != rival {
			continue
		}
		first, ok := at(c, 10, result.SaveP50)
		last, has := at(c, to, result.SaveP50)
		if ok && has {
			checks = append(checks, Check{fmt.Sprintf("%s, %s to %s %s", c.Workload, digits(10), digits(to), over), rival, last / first, 1.3, true})
		}
	}
	return sound(checks)
}

// bounded compares the growth of memory, from the fewest threads to the most, with the cache size:
// once with the pages of mapped files, as in the goal, and once without them, because the system
// reclaims them when it needs memory.
func (v *view) bounded(rival string) []Check {
	var checks []Check
	for _, c := range v.run.Curves {
		if c.Over != result.OverThreads || c.Rival != rival || len(c.Points) < 2 {
			continue
		}
		from, to := c.Points[0].X, c.Points[len(c.Points)-1].X
		for _, m := range []string{result.PeakRSS, result.PeakAnonymous} {
			first, ok := at(c, from, m)
			last, has := at(c, to, m)
			if ok && has && to >= 100_000 {
				where := fmt.Sprintf("%s: %s, %s to %s threads, cache %s", v.measures[m].Title, c.Workload, digits(from), digits(to), inBytes(float64(v.run.Cache)))
				checks = append(checks, Check{where, rival, max(last-first, 0) / float64(v.run.Cache), 1, true})
			}
		}
	}
	return sound(checks)
}

func (v *view) nearSync(rival string) []Check {
	limit, ok := v.run.Limit(result.LimitSync)
	var checks []Check
	for _, p := range v.run.Points {
		f, has := p.Figures[result.SaveP50]
		if ok && has && p.Kind == result.Speed && p.Table == result.Durable && p.Rival == rival && p.Writers == 1 && p.Rate == 0 {
			checks = append(checks, Check{place(p), rival, f.Median / limit.Median, 2, true})
		}
	}
	return sound(checks)
}

// nearPipeline compares with the rate that ckptd's CPU time allows, which is measured on the chat.
func (v *view) nearPipeline(rival string) []Check {
	limit, ok := v.run.Limit(result.LimitPipeline)
	var checks []Check
	for _, p := range v.run.Points {
		f, has := p.Figures[result.SaveRate]
		if ok && has && p.Kind == result.Speed && p.Table == result.Durable && p.Rival == rival && p.Writers == 256 && p.Rate == 0 && isChat100k(p) {
			checks = append(checks, Check{place(p), rival, f.Median / limit.Median, 0.5, false})
		}
	}
	return sound(checks)
}

// at returns a measure at a position of a curve.
func at(c result.Curve, x float64, measure string) (float64, bool) {
	for _, p := range c.Points {
		if f, ok := p.Figures[measure]; ok && p.X == x {
			return f.Median, true
		}
	}
	return 0, false
}

// sound removes ratios with a zero, which were not really measured.
func sound(checks []Check) []Check {
	return slices.DeleteFunc(checks, func(c Check) bool { return !positive(c.Got) && c.Got != 0 })
}
