package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine/internal/space"
)

func (u userUpkeep) DeleteRun(ctx context.Context, runID string) (int, error) {
	n, err := u.deleteRun(backend.MakingRoom(ctx), runID)
	if err != nil {
		return n, fmt.Errorf("deleting run %q: %w", runID, err)
	}
	return n, nil
}

func (u userUpkeep) deleteRun(ctx context.Context, runID string) (removed int, err error) {
	if err := checkName("run id", runID, false); err != nil {
		return 0, err
	}
	k, err := u.keys(ctx, false)
	if err != nil {
		return 0, err
	}
	threads, err := k.threadsWithTerm(ctx, term{fieldRun, runID})
	if err != nil {
		return 0, err
	}
	for _, id := range threads {
		n, err := u.s.deleteRun(ctx, Ref{Tenant: u.name.tenant, User: u.name.name, Thread: id}, runID)
		removed += n
		if err != nil && !errors.Is(err, ErrNotFound) {
			return removed, err
		}
	}
	return removed, nil
}

func (s *Store) deleteRun(ctx context.Context, ref Ref, runID string) (int, error) {
	l, err := s.lockThread(ctx, ref, false)
	if err != nil {
		return 0, err
	}
	defer l.unlockThread()
	if _, there := l.th.record(); !there {
		return 0, ErrNotFound
	}
	if err := l.th.dropKept(ctx); err != nil {
		return 0, err
	}
	p, err := l.th.newPruning(ctx, func(string) *pruneRule { return &pruneRule{run: runID} }, false)
	if err != nil {
		return 0, err
	}
	rep := p.report()
	switch {
	case len(rep.Removed) == 0:
		return 0, nil
	case rep.Kept == 0:
		_, err = l.th.remove(ctx)
	default:
		err = p.apply(ctx)
	}
	return len(rep.Removed), err
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
