package torture

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// row is one way to torture a store.
type row struct {
	name  string
	unit  string
	slice int // how many units every run of the tests tries
	share int // of the time of a campaign
	most  int // rounds in a campaign, if they leave memory behind; 0: no limit
	round func(r *round)
}

var rows = []*row{
	{name: "kill", unit: "kills", slice: 100, share: 3, round: killRound},
	{name: "flip", unit: "flipped bits", slice: 200, share: 3, round: flipRound},
	{name: "files", unit: "damaged files", slice: 200, share: 2, round: filesRound},
	{name: "calls", unit: "failed calls", slice: 1, share: 1, round: callsRound},
	{name: "erase", unit: "erased values", slice: 200, share: 1, round: eraseRound},
	{name: "power", unit: "images", slice: 200, share: 3, round: powerRound},
	{name: "fail", unit: "images after a failed call", slice: 1, share: 1, most: 2, round: failRound},
	{name: "full", unit: "full disks", slice: 10, share: 2, round: fullRound},
	{name: "syscalls", unit: "failed calls", slice: 24, share: 2, round: syscallsRound},
}

// round is a part of a row with a seed of its own, most often one store and damage to copies of it.
type round struct {
	*testing.T
	row   *row
	seed  uint64
	rnd   *rand.Rand
	dir   string // for its stores; kept if it fails
	units int    // to do at most
	*tally
}

// tally counts the work of a row.
type tally struct {
	rounds, units int
	spent         time.Duration
	counts        map[string]int
	skipped       string // why the row cannot be run here
}

func (c *tally) String() string {
	if c.skipped != "" {
		return "SKIPPED: " + c.skipped
	}
	text := fmt.Sprintf("%d, %d rounds, %v", c.units, c.rounds, c.spent.Round(time.Second))
	for _, k := range slices.Sorted(maps.Keys(c.counts)) {
		text += fmt.Sprintf("; %d %s", c.counts[k], k)
	}
	return text
}

// did counts a unit, and whatever else is worth it.
func (r *round) did(what ...string) {
	r.tally.units++
	for _, w := range what {
		r.count(w, 1)
	}
}

func (r *round) count(what string, n int) { r.counts[what] += n }

// skip says that the row cannot be run on this machine.
func (r *round) skip(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }

// must ends the round where the torture itself fails.
func (r *round) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("row %s, seed %d: %v; kept: %s", r.row.name, r.seed, err, r.dir)
	}
}

// problem reports a finding of a row.
func (r *round) problem(format string, args ...any) {
	r.Helper()
	r.Errorf("row %s, seed %d: %s\nkept: %s; again: make torture TORTURE_ROW=%s TORTURE_SEED=%d",
		r.row.name, r.seed, fmt.Sprintf(format, args...), r.dir, r.row.name, r.seed)
}

// play runs a round.
func (rw *row) play(t *testing.T, c *tally, seed uint64, units int) {
	dir, err := os.MkdirTemp(os.Getenv("TORTURE_DIR"), "torture-"+rw.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	r := &round{T: t, row: rw, seed: seed, rnd: rand.New(rand.NewPCG(seed, 14)), dir: dir, units: units, tally: c}
	began := time.Now()
	defer func() {
		c.rounds++
		c.spent += time.Since(began)
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	}()
	rw.round(r)
}

// TestTorture tries a slice of each row. With TORTURE_TIME it continues with new seeds until that
// time is over ("forever": until it is stopped), a share for each row; TORTURE_SEED repeats a
// round, TORTURE_ROW names the rows.
func TestTorture(t *testing.T) {
	wanted := rows
	if names := strings.Fields(os.Getenv("TORTURE_ROW")); len(names) > 0 {
		wanted = slices.DeleteFunc(slices.Clone(rows), func(rw *row) bool { return !slices.Contains(names, rw.name) })
	}
	switch text := os.Getenv("TORTURE_TIME"); {
	case os.Getenv("TORTURE_SEED") != "":
		again(t, wanted)
	case text == "forever":
		campaign(t, wanted, 100*365*24*time.Hour)
	case text != "":
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		campaign(t, wanted, d)
	default:
		for _, rw := range wanted {
			t.Run(rw.name, func(t *testing.T) { rw.playSlice(t) })
		}
	}
}

// playSlice is the part in every run of the tests.
func (rw *row) playSlice(t *testing.T) {
	if raceEnabled {
		t.Skip("make test runs it again without the race detector")
	}
	goal := rw.slice
	if testing.Short() {
		goal = max(1, goal/20)
	}
	c := &tally{counts: map[string]int{}}
	for seed := uint64(1); c.units < goal && !t.Failed(); seed++ {
		if rw.play(t, c, seed, goal-c.units); c.skipped != "" {
			t.Skipf("%s SKIPPED: %s", t.Name(), c.skipped)
		}
	}
	t.Logf("%s: %v", rw.unit, c)
}

// campaign runs rounds of the row that is furthest behind its share of the time.
func campaign(t *testing.T, rows []*row, d time.Duration) {
	tallies := map[*row]*tally{}
	for _, rw := range rows {
		tallies[rw] = &tally{counts: map[string]int{}}
	}
	seed, until, told := uint64(time.Now().UnixMilli()), time.Now().Add(d), time.Now()
	report := func() {
		for _, rw := range rows {
			fmt.Printf("%10s  %s: %v\n", rw.name, rw.unit, tallies[rw])
		}
	}
	fmt.Printf("torture: the first seed is %d\n", seed)
	for ; time.Now().Before(until) && !t.Failed(); seed++ {
		var next *row
		behind := func(rw *row) time.Duration { return tallies[rw].spent / time.Duration(rw.share) }
		for _, rw := range rows {
			if rw.most > 0 && tallies[rw].rounds == rw.most {
				continue
			}
			if tallies[rw].skipped == "" && (next == nil || behind(rw) < behind(next)) {
				next = rw
			}
		}
		if next == nil {
			break
		}
		next.play(t, tallies[next], seed, 1<<30)
		if time.Since(told) > time.Minute {
			fmt.Printf("torture: seed %d\n", seed)
			report()
			told = time.Now()
		}
	}
	report()
}

// again repeats a round of each row.
func again(t *testing.T, rows []*row) {
	seed, err := strconv.ParseUint(os.Getenv("TORTURE_SEED"), 10, 64)
	if err != nil {
		t.Fatalf("TORTURE_SEED: %v", err)
	}
	for _, rw := range rows {
		c := &tally{counts: map[string]int{}}
		rw.play(t, c, seed, 1<<30)
		t.Logf("%s, %s: %v", rw.name, rw.unit, c)
	}
}
