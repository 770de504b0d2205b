package report

import (
	"math"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/rival"
	"github.com/ckptd/ckptd/bench/workload"
)

// A rival that is renamed must not drop out of the goals.
func TestGoalsNameRivals(t *testing.T) {
	for _, g := range rivalGoals() {
		for _, name := range g.rivals {
			if _, err := rival.Lookup(name); err != nil {
				t.Errorf("%s: %v", g.want, err)
			}
		}
	}
	if w, err := workload.Lookup(growingChat); err != nil || w.Size != 100_000 {
		t.Errorf("growing chat: %+v, %v", w, err)
	}
}

// goalRun has one point of ckptd and one of a rival at each place, at the given ratio of saves/s.
func goalRun(rivalName, table string, size, writers int, ratio float64) *result.Run {
	run := &result.Run{}
	for name, rate := range map[string]float64{result.Ckptd: 1000 * ratio, result.CkptdWhole: 1000 * ratio / 2, rivalName: 1000} {
		run.Rivals = append(run.Rivals, result.Rival{Name: name})
		run.Points = append(run.Points, result.Point{Kind: result.Speed, Table: table, Workload: growingChat, Size: size, Rival: name, Writers: writers,
			Figures: map[string]result.Figure{result.SaveRate: result.FigureOf([]float64{rate})}})
	}
	return run
}

func goalOf(t *testing.T, run *result.Run, want string) Goal {
	t.Helper()
	for _, g := range Goals(run) {
		if g.Want == want {
			return g
		}
	}
	t.Fatalf("no goal %q", want)
	return Goal{}
}

func TestGoalsAgainstRivals(t *testing.T) {
	for _, tt := range []struct {
		want, rival, table string
		size, writers      int
		ratio              float64
		of                 int
		short              float64
	}{
		{"≥ 5 × saves/s with 64 and 256 writers, chat at 100 kB", rawBadger, result.Durable, 100_000, 64, 4, 1, 1.25},
		{"≥ 5 × saves/s with 64 and 256 writers, chat at 100 kB", rawBadger, result.Durable, 0, 256, 10, 1, 0.5},
		{"≥ 5 × saves/s with 64 and 256 writers, chat at 100 kB", rawBadger, result.Durable, 1000, 64, 4, 0, 0},
		{"≥ 5 × saves/s with 64 and 256 writers, chat at 100 kB", rawBadger, result.Durable, 100_000, 16, 4, 0, 0},
		{"≥ 5 × saves/s with 64 and 256 writers, chat at 100 kB", rawBadger, result.Default, 100_000, 64, 4, 0, 0},
		{"never behind with one writer, states ≥ 10 kB", files, result.Durable, 10_000, 1, 0.8, 1, 1.25},
		{"never behind with one writer, states ≥ 10 kB", files, result.Durable, 9_000, 1, 0.8, 0, 0},
		{"≥ 5 × saves/s, every workload", langGraph, result.Durable, 1000, 16, 2.5, 1, 2},
		{"ahead, every workload", redis, result.Durable, 1000, 1, 0.5, 1, 2},
		{"not behind at states ≥ 100 kB", redis, result.Default, 100_000, 64, 0.5, 1, 2},
		{"not behind at states ≥ 100 kB", redis, result.Default, 10_000, 64, 0.5, 0, 0},
	} {
		g := goalOf(t, goalRun(tt.rival, tt.table, tt.size, tt.writers, tt.ratio), tt.want)
		met, of := g.Tally()
		worst, _ := g.Worst()
		if of != tt.of || of > 0 && (math.Abs(worst.Short()-tt.short) > 1e-9 || met == 1 != (tt.short <= 1) || len(g.Whole) != 1 || g.Whole[0].Got != worst.Got/2) {
			t.Errorf("%s, %s %s at %d with %d writers: met at %d of %d, %+v, whole %+v", tt.want, tt.table, tt.rival, tt.size, tt.writers, met, of, worst, g.Whole)
		}
	}
}

// Redis with its defaults is compared with ckptd, which is always durable.
func TestEverysecAgainstDurable(t *testing.T) {
	run := goalRun(redis, result.Default, 100_000, 64, 2)
	for i, p := range run.Points {
		if p.Rival != redis {
			run.Points[i].Table = result.Durable
		}
	}
	for i, r := range run.Rivals {
		if r.Name == redis {
			run.Rivals[i].Default = "everysec"
		}
	}
	if met, of := goalOf(t, run, "not behind at states ≥ 100 kB").Tally(); met != 1 || of != 1 {
		t.Errorf("met at %d of %d", met, of)
	}
}

