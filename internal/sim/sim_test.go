package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestOne(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	r := Run(t, Plan{Seed: seed, Serial: os.Getenv("SERIAL") != "", Sound: os.Getenv("SOUND") != "", Alive: os.Getenv("ALIVE") != "", Calm: os.Getenv("CALM") != ""}, true)
	for _, p := range r.Problems {
		t.Error(p)
	}
	if t.Failed() {
		os.WriteFile("/tmp/sim.log", []byte(strings.Join(r.Log, "\n")), 0o644)
	}
	t.Logf("%d operations, %d gates, %d crashes, trace %x, %v", r.Ops, r.Gates, r.Crashes, r.Trace, r.Kinds)
}

func TestMany(t *testing.T) {
	from, _ := strconv.ParseUint(os.Getenv("FROM"), 10, 64)
	n, _ := strconv.ParseUint(os.Getenv("N"), 10, 64)
	ops, gates, bad := 0, 0, 0
	for seed := from; seed < from+n; seed++ {
		p := Plan{Seed: seed, Serial: os.Getenv("SERIAL") != "", Sound: os.Getenv("SOUND") != "", Alive: os.Getenv("ALIVE") != "", Calm: os.Getenv("CALM") != ""}
		if p.Serial {
			p.Ops = 40
		}
		r := Run(t, p, false)
		ops += r.Ops
		gates += r.Gates
		if len(r.Problems) > 0 {
			bad++
			t.Errorf("seed %d %s: %.400s", seed, profiles[seed%uint64(len(profiles))].name, r.Problems[0])
		}
	}
	t.Logf("%d operations, %d gates, %d bad", ops, gates, bad)
}
