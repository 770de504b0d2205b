package migration

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/engine"
)

// RunOptions say how a dry run, a run or an undo goes.
type RunOptions struct {
	Workers      int     // states at a time; 0: as many as processors, and more where there is waiting for the disk
	Throttle     float64 // maximum states per second; 0 means unlimited
	MaxErrorRate float64 // of a run: the fraction of states that may fail, 0 to 1. See Start

	// Progress, if not nil, is called with the number of states done and the total, 0 if that is
	// unknown. It is called from one goroutine at a time.
	Progress func(done, total int)
}

// DryRun tries the steps on the heads or, with all, on every checkpoint in scope, and writes
// nothing. The error is one of the dry run itself; failures of steps are in the report.
func (j *Jobs) DryRun(ctx context.Context, spec Spec, all bool, o RunOptions) (*Report, error) {
	if err := j.check(spec); err != nil {
		return nil, err
	}
	t := &tally{}
	p := newPace(o, 0)
	err := j.eachLineage(ctx, spec.Scope, workersOr(o.Workers), func(ctx context.Context, l *lineage) error {
		if !all {
			for _, h := range l.heads {
				if err := j.try(ctx, spec, h.Checkpoint, t, p); err != nil {
					return err
				}
			}
			return nil
		}
		for cp, err := range j.store.Thread(l.ref).History(ctx, engine.HistoryOptions{}) {
			if err == nil && (spec.Kind == "" || cp.Kind == spec.Kind) {
				err = j.try(ctx, spec, cp, t, p)
			}
			if err != nil && !gone(err) {
				return fmt.Errorf("thread %q of user %q: %w", l.ref.Thread, l.ref.User, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("trying the migrations: %w", err)
	}
	return t.done(), nil
}

// try runs the steps on the state of a checkpoint, of which it gets the header.
func (j *Jobs) try(ctx context.Context, spec Spec, cp *engine.Checkpoint, t *tally, p *pace) error {
	to, steps, err := j.way(spec, cp.Kind, cp.SchemaVersion)
	if err == nil && len(steps) > 0 {
		_, err = j.store.Thread(cp.Ref).Load(ctx, engine.AtSeq(cp.Seq), engine.LoadOptions{Schema: to, Down: spec.Down})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case err != nil && !gone(err):
		t.fail(cp, err)
	default:
		t.add(func(r *Report) {
			switch {
			case err != nil:
				r.Gone++
			case len(steps) > 0:
				r.Migrated++
			case cp.Kind == "" || j.sets(spec.Tenant, cp.Kind) == nil:
				r.Left++
			default:
				r.Current++
			}
		})
	}
	t.add(func(r *Report) { r.States++ })
	if errors.Is(err, engine.ErrClosed) {
		return err
	}
	return p.done(ctx, 1)
}
