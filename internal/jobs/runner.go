package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
)

// Options configure a runner. Without Dir it runs no jobs.
type Options struct {
	Store *engine.Store
	Dir   string                                 // of the migrations next to the store
	Sets  *migration.Sets                        // that are installed there
	Find  func(tenant, kind string) *migrate.Set // engine.Options.Migrations of the store
	Log   *slog.Logger                           // nil: nothing is logged
}

// Runner runs jobs. Methods are safe for concurrent use. The returned jobs must not be changed.
type Runner struct {
	o    Options
	life context.Context // ends with Close
	end  context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex
	tenants map[string]*work // the running job
}

// States of jobs on the wire.
const (
	Running  = "running"
	Done     = "done"
	Failed   = "failed"
	Canceled = "canceled"
)

// New returns a runner of jobs. It runs none before Resume.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Runner{o: o, tenants: map[string]*work{}}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// Close stops running jobs as a kill would: Resume continues them.
func (m *Runner) Close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.wait.Wait()
}

// jobs is a *migration.Jobs of its own for each that works, which lets one work at a time.
func (m *Runner) jobs() *migration.Jobs {
	return migration.New(m.o.Store, filepath.Join(m.o.Dir, "jobs"), m.o.Find)
}

// Resume continues the jobs that were running when the daemon ended.
func (m *Runner) Resume() error {
	if m.o.Dir == "" {
		return nil
	}
	kept, err := m.keptJobs()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, job := range kept {
		if job.GetState() != Running || m.tenants[job.GetTenant()] != nil {
			continue
		}
		times, err := m.resumed(job.GetId())
		switch {
		case err != nil:
			return err
		case times > mostResumed:
			if err := m.giveUp(job, times-1); err != nil {
				return err
			}
		default:
			m.o.Log.Info("resuming a migration job", "job", job.GetId(), "action", job.GetAction().String())
			m.launch(job)
		}
	}
	return nil
}

// giveUp ends a job that was resumed too often without completing: it may be the cause of the
// crashes. It can be requested again.
func (m *Runner) giveUp(job *ckptdv1.MigrationJob, times int) error {
	err := fmt.Errorf("%w: the daemon stopped %d times during this job: find out why, and run it again", engine.ErrUnavailable, times)
	job.State, job.Updated, job.Error = Failed, now(), wire.PackSaveError(err)
	m.o.Log.Error("giving up on a migration job", "job", job.GetId(), "resumed", times)
	m.forgetResumed(job.GetId())
	return m.keep(job)
}

// Start starts or resumes a job. Its errors match the job errors of package wire.
func (m *Runner) Start(req *ckptdv1.StartMigrationJobRequest) (*ckptdv1.MigrationJob, error) {
	if m.o.Dir == "" {
		return nil, fmt.Errorf("%w: this store has no migrations directory", engine.ErrInvalid)
	}
	if err := check(req); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() != nil {
		return nil, engine.ErrClosed
	}
	if w := m.tenants[req.GetTenant()]; w != nil {
		if now := w.now(); asksFor(req, now) {
			return now, nil
		}
		return nil, fmt.Errorf("%w: wait for job %s, or cancel it", wire.ErrJobBusy, w.now().GetId())
	}
	job, err := m.next(req)
	if err == nil {
		job.Action, job.State, job.Pace = req.GetAction(), Running, req.GetPace()
		job.Report, job.Error, job.Updated = nil, nil, now()
		err = m.keep(job)
	}
	if err != nil {
		return nil, err
	}
	return m.launch(job).now(), nil
}

// check reports an invalid request, without looking at jobs.
func check(req *ckptdv1.StartMigrationJobRequest) error {
	rate, throttle := req.GetPace().GetMaxErrorRate(), req.GetPace().GetThrottle()
	_, known := ckptdv1.MigrationAction_name[int32(req.GetAction())]
	begins := req.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN || req.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_RUN
	switch {
	case !known || req.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_UNSPECIFIED:
		return fmt.Errorf("%w: a job needs an action: dry run, run, undo or finish", engine.ErrInvalid)
	case req.GetId() == "" && !begins:
		return fmt.Errorf("%w: undo and finish need a job id", engine.ErrInvalid)
	case req.GetId() != "" && req.GetAction() == ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN:
		return fmt.Errorf("%w: a dry run is always a new job: omit the id", engine.ErrInvalid)
	case req.GetId() != "" && req.GetSpec() != nil:
		return fmt.Errorf("%w: a resumed job keeps its spec: omit it", engine.ErrInvalid)
	case !(rate >= 0 && rate <= 1) || !(throttle >= 0 && throttle <= 1e12):
		return fmt.Errorf("%w: the error rate must be from 0 to 1 and the throttle not negative", engine.ErrInvalid)
	case req.GetPace().GetWorkers() > maxWorkers:
		return fmt.Errorf("%w: at most %d states in parallel", engine.ErrInvalid, maxWorkers)
	case req.GetSpec().GetTo() != 0 && req.GetSpec().GetKind() == "":
		return fmt.Errorf("%w: a target version needs a kind", engine.ErrInvalid)
	}
	return nil
}

const maxWorkers = 256

