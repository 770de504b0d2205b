// Package workload generates the states that the bench saves: the steps of several kinds of agents,
// from a seed, and those of real agents, from a file of their runs.
//
// A state is a JSON object of channels, {"files":…,"messages":…}, ordered by name. It is a single
// piece of memory that a step changes in place: a rival that stores whole states can use it
// directly, and one that stores changes receives them.
package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// ErrUnknown matches the error of Lookup for an unknown workload.
var ErrUnknown = errors.New("unknown workload")

// Workload is a kind of agent.
type Workload struct {
	Name string
	What string // one line
	Size int    // approximate bytes of a state, unless another size is requested

	// Fixed means that the size of states cannot be chosen.
	Fixed bool

	start func(o Options) script
}

// Options select a thread of a workload.
type Options struct {
	Seed    uint64
	Thread  int // its number, from 0
	Threads int // number of threads: at the end of a thread, a player continues with number Thread+Threads
	Size    int // approximate bytes of a state; 0 is the workload's default
	// Filled starts with a state of about that size, or the workload's. Otherwise a thread starts
	// with its first message. A chat with a size grows from half of it to one and a half of it;
	// then it drops its oldest messages, down to half, and grows again. A chat without a size grows
	// forever.
	Filled bool
}

// script determines the changes in each step of a thread.
type script interface {
	first(p *Player) // creates the state of step 0
	next(p *Player)  // changes it
}

// All lists the workloads that are generated from a seed.
func All() []Workload {
	return []Workload{
		{Name: "chat", What: "a chat that grows by 1 kB per step, from half the size to 1.5 × the size; then it keeps the newest third and grows again", Size: 100_000, start: newChat},
		{Name: "tools", What: "an agent with tool outputs of 0.1 to 50 kB, a quarter of them repeated; with a size, it is bounded like a chat", Size: 400_000, start: newTools},
		{Name: "blackboard", What: "64 channels; a step changes one to four", Size: 64_000, start: newBlackboard},
		{Name: "coder", What: "1 MB of open files with small edits in the middle, and a chat", Size: 1_000_000, start: newCoder},
		{Name: "summariser", What: "a chat where every 60th step keeps only a summary", Size: 60_000, start: newSummariser},
		{Name: "branchy", What: "a debugger's chat that goes back up to 20 steps in every 16th step, and forks", Size: 100_000, start: newBranchy},
		{Name: "multimodal", What: "a chat with images of 256 kB, a new one every 10th step, at most eight", Size: 2_100_000, Fixed: true, start: newMultimodal},
		{Name: "counted", What: "a chat whose array begins with the number of its messages, as in msgpack", Size: 100_000, start: rewriting(form{write: counted})},
		{Name: "stepped", What: "a chat with the number of the step before its messages", Size: 100_000, start: rewriting(form{write: stepped})},
		{Name: "inserted", What: "the same, with new messages in the middle", Size: 100_000, start: rewriting(form{inserts: true, write: stepped})},
		{Name: "moving", What: "a chat with a field that follows a different message at each step", Size: 100_000, start: rewriting(form{write: moving})},
		{Name: "reordered", What: "a chat in eight parts, whose keys are in a different order at each step", Size: 100_000, start: rewriting(form{write: reordered})},
	}
}

// Lookup finds a workload of All by its name.
func Lookup(name string) (Workload, error) {
	all := All()
	i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, w := range all {
			names[i] = w.Name
		}
		return Workload{}, fmt.Errorf("%w %q: there are %s, and real runs with --input", ErrUnknown, name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// Step is one save. The player owns all of it, and it is valid until the next step.
type Step struct {
	Thread int
	Number int // of the step in its thread, from 0
	Parent int // number of its parent step, -1 for the first

	State   *State
	Splices []Splice // from the parent's state to this one, one per channel; nil for the first step of a thread
	Changed int      // bytes inserted by Splices; in a first step, all bytes of the state
}

// Splice is the change of a channel: Insert goes between the first Prefix and the last Suffix bytes
// of its value in the parent's state, if it had one.
type Splice struct {
	Channel        string
	New            bool
	Prefix, Suffix int
	Insert         []byte
}

// Player plays threads of a workload one after the other. The same options give the same steps.
type Player struct {
	o      Options
	start  func(Options) script
	script script
	words  speaker
	rng    *rand.Rand
	state  State
	step   Step
	edits  []edit
	parent int
	ended  bool // the script has no more steps for this thread
}

// Player starts a thread.
func (w Workload) Player(o Options) *Player {
	if o.Filled && (o.Size == 0 || w.Fixed) {
		o.Size = w.Size
	}
	p := &Player{o: o, start: w.start}
	p.step.Thread = o.Thread
	p.step.Number = -1
	p.begin()
	return p
}

func (p *Player) begin() {
	o := p.o
	o.Thread = p.step.Thread
	p.rng = rand.New(rand.NewPCG(o.Seed, uint64(o.Thread)))
	p.words = speaker{rng: p.rng}
	p.script = p.start(o)
	p.step.Number = -1
	p.ended = false
	p.state.reset()
}

// Next returns the next step.
func (p *Player) Next() *Step {
	if p.ended {
		p.step.Thread += max(p.o.Threads, 1)
		p.begin()
	}
	s := &p.step
	p.edits, p.parent = p.edits[:0], s.Number
	s.Number++
	s.State = &p.state
	s.Splices = s.Splices[:0]
	if s.Number == 0 {
		p.script.first(p)
		s.Parent, s.Changed = -1, len(p.state.Doc)
		return s
	}
	p.script.next(p)
	s.Parent, s.Changed = p.parent, 0
	for _, e := range p.edits {
		value := p.state.Value(e.channel)
		s.Splices = append(s.Splices, Splice{e.channel, e.fresh, e.prefix, len(value) - e.prefix - e.length, value[e.prefix : e.prefix+e.length]})
		s.Changed += e.length
	}
	return s
}

// edit is a splice whose inserted bytes are part of the state.
type edit struct {
	channel        string
	fresh          bool
	prefix, length int
}

// set sets the value of a channel, creating it if necessary.
func (p *Player) set(channel string, value []byte) {
	fresh := p.state.set(channel, value)
	p.edits = append(p.edits, edit{channel, fresh, 0, len(value)})
}

// splice replaces cut bytes of a channel after prefix.
func (p *Player) splice(channel string, prefix, cut int, insert []byte) {
	p.state.splice(channel, prefix, cut, insert)
	p.edits = append(p.edits, edit{channel, false, prefix, len(insert)})
}

// limit returns the maximum size of a state of an agent that goes back.
func (o Options) limit() int {
	if o.Size == 0 {
		return endless
	}
	return o.Size
}
