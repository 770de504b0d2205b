package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// LabelPin is the label that, with any value, keeps a checkpoint from pruning.
const LabelPin = "pin"

func (t threadUpkeep) Prune(ctx context.Context, o upkeep.PruneOptions) (*upkeep.PruneReport, error) {
	rep, blobs, err := t.prune(backend.MakingRoom(ctx), &o)
	if err == nil && o.Erase && !o.DryRun {
		rep.Compacted, err = t.s.wipe(ctx, t.ref, blobs)
	}
	if err != nil {
		return rep, fmt.Errorf("pruning: %w", err)
	}
	return rep, nil
}

// prune returns the blobs that erased checkpoints named.
func (t threadUpkeep) prune(ctx context.Context, o *upkeep.PruneOptions) (*upkeep.PruneReport, map[BlobID]bool, error) {
	if o.KeepLast < 0 || o.OlderThan < 0 {
		return nil, nil, fmt.Errorf("%w: KeepLast and OlderThan must not be negative", ErrInvalid)
	}
	if o.KeepLast == 0 && o.OlderThan == 0 && len(o.Remove) == 0 {
		return nil, nil, fmt.Errorf("%w: nothing selected for removal: want KeepLast, OlderThan or Remove", ErrInvalid)
	}
	begin, end := t.s.lockThread, (*lineage).unlockThread
	if o.DryRun {
		begin, end = t.s.rlockThread, (*lineage).runlockThread
	}
	l, err := begin(ctx, t.ref, false)
	if err != nil {
		return nil, nil, err
	}
	defer end(l)
	if _, there := l.th.record(); !there {
		return nil, nil, ErrNotFound
	}
	p, err := l.th.newPruning(ctx, func(name string) *pruneRule {
		if o.AllNamespaces || name == t.ref.Namespace {
			return pruneRuleOf(o, t.s.now())
		}
		return nil
	}, o.Erase)
	if err != nil {
		return nil, nil, err
	}
	if err := p.checkFound(o.Remove); err != nil {
		return nil, nil, err
	}
	rep := p.report()
	switch {
	case o.DryRun:
		return rep, nil, nil
	case o.Erase:
		return rep, p.blobs(), p.erase(ctx)
	}
	return rep, nil, p.apply(ctx)
}

// pruneRule says which checkpoints of a lineage are retained.
type pruneRule struct {
	policy   bool
	last     int
	byID     bool  // last is counted by id
	since    int64 // Unix milliseconds
	labelled bool
	remove   []string // ids
	run      string   // run id whose checkpoints are all removed, regardless of the other rules; "" is none
}

func pruneRuleOf(o *upkeep.PruneOptions, now time.Time) *pruneRule {
	k := &pruneRule{policy: o.KeepLast > 0 || o.OlderThan > 0, last: o.KeepLast, byID: o.ByID, labelled: o.KeepLabelled, remove: o.Remove}
	if k.since = now.UnixMilli() + 1; o.OlderThan > 0 {
		k.since = now.Add(-o.OlderThan).UnixMilli()
	}
	return k
}

// pruning is a prune of a whole thread.
type pruning struct {
	th       *thread
	lineages []*lineagePruning
	history  *historyMigration // how a rewrite migrates the retained checkpoints; nil: not at all
}

// lineagePruning is a prune of one lineage.
type lineagePruning struct {
	*inventory
	space    *codec.Namespace  // its record; empty for the unnamed one
	gone     bool              // the namespace is removed with all in it
	chosen   bool              // a rule chose among its checkpoints
	branches map[string]uint64 // the seqs that their records name
	children map[uint64][]*row // retained or hidden records, by a parent that is removed
	lost     []upkeep.LostHistory
}

