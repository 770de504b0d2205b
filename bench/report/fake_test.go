package report

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/workload"
)

var page = flag.String("page", "", "write the page of a made-up run to this file")

// fakeRun fabricates an entire run, with rivals whose costs follow from what they store. Speed
// scales the machine: all times and limits.
func fakeRun(seed uint64, speed float64) *result.Run {
	f := &faker{rand.New(rand.NewPCG(seed, 0)), speed}
	run := &result.Run{
		Schema: result.Schema, Began: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Took: 1834, Command: "make bench-full",
		Version: "0123abc", Set: "full", Seed: seed, Rounds: 5, Turn: 2, Cache: 64e6,
		Machine: result.Machine{CPU: "Made-up CPU @ 3 GHz", Cores: 2, Memory: 24e9, System: "linux/amd64 6.1", FileSystem: "ext4", Go: "go1.26.8", Load: 0.1},
		Limits: []result.Limit{
			{Name: result.LimitSync, Unit: "s", What: "a page written over in a preallocated file, p50", Figure: f.figure(180e-6 / speed)},
			{Name: result.LimitWrite, Unit: "B/s", What: "1 GB in blocks of 1 MB", Figure: f.figure(900e6 * speed)},
			{Name: result.LimitCopy, Unit: "B/s", What: "64 MB", Figure: f.figure(9e9 * speed)},
			{Name: result.LimitZstd, Unit: "B/s", What: "states of the chat", Figure: f.figure(400e6 * speed)},
			{Name: result.LimitPipeline, Unit: "saves/s", What: "the rate that the CPU time of a save allows", Figure: f.figure(100e3 * speed)},
		},
		Skipped: []result.Skip{{What: "redis", Why: "redis-server is not installed: bench/rivals.sh installs it"}},
	}
	for name, cost := range fakeRivals() {
		run.Rivals = append(run.Rivals, result.Rival{Name: name, What: "made up", Durable: "synced", Default: cost.byDefault, Version: "1"})
	}
	slices.SortFunc(run.Rivals, func(a, b result.Rival) int { return int(fakeRivals()[a.Name].order - fakeRivals()[b.Name].order) })
	for _, table := range []string{result.Durable, result.Default} {
		for _, w := range workload.All()[:4] {
			for _, r := range run.Rivals {
				if table == result.Default && r.Default == "" {
					continue
				}
				run.Points = append(run.Points, f.points(table, w, r.Name)...)
			}
		}
	}
	for _, over := range []string{result.OverSteps, result.OverSize, result.OverThreads} {
		for _, r := range run.Rivals {
			run.Curves = append(run.Curves, f.curve(over, r.Name))
		}
	}
	return run
}

type fakeRival struct {
	order     float64
	fixed     float64 // s per save
	perByte   float64 // s per byte of the state
	whole     float64 // bytes stored per byte of the state
	byDefault string
}

func fakeRivals() map[string]fakeRival {
	return map[string]fakeRival{
		result.Ckptd:      {0, 200e-6, 1e-11, 0, ""},
		result.CkptdWhole: {1, 210e-6, 2e-10, 0, ""},
		rawBadger:         {2, 190e-6, 4e-9, 1, "not synced"},
		zstdBadger:        {3, 220e-6, 9e-9, 0.3, "not synced"},
		bbolt:             {4, 450e-6, 8e-9, 1.1, ""},
		sqlite:            {5, 350e-6, 5e-9, 1.05, "synchronous=NORMAL"},
		postgres:          {6, 900e-6, 9e-9, 0.9, ""},
		langGraph:         {7, 1200e-6, 6e-9, 0.4, ""},
		files:             {8, 500e-6, 3e-9, 1, "not synced"},
	}
}

type faker struct {
	rng   *rand.Rand
	speed float64
}

// figure is a median with five rounds around it.
func (f *faker) figure(median float64) result.Figure {
	rounds := make([]float64, 5)
	for i := range rounds {
		rounds[i] = median * (1 + 0.03*float64(i-2) + 0.005*f.rng.Float64())
	}
	return result.FigureOf(rounds)
}

