package sim

import "time"

// profile is the character of a world and the operations in it.
type profile struct {
	name                 string
	rounds, clients, ops int
	threads, namespaces  int
	channels             int
	branches             int
	first                int   // maximum bytes of a channel's first value
	add                  int   // maximum bytes of a change
	keep                 int   // minimum number of checkpoints that a prune keeps
	cache                int64 // Options.CacheBytes
	shared               bool  // the backend does not claim to be exclusive

	fail, doubt int // per thousand: calls that fail, commits left in doubt
	end         int // per thousand: operations whose context ends
	crash       int // per hundred: rounds that end in a crash
	pass        time.Duration

	weights map[string]int // of kinds; all others have the weight in the table
}

// profiles are the profiles that seeds rotate through.
var profiles = []profile{
	{name: "crowd", rounds: 3, clients: 6, ops: 14, threads: 1, namespaces: 1, channels: 3, branches: 2, first: 300, add: 60,
		fail: 6, doubt: 8, end: 250, crash: 25},
	{name: "few", rounds: 4, clients: 4, ops: 14, threads: 3, namespaces: 2, channels: 4, branches: 3, first: 2000, add: 300,
		fail: 2, doubt: 3, end: 100, crash: 25},
	{name: "upkeep", rounds: 6, clients: 3, ops: 16, threads: 1, namespaces: 1, channels: 2, branches: 3, first: 3000, add: 100,
		fail: 1, doubt: 1, end: 30, crash: 20, weights: map[string]int{"save": 50, "replace": 16, "load": 20, "prune": 16, "migrate head": 14,
			"undo head": 8, "tryout": 8, "migrate history": 3, "restore history": 4, "copy": 3, "delete": 1, "delete run": 1, "gc": 8, "blob": 8, "shed": 4, "repeat": 8}},
	{name: "long", rounds: 2, clients: 3, ops: 8, threads: 1, namespaces: 1, channels: 2, branches: 2, first: 50000, add: 50,
		keep: 100, crash: 10, end: 30, weights: map[string]int{"save": 20, "appends": 60, "history": 20, "prune": 14, "delete": 0, "delete run": 0,
			"copy": 1, "shed": 0, "tryout": 0, "migrate history": 1, "query": 1, "diff": 1, "tree": 1}},
	{name: "walks", rounds: 2, clients: 4, ops: 10, threads: 1, namespaces: 1, channels: 2, branches: 2, first: 1500, add: 60,
		keep: 60, fail: 1, doubt: 1, crash: 10, end: 30, weights: map[string]int{"save": 40, "appends": 40, "history": 70, "prune": 50, "load": 20,
			"delete": 0, "delete run": 0, "migrate history": 6, "restore history": 6, "copy": 1}},
	{name: "wide", rounds: 2, clients: 3, ops: 14, threads: 2, namespaces: 1, channels: 300, branches: 3, first: 600, add: 60,
		fail: 2, doubt: 3, end: 100, crash: 20, weights: map[string]int{"appends": 2}},
	{name: "bushy", rounds: 3, clients: 3, ops: 14, threads: 1, namespaces: 1, channels: 3, branches: 100, first: 600, add: 60,
		fail: 1, doubt: 2, end: 60, crash: 15, weights: map[string]int{"branch": 15, "forks": 10, "label": 16, "replace": 10, "migrate head": 10}},
	{name: "expiry", rounds: 4, clients: 4, ops: 12, threads: 2, namespaces: 2, channels: 2, branches: 2, first: 300, add: 60,
		fail: 3, doubt: 4, end: 100, crash: 20, pass: 2 * time.Hour, weights: map[string]int{"delete": 8, "gc": 4, "migrate head": 4, "undo head": 8}},
}

// profile returns the profile of a plan, varied by the seed.
func (p *Plan) profile() profile {
	pr := profiles[p.Seed%uint64(len(profiles))]
	for _, q := range profiles {
		if q.name == p.Profile {
			pr = q
		}
	}
	pr.cache = []int64{0, 0, -1, 1 << 16}[hash(p.Seed, "cache")%4]
	pr.shared = chance(200, p.Seed, "shared")
	pr.channels = 1 + int(hash(p.Seed, "channels")%uint64(pr.channels))
	set := func(to *int, v int) {
		if v != 0 {
			*to = v
		}
	}
	set(&pr.rounds, p.Rounds)
	set(&pr.clients, p.Clients)
	set(&pr.ops, p.Ops)
	set(&pr.threads, p.Threads)
	set(&pr.channels, p.Channels)
	if p.Sound {
		pr.fail, pr.doubt = 0, 0
	}
	if p.Calm {
		pr.end = 0
	}
	if p.Alive {
		pr.crash = 0
	}
	return pr
}
