package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/durable"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/wire"
)

// The request of a job is a file ID.task next to the journal ID.job: a sealed MigrationJob.

const taskSuffix = ".task"

// maxKept bounds the file of a job in bytes.
const maxKept = 256 << 20

func (m *Runner) path(id string) string { return m.besides(id, taskSuffix) }

// besides is a file of a job.
func (m *Runner) besides(id, suffix string) string { return filepath.Join(m.o.Dir, "jobs", id+suffix) }

// sealedAs is the name that the file of a job is sealed under.
func sealedAs(id string) string { return "migrations/tasks/" + id }

// keep makes a job durable.
func (m *Runner) keep(job *ckptdv1.MigrationJob) error {
	plain, err := proto.Marshal(job)
	if err != nil {
		return fmt.Errorf("storing a migration job: %w", err)
	}
	sealed, err := m.o.Store.Upkeep().SealSidecar(nil, sealedAs(job.GetId()), plain)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.path("")), 0o700)
	}
	if err == nil {
		err = errors.Join(durable.SyncDir(m.o.Dir), durable.SyncDir(filepath.Dir(m.o.Dir)))
	}
	if err == nil {
		err = durable.WriteFile(m.path(job.GetId()), sealed)
	}
	if err != nil {
		return fmt.Errorf("%w: storing migration job %s: %w", engine.ErrUnavailable, job.GetId(), err)
	}
	return nil
}

// mostResumed is the maximum number of times that a job is resumed without a clean stop in between.
const mostResumed = 5

// resumed records another resumption of a job, before it happens, and returns their number.
func (m *Runner) resumed(id string) (times int, err error) {
	path := m.besides(id, ".resumed")
	had, err := durable.ReadFile(path, mostResumed+1)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		had = append(had, '+')
		err = durable.WriteFile(path, had)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: resuming migration job %s: %w", engine.ErrUnavailable, id, err)
	}
	return len(had), nil
}

func (m *Runner) forgetResumed(id string) {
	if err := os.Remove(m.besides(id, ".resumed")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.o.Log.Error("the resume count of a migration job cannot be reset", "job", id, "error", err)
	}
}

// kept reads a job; one that is not kept is nil.
func (m *Runner) kept(id string) (*ckptdv1.MigrationJob, error) {
	sealed, err := durable.ReadFile(m.path(id), maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var plain []byte
	if err == nil {
		plain, err = m.o.Store.Upkeep().OpenSidecar(sealedAs(id), sealed)
	}
	job := &ckptdv1.MigrationJob{}
	if err == nil {
		err = proto.Unmarshal(plain, job)
	}
	if err != nil {
		return nil, fmt.Errorf("reading migration job %s: %w", id, err)
	}
	return job, nil
}

// keptJobs reads all jobs that are kept, the oldest first.
func (m *Runner) keptJobs() ([]*ckptdv1.MigrationJob, error) {
	entries, err := os.ReadDir(filepath.Dir(m.path("")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading migration jobs: %w", err)
	}
	var all []*ckptdv1.MigrationJob
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), taskSuffix)
		if !ok || !migration.ValidID(id) {
			continue
		}
		job, err := m.kept(id)
		if err != nil {
			return nil, err
		}
		if job != nil {
			all = append(all, job)
		}
	}
	slices.SortStableFunc(all, func(a, b *ckptdv1.MigrationJob) int { return a.GetCreated().AsTime().Compare(b.GetCreated().AsTime()) })
	return all, nil
}

// find returns a job of a tenant that is not running, with the state from its journal.
func (m *Runner) find(tenant, id string) (*ckptdv1.MigrationJob, error) {
	none := fmt.Errorf("%w %q", wire.ErrNoJob, id)
	if m.o.Dir == "" || !migration.ValidID(id) {
		return nil, none
	}
	job, err := m.kept(id)
	if err != nil {
		return nil, err
	}
	begun, err := m.jobs().Job(id)
	if err != nil && !errors.Is(err, wire.ErrNoJob) {
		return nil, err
	}
	if begun != nil {
		if begun.Spec.Tenant != tenant {
			return nil, none
		}
		job = withJournal(job, begun)
	}
	if job.GetTenant() != tenant {
		return nil, none
	}
	return job, nil
}

// withJournal adds the state from its journal to a job. A job that the daemon did not start has
// nothing else.
func withJournal(job *ckptdv1.MigrationJob, begun *migration.Job) *ckptdv1.MigrationJob {
	if job == nil {
		job = &ckptdv1.MigrationJob{Tenant: begun.Spec.Tenant, Id: begun.ID, Spec: PackSpec(begun.Spec), Created: timestamppb.New(begun.Created),
			Updated: timestamppb.New(begun.Updated), Action: ckptdv1.MigrationAction_MIGRATION_ACTION_RUN, State: Canceled}
		switch begun.State {
		case migration.Done:
			job.State = Done
		case migration.Stopped:
			job.State = Failed
		case migration.Undoing, migration.Undone:
			if job.Action = ckptdv1.MigrationAction_MIGRATION_ACTION_UNDO; begun.State == migration.Undone {
				job.State = Done
			}
		case migration.Finishing:
			job.Action = ckptdv1.MigrationAction_MIGRATION_ACTION_FINISH
		}
	}
	withJournalIn(job, begun)
	return job
}

func withJournalIn(job *ckptdv1.MigrationJob, begun *migration.Job) {
	if begun == nil {
		return
	}
	job.Stage, job.To = string(begun.State), begun.To
	job.Migrated, job.Failed = uint64(begun.Migrated), uint64(begun.Failed)
	job.Undone, job.Kept = uint64(begun.Undone), uint64(begun.Kept)
}

// freeID is an id that no job has. The caller holds m.mu.
func (m *Runner) freeID() (string, error) {
	began := time.Now()
	for try := 0; ; try++ {
		id := migration.NewID(began, try)
		taken := false
		for _, path := range []string{m.path(id), m.besides(id, ".job")} {
			if _, err := os.Lstat(path); err == nil {
				taken = true
			} else if !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("creating a migration job id: %w", err)
			}
		}
		if !taken {
			return id, nil
		}
	}
}

// mostForgettable is the number of jobs without a journal that are kept per tenant: dry runs, and
// refused or finished jobs.
const mostForgettable = 20

// forgetOld removes the oldest of these, so that there is room for another one. The caller holds
// m.mu.
func (m *Runner) forgetOld(tenant string) error {
	kept, err := m.keptJobs()
	if err != nil {
		return err
	}
	kept = slices.DeleteFunc(kept, func(job *ckptdv1.MigrationJob) bool {
		_, err := os.Lstat(m.besides(job.GetId(), ".job"))
		return job.GetTenant() != tenant || err == nil
	})
	for _, job := range kept[:max(0, len(kept)+1-mostForgettable)] {
		if err := os.Remove(m.path(job.GetId())); err != nil {
			return fmt.Errorf("deleting a migration job: %w", err)
		}
	}
	return nil
}
