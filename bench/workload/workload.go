// Package workload makes the states that the bench saves: what agents of some kinds do step after step, from a seed, and
// what real ones did, from a file of their runs.
//
// A state is a JSON object of channels, {"files":…,"messages":…}, in order of name. It stands in one piece of memory,
// which a step changes in place: a rival that stores whole states finds it ready, one that stores changes is told them.
package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// ErrUnknown is matched by the error of Lookup for a name that is none of the workloads.
var ErrUnknown = errors.New("unknown workload")

// Workload is a kind of agent.
type Workload struct {
	Name string
	What string // one line
	Size int    // bytes of a state, about, when no other size is asked for

	// Fixed says that states have the size that they have.
	Fixed bool

	start func(o Options) script
}

// Options choose a thread of a workload.
type Options struct {
	Seed    uint64
	Thread  int // its number, from 0
	Threads int // how many there are: a player that comes to the end of a thread goes on with number Thread+Threads
	Size    int // bytes of a state, about; 0 is the workload's
	// Filled begins with a state of about that size, or the workload's. Otherwise a thread begins with its first message.
	// A chat with a size grows from half of it to one and a half of it; then it drops its oldest messages, down to half,
	// and grows again. One without grows for ever.
	Filled bool
}

// script decides what each step of one thread changes.
type script interface {
	first(p *Player) // makes the state of step 0
	next(p *Player)  // changes it
}

// All lists the workloads that are made from a seed.
func All() []Workload {
	return []Workload{
		{Name: "chat", What: "a chat that grows by 1 kB a step, from half the size to 1.5 × of it; then it keeps the newest third and grows on", Size: 100_000, start: newChat},
		{Name: "tools", What: "an agent whose tools answer 0.1 to 50 kB, a quarter of it repeated; with a size, it is kept like a chat", Size: 400_000, start: newTools},
		{Name: "blackboard", What: "64 channels, of which a step changes one to four", Size: 64_000, start: newBlackboard},
		{Name: "coder", What: "1 MB of open files with small edits in their middle, and a chat", Size: 1_000_000, start: newCoder},
		{Name: "summariser", What: "a chat of which every 60th step keeps a summary only", Size: 60_000, start: newSummariser},
		{Name: "branchy", What: "a debugger's chat that goes back up to 20 steps every 16th time, and forks", Size: 100_000, start: newBranchy},
		{Name: "multimodal", What: "a chat with images of 256 kB, one more every 10th step, eight at most", Size: 2_100_000, Fixed: true, start: newMultimodal},
		{Name: "counted", What: "a chat whose array begins with the number of its messages, as in msgpack", Size: 100_000, start: rewriting(form{write: counted})},
		{Name: "stepped", What: "a chat with the number of the step before its messages", Size: 100_000, start: rewriting(form{write: stepped})},
		{Name: "inserted", What: "the same, and a new message comes to the middle", Size: 100_000, start: rewriting(form{inserts: true, write: stepped})},
		{Name: "moving", What: "a chat with a field that stands behind another message at each step", Size: 100_000, start: rewriting(form{write: moving})},
		{Name: "reordered", What: "a chat in eight parts, whose keys are written in another order at each step", Size: 100_000, start: rewriting(form{write: reordered})},
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

// Step is one save. All of it belongs to the player and is valid until its next step.
type Step struct {
	Thread int
	Number int // of the step in its thread, from 0
	Parent int // number of the step that it stands on, -1 for the first

	State   *State
	Splices []Splice // from the parent's state to this one, one a channel; nil for the first step of a thread
	Changed int      // bytes that Splices insert; all bytes of the state in a first step
}

// Splice is what changed in a channel: Insert stands between the first Prefix and the last Suffix bytes of its value in
// the parent's state, if it had one.
type Splice struct {
	Channel        string
	New            bool
	Prefix, Suffix int
	Insert         []byte
}

// Player plays threads of a workload, one after the other. The same options give the same steps.
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

// Player begins a thread.
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

// Next makes the next step.
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

// edit is a splice whose bytes stand in the state.
type edit struct {
	channel        string
	fresh          bool
	prefix, length int
}

// set gives a channel a value, whether it exists or not.
func (p *Player) set(channel string, value []byte) {
	fresh := p.state.set(channel, value)
	p.edits = append(p.edits, edit{channel, fresh, 0, len(value)})
}

// splice replaces cut bytes of a channel after prefix.
func (p *Player) splice(channel string, prefix, cut int, insert []byte) {
	p.state.splice(channel, prefix, cut, insert)
	p.edits = append(p.edits, edit{channel, false, prefix, len(insert)})
}

// limit is how many bytes a state of an agent that goes back may have.
func (o Options) limit() int {
	if o.Size == 0 {
		return endless
	}
	return o.Size
}
