package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Plan determines a simulation. The seed decides everything that the plan leaves open: zero fields
// take their values from the profile that the seed selects.
type Plan struct {
	Seed    uint64
	Profile string // "": any of them, by the seed

	Rounds, Clients, Ops int // operations per client and round
	Threads, Channels    int

	Only   []string // names of the operations to run; nil means all
	Drop   []string // names of operations to leave out
	Sound  bool     // the backend never fails
	Calm   bool     // no context ends
	Alive  bool     // nothing crashes
	Serial bool     // one operation after the other
}

// String returns the plan as Go source.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sim.Plan{Seed: %d", p.Seed)
	text := func(name, v string) {
		if v != "" {
			fmt.Fprintf(&b, ", %s: %q", name, v)
		}
	}
	number := func(name string, v int) {
		if v != 0 {
			fmt.Fprintf(&b, ", %s: %d", name, v)
		}
	}
	list := func(name string, v []string) {
		if v != nil {
			fmt.Fprintf(&b, ", %s: %#v", name, v)
		}
	}
	flag := func(name string, v bool) {
		if v {
			fmt.Fprintf(&b, ", %s: true", name)
		}
	}
	text("Profile", p.Profile)
	number("Rounds", p.Rounds)
	number("Clients", p.Clients)
	number("Ops", p.Ops)
	number("Threads", p.Threads)
	number("Channels", p.Channels)
	flag("Sound", p.Sound)
	flag("Calm", p.Calm)
	flag("Alive", p.Alive)
	flag("Serial", p.Serial)
	list("Only", p.Only)
	list("Drop", p.Drop)
	return b.String() + "}"
}

// runs reports whether an operation is part of the plan.
func (p *Plan) runs(op string) bool {
	return (p.Only == nil || slices.Contains(p.Only, op)) && !slices.Contains(p.Drop, op)
}

// hash mixes a seed with names. Decisions use it rather than a stream of random numbers, so that
// they do not depend on the number of earlier decisions: without one operation, a plan decides the
// same for the others.
func hash(seed uint64, names ...string) uint64 {
	h := fnv.New64a()
	for _, n := range names {
		h.Write([]byte(n))
		h.Write([]byte{0})
	}
	x := h.Sum64() ^ seed*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// chance is true in the given number of cases per thousand.
func chance(permille int, seed uint64, names ...string) bool {
	return permille > 0 && hash(seed, names...)%1000 < uint64(permille)
}
