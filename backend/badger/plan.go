package badger

import (
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

// plan lists the groups that the tables lack: frames of the log and, where one is missing or
// damaged, groups from memory files. The memory files are read after every unclean end, whether the
// log seems complete or not: the anchor lags, so a log without its end can look like a whole one.
func (o *opening) plan() error {
	paths, err := memoryFiles(o.s.dir)
	if err != nil {
		return err
	}
	memory, err := someMemoryGroups(paths, o.tables.pos, func(uint64) bool { return false })
	if err != nil {
		return err
	}
	o.join(memory)
	if why := o.diverged(memory); why != "" {
		if err := o.withoutLog(backend.ErrLostCommits, why); err != nil {
			return err
		}
		o.tail = &commitlog.Tail{}
		o.join(memory)
	}
	if err := o.readMemory(paths); err != nil {
		return err
	}
	o.note()
	if beyond := o.beyond(memory); beyond > o.last.N {
		if err := o.lack(beyond); err != nil {
			return err
		}
	}
	if _, whole := o.anchor(); !whole && !o.logGone {
		o.notes = append(o.notes, "the anchor is damaged")
	}
	if o.tail.Damaged || len(o.notes) > 0 {
		o.notes = append(o.notes, o.tail.Notes...)
	}
	return nil
}

// join makes the list of groups, as far as they follow each other.
func (o *opening) join(memory map[uint64]memoryGroup) {
	o.last, o.groups, o.bytes = o.tables.pos, nil, 0
	frames := o.tail.Frames
	for {
		n := o.last.N + 1
		for len(frames) > 0 && (frames[0].Pos.N < n || frames[0].Pos.N == n && frames[0].Before != o.last.Hash) {
			frames = frames[1:]
		}
		var g group
		if len(frames) > 0 && frames[0].Pos.N == n {
			g = group{pos: frames[0].Pos, frame: frames[0]}
			o.bytes += 2 * frames[0].Size()
		} else if m, ok := memory[n]; ok {
			g = group{pos: m.pos, memory: &m}
		} else {
			return
		}
		o.groups, o.last = append(o.groups, g), g.pos
	}
}

// diverged says how the log contradicts the memory files or its own anchor: a group has one hash,
// so the two are of copies of the store that went on separately. Their numbers alone would fit.
func (o *opening) diverged(memory map[uint64]memoryGroup) string {
	for _, g := range o.groups {
		if m, ok := memory[g.pos.N]; ok && m.pos.Hash != g.pos.Hash {
			return "its log and its memory files are from different copies of it"
		}
		if anchor, ok := o.anchor(); ok && anchor.N == g.pos.N && anchor.Hash != g.pos.Hash {
			return "its log and its anchor are from different copies of it"
		}
	}
	return ""
}

// readMemory reads the mutations of the groups that come from memory files.
func (o *opening) readMemory(paths []string) error {
	wanted := map[uint64]int{}
	for i, g := range o.groups {
		if g.memory != nil {
			wanted[g.pos.N] = i
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	memory, err := someMemoryGroups(paths, o.tables.pos, func(n uint64) bool { _, ok := wanted[n]; return ok })
	if err != nil {
		return err
	}
	for n, i := range wanted {
		m := memory[n]
		o.groups[i].memory = &m
		o.bytes += 2 * m.size()
	}
	return nil
}

// note says which groups come from memory files.
func (o *opening) note() {
	for i := 0; i < len(o.groups); i++ {
		first := i
		for i < len(o.groups) && o.groups[i].memory != nil {
			i++
		}
		switch from := o.groups[first].pos.N; i - first {
		case 0:
		case 1:
			o.notes = append(o.notes, fmt.Sprintf("group %d is missing from the log or damaged in it", from))
		default:
			o.notes = append(o.notes, fmt.Sprintf("groups %d to %d are missing from the log or damaged in it", from, o.groups[i-1].pos.N))
		}
	}
}

// beyond is the greatest n that is known of.
func (o *opening) beyond(memory map[uint64]memoryGroup) (n uint64) {
	if anchor, ok := o.anchor(); ok {
		n = anchor.N
	}
	if k := len(o.tail.Frames); k > 0 {
		n = max(n, o.tail.Frames[k-1].Pos.N)
	}
	for m := range memory {
		n = max(n, m)
	}
	return n
}
