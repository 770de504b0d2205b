package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// Undo undoes a job, even an interrupted one: the originals become the heads again, as if the job
// had never run. Threads that were saved to since are skipped and reported as failures. An
// interrupted undo is resumed.
func (j *Jobs) Undo(ctx context.Context, id string, o RunOptions) (*Report, error) {
	if !j.busy.TryLock() {
		return nil, wire.ErrJobBusy
	}
	defer j.busy.Unlock()
	l, h, err := j.read(id, true)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if s := h.job.State; s == Undone || s == Finishing {
		return nil, fmt.Errorf("%w: job %s is %s", wire.ErrJobState, id, s)
	}
	r := &run{Jobs: j, log: l, begin: h.begin, o: o, pace: newPace(o, h.job.Migrated)}
	if err = r.settle(ctx, h); err == nil && h.job.State != Undoing {
		err = l.become(h, Undoing)
	}
	for n := len(h.outcomes) - 1; n >= 0 && err == nil; n-- {
		if h.outcomes[n] >= 0 && !h.undone[n] {
			err = r.undoBatch(ctx, n, h.outcomes[n])
		}
	}
	if err == nil {
		err = l.become(h, Undone)
	}
	if err != nil {
		return r.tally.done(), fmt.Errorf("undoing migration job %s: %w", id, err)
	}
	return r.tally.done(), nil
}

// undoBatch undoes the migrations in a frame of the journal, and records that. It is idempotent.
func (r *run) undoBatch(ctx context.Context, n int, place int64) error {
	f, err := r.log.at(n, place)
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	// The migrations of one lineage are undone in reverse order; lineages are independent.
	slices.Reverse(f.Outcomes)
	lineages := map[engine.Ref][]outcome{}
	for _, out := range f.Outcomes {
		if !out.Failed {
			ref := out.ref(r.begin.Spec.Tenant)
			lineages[ref] = append(lineages[ref], out)
		}
	}
	var mu sync.Mutex
	undone := &frame{Undone: []int{n}}
	err = inParallel(ctx, 4*workersOr(r.o.Workers), func(_ context.Context, hand func([]outcome) error) error {
		for _, outs := range lineages {
			if err := hand(outs); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, outs []outcome) error {
		for _, out := range outs {
			why, err := r.undo(ctx, out)
			if err != nil {
				return fmt.Errorf("thread %q of user %q: %w", out.Thread, out.User, err)
			}
			mu.Lock()
			if why == "" {
				undone.Count++
			} else {
				undone.Left = append(undone.Left, kept{out.User, out.Thread, out.Namespace, out.New, why})
			}
			mu.Unlock()
			r.undid(out, why)
			if err := r.pace.done(ctx, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.log.commit(undone)
}

func (out *outcome) ref(tenant string) engine.Ref {
	return engine.Ref{Tenant: tenant, User: out.User, Thread: out.Thread, Namespace: out.Namespace}
}

// undid counts the outcome of an undo.
func (r *run) undid(out outcome, why string) {
	if why != "" {
		r.tally.fail(&engine.Checkpoint{Ref: out.ref(r.begin.Spec.Tenant), Seq: out.New}, errors.New(why))
	}
	r.tally.add(func(rep *Report) {
		if rep.States++; why == "" {
			rep.Migrated++
		}
	})
}

// undo undoes one outcome, unless there is a reason why not.
func (r *run) undo(ctx context.Context, out outcome) (why string, err error) {
	if r.begin.Spec.Rewrite {
		return r.restore(ctx, out)
	}
	var hash [32]byte
	if copy(hash[:], out.Hash) != len(hash) {
		return "", fmt.Errorf("%w: the journal has a hash of %d bytes", engine.ErrCorrupt, len(out.Hash))
	}
	err = r.store.Thread(out.ref(r.begin.Spec.Tenant)).Upkeep().UndoHead(ctx, out.Old, out.New, hash)
	switch {
	case errors.Is(err, engine.ErrConflict):
		return "something was saved on it since", nil
	case gone(err):
		return "the thread or its original is gone", nil
	case errors.Is(err, engine.ErrInvalid):
		return "the thread was deleted and started again meanwhile", nil
	}
	return "", err
}