// newPruning decides about the checkpoints of the namespaces for which keep returns a rule; in the
// others it retains all. A namespace that hangs on a removed checkpoint of the unnamed one goes with
// it. With all set, ghosts are removed too, because the retained checkpoints will be encoded again.
// The caller holds t.mu.
func (t *thread) newPruning(ctx context.Context, keep func(namespace string) *pruneRule, all bool) (*pruning, error) {
	spaces, err := t.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	p, callees := &pruning{th: t}, map[string]*lineagePruning{}
	for i, space := range spaces {
		k, n := keep(space.Name), callees[space.Name]
		if k == nil && !all && (n == nil || !n.gone) {
			continue
		}
		if n == nil {
			if n, err = t.openPruning(ctx, space); err != nil {
				return nil, err
			}
		}
		if p.lineages = append(p.lineages, n); n.gone {
			continue
		}
		if err := n.choose(k); err != nil {
			return nil, err
		}
		n.keepHistories(k)
		if i == 0 && k != nil {
			if callees, err = n.callees(ctx, t, k, spaces[1:]); err != nil {
				return nil, err
			}
		}
		n.settle(all)
	}
	return p, nil
}

// openPruning reads a lineage for a prune.
func (t *thread) openPruning(ctx context.Context, space *codec.Namespace) (*lineagePruning, error) {
	v, err := t.in(t.Epoch).lineage(space.Name).inventory(ctx)
	if err != nil {
		return nil, err
	}
	n := &lineagePruning{inventory: v, space: space, branches: map[string]uint64{}, children: map[uint64][]*row{}}
	return n, n.l.eachBranch(ctx, func(b *codec.Branch) error {
		n.branches[b.Name] = b.Head
		return nil
	})
}

// settle decides about the records that others need, once it is decided which checkpoints to
// retain.
func (n *lineagePruning) settle(all bool) {
	if !all {
		n.hideBases()
	}
	for r := range n.newestFirst {
		if parent := n.rows[r.parent]; r.remains() && parent != nil && !parent.remains() {
			n.children[r.parent] = append(n.children[r.parent], r)
		}
	}
}

// callers lists, by id, the checkpoints that a namespace with that id in its record hangs on: the one
// with the id, and heads migrated from it, which took over the step that it began.
func (n *lineagePruning) callers() map[string][]*row {
	callers := map[string][]*row{}
	for r := range n.newestFirst {
		if !r.visible() {
			continue
		}
		callers[r.id] = append(callers[r.id], r)
		for at := r; at.took && n.rows[at.parent] != nil; {
			at = n.rows[at.parent]
			callers[at.id] = append(callers[at.id], r)
		}
	}
	return callers
}

func (r *row) isRetained() bool { return r.verdict == retained }

// callees finds the namespaces that hang on checkpoints of n, the unnamed namespace, that are to be
// removed, and decides whether they go with them. A pin in a namespace retains a checkpoint that it
// hangs on. The end of a run leaves namespaces with checkpoints of other runs.
func (n *lineagePruning) callees(ctx context.Context, t *thread, k *pruneRule, spaces []*codec.Namespace) (map[string]*lineagePruning, error) {
	callers, found := n.callers(), map[string]*lineagePruning{}
	for _, space := range spaces {
		by := callers[space.CalledFrom]
		if len(by) == 0 || slices.ContainsFunc(by, (*row).isRetained) {
			continue
		}
		c, err := t.openPruning(ctx, space)
		if err != nil {
			return nil, err
		}
		found[space.Name] = c
		if k.run != "" || !c.any(func(r *row) bool { _, pinned := r.attrs.Labels[LabelPin]; return pinned }) {
			continue
		}
		for _, r := range by {
			if slices.Contains(k.remove, r.id) {
				return nil, fmt.Errorf("%w: checkpoint %q cannot be removed: a checkpoint in namespace %q, which it called, is pinned", ErrInvalid, r.id, space.Name)
			}
		}
		by[0].verdict = retained
	}
	n.keepHistories(k) // those of pinned callers, too
	for _, c := range found {
		others := k.run != "" && c.any(func(r *row) bool { return r.attrs.RunID != k.run })
		c.gone = !others && !slices.ContainsFunc(callers[c.space.CalledFrom], (*row).isRetained)
	}
	return found, nil
}