func TestGoalsOfGrowthAndLimits(t *testing.T) {
	figures := func(p50, rss float64) map[string]result.Figure {
		return map[string]result.Figure{result.SaveP50: result.FigureOf([]float64{p50}), result.PeakRSS: result.FigureOf([]float64{rss})}
	}
	run := &result.Run{
		Cache: 100,
		Limits: []result.Limit{{Name: result.LimitSync, Unit: "s", Figure: result.FigureOf([]float64{2})},
			{Name: result.LimitPipeline, Unit: "saves/s", Figure: result.FigureOf([]float64{10})}},
		Points: []result.Point{
			{Kind: result.Speed, Table: result.Durable, Rival: result.Ckptd, Writers: 1, Figures: figures(6, 0)},
			{Kind: result.Speed, Table: result.Durable, Workload: growingChat, Rival: result.Ckptd, Writers: 256, Figures: map[string]result.Figure{
				result.SaveRate: {Median: 4}}},
		},
		Curves: []result.Curve{
			{Over: result.OverSteps, Rival: result.Ckptd, Points: []result.CurvePoint{{X: 10, Figures: figures(10, 0)}, {X: 10_000, Figures: figures(26, 0)}}},
			{Over: result.OverThreads, Rival: result.Ckptd, Points: []result.CurvePoint{{X: 10, Figures: figures(10, 50)}, {X: 100_000, Figures: figures(12, 300)}}},
		},
	}
	for want, short := range map[string]float64{
		"save p50 ≤ 1.3 × from step 10 to step 10,000":                        2,
		"save p50 ≤ 1.3 × from 10 to 100,000 threads":                         1.2 / 1.3,
		"peak RSS grows by no more than the configured cache":                 2.5,
		"one writer: save p50 ≤ 2 × fdatasync of a preallocated file":         1.5,
		"256 writers: ≥ 50 % of the rate that the pipeline's CPU cost allows": 1.25,
	} {
		worst, ok := goalOf(t, run, want).Worst()
		if !ok || math.Abs(worst.Short()-short) > 1e-9 {
			t.Errorf("%s: %+v, short by %v, want %v", want, worst, worst.Short(), short)
		}
	}
	// The share of mapped files in the memory is shown next to the goal.
	last := run.Curves[1].Points[1].Figures
	run.Curves[1].Points[0].Figures[result.PeakAnonymous], last[result.PeakAnonymous] = result.Figure{Median: 40}, result.Figure{Median: 90}
	g := goalOf(t, run, "peak RSS grows by no more than the configured cache")
	if met, of := g.Tally(); met != 1 || of != 2 || !strings.HasPrefix(g.Checks[0].Where, "peak RSS: ") || !strings.Contains(g.Checks[1].Where, "without mapped") {
		t.Errorf("met at %d of %d: %+v", met, of, g.Checks)
	}
	// A limit that could not be measured is not met.
	run.Limits = []result.Limit{{Name: result.LimitSync}, {Name: result.LimitPipeline}}
	for _, want := range []string{"one writer: save p50 ≤ 2 × fdatasync of a preallocated file", "256 writers: ≥ 50 % of the rate that the pipeline's CPU cost allows"} {
		if worst, ok := goalOf(t, run, want).Worst(); ok {
			t.Errorf("%s of a limit that is 0: %+v", want, worst)
		}
	}
	// A curve that ends early has not shown that it stays flat.
	run.Curves[0].Points = run.Curves[0].Points[:1]
	if _, ok := goalOf(t, run, "save p50 ≤ 1.3 × from step 10 to step 10,000").Worst(); ok {
		t.Error("a goal was measured by half a curve")
	}
}

// An offered rate does not show who could save more.
func TestOpenLoopsAreNoGoals(t *testing.T) {
	run := goalRun(postgres, result.Durable, 1000, 16, 1)
	for i := range run.Points {
		run.Points[i].Rate = 500
	}
	if _, of := goalOf(t, run, "≥ 5 × saves/s, every workload").Tally(); of != 0 {
		t.Errorf("measured at %d places", of)
	}
}
