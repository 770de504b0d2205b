package run

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ckptd/ckptd/bench/result"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// scratch returns a folder that the accounts of servers can access.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptd-run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An interrupted run ends its workers and removes their stores.
func TestInterrupt(t *testing.T) {
	p, err := PlanOf(Smoke, Input{})
	if err != nil {
		t.Fatal(err)
	}
	p.Dir, p.Rivals = scratch(t), []string{"ckptd", "redis"}
	p.Speed[0].Size, p.Seconds = 10_000, 1
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, p, slog.New(slog.DiscardHandler), true); err == nil {
		t.Error("a run that was interrupted ended well")
	}
	if left, err := os.ReadDir(p.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPlans(t *testing.T) {
	for _, set := range []string{Smoke, Some, Full} {
		p, err := PlanOf(set, Input{"real", "x"})
		if err != nil || len(p.Speed) == 0 || len(p.Space) == 0 || len(p.Growth) == 0 {
			t.Errorf("%s: %+v, %v", set, p, err)
		}
	}
	if _, err := PlanOf("all", Input{}); err == nil || !strings.Contains(err.Error(), "smoke") {
		t.Errorf("a set that is none: %v", err)
	}
	if _, err := Run(t.Context(), Plan{Rivals: []string{"nobody"}}, slog.New(slog.DiscardHandler), false); err == nil {
		t.Error("a rival that is none takes part")
	}
}

// An open loop measures from the time a save was due: a delayed writer delays the saves that wait
// for it, too.
func TestOpenLoop(t *testing.T) {
	p := &pace{seconds: 0.05, interval: 10 * time.Millisecond}
	began := time.Now().Add(-time.Second) // all saves are a second late, more than the patience
	if _, ok := p.next(0, began); ok || p.late != 5 || len(p.took) != 5 {
		t.Fatalf("%d late saves, %d times, ok %v", p.late, len(p.took), ok)
	}
	if p.took[0] < time.Second || p.took[4] < 950*time.Millisecond {
		t.Errorf("saves that never began count as %v", p.took)
	}
	p = &pace{seconds: 1, interval: 10 * time.Millisecond}
	due, ok := p.next(3, time.Now().Add(-100*time.Millisecond))
	if late := time.Since(due); !ok || late < 70*time.Millisecond {
		t.Errorf("a save that was due 70 ms ago is %v late", late)
	}
}

// The disk usage of a sampled history is that of the entire history.
func TestDiskOfSample(t *testing.T) {
	var h history
	h.grow(5000, 100, window) // a save takes as many bytes as its number, so all of them up to x take x²/2
	h.slope = 100
	h.sampled = true
	real := 5000.0
	for i, x := range []float64{200, 400, 1000} {
		saves := float64(window - 5*i)
		real += saves * x
		h.grow(real, x, saves)
		if want := x * x / 2; h.disk != want {
			t.Errorf("up to %v: %v bytes, want %v", x, h.disk, want)
		}
	}
}

// A limit that could not be measured is skipped by name and is never a figure. Figures are compared
// with the median of all rounds of the other limits, however late they came.
func TestLimits(t *testing.T) {
	r := &runner{plan: Plan{Rounds: 3}, log: slog.New(slog.DiscardHandler), limits: limits{rounds: tally{}}, out: &result.Run{}}
	figures := map[string]result.Figure{result.SaveP50: result.FigureOf([]float64{8}), result.LoadCold: result.FigureOf([]float64{1})}
	r.compareSaves(figures, 1, 1000, false)
	r.compareLoads(figures, &spent{state: 100})
	for _, round := range []float64{9, 1, 2} {
		r.limits.rounds.add(result.LimitSync, round)
		r.limits.rounds.add(result.LimitWrite, round)
		r.limits.rounds.add(result.LimitPipeline, 0)
	}
	if err := r.limitsDone(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, ok := r.out.Limit(result.LimitSync); !ok || l.Median != 2 || len(l.Rounds) != 3 {
		t.Errorf("fdatasync: %+v", l)
	}
	if f := figures[result.SaveP50]; f.Limit != result.LimitSync || f.Fraction != 0.25 {
		t.Errorf("a save is compared as %+v", f)
	}
	if f := figures[result.LoadCold]; f.Limit != "" {
		t.Errorf("a load is compared with a limit that was not measured: %+v", f)
	}
	for _, name := range []string{result.LimitRead, result.LimitPipeline} {
		if l, ok := r.out.Limit(name); ok {
			t.Errorf("%s was not measured and is %+v", name, l)
		}
		if !slices.ContainsFunc(r.out.Skipped, func(s result.Skip) bool { return s.What == "the limit "+name }) {
			t.Errorf("nothing says that %s was not measured", name)
		}
	}
}

// A rival that cannot create the threads in twice its time is not waited for.
func TestHopeless(t *testing.T) {
	a := PopulateArgs{From: 1000, To: 101_000, Seconds: 8}
	for _, tt := range []struct {
		done    int
		seconds float64
		want    bool
	}{{0, 0.9, false}, {6200, 1.01, true}, {6500, 1.01, false}, {49_000, 8, true}, {51_000, 8, false}} {
		if got := a.hopeless(tt.done, tt.seconds); got != tt.want {
			t.Errorf("%d threads in %v s: hopeless %v", tt.done, tt.seconds, got)
		}
	}
}

// Memory of a mapped file does not count as the process's own. Memory that was released again still
// counts in the peak.
func TestMemory(t *testing.T) {
	const size = 64 << 20
	file, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	touched := func(fd, flags int) []byte {
		mapped, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < size; i += 4096 {
			mapped[i] = 1
		}
		return mapped
	}
	debug.FreeOSMemory() // so that memory of other tests isn't released during this one
	var m memory
	m.reset()
	before := m.taken(0)
	stop := m.watch()
	mapped := touched(int(file.Fd()), unix.MAP_SHARED)
	defer unix.Munmap(mapped)
	stop()
	if got := m.taken(0); got.RSS < before.RSS+size*9/10 || got.Anonymous > before.Anonymous+size/2 {
		t.Errorf("a mapped file of %d bytes: from %+v to %+v", size, before, got)
	}
	stop = m.watch()
	own := touched(-1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	stop()
	if err := unix.Munmap(own); err != nil {
		t.Fatal(err)
	}
	if got := m.taken(0); got.Anonymous < before.Anonymous+size*9/10 {
		t.Errorf("%d bytes of its own: from %+v to %+v", size, before, got)
	}
}