// any reports whether is holds for a checkpoint of the lineage.
func (n *lineagePruning) any(is func(*row) bool) bool {
	for r := range n.newestFirst {
		if r.visible() && is(r) {
			return true
		}
	}
	return false
}

// goneNamespaces are the namespaces that are removed, and the time of their newest checkpoint.
func (p *pruning) goneNamespaces() (gone []*codec.Namespace, last int64) {
	for _, n := range p.lineages {
		if !n.gone {
			continue
		}
		gone = append(gone, n.space)
		for _, r := range n.rows {
			last = max(last, r.time)
		}
	}
	return gone, last
}

// choose decides which checkpoints to retain.
func (n *lineagePruning) choose(k *pruneRule) error {
	var line []*row // by place in line, newest first
	for r := range n.newestFirst {
		if r.visible() {
			r.verdict = retained
			line = append(line, r)
		}
	}
	if n.chosen = k != nil; !n.chosen {
		return nil
	}
	slices.SortStableFunc(line, func(a, b *row) int {
		if k.byID {
			return cmp.Compare(b.id, a.id)
		}
		return cmp.Compare(b.origin, a.origin)
	})
	heads, headOf := map[uint64]bool{}, n.headAfter()
	for _, seq := range n.branches {
		heads[headOf(seq)] = true
	}
	for i, r := range line {
		_, pinned := r.attrs.Labels[LabelPin]
		safe := i == 0 || heads[r.seq] || pinned
		switch {
		case k.run != "":
			if r.attrs.RunID == k.run {
				r.verdict = removed
			}
		case slices.Contains(k.remove, r.id):
			if safe {
				return fmt.Errorf("%w: checkpoint %q is the newest, the head of a branch, or pinned, and cannot be removed", ErrInvalid, r.id)
			}
			r.verdict = removed
		case k.policy && !safe && i >= k.last && r.time < k.since && !(k.labelled && len(r.attrs.Labels) > 0):
			r.verdict = removed
		}
	}
	return nil
}

// hideBases hides records instead of removing them if retained ones are encoded against them.
func (n *lineagePruning) hideBases() {
	needs := newDependencies()
	for r := range n.newestFirst {
		if r.stub == nil && needs.of(r, r.verdict == retained).asBase && r.verdict == removed {
			r.verdict = hidden
		}
	}
}

// checkFound checks that all ids were found, and that their checkpoints are removed.
func (p *pruning) checkFound(ids []string) error {
	removes := map[string]bool{} // false: it remains
	for _, n := range p.lineages {
		for r := range n.newestFirst {
			if r.visible() && (n.gone || n.chosen) {
				removes[r.id] = removes[r.id] || r.verdict != retained
			}
		}
	}
	for _, id := range ids {
		switch yes, found := removes[id]; {
		case !found:
			return fmt.Errorf("%w: checkpoint %q", ErrNotFound, id)
		case !yes:
			return fmt.Errorf("%w: checkpoint %q cannot be removed: the history of a delta channel of a later one needs it", ErrInvalid, id)
		}
	}
	return nil
}

func (p *pruning) report() *upkeep.PruneReport {
	rep := &upkeep.PruneReport{}
	for _, n := range p.lineages {
		if n.gone {
			rep.Namespaces = append(rep.Namespaces, n.space.Name)
		}
		for r := range n.newestFirst {
			if r.stub != nil {
				continue
			}
			switch r.verdict {
			case retained:
				rep.Kept++
			case hidden:
				rep.Ghosts++
			case removed:
				rep.FreedBytes += r.size
			}
			if r.visible() && r.verdict != retained {
				rep.Removed = append(rep.Removed, upkeep.PruneItem{
					Namespace: n.l.ref.Namespace, ID: r.id, Seq: r.seq, Bytes: r.size, Ghost: r.verdict == hidden})
			}
		}
	}
	slices.Sort(rep.Namespaces)
	return rep
}
