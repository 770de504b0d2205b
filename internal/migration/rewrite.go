package migration

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/engine"
)

// A job may rewrite whole histories: its outcomes are threads then, and the engine keeps the
// original of each until the job is undone or finished.

// lookForHistories finds the threads that are to be rewritten: all of the kinds, since an old
// checkpoint may be behind a new head; but for those that were rewritten already.
func (r *run) lookForHistories(ctx context.Context, spec Spec, hand func(intent) error) error {
	return r.eachThread(ctx, spec.Scope, func(info engine.ThreadInfo) error {
		in := intent{User: info.Ref.User, Thread: info.Ref.Thread}
		current := true
		err := r.lineagesOf(ctx, &info, func(l *lineage) error {
			for _, h := range l.heads {
				if to, ok := r.begin.To[h.Kind]; ok && (spec.Kind == "" || h.Kind == spec.Kind) {
					in.To = to
					current = current && h.SchemaVersion == to
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if in.To == 0 {
			r.tally.add(func(rep *Report) { rep.States++; rep.Left++ })
			return nil
		}
		if current {
			kept, err := r.store.Thread(info.Ref).Upkeep().KeepsHistory(ctx)
			if err != nil {
				return unlessGone(info.Ref, err)
			}
			if kept {
				r.tally.add(func(rep *Report) { rep.States++; rep.Current++ })
				return nil
			}
		}
		return hand(in)
	})
}

// rewrite rewrites the history of a thread.
func (r *run) rewrite(ctx context.Context, in intent) ([]outcome, error) {
	t := r.store.Thread(in.ref(r.begin.Spec.Tenant))
	out := outcome{User: in.User, Thread: in.Thread}
	m, err := t.Upkeep().MigrateHistory(ctx, in.To, r.begin.Spec.Down)
	switch {
	case gone(err):
		r.tally.add(func(rep *Report) { rep.States++; rep.Gone++ })
		return nil, nil
	case permanent(err) || errors.Is(err, engine.ErrConflict): // the originals of another job are kept
		r.tally.fail(&engine.Checkpoint{Ref: t.Ref()}, err)
		r.tally.add(func(rep *Report) { rep.States++ })
		out.Failed = true
		return []outcome{out}, r.tooMany()
	case err != nil:
		return nil, unlessGone(t.Ref(), err)
	case m.Migrated == 0:
		r.tally.add(func(rep *Report) { rep.States++; rep.Current++ })
		return nil, nil
	}
	r.tally.add(func(rep *Report) { rep.States++; rep.Migrated++ })
	return []outcome{out}, r.pace.done(ctx, 1)
}

// rewritten finds out whether a history was rewritten after an intent said so.
func (r *run) rewritten(ctx context.Context, in intent) ([]outcome, error) {
	kept, err := r.store.Thread(in.ref(r.begin.Spec.Tenant)).Upkeep().KeepsHistory(ctx)
	if err != nil || !kept {
		return nil, err
	}
	return []outcome{{User: in.User, Thread: in.Thread}}, nil
}

// restore brings the original history of a thread back, unless there is a reason why not.
func (r *run) restore(ctx context.Context, out outcome) (why string, err error) {
	t := r.store.Thread(out.ref(r.begin.Spec.Tenant))
	err = t.Upkeep().RestoreHistory(ctx)
	switch {
	case errors.Is(err, engine.ErrConflict):
		return "something was saved on it since", nil
	case !gone(err):
		return "", err
	}
	// It may be back already: an undo was cut short.
	cp, err := t.Load(ctx, engine.Latest, engine.LoadOptions{HeadersOnly: true})
	if err == nil && cp.SchemaVersion != r.begin.To[cp.Kind] {
		return "", nil
	}
	if err == nil || gone(err) {
		return "the thread or its original is gone", nil
	}
	return "", err
}

// dropHistories drops the originals of all that a job rewrote.
func (j *Jobs) dropHistories(ctx context.Context, l *journal, h *history) error {
	for n, place := range h.outcomes {
		if place < 0 {
			continue
		}
		f, err := l.at(n, place)
		if err != nil {
			return err
		}
		for _, out := range f.Outcomes {
			ref := out.ref(h.begin.Spec.Tenant)
			if out.Failed {
				continue
			}
			if err := j.store.Thread(ref).Upkeep().DropHistory(ctx); err != nil && !gone(err) {
				return unlessGone(ref, err)
			}
		}
	}
	return nil
}
