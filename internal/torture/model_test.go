package torture

import (
	"fmt"
	"maps"
	"slices"
)

// op is an operation on one thread. Each thread has one writer, so its state after each
// acknowledgement is known.
type op struct {
	Kind   string   // "save", "fork", "delete", "prune", "erase"
	Thread string   // its name
	ID     string   // of the checkpoint that is saved or forked at
	Sum    string   // of the state that is saved
	Branch string   // that is made or extended
	Gone   []string // the ids that a prune removes
}

// thread is the state of a thread in the model: the sums of its checkpoints by their ids, and where
// branches end.
type thread struct {
	States   map[string]string
	Branches map[string]string
}

func (t thread) clone() thread {
	return thread{maps.Clone(t.States), maps.Clone(t.Branches)}
}

func (t thread) equal(o thread) bool {
	return maps.Equal(t.States, o.States) && maps.Equal(t.Branches, o.Branches)
}

// after is the thread when an operation has taken effect.
func (t thread) after(o op) thread {
	t = t.clone()
	if t.States == nil || o.Kind == "delete" {
		t.States, t.Branches = map[string]string{}, map[string]string{}
	}
	switch o.Kind {
	case "save":
		t.States[o.ID] = o.Sum
		fallthrough
	case "fork":
		if o.Branch != "" {
			t.Branches[o.Branch] = o.ID
		}
	case "prune", "erase":
		for _, id := range o.Gone {
			delete(t.States, id)
		}
	}
	return t
}

// model is the expected content: every thread as it was last acknowledged, and the operations begun
// since.
type model struct {
	acked map[string]thread
	begun map[string]op
}

func newModel() *model { return &model{map[string]thread{}, map[string]op{}} }

func (m *model) begin(o op) { m.begun[o.Thread] = o }

func (m *model) ack(name string) {
	if o, ok := m.begun[name]; ok {
		m.acked[name] = m.acked[name].after(o)
		delete(m.begun, name)
	}
}

// judge compares the content that a process found with the model and lists the differences. Then
// the model takes over the found content: after it was seen once it must stay.
func (m *model) judge(found map[string]thread) (problems []string) {
	names := slices.Sorted(maps.Keys(m.acked))
	for name := range m.begun {
		if _, ok := m.acked[name]; !ok {
			names = append(names, name)
		}
	}
	for name := range found {
		if !slices.Contains(names, name) {
			problems = append(problems, fmt.Sprintf("%s is there and was never made", name))
		}
	}
	for _, name := range names {
		o, begun := m.begun[name]
		if !allowed(m.acked[name], o, begun, found[name]) {
			problems = append(problems, m.differences(name, found[name])...)
		}
	}
	m.acked, m.begun = map[string]thread{}, map[string]op{}
	maps.Copy(m.acked, found)
	return problems
}

// allowed says whether the state of a thread is allowed: that which was acknowledged, with or
// without the operation that was begun. Only a prune that erases nothing can have been done in
// part.
func allowed(was thread, o op, begun bool, found thread) bool {
	if found.equal(was) || begun && found.equal(was.after(o)) {
		return true
	}
	if !begun || o.Kind != "prune" {
		return false
	}
	o.Gone = slices.DeleteFunc(slices.Clone(o.Gone), func(id string) bool { return found.States[id] != "" })
	return found.equal(was.after(o))
}

func (m *model) differences(name string, found thread) (problems []string) {
	add := func(format string, args ...any) {
		problems = append(problems, name+": "+fmt.Sprintf(format, args...))
	}
	was := m.acked[name]
	for _, id := range slices.Sorted(maps.Keys(was.States)) {
		if sum, ok := found.States[id]; !ok {
			add("%s was acknowledged and is lost", id)
		} else if sum != was.States[id] {
			add("%s differs from the saved state", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found.States)) {
		if _, ok := was.States[id]; !ok {
			add("%s is there again, or before its time", id)
		}
	}
	if !maps.Equal(was.Branches, found.Branches) {
		add("its branches end at %v, and not at %v", found.Branches, was.Branches)
	}
	if o, ok := m.begun[name]; ok {
		add("begun was %+v", o)
	}
	return problems
}
