package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func (u userUpkeep) DeleteRun(ctx context.Context, runID string) (int, []upkeep.LostHistory, error) {
	n, lost, err := u.deleteRun(backend.MakingRoom(ctx), runID)
	if err != nil {
		return n, lost, fmt.Errorf("deleting run %q: %w", runID, err)
	}
	return n, lost, nil
}

func (u userUpkeep) deleteRun(ctx context.Context, runID string) (removed int, lost []upkeep.LostHistory, err error) {
	if err := checkName("run id", runID, false); err != nil {
		return 0, nil, err
	}
	k, err := u.keys(ctx, false)
	if err != nil {
		return 0, nil, err
	}
	threads, err := k.threadsWithTerm(ctx, term{fieldRun, runID})
	if err != nil {
		return 0, nil, err
	}
	for _, id := range threads {
		n, cut, err := u.s.deleteRun(ctx, Ref{Tenant: u.name.tenant, User: u.name.name, Thread: id}, runID)
		removed, lost = removed+n, append(lost, cut...)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return removed, lost, err
		}
	}
	return removed, lost, nil
}

func (s *Store) deleteRun(ctx context.Context, ref Ref, runID string) (int, []upkeep.LostHistory, error) {
	l, err := s.lockThread(ctx, ref, false)
	if err != nil {
		return 0, nil, err
	}
	defer l.unlockThread()
	if _, there := l.th.record(); !there {
		return 0, nil, ErrNotFound
	}
	if err := l.th.dropKept(ctx); err != nil {
		return 0, nil, err
	}
	p, err := l.th.newPruning(ctx, func(string) *pruneRule { return &pruneRule{run: runID} }, false)
	if err != nil {
		return 0, nil, err
	}
	rep := p.report()
	switch {
	case len(rep.Removed) == 0 && !p.releasesAny():
		return 0, nil, nil
	case rep.Kept == 0:
		_, err = l.th.remove(ctx)
	default:
		err = p.apply(ctx)
	}
	if err != nil {
		return len(rep.Removed), nil, err
	}
	var lost []upkeep.LostHistory
	for _, n := range p.lineages {
		lost = append(lost, n.lost...)
	}
	return len(rep.Removed), lost, nil
}

// releasesAny reports whether the prune takes the pending writes of an ancestor.
func (p *pruning) releasesAny() bool {
	for _, n := range p.lineages {
		for _, r := range n.rows {
			if r.releases() {
				return true
			}
		}
	}
	return false
}

// threadsWithTerm lists the ids of the user's threads with an index entry of a term.
func (u *user) threadsWithTerm(ctx context.Context, t term) ([]string, error) {
	r := u.TermOf(t.field, t.value)
	var ids []string
	for {
		r.Limit, r.KeysOnly = 1, true
		page, _, err := u.s.be.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return ids, err
		}
		g, err := parseIndexKey(page[0].Key)
		if err != nil {
			return nil, err
		}
		at := u.ThreadKey(g.Thread)
		got, err := u.s.be.Get(ctx, at)
		if err != nil {
			return nil, err
		}
		if got[0].Version != "" {
			rec, err := u.openThread(at, got[0].Value)
			if err != nil {
				return nil, err
			}
			if u.s.live(rec) {
				ids = append(ids, rec.ID)
			}
		}
		r = space.AfterThread(r, g.key)
	}
}
