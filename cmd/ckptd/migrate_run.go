package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/migrate"
)

// migrateOptions are the flags that select the states to migrate, and how.
type migrateOptions struct {
	kind, to       string
	allUsers, down bool
	rewrite        bool
	run            migration.RunOptions
}

// scope declares the flags that select the states.
func (o *migrateOptions) scope(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&o.kind, "kind", "", "only threads of this `KIND`")
	cmd.Flags().BoolVar(&o.allUsers, "all-users", false, "all users of the tenant, not just --user")
	return cmd
}

// target declares the flags that say where to.
func (o *migrateOptions) target(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&o.to, "to", "", "`VERSION` to migrate to, a number or a name (default: the newest in the set)")
	cmd.Flags().BoolVar(&o.down, "down", false, "allow reverse steps, to an older version")
	cmd.Flags().IntVar(&o.run.Workers, "workers", 0, "process `N` states in parallel (default: depends on the number of processors)")
	return o.scope(cmd)
}

// spec returns the spec given on the command line.
func (o *migrateOptions) spec(a *app, m migrator) (migration.Spec, error) {
	spec := migration.Spec{Scope: migration.Scope{Tenant: a.tenant, User: a.user, Kind: o.kind}, Down: o.down, Rewrite: o.rewrite}
	if o.allUsers {
		spec.User = ""
	}
	if o.to == "" {
		return spec, nil
	}
	if o.kind == "" {
		return spec, usagef("--to needs the kind of the version: add --kind")
	}
	set := m.Set(a.tenant, o.kind)
	if set == nil {
		return spec, fmt.Errorf("%w: no migrations for kind %q", migrate.ErrNoPath, o.kind)
	}
	version, ok := set.Version(o.to)
	if !ok || version == 0 {
		oldest, newest := set.Versions()
		return spec, usagef("--to %q is not a version of %q, which has %s to %s", o.to, o.kind, set.Name(oldest), set.Name(newest))
	}
	spec.To = version
	return spec, nil
}

func (a *app) migrateStatusCmd() *cobra.Command {
	var o migrateOptions
	return o.scope(&cobra.Command{
		Use:   "status",
		Short: "Count head states by kind and version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMigrator(cmd.Context(), func(m migrator) error {
				spec, err := o.spec(a, m)
				if err != nil {
					return err
				}
				groups, err := m.Status(cmd.Context(), spec.Scope)
				if err != nil {
					return err
				}
				return a.showGroups(groups, false)
			})
		},
	})
}

func (a *app) migratePlanCmd() *cobra.Command {
	var o migrateOptions
	return o.target(&cobra.Command{
		Use:   "plan",
		Short: "Show the steps a run would take, without reading states",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMigrator(cmd.Context(), func(m migrator) error {
				spec, err := o.spec(a, m)
				if err != nil {
					return err
				}
				plan, err := m.Plan(cmd.Context(), spec)
				if err != nil {
					return err
				}
				return errors.Join(a.showGroups(plan.Groups, true), plan.Err())
			})
		},
	})
}

