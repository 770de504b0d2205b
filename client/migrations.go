package client

import (
	"context"
	"fmt"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// These methods manage migrations on the server. A set belongs to a tenant or, with "", to all
// tenants without a set of their own, which requires a right on the whole store.

// InstallMigrationSets installs the sets of a directory.
func (s *Store) InstallMigrationSets(ctx context.Context, m *ckptdv1.InstallMigrationSetsRequest) ([]*ckptdv1.MigrationSet, error) {
	res, err := call(ctx, s, s.migrate.InstallMigrationSets, m)
	return res.GetSets(), err
}

// MigrationSets returns the sets that are installed, or with a tenant those that count for it.
func (s *Store) MigrationSets(ctx context.Context, tenant string) ([]*ckptdv1.MigrationSet, error) {
	res, err := call(ctx, s, s.migrate.ListMigrationSets, &ckptdv1.ListMigrationSetsRequest{Tenant: tenant})
	return res.GetSets(), err
}

// RemoveMigrationSet removes a set. States that it migrated stay migrated.
func (s *Store) RemoveMigrationSet(ctx context.Context, tenant, kind string) error {
	_, err := call(ctx, s, s.migrate.RemoveMigrationSet, &ckptdv1.RemoveMigrationSetRequest{Tenant: tenant, Kind: kind})
	return err
}

// MigrationStatus counts the heads of a tenant's threads by kind and version.
func (s *Store) MigrationStatus(ctx context.Context, tenant string, spec *ckptdv1.MigrationSpec) (groups []*ckptdv1.MigrationGroup, err error) {
	err = last(ctx, s, s.migrate.GetMigrationStatus, &ckptdv1.GetMigrationStatusRequest{Tenant: tenant, Spec: spec}, func(m *ckptdv1.GetMigrationStatusResponse) bool {
		groups = m.GetGroups()
		return true
	})
	return groups, err
}

// PlanMigration returns the steps that a job would take.
func (s *Store) PlanMigration(ctx context.Context, tenant string, spec *ckptdv1.MigrationSpec) (plan *ckptdv1.PlanMigrationResponse, err error) {
	err = last(ctx, s, s.migrate.PlanMigration, &ckptdv1.PlanMigrationRequest{Tenant: tenant, Spec: spec}, func(m *ckptdv1.PlanMigrationResponse) bool {
		plan = m
		return true
	})
	return plan, err
}

// StartMigrationJob starts or resumes a job on the server. The job does not depend on the caller.
func (s *Store) StartMigrationJob(ctx context.Context, m *ckptdv1.StartMigrationJobRequest) (*ckptdv1.MigrationJob, error) {
	res, err := call(ctx, s, s.migrate.StartMigrationJob, m)
	return res.GetJob(), err
}

// MigrationJob returns a job with its report.
func (s *Store) MigrationJob(ctx context.Context, tenant, id string) (*ckptdv1.MigrationJob, error) {
	res, err := call(ctx, s, s.migrate.GetMigrationJob, &ckptdv1.GetMigrationJobRequest{Tenant: tenant, Id: id})
	return res.GetJob(), err
}

// MigrationJobs returns the jobs of a tenant, the oldest first, without reports.
func (s *Store) MigrationJobs(ctx context.Context, tenant string) ([]*ckptdv1.MigrationJob, error) {
	res, err := call(ctx, s, s.migrate.ListMigrationJobs, &ckptdv1.ListMigrationJobsRequest{Tenant: tenant})
	return res.GetJobs(), err
}

// WatchMigrationJob calls tell with the job whenever it progresses, and returns the job once it has
// stopped. It survives broken connections and restarts of the server. tell can be nil.
func (s *Store) WatchMigrationJob(ctx context.Context, tenant, id string, tell func(*ckptdv1.MigrationJob)) (job *ckptdv1.MigrationJob, err error) {
	req := &ckptdv1.WatchMigrationJobRequest{Tenant: tenant, Id: id}
	err = s.retry(ctx, req, func(ctx context.Context) (progress bool, err error) {
		job = nil
		err = receive(ctx, s, s.migrate.WatchMigrationJob, req, func(m *ckptdv1.WatchMigrationJobResponse) error {
			progress, job = true, m.GetJob()
			if tell != nil {
				tell(job)
			}
			return nil
		})
		if err == nil && (job == nil || job.GetState() == "running") {
			progress, err = false, fmt.Errorf("%w: the server did not report the end of the job", engine.ErrUnavailable)
		}
		return progress, err
	})
	if err != nil {
		return nil, err
	}
	return job, nil
}

// CancelMigrationJob stops a running job, and returns it once it has stopped.
func (s *Store) CancelMigrationJob(ctx context.Context, tenant, id string) (*ckptdv1.MigrationJob, error) {
	res, err := call(ctx, s, s.migrate.CancelMigrationJob, &ckptdv1.CancelMigrationJobRequest{Tenant: tenant, Id: id})
	return res.GetJob(), err
}

// JobError is the error that ended a job or a plan, or nil. It matches the same sentinels as on the
// server.
func JobError(m *ckptdv1.SaveError) error {
	if m == nil {
		return nil
	}
	return wire.UnpackSaveError(m)
}
