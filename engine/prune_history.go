package engine

import (
	"slices"

	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// The state of a delta channel lies in pending writes of ancestors (docs/format.md §5, "history"), so
// a prune hides these ancestors instead of removing them, with their writes, until no remaining
// checkpoint needs them.

// need is a channel whose history goes on at the ancestors of a record.
type need struct {
	at      *row
	channel string
}

// keepHistories keeps the ancestors that the histories of retained checkpoints consist of, except
// those of a run that k removes. It can be called again once more checkpoints are retained.
func (n *lineagePruning) keepHistories(k *pruneRule) {
	var todo []need
	n.lost = nil
	delta := false
	for _, r := range n.rows {
		if r.stub != nil {
			continue
		}
		if r.held = nil; r.verdict == retained && len(r.attrs.Delta) > 0 {
			delta = true
			for _, name := range r.attrs.Delta {
				if r.number(name) == 0 {
					todo = append(todo, need{r, name})
				}
			}
		}
	}
	if !delta {
		return
	}
	resolve := n.parents()
	if k != nil && k.run != "" {
		n.findLost(k.run, todo, resolve)
	}
	seen := map[need]bool{}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		p, byID := resolve(w.at)
		if p == nil || k != nil && k.run != "" && p.attrs.RunID == k.run {
			continue
		}
		number := p.number(w.channel)
		if byID && p.verdict != retained {
			for _, name := range p.attrs.Delta {
				if at := (need{p, name}); p.number(name) == 0 && !seen[at] {
					seen[at] = true
					todo = append(todo, at)
				}
			}
		}
		n.keepAncestor(p, byID, number)
		if next := (need{p, w.channel}); number == 0 && !seen[next] {
			seen[next] = true
			todo = append(todo, next)
		}
	}
}

// keepAncestor keeps p, whose channel with that number is needed; 0 is none. An ancestor that is
// found by its id, not by its seq, remains a checkpoint, since a hidden one has no id.
func (n *lineagePruning) keepAncestor(p *row, byID bool, number uint64) {
	switch {
	case p.verdict == retained:
		return
	case byID:
		p.verdict = retained
		return
	}
	if p.verdict = hidden; p.held == nil {
		p.held = []uint64{0}
	}
	if !slices.Contains(p.held, number) {
		p.held = append(p.held, number)
	}
}

// number is the number of a channel of r, 0 if r does not have it.
func (r *row) number(channel string) uint64 {
	for i := range r.attrs.Channels {
		if r.attrs.Channels[i].Name == channel {
			return r.attrs.Channels[i].Number
		}
	}
	return 0
}

// parents returns a function that finds the parent of a row as a history does: a checkpoint or an
// ancestor, nil if there is none. byID says that it is not the record that the row names.
func (n *lineagePruning) parents() func(r *row) (p *row, byID bool) {
	visible := map[string]*row{}
	for _, r := range n.rows {
		if r.visible() {
			visible[r.id] = r
		}
	}
	return func(r *row) (p *row, byID bool) {
		if r.parent == 0 {
			return visible[r.dangling], true
		}
		p = n.rows[r.parent]
		if p == nil || p.visible() || p.holds {
			return p, false
		}
		if q := visible[p.id]; q != nil && q.replaced(p.seq) {
			return q, true
		}
		return nil, false
	}
}

// replaced reports whether r, a checkpoint, replaced the one at seq that had its id.
func (r *row) replaced(seq uint64) bool { return r.origin <= seq && seq < r.seq }

// findLost lists the retained checkpoints whose histories a removal of a run cuts off.
func (n *lineagePruning) findLost(run string, todo []need, resolve func(*row) (*row, bool)) {
	lost := map[uint64]*upkeep.LostHistory{}
	known := map[need]bool{}
	for _, w := range todo {
		var way []need
		cut, seen := false, map[*row]bool{}
		for at := w; ; {
			if was, ok := known[at]; ok {
				cut = was
				break
			}
			way = append(way, at)
			p, _ := resolve(at.at)
			if p == nil || seen[p] {
				break
			}
			if seen[p] = true; p.attrs.RunID == run {
				cut = true
				break
			}
			if p.number(at.channel) != 0 {
				break
			}
			at = need{p, at.channel}
		}
		for _, at := range way {
			known[at] = cut
		}
		if !cut {
			continue
		}
		if lost[w.at.seq] == nil {
			lost[w.at.seq] = &upkeep.LostHistory{Namespace: n.l.ref.Namespace, Thread: n.l.ref.Thread, ID: w.at.id}
		}
		lost[w.at.seq].Channels = append(lost[w.at.seq].Channels, w.channel)
	}
	for r := range n.newestFirst {
		if l := lost[r.seq]; l != nil {
			slices.Sort(l.Channels)
			n.lost = append(n.lost, *l)
		}
	}
}

// releases reports whether a prune takes the pending writes of r, an ancestor: it is removed, or stays
// as a plain ghost.
func (r *row) releases() bool { return r.holds && r.held == nil }

// writesName is the name under which r has its pending writes.
func (r *row) writesName() string {
	if r.holds {
		return space.Held(r.seq)
	}
	return r.id
}