// asksFor reports whether a request is for the running job.
func asksFor(req *ckptdv1.StartMigrationJobRequest, now *ckptdv1.MigrationJob) bool {
	if req.GetAction() != now.GetAction() {
		return false
	}
	if req.GetId() != "" {
		return req.GetId() == now.GetId()
	}
	return req.GetAll() == now.GetAll() && SpecOf(req.GetTenant(), req.GetSpec()) == SpecOf(now.GetTenant(), now.GetSpec())
}

// next returns the job that a request is for, if it is in a state for the requested action. The
// caller holds m.mu.
func (m *Runner) next(req *ckptdv1.StartMigrationJobRequest) (*ckptdv1.MigrationJob, error) {
	if req.GetId() == "" {
		if err := m.forgetOld(req.GetTenant()); err != nil {
			return nil, err
		}
		id, err := m.freeID()
		return &ckptdv1.MigrationJob{Tenant: req.GetTenant(), Id: id, Spec: cmp.Or(req.GetSpec(), &ckptdv1.MigrationSpec{}), All: req.GetAll(), Created: now()}, err
	}
	job, err := m.find(req.GetTenant(), req.GetId())
	if err != nil {
		return nil, err
	}
	stage := migration.State(job.GetStage())
	fit := false
	switch req.GetAction() {
	case ckptdv1.MigrationAction_MIGRATION_ACTION_RUN:
		fit = stage == migration.Running || stage == migration.Stopped || stage == "" && job.GetAction() == req.GetAction()
	case ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO:
		fit = stage != "" && stage != migration.Undone && stage != migration.Finishing
	case ckptdv1.MigrationAction_MIGRATION_ACTION_FINISH:
		fit = stage == migration.Done || stage == migration.Undone || stage == migration.Finishing
	}
	if !fit {
		return nil, fmt.Errorf("%w: job %s migrates %s", wire.ErrJobState, job.GetId(), cmp.Or(job.GetStage(), "not begun"))
	}
	return proto.CloneOf(job), nil
}

// Job returns a job with its report.
func (m *Runner) Job(tenant, id string) (*ckptdv1.MigrationJob, error) {
	m.mu.Lock()
	w := m.tenants[tenant]
	m.mu.Unlock()
	if w != nil && w.now().GetId() == id {
		return w.now(), nil
	}
	return m.find(tenant, id)
}

// Jobs returns the jobs of a tenant, the oldest first, without reports.
func (m *Runner) Jobs(tenant string) ([]*ckptdv1.MigrationJob, error) {
	if m.o.Dir == "" {
		return nil, nil
	}
	kept, err := m.keptJobs()
	if err != nil {
		return nil, err
	}
	begun, err := m.jobs().List()
	if err != nil {
		return nil, err
	}
	known := map[string]*ckptdv1.MigrationJob{}
	for _, job := range kept {
		if job.GetTenant() == tenant {
			known[job.GetId()] = job
		}
	}
	for _, j := range begun {
		if j.Spec.Tenant == tenant {
			known[j.ID] = withJournal(known[j.ID], j)
		}
	}
	m.mu.Lock()
	if w := m.tenants[tenant]; w != nil {
		known[w.now().GetId()] = w.now()
	}
	m.mu.Unlock()
	var all []*ckptdv1.MigrationJob
	for _, job := range known {
		all = append(all, withoutReport(job))
	}
	slices.SortFunc(all, func(a, b *ckptdv1.MigrationJob) int {
		return cmp.Or(a.GetCreated().AsTime().Compare(b.GetCreated().AsTime()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return all, nil
}

func withoutReport(job *ckptdv1.MigrationJob) *ckptdv1.MigrationJob {
	short := proto.CloneOf(job)
	short.Report = nil
	return short
}

// Cancel stops a job and returns it once it has stopped. It does nothing to a job that is not
// running.
func (m *Runner) Cancel(ctx context.Context, tenant, id string) (*ckptdv1.MigrationJob, error) {
	m.mu.Lock()
	w := m.tenants[tenant]
	m.mu.Unlock()
	if w == nil || w.now().GetId() != id {
		return m.find(tenant, id)
	}
	w.stop(errCanceled)
	select {
	case <-w.ended:
		return m.Job(tenant, id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errCanceled = errors.New("canceled")

// Watch calls tell with a job, without its report, now, whenever it progresses, and at least once
// per interval; and once it has stopped, with its report.
func (m *Runner) Watch(ctx context.Context, tenant, id string, atLeast time.Duration, tell func(*ckptdv1.MigrationJob) error) error {
	for {
		m.mu.Lock()
		w := m.tenants[tenant]
		m.mu.Unlock()
		if m.life.Err() != nil {
			return engine.ErrClosed
		}
		if w == nil || w.now().GetId() != id {
			job, err := m.find(tenant, id)
			if err != nil {
				return err
			}
			return tell(job)
		}
		changed := w.changes()
		if err := tell(withoutReport(w.now())); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-w.ended:
		case <-time.After(atLeast):
		case <-m.life.Done():
			return engine.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func now() *timestamppb.Timestamp { return timestamppb.New(time.Now().Truncate(time.Millisecond)) }
