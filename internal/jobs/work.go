package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/internal/wire"
)

// work is a running job.
type work struct {
	stop  context.CancelCauseFunc
	ended chan struct{} // closed when it is not any more

	mu      sync.Mutex
	job     *ckptdv1.MigrationJob // never changed: replaced
	changed chan struct{}         // closed when it is
	told    time.Time             // when the progress was
}

// now is the job as it is.
func (w *work) now() *ckptdv1.MigrationJob {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.job
}

// changes is closed when the job is another than now.
func (w *work) changes() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// change replaces the job by a copy modified by f.
func (w *work) change(f func(*ckptdv1.MigrationJob)) *ckptdv1.MigrationJob {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := proto.CloneOf(w.job)
	f(next)
	w.job = next
	close(w.changed)
	w.changed = make(chan struct{})
	return next
}

// progressEvery is the interval of progress reports.
const progressEvery = 200 * time.Millisecond

// progress is migration.RunOptions.Progress.
func (w *work) progress(done, total int) {
	if time.Since(w.told) < progressEvery && done != total { // it is called by one goroutine at a time
		return
	}
	w.told = time.Now()
	w.change(func(job *ckptdv1.MigrationJob) { job.ProgressDone, job.ProgressTotal = uint64(done), uint64(total) })
}

// launch begins to work on a job, which is kept already. The caller holds m.mu.
func (m *Runner) launch(job *ckptdv1.MigrationJob) *work {
	ctx, stop := context.WithCancelCause(m.life)
	w := &work{stop: stop, ended: make(chan struct{}), job: job, changed: make(chan struct{})}
	m.tenants[job.GetTenant()] = w
	m.wait.Go(func() {
		defer stop(nil)
		defer panics.To(func(err error) {
			m.o.Log.Error("the end of a migration job panicked", "job", w.now().GetId(), "error", err)
		})
		var report *migration.Report
		err := panics.Try(func() (err error) {
			report, err = m.carryOut(ctx, w)
			return err
		})
		m.finish(w, report, err, context.Cause(ctx))
	})
	return w
}

// carryOut does the requested work, or the rest of it.
func (m *Runner) carryOut(ctx context.Context, w *work) (*migration.Report, error) {
	job, jobs := w.now(), m.jobs()
	spec, pace := SpecOf(job.GetTenant(), job.GetSpec()), job.GetPace()
	o := migration.RunOptions{Workers: int(pace.GetWorkers()), Throttle: pace.GetThrottle(), MaxErrorRate: pace.GetMaxErrorRate(), Progress: w.progress}
	id := job.GetId()
	if job.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN {
		return jobs.DryRun(ctx, spec, job.GetAll(), o)
	}
	begun, err := jobs.Job(id)
	switch {
	case err != nil && !errors.Is(err, wire.ErrNoJob):
		return nil, err
	case job.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_FINISH:
		if begun == nil { // it went before the daemon ended
			return nil, nil
		}
		return nil, jobs.Finish(ctx, id)
	case job.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO:
		if begun != nil && begun.State == migration.Undone {
			return nil, nil
		}
		return jobs.Undo(ctx, id, o)
	}
	if begun == nil {
		var report *migration.Report
		if begun, report, err = jobs.StartAs(ctx, id, spec, o); err != nil {
			return report, err
		}
	}
	if begun.State == migration.Done {
		return nil, nil
	}
	w.change(func(job *ckptdv1.MigrationJob) {
		withJournalIn(job, begun)
		job.ProgressDone, job.ProgressTotal = 0, 0
	})
	return jobs.Run(ctx, id, o)
}

// finish records the result of a job, unless the daemon is stopping: then the next daemon continues
// the job. A job that panicked is not continued, because it would panic again.
func (m *Runner) finish(w *work, report *migration.Report, err, cause error) {
	defer m.leave(w)
	defer m.forgetResumed(w.now().GetId()) // also if the daemon ends, which it does in good order then
	panicked, broke := errors.AsType[*panics.Error](err)
	if broke {
		m.o.Log.Error("a migration job panicked", "job", w.now().GetId(), "panic", fmt.Sprintf("%T", panicked.Value), "stack", panicked.Stack)
	} else if m.life.Err() != nil {
		return
	}
	begun, _ := m.jobs().Job(w.now().GetId()) // none of a dry run, and after a finish
	job := w.change(func(job *ckptdv1.MigrationJob) {
		job.State, job.Updated, job.Stage = Done, now(), ""
		if withJournalIn(job, begun); report != nil {
			job.Report = PackReport(report)
		}
		switch {
		case err == nil:
		case errors.Is(cause, errCanceled) && !broke:
			job.State = Canceled
		default:
			job.State, job.Error = Failed, wire.PackSaveError(err)
		}
	})
	attrs := []any{"job", job.GetId(), "action", job.GetAction().String(), "state", job.GetState(), "migrated", job.GetMigrated(), "failed", job.GetFailed()}
	if job.GetError() != nil {
		attrs = append(attrs, "reason", job.GetError().GetDetail().GetReason().String())
	}
	m.o.Log.Info("a migration job ended", attrs...)
	if err := m.keep(job); err != nil {
		m.o.Log.Error("the result of a migration job cannot be stored", "job", job.GetId())
	}
}

func (m *Runner) leave(w *work) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tenants, w.now().GetTenant())
	close(w.ended)
}
