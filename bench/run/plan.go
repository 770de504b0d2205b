package run

import (
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/workload"
)

// Plan defines the measurements of a run.
type Plan struct {
	Set      string
	Seed     uint64
	Rounds   int      // each figure is the median of this many rounds
	Seconds  float64  // of a turn
	Bytes    int64    // limit on the whole states handed to a rival in a turn, which can end the turn early
	Fill     int64    // limit on the whole states handed to a rival over a history; a larger history is sampled
	Patience float64  // seconds that a rival has to create the threads of a curve
	Cache    int64    // ckptd's cache in bytes
	Rivals   []string // names; nil means all
	Input    Input    // a workload of real runs, if its Path is set
	Dir      string   // parent folder of the stores; "" is the system's temporary directory
	Command  string   // command line to put in the result

	Speed  []Speed
	Space  []Space
	Growth []Growth
}

// Speed measures concurrent writers, each with its own threads.
type Speed struct {
	Workload string
	Size     int // bytes of a state; 0 is the workload's own
	Table    string
	Writers  int
	Rate     float64 // saves/s of an open loop; 0 is a closed loop
}

// Space measures the storage and the loads of the same saves with every rival.
type Space struct {
	Workload       string
	Size           int
	Filled         bool
	Threads, Steps int
}

// Growth measures a curve.
type Growth struct {
	Over string // one of the constants in package result
	At   []int  // ascending
}

// Plans of the sets.
const (
	Smoke = "smoke" // a little of everything with every rival, to check that all of it works
	Some  = "some"  // the main figures, in ten minutes
	Full  = "full"
)

// PlanOf returns the plan of a set.
func PlanOf(set string, input Input) (Plan, error) {
	p := Plan{Set: set, Seed: 1, Rounds: 5, Seconds: 0.4, Bytes: 192 << 20, Fill: 600 << 20, Patience: 20, Cache: 256 << 20, Input: input}
	names := make([]string, 0, 8)
	for _, w := range workload.All() {
		names = append(names, w.Name)
	}
	if input.Path != "" {
		names = append(names, input.Name)
	}
	switch set {
	case Smoke:
		p.Rounds, p.Seconds, p.Bytes, p.Fill, p.Patience = 1, 0.1, 16<<20, 1<<20, 10
		p.Speed = []Speed{
			{"chat", 10_000, result.Durable, 8, 0}, {"branchy", 20_000, result.Durable, 4, 200}, {"blackboard", 0, result.Default, 4, 0}}
		p.Space = []Space{{"chat", 20_000, true, 2, 30}, {"multimodal", 0, false, 1, 12}}
		if input.Path != "" {
			p.Space = append(p.Space, Space{input.Name, 0, false, 2, 5})
		}
		p.Growth = []Growth{{result.OverSteps, []int{10, 60}}, {result.OverThreads, []int{10, 100}}}
	case Some:
		p.Seconds, p.Fill, p.Patience = 0.25, 128<<20, 30
		p.Speed, p.Space = someSpeed(names), spaces(names)
		p.Growth = []Growth{
			{result.OverSteps, []int{10, 100, 1000, 10_000}},
			{result.OverSize, []int{1000, 10_000, 100_000, 1_000_000}},
			{result.OverThreads, []int{10, 1000, 100_000}}}
	case Full:
		p.Seconds, p.Patience = 1, 300
		p.Speed, p.Space = fullSpeed(names), spaces(names)
		p.Growth = []Growth{
			{result.OverSteps, []int{10, 30, 100, 300, 1000, 3000, 10_000}},
			{result.OverSize, []int{1000, 10_000, 100_000, 1_000_000, 10_000_000}},
			{result.OverThreads, []int{10, 100, 1000, 10_000, 100_000, 1_000_000}}}
	default:
		return p, fmt.Errorf("no set %q: there are %s, %s and %s", set, Smoke, Some, Full)
	}
	return p, nil
}

// workloads returns the names of the workloads in p, once each.
func (p Plan) workloads() (names []string) {
	for _, s := range p.Speed {
		names = append(names, s.Workload)
	}
	for _, s := range p.Space {
		names = append(names, s.Workload)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func writerCounts() []int { return []int{1, 16, 64, 256} }

// someSpeed measures the growing chat with all numbers of writers, and every other workload with
// 64.
func someSpeed(names []string) (list []Speed) {
	for _, writers := range writerCounts() {
		list = append(list, Speed{"chat", 100_000, result.Durable, writers, 0})
	}
	for _, name := range names {
		if name != "chat" {
			list = append(list, Speed{name, 0, result.Durable, 64, 0})
		}
	}
	return append(list, Speed{"chat", 100_000, result.Durable, 16, 200}, Speed{"chat", 100_000, result.Default, 64, 0})
}

func fullSpeed(names []string) (list []Speed) {
	for _, table := range []string{result.Durable, result.Default} {
		for _, name := range names {
			for _, writers := range writerCounts() {
				list = append(list, Speed{name, 0, table, writers, 0})
			}
		}
	}
	return append(list, Speed{"chat", 10_000, result.Durable, 1, 0}, Speed{"chat", 1_000_000, result.Default, 64, 0},
		Speed{"chat", 100_000, result.Durable, 16, 200}, Speed{"chat", 100_000, result.Durable, 64, 1000})
}

// spaces hands every rival some hundred megabytes of whole states from each workload.
func spaces(names []string) (list []Space) {
	for _, name := range names {
		s := Space{Workload: name, Threads: 8, Steps: 100}
		switch name {
		case "chat": // from half the size to one and a half of it, twice
			s.Size, s.Filled, s.Threads, s.Steps = 100_000, true, 4, 200
		case "coder", "multimodal":
			s.Filled, s.Threads, s.Steps = true, 2, 60
		case "summariser":
			s.Steps = 130
		case "branchy":
			s.Filled = true
		case "tools":
			s.Threads, s.Steps = 4, 80
		}
		list = append(list, s)
	}
	return list
}
