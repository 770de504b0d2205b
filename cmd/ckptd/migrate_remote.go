package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/jobs"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/migrate"
)

// setKeeper has the methods that the commands need to manage the sets of a store.
type setKeeper interface {
	Install(ctx context.Context, tenant string, fsys fs.FS, digests map[string][32]byte) ([]migration.Installed, error)
	List(context.Context) ([]migration.Installed, error)
	Remove(ctx context.Context, tenant, kind string) error
}

// withSets calls f with the installed sets, local or on the server.
func (a *app) withSets(ctx context.Context, create bool, f func(setKeeper) error) error {
	if a.server.addr == "" {
		return a.withOwn(ctx, create, func(*engine.Store) error { return f(a.migrations.sets) })
	}
	return a.withRemote(func(c *client.Store) error { return f(remoteSets{c, a.tenant}) })
}

// withRemote calls f with the server, for commands that need one.
func (a *app) withRemote(f func(*client.Store) error) error {
	if a.server.addr == "" {
		return usagef("only jobs of a server can be watched or canceled: add --server")
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// remoteSets are the sets that are installed on a server.
type remoteSets struct {
	c      *client.Store
	tenant string
}

func (s remoteSets) Install(ctx context.Context, tenant string, fsys fs.FS, digests map[string][32]byte) ([]migration.Installed, error) {
	req := &ckptdv1.InstallMigrationSetsRequest{Tenant: tenant}
	for kind, digest := range digests {
		req.Digests = append(req.Digests, &ckptdv1.MigrationDigest{Kind: kind, Digest: digest[:]})
	}
	kinds, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		if !kind.IsDir() {
			continue
		}
		files, err := fs.ReadDir(fsys, kind.Name())
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f.IsDir() {
				continue
			}
			path := kind.Name() + "/" + f.Name()
			data, err := fs.ReadFile(fsys, path)
			if err != nil {
				return nil, err
			}
			req.Files = append(req.Files, &ckptdv1.MigrationFile{Path: path, Data: data})
		}
	}
	return unpackSets(s.c.InstallMigrationSets(ctx, req))
}

func (s remoteSets) List(ctx context.Context) ([]migration.Installed, error) {
	return unpackSets(s.c.MigrationSets(ctx, s.tenant))
}

