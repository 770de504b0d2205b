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

// LabelPin is the label, of any value, that keeps a checkpoint from pruning.
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
		return nil, nil, fmt.Errorf("%w: set KeepLast, OlderThan or Remove", ErrInvalid)
	}
	begin, end := t.s.seize, (*lineage).vacate
	if o.DryRun {
		begin, end = t.s.acquire, (*lineage).release
	}
	l, err := begin(ctx, t.ref, false)
	if err != nil {
		return nil, nil, err
	}
	defer end(l)
	if _, there := l.th.record(); !there {
		return nil, nil, ErrNotFound
	}
	p, err := l.th.plan(ctx, func(name string) *keeping {
		if o.AllNamespaces || name == t.ref.Namespace {
			return keepingOf(o, t.s.now())
		}
		return nil
	}, o.Erase)
	if err != nil {
		return nil, nil, err
	}
	if err := p.found(o.Remove); err != nil {
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

// keeping says which checkpoints of a lineage stay.
type keeping struct {
	policy   bool
	last     int
	since    int64 // Unix milliseconds
	labelled bool
	remove   []string // ids
	run      string   // run id whose checkpoints all go, whatever else is said of them; "" is none
}

func keepingOf(o *upkeep.PruneOptions, now time.Time) *keeping {
	k := &keeping{policy: o.KeepLast > 0 || o.OlderThan > 0, last: o.KeepLast, labelled: o.KeepLabelled, remove: o.Remove}
	if k.since = now.UnixMilli() + 1; o.OlderThan > 0 {
		k.since = now.Add(-o.OlderThan).UnixMilli()
	}
	return k
}

// pruning is a prune of a whole thread.
type pruning struct {
	th      *thread
	lines   []*line
	history *historyMigration // what a rewrite does to what stays; nil: nothing
}

// line is a prune of one of its lineages.
type line struct {
	*survey
	branches map[string]uint64 // the seqs that their records name
	children map[uint64][]*row // records that remain, by a parent that goes
}

// plan decides about the checkpoints of the namespaces for which keep has an answer; in the others all stay. With all,
// ghosts go too, because what stays will be encoded anew. The caller holds t.mu.
func (t *thread) plan(ctx context.Context, keep func(namespace string) *keeping, all bool) (*pruning, error) {
	names, err := t.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	p := &pruning{th: t}
	at := t.in(t.Epoch)
	for _, name := range names {
		k := keep(name)
		if k == nil && !all {
			continue
		}
		n := &line{branches: map[string]uint64{}, children: map[uint64][]*row{}}
		if n.survey, err = at.lineage(name).survey(ctx); err != nil {
			return nil, err
		}
		err = n.l.eachBranch(ctx, func(b *codec.Branch) error {
			n.branches[b.Name] = b.Head
			return nil
		})
		if err == nil {
			err = n.choose(k)
		}
		if err != nil {
			return nil, err
		}
		if !all {
			n.haunt()
		}
		for r := range n.newestFirst {
			if parent := n.rows[r.parent]; r.remains() && parent != nil && !parent.remains() {
				n.children[r.parent] = append(n.children[r.parent], r)
			}
		}
		p.lines = append(p.lines, n)
	}
	return p, nil
}

// choose decides which checkpoints stay.
func (n *line) choose(k *keeping) error {
	var line []*row // by place in line, newest first
	for r := range n.newestFirst {
		if r.visible() {
			r.fate = stays
			line = append(line, r)
		}
	}
	if k == nil {
		return nil
	}
	slices.SortStableFunc(line, func(a, b *row) int { return cmp.Compare(b.origin, a.origin) })
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
				r.fate = goes
			}
		case slices.Contains(k.remove, r.id):
			if safe {
				return fmt.Errorf("%w: checkpoint %q is the newest, the head of a branch, or pinned, and cannot be removed", ErrInvalid, r.id)
			}
			r.fate = goes
		case k.policy && !safe && i >= k.last && r.time < k.since && !(k.labelled && len(r.attrs.Labels) > 0):
			r.fate = goes
		}
	}
	return nil
}

// haunt finds what does not stay and must remain all the same, because others stand on it.
func (n *line) haunt() {
	needs := newNeeds()
	for r := range n.newestFirst {
		if r.stub == nil && needs.of(r, r.fate == stays).values && r.fate != stays {
			r.fate = haunts
		}
	}
}

// found checks that ids were all found.
func (p *pruning) found(ids []string) error {
	have := map[string]bool{}
	for _, n := range p.lines {
		for r := range n.newestFirst {
			have[r.id] = have[r.id] || r.visible() && r.fate != stays
		}
	}
	for _, id := range ids {
		if !have[id] {
			return fmt.Errorf("%w: checkpoint %q", ErrNotFound, id)
		}
	}
	return nil
}

func (p *pruning) report() *upkeep.PruneReport {
	rep := &upkeep.PruneReport{}
	for _, n := range p.lines {
		for r := range n.newestFirst {
			if r.stub != nil {
				continue
			}
			switch r.fate {
			case stays:
				rep.Kept++
			case haunts:
				rep.Ghosts++
			case goes:
				rep.FreedBytes += r.size
			}
			if r.visible() && r.fate != stays {
				rep.Removed = append(rep.Removed, upkeep.PruneItem{
					Namespace: n.l.ref.Namespace, ID: r.id, Seq: r.seq, Bytes: r.size, Ghost: r.fate == haunts})
			}
		}
	}
	return rep
}
