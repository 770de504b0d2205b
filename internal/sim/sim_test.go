package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func envPlan(seed uint64) Plan {
	on := func(n string) bool { return os.Getenv(n) != "" }
	p := Plan{Seed: seed, Profile: os.Getenv("PROFILE"), Serial: on("SERIAL"), Sound: on("SOUND"), Alive: on("ALIVE"), Calm: on("CALM")}
	if p.Serial {
		p.Ops = 40
	}
	return p
}

func TestMany(t *testing.T) {
	from, _ := strconv.ParseUint(os.Getenv("FROM"), 10, 64)
	n, _ := strconv.ParseUint(os.Getenv("N"), 10, 64)
	ops, gates, bad := 0, 0, 0
	for seed := from; seed < from+max(n, 1); seed++ {
		p := envPlan(seed)
		r := Run(t, p, n == 0)
		ops += r.Ops
		println(seed, r.Ops, r.Gates)
		gates += r.Gates
		if n == 0 {
			os.WriteFile("/tmp/sim.log", []byte(strings.Join(append(r.Log, r.Problems...), "\n")), 0o644)
			t.Logf("%v %x", r.Kinds, r.Trace)
		}
		if len(r.Problems) > 0 {
			bad++
			pr := p.profile()
			t.Errorf("seed %d %s: %.600s", seed, pr.name, r.Problems[0])
		}
	}
	t.Logf("%d operations, %d gates, %d bad", ops, gates, bad)
}