func (f *faker) timed(seconds float64) result.Figure {
	fig := f.figure(seconds / f.speed)
	fig.Limit, fig.Fraction = result.LimitSync, 180e-6/seconds
	return fig
}

func (f *faker) points(table string, w workload.Workload, rival string) []result.Point {
	r := fakeRivals()[rival]
	save := r.fixed + r.perByte*float64(w.Size)
	if table == result.Default {
		save /= 4
	}
	var points []result.Point
	for _, writers := range []int{1, 16, 64, 256} {
		together := math.Sqrt(float64(writers))
		rate := f.figure(together / save * f.speed)
		rate.Limit, rate.Fraction = result.LimitSync, 180e-6/save
		if rival == result.Ckptd && writers == 256 {
			rate.Limit, rate.Fraction = result.LimitPipeline, together/save/100e3
		}
		points = append(points, result.Point{Kind: result.Speed, Table: table, Workload: w.Name, Size: w.Size, Rival: rival, Writers: writers, Threads: writers * 4,
			Figures: map[string]result.Figure{
				result.SaveRate: rate, result.SaveP50: f.timed(save * together), result.SaveP99: f.timed(3 * save * together),
				result.SaveP999: f.timed(8 * save * together), result.SaveCPU: f.timed(save / 4), result.SaveAllocs: f.figure(10),
				result.SaveBytes: f.figure(4000), result.PeakRSS: f.figure(200e6),
			}})
	}
	points = append(points, result.Point{Kind: result.Speed, Table: table, Workload: w.Name, Size: w.Size, Rival: rival, Writers: 64, Threads: 256, Rate: 2000,
		Figures: map[string]result.Figure{result.SaveP50: f.timed(save * 8), result.SaveP99: f.timed(save * 90), result.SaveRate: f.figure(min(2000, 8/save))}})
	stored := 300 + r.whole*float64(w.Size)
	return append(points, result.Point{Kind: result.Space, Table: table, Workload: w.Name, Size: w.Size, Rival: rival, Writers: 1, Threads: 1,
		Figures: map[string]result.Figure{
			result.DiskBytes: f.figure(1000 * stored), result.DiskPerSave: f.figure(stored), result.WriteAmp: f.figure(stored / 500),
			result.LoadWarm: f.timed(20e-6), result.LoadCold: f.timed(900e-6), result.LoadOld: f.timed(400e-6),
		}})
}

func (f *faker) curve(over, rival string) result.Curve {
	r := fakeRivals()[rival]
	c := result.Curve{Over: over, Workload: growingChat, Rival: rival}
	xs := []float64{10, 100, 1000, 10_000}
	switch over {
	case result.OverSize:
		xs = []float64{1e3, 1e4, 1e5, 1e6, 1e7}
	case result.OverThreads:
		xs = append(xs, 100_000, 1_000_000)
	}
	for _, x := range xs {
		size := 1000.0
		switch over {
		case result.OverSteps:
			size *= x
		case result.OverSize:
			size = x
		}
		save := r.fixed + r.perByte*size
		sampled := over == result.OverSteps && r.whole > 0.5 && x >= 10_000
		c.Points = append(c.Points, result.CurvePoint{X: x, Sampled: sampled, Figures: map[string]result.Figure{
			result.SaveP50: f.timed(save), result.SaveRate: f.figure(1 / save * f.speed), result.LoadCold: f.timed(1e-3 + size*2e-9),
			result.DiskBytes: f.figure(x * (300 + r.whole*size)), result.PeakRSS: f.figure(150e6 + 100*x),
		}})
	}
	if over == result.OverThreads && rival == files {
		c.Points, c.Note = c.Points[:5], "a million directories take longer than the run may"
	}
	return c
}

// TestPage writes the page to the path in -page, for inspection.
func TestPage(t *testing.T) {
	if *page == "" {
		t.Skip("no -page")
	}
	file, err := os.Create(*page)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := HTML(file, fakeRun(1, 1)); err != nil {
		t.Fatal(err)
	}
}