func (a *app) migrateDryRunCmd() *cobra.Command {
	var o migrateOptions
	var all bool
	cmd := o.target(&cobra.Command{
		Use:   "dry-run",
		Short: "Try the steps on every head state without writing",
		Long: `Dry-run runs the steps on the head state of every thread, namespace and branch or, with --all, on
every checkpoint. It reports failures by step, with the thread and the path in the state, and exits
with code 16 if there are any.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv("GOMEMLIMIT") == "" { // collect rather than grow: many threads need no more memory than few
				debug.SetMemoryLimit(a.cacheBytes + dryRunMemory)
			}
			return a.withMigrator(cmd.Context(), func(m migrator) error {
				spec, err := o.spec(a, m)
				if err != nil {
					return err
				}
				report, err := a.watched("trying", o.run, func(run migration.RunOptions) (*migration.Report, error) {
					return m.DryRun(cmd.Context(), spec, all, run)
				})
				if err != nil {
					return err
				}
				return errors.Join(a.showReport(report, "", "would be migrated"), report.Err())
			})
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "try every checkpoint, not just the heads")
	return cmd
}

// dryRunMemory is the approximate memory of a dry run in addition to the cache, in bytes. Half of
// it is for the backend's tables of written data.
const dryRunMemory = 180 << 20

// watched shows the progress of work.
func (a *app) watched(what string, o migration.RunOptions, work func(migration.RunOptions) (*migration.Report, error)) (*migration.Report, error) {
	bar := newProgress(-1, what, false)
	o.Progress = func(done, total int) {
		if total > 0 {
			bar.set(int64(done), int64(total))
		} else {
			bar.add(1)
		}
	}
	r, err := work(o)
	bar.end()
	return r, err
}

func (a *app) migrateRunCmd() *cobra.Command {
	var o migrateOptions
	var yes bool
	cmd := o.target(&cobra.Command{
		Use:   "run",
		Short: "Migrate head states, or whole histories",
		Long: `Run migrates the head state of every thread, namespace and branch and saves it as a new checkpoint;
with --rewrite it replaces every checkpoint of every thread. It tries all steps first and writes
nothing if a state fails. With --max-error-rate it skips failing states, and stops if they exceed
that fraction.

Agents can keep running: a thread that changes meanwhile is migrated again. The originals are kept
for ckptd migrate undo. Repeat the command to resume an interrupted run.`,
		Example: `  ckptd migrate run --kind support --to 1.2.0 --throttle 500`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r := o.run.MaxErrorRate; r < 0 || r > 1 {
				return usagef("--max-error-rate %g: want a fraction from 0 to 1, such as 0.01", r)
			}
			if o.run.Throttle < 0 {
				return usagef("--throttle %g is negative", o.run.Throttle)
			}
			return a.withMigrator(cmd.Context(), func(m migrator) error { return a.migrateRun(cmd.Context(), m, &o, yes) })
		},
	})
	f := cmd.Flags()
	f.BoolVar(&o.rewrite, "rewrite", false, "rewrite whole histories")
	f.Float64Var(&o.run.Throttle, "throttle", 0, "process at most `N` states per second")
	f.Float64Var(&o.run.MaxErrorRate, "max-error-rate", 0, "skip failing states, up to this `fraction` of all states")
	f.BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

func (a *app) migrateRun(ctx context.Context, m migrator, o *migrateOptions, yes bool) error {
	spec, err := o.spec(a, m)
	if err != nil {
		return err
	}
	job, err := m.Unfinished(spec)
	if err != nil {
		return err
	}
	if job != nil {
		a.note("resuming job %s", job.ID)
	} else if job, err = a.startJob(ctx, m, spec, o, yes); err != nil || job == nil {
		return err
	}
	report, err := a.watched("migrating", o.run, func(run migration.RunOptions) (*migration.Report, error) { return m.Run(ctx, job.ID, run) })
	if report != nil {
		err = errors.Join(a.showReport(report, job.ID, "migrated"), err)
	}
	return err
}

// startJob begins a job; nil if nothing is to be done.
func (a *app) startJob(ctx context.Context, m migrator, spec migration.Spec, o *migrateOptions, yes bool) (*migration.Job, error) {
	plan, err := m.Plan(ctx, spec)
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return nil, err
	}
	if plan.Todo == 0 && !spec.Rewrite {
		if a.json {
			return nil, a.emit(viewReport(&migration.Report{}, ""))
		}
		return nil, a.printf("nothing to migrate: every state has the wanted version, or %s\n", noMigrations)
	}
	if err := a.confirm(yes, fmt.Sprintf("migrate %s", count(plan.Todo, "state"))); errors.Is(err, errDeclined) {
		return nil, errNotMigrated
	} else if err != nil {
		return nil, err
	}
	var job *migration.Job
	report, err := a.watched("trying", o.run, func(run migration.RunOptions) (*migration.Report, error) {
		var report *migration.Report
		var err error
		job, report, err = m.Start(ctx, spec, run)
		return report, err
	})
	if err != nil && report != nil {
		return nil, errors.Join(a.showReport(report, "", "would be migrated"), err)
	}
	return job, err
}

// noMigrations explains why a state is not migrated, and how to fix that.
const noMigrations = "no migrations are known for it (name their directory with --migrations, or see ckptd migrate sets)"

// errNotMigrated: somebody was asked, and did not want it.
var errNotMigrated = errors.New("nothing was migrated")

func (a *app) migrateUndoCmd() *cobra.Command {
	var o migration.RunOptions
	cmd := &cobra.Command{
		Use:   "undo JOB",
		Short: "Undo a migration run",
		Long: `Undo restores the original states as if the run had never happened. It skips threads that changed
since and reports them, with exit code 4. Repeat the command to resume an interrupted undo.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withMigrator(cmd.Context(), func(m migrator) error {
				report, err := a.watched("undoing", o, func(run migration.RunOptions) (*migration.Report, error) { return m.Undo(cmd.Context(), args[0], run) })
				if err != nil {
					return err
				}
				if err = a.showReport(report, args[0], "undone"); err == nil && report.Failed > 0 {
					err = fmt.Errorf("%w: %s", errUndone, count(report.Failed, "state"))
				}
				return err
			})
		},
	}
	cmd.Flags().Float64Var(&o.Throttle, "throttle", 0, "process at most `N` states per second")
	cmd.Flags().IntVar(&o.Workers, "workers", 0, "process `N` states in parallel")
	return cmd
}

// errUndone means that some migrated states stay.
var errUndone = errors.New("not all could be undone")

func (a *app) migrateFinishCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "finish JOB",
		Short: "Finish a job: drop the originals of rewritten histories and the option to undo",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withMigrator(cmd.Context(), func(m migrator) error {
				if err := m.Finish(cmd.Context(), args[0]); err != nil {
					return err
				}
				if a.json {
					return a.emit(map[string]string{"finished": args[0]})
				}
				return a.printf("finished job %s\n", args[0])
			})
		},
	}
}

func (a *app) migrateJobsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs that can be resumed, undone or finished",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMigrator(cmd.Context(), func(m migrator) error {
				jobs, err := m.List()
				if err != nil {
					return err
				}
				return a.showJobs(jobs)
			})
		},
	}
}