func (s remoteSets) Remove(ctx context.Context, tenant, kind string) error {
	err := s.c.RemoveMigrationSet(ctx, tenant, kind)
	if errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func unpackSets(ms []*ckptdv1.MigrationSet, err error) ([]migration.Installed, error) {
	var sets []migration.Installed
	for _, m := range ms {
		in, err := jobs.UnpackSet(m)
		if err != nil {
			return nil, err
		}
		sets = append(sets, in)
	}
	return sets, err
}

// remoteMigrator makes a server migrate its store. Its jobs continue when the command ends.
type remoteMigrator struct {
	ctx    context.Context // of the command, for methods that have none
	c      *client.Store
	tenant string
	sets   []migration.Installed
}

func (m *remoteMigrator) Status(ctx context.Context, scope migration.Scope) ([]migration.Group, error) {
	groups, err := m.c.MigrationStatus(ctx, scope.Tenant, jobs.PackSpec(migration.Spec{Scope: scope}))
	return jobs.UnpackGroups(groups), err
}

func (m *remoteMigrator) Plan(ctx context.Context, spec migration.Spec) (*migration.Plan, error) {
	plan, err := m.c.PlanMigration(ctx, spec.Tenant, jobs.PackSpec(spec))
	if err != nil {
		return nil, err
	}
	return &migration.Plan{Groups: jobs.UnpackGroups(plan.GetGroups()), Todo: int(plan.GetTodo())}, nil
}

func (m *remoteMigrator) DryRun(ctx context.Context, spec migration.Spec, all bool, o migration.RunOptions) (*migration.Report, error) {
	return m.do(ctx, &ckptdv1.StartMigrationJobRequest{Action: ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN, Spec: jobs.PackSpec(spec), All: all}, o)
}

// Start begins a run, and returns when it is past the trying.
func (m *remoteMigrator) Start(ctx context.Context, spec migration.Spec, o migration.RunOptions) (*migration.Job, *migration.Report, error) {
	req := &ckptdv1.StartMigrationJobRequest{Tenant: m.tenant, Action: ckptdv1.MigrationAction_MIGRATION_ACTION_RUN, Spec: jobs.PackSpec(spec), Pace: paceOf(o)}
	job, err := m.c.StartMigrationJob(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	watching, enough := context.WithCancel(ctx)
	defer enough()
	id, begun := job.GetId(), false
	job, err = m.c.WatchMigrationJob(watching, m.tenant, id, func(now *ckptdv1.MigrationJob) {
		if job = now; job.GetStage() != "" {
			begun = true
			enough()
			return
		}
		tellProgress(o, now)
	})
	if begun {
		return &migration.Job{ID: id, Spec: spec, State: migration.Running}, nil, nil
	}
	if err == nil {
		err = m.outcome(job)
	}
	return nil, jobs.UnpackReport(job.GetReport()), err
}

func (m *remoteMigrator) Unfinished(spec migration.Spec) (*migration.Job, error) {
	all, err := m.c.MigrationJobs(m.ctx, m.tenant)
	if err != nil {
		return nil, err
	}
	for _, job := range all {
		stage := migration.State(job.GetStage())
		if jobs.SpecOf(m.tenant, job.GetSpec()) == spec && (stage == migration.Running || stage == migration.Stopped) {
			return jobs.UnpackJob(job), nil
		}
	}
	return nil, nil
}

// Run resumes a run, or waits for a running one.
func (m *remoteMigrator) Run(ctx context.Context, id string, o migration.RunOptions) (*migration.Report, error) {
	job, err := m.c.MigrationJob(ctx, m.tenant, id)
	if err != nil {
		return nil, err
	}
	if job.GetState() == jobs.Running || job.GetState() == jobs.Done {
		return m.watch(ctx, id, o)
	}
	return m.do(ctx, &ckptdv1.StartMigrationJobRequest{Action: ckptdv1.MigrationAction_MIGRATION_ACTION_RUN, Id: id}, o)
}

func (m *remoteMigrator) Undo(ctx context.Context, id string, o migration.RunOptions) (*migration.Report, error) {
	return m.do(ctx, &ckptdv1.StartMigrationJobRequest{Action: ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO, Id: id}, o)
}

func (m *remoteMigrator) Finish(ctx context.Context, id string) error {
	_, err := m.do(ctx, &ckptdv1.StartMigrationJobRequest{Action: ckptdv1.MigrationAction_MIGRATION_ACTION_FINISH, Id: id}, migration.RunOptions{})
	return err
}

func (m *remoteMigrator) Job(id string) (*migration.Job, error) {
	job, err := m.c.MigrationJob(m.ctx, m.tenant, id)
	if err != nil {
		return nil, err
	}
	return jobs.UnpackJob(job), nil
}

func (m *remoteMigrator) List() ([]*migration.Job, error) {
	all, err := m.c.MigrationJobs(m.ctx, m.tenant)
	var jobs []*migration.Job
	for _, job := range all {
		jobs = append(jobs, shown(job))
	}
	return jobs, err
}

// shown is a job as it is listed: one without a stage shows its action.
func shown(m *ckptdv1.MigrationJob) *migration.Job {
	job := jobs.UnpackJob(m)
	if job.State == "" {
		what := map[ckptdv1.MigrationAction]string{ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN: "dry run", ckptdv1.MigrationAction_MIGRATION_ACTION_RUN: "run",
			ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO: "undo", ckptdv1.MigrationAction_MIGRATION_ACTION_FINISH: "finish"}[m.GetAction()]
		job.State = migration.State(what + " " + m.GetState())
	}
	return job
}

// Set returns a set of the server with its versions and their names. Its steps cannot be run.
func (m *remoteMigrator) Set(_, kind string) *migrate.Set {
	for _, in := range m.sets {
		if in.Kind == kind {
			return in.Set
		}
	}
	return nil
}

// do starts a job and waits for its end.
func (m *remoteMigrator) do(ctx context.Context, req *ckptdv1.StartMigrationJobRequest, o migration.RunOptions) (*migration.Report, error) {
	req.Tenant, req.Pace = m.tenant, paceOf(o)
	job, err := m.c.StartMigrationJob(ctx, req)
	if err != nil {
		return nil, err
	}
	return m.watch(ctx, job.GetId(), o)
}

func (m *remoteMigrator) watch(ctx context.Context, id string, o migration.RunOptions) (*migration.Report, error) {
	job, err := m.c.WatchMigrationJob(ctx, m.tenant, id, func(job *ckptdv1.MigrationJob) { tellProgress(o, job) })
	if err != nil {
		return nil, err
	}
	report := jobs.UnpackReport(job.GetReport())
	if report == nil {
		report = &migration.Report{Migrated: int(job.GetMigrated())} // the daemon ended between the work and its report
	}
	return report, m.outcome(job)
}

// outcome is the error with which a job ended.
func (m *remoteMigrator) outcome(job *ckptdv1.MigrationJob) error {
	if job.GetState() == jobs.Canceled {
		return fmt.Errorf("%w: job %s was canceled: resume it with ckptd migrate run, or undo it", client.ErrJobState, job.GetId())
	}
	return client.JobError(job.GetError())
}

func paceOf(o migration.RunOptions) *ckptdv1.MigrationPace {
	return &ckptdv1.MigrationPace{Workers: uint32(max(0, o.Workers)), Throttle: o.Throttle, MaxErrorRate: o.MaxErrorRate}
}

func tellProgress(o migration.RunOptions, job *ckptdv1.MigrationJob) {
	if o.Progress != nil && job.GetProgressDone() > 0 {
		o.Progress(int(job.GetProgressDone()), int(job.GetProgressTotal()))
	}
}

func (a *app) migrateWatchCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "watch JOB",
		Short: "Wait for a migration job on a server and show its result",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRemote(func(c *client.Store) error {
				m := &remoteMigrator{ctx: cmd.Context(), c: c, tenant: a.tenant}
				job, err := c.MigrationJob(cmd.Context(), a.tenant, args[0])
				if err != nil {
					return err
				}
				what := map[ckptdv1.MigrationAction]string{ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN: "would be migrated",
					ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO: "undone"}[job.GetAction()]
				report, err := a.watched("migrating", migration.RunOptions{}, func(o migration.RunOptions) (*migration.Report, error) { return m.watch(cmd.Context(), args[0], o) })
				if report != nil {
					err = errors.Join(a.showReport(report, args[0], cmp.Or(what, "migrated")), err)
				}
				return err
			})
		},
	}
}

func (a *app) migrateCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel JOB",
		Short: "Stop a migration job on a server (it can be resumed or undone)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRemote(func(c *client.Store) error {
				job, err := c.CancelMigrationJob(cmd.Context(), a.tenant, args[0])
				if err != nil {
					return err
				}
				return a.showJobs([]*migration.Job{shown(job)})
			})
		},
	}
}
