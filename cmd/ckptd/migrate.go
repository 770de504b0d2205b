package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/migrate"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/pipeline"
)

// migrateCmd is the command with all that is done with schema migrations.
func (a *app) migrateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate saved states to another schema version",
		Long: `A thread has a kind, the agent that produced it, and its states have a schema version. A migration
set has the steps from each version of a kind to the next: files in a folder named after the kind,
in the --migrations directory or installed in the store.

Write steps with new and check; preview them with status, plan and dry-run; then run, and undo if
needed. A run keeps the originals. Repeat an interrupted run or undo to resume it.`,
		Example: `  ckptd migrate new support rename_user_pref --migrations ./migrations
  ckptd migrate dry-run --migrations ./migrations
  ckptd migrate run --migrations ./migrations`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.migrateNewCmd(), a.migrateCheckCmd(), a.migrateInstallCmd(), a.migrateSetsCmd(), a.migrateRemoveCmd(),
		a.migrateStatusCmd(), a.migratePlanCmd(), a.migrateDryRunCmd(), a.migrateRunCmd(), a.migrateUndoCmd(), a.migrateFinishCmd(), a.migrateJobsCmd(), a.migrateWatchCmd(), a.migrateCancelCmd())
	return cmd
}

// migrator has the methods of a migration runner that the commands need.
type migrator interface {
	Status(context.Context, migration.Scope) ([]migration.Group, error)
	Plan(context.Context, migration.Spec) (*migration.Plan, error)
	DryRun(ctx context.Context, spec migration.Spec, all bool, o migration.RunOptions) (*migration.Report, error)
	Start(context.Context, migration.Spec, migration.RunOptions) (*migration.Job, *migration.Report, error)
	Unfinished(migration.Spec) (*migration.Job, error)
	Run(ctx context.Context, id string, o migration.RunOptions) (*migration.Report, error)
	Undo(ctx context.Context, id string, o migration.RunOptions) (*migration.Report, error)
	Finish(ctx context.Context, id string) error
	Job(id string) (*migration.Job, error)
	List() ([]*migration.Job, error)

	// Set returns the set of a kind, nil if there is none.
	Set(tenant, kind string) *migrate.Set
}

// withMigrator calls f with the migrator of the store, local or on a server.
func (a *app) withMigrator(ctx context.Context, f func(migrator) error) error {
	if a.server.addr != "" {
		return a.withRemote(func(c *client.Store) error {
			sets, err := unpackSets(c.MigrationSets(ctx, a.tenant))
			if err != nil {
				return err
			}
			return f(&remoteMigrator{ctx: ctx, c: c, tenant: a.tenant, sets: sets})
		})
	}
	return a.withOwn(ctx, false, func(s *engine.Store) error {
		if _, err := a.migrations.sets.List(ctx); err != nil {
			return err
		}
		return f(ownMigrator{migration.New(s, filepath.Join(a.base+".migrations", "jobs"), a.migrations.find), &a.migrations})
	})
}

// ownMigrator migrates a store that no server has open.
type ownMigrator struct {
	*migration.Jobs
	sets *migrations
}

func (m ownMigrator) Set(tenant, kind string) *migrate.Set { return m.sets.find(tenant, kind) }

// migrations are the sets for the store of the command: those of a directory, and the installed
// ones.
type migrations struct {
	dir   string // --migrations
	given *migrate.Registry
	sets  *migration.Sets

	workers pipeline.Loader // for steps in WebAssembly; nil: they run in this process

	mu   sync.Mutex
	host *plugins.Host // of steps in WebAssembly, once there are any
}

// open reads the directory, and prepares to read the installed sets.
func (m *migrations) open(ctx context.Context, base string, problem func(error)) (err error) {
	m.sets = migration.NewSets(filepath.Join(base+".migrations", "sets"), m.reader(), problem)
	m.given, err = m.read(ctx)
	return err
}

func (m *migrations) reader() *migrate.Reader { return &migrate.Reader{Load: migration.Modules(m)} }

// read reads the directory, if one is named.
func (m *migrations) read(ctx context.Context) (*migrate.Registry, error) {
	if m.dir == "" {
		return nil, nil
	}
	if info, err := os.Stat(m.dir); err == nil && !info.IsDir() {
		return nil, usagef("--migrations %s is a file, want a directory", m.dir)
	}
	r, err := m.reader().Read(ctx, os.DirFS(m.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, errors.New("--migrations names it"))
	}
	return r, err
}

// find is engine.Options.Migrations: sets named on the command line take precedence over installed
// ones.
func (m *migrations) find(tenant, kind string) *migrate.Set {
	if set := m.given.Set(kind); set != nil {
		return set
	}
	return m.sets.For(tenant, kind)
}

// Load starts the runtime of WebAssembly steps with the first of them. It ends with the process.
func (m *migrations) Load(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) {
	if m.workers != nil {
		return m.workers.Load(ctx, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == nil {
		h, err := plugins.New(plugins.Options{})
		if err != nil {
			return nil, err
		}
		m.host = h
	}
	p, err := m.host.Load(ctx, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}
