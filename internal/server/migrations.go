package server

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/panics"
)

// migrations serves the MigrationService. Jobs and sets are of the tenant that a request names:
// those of others are not there.
type migrations struct{ *Server }

func (s migrations) InstallMigrationSets(ctx context.Context, req *connect.Request[ckptdv1.InstallMigrationSetsRequest]) (*connect.Response[ckptdv1.InstallMigrationSetsResponse], error) {
	if err := s.mayHaveModules(ctx, req.Msg.GetFiles()); err != nil {
		return nil, err
	}
	sets, err := s.migrator.Install(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	callOf(ctx).about = aboutSets(sets)
	return connect.NewResponse(&ckptdv1.InstallMigrationSetsResponse{Sets: sets}), nil
}

// aboutSets names sets for the audit log, where there is room for a few.
func aboutSets(sets []*ckptdv1.MigrationSet) string {
	const most = 8
	var about []string
	for _, set := range sets[:min(len(sets), most)] {
		about = append(about, fmt.Sprintf("migrations:%.6x", set.GetDigest()))
	}
	if len(sets) > most {
		about = append(about, fmt.Sprintf("and %d more", len(sets)-most))
	}
	return strings.Join(about, " ")
}

// mayHaveModules refuses modules in sets if plugins must be signed: sets cannot be signed.
func (s migrations) mayHaveModules(ctx context.Context, files []*ckptdv1.MigrationFile) error {
	for _, f := range files {
		if path.Ext(f.GetPath()) != ".wasm" {
			continue
		}
		if keys, err := s.plugins.TrustedKeys(ctx); err != nil || len(keys) == 0 {
			return err
		}
		return &hook.Error{Kind: hook.ErrInvalid, Reason: "this store requires signatures, and a migration set with a WebAssembly module cannot be signed: write the step in jq"}
	}
	return nil
}

func (s migrations) ListMigrationSets(ctx context.Context, req *connect.Request[ckptdv1.ListMigrationSetsRequest]) (*connect.Response[ckptdv1.ListMigrationSetsResponse], error) {
	sets, err := s.migrator.InstalledSets(ctx, req.Msg.GetTenant())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListMigrationSetsResponse{Sets: sets}), nil
}

func (s migrations) RemoveMigrationSet(ctx context.Context, req *connect.Request[ckptdv1.RemoveMigrationSetRequest]) (*connect.Response[ckptdv1.RemoveMigrationSetResponse], error) {
	if err := s.migrator.Remove(ctx, req.Msg.GetTenant(), req.Msg.GetKind()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.RemoveMigrationSetResponse{}), nil
}

func (s migrations) GetMigrationStatus(ctx context.Context, req *connect.Request[ckptdv1.GetMigrationStatusRequest], stream *connect.ServerStream[ckptdv1.GetMigrationStatusResponse]) error {
	groups, err := s.migrator.Status(ctx, req.Msg.GetTenant(), req.Msg.GetSpec())
	if err != nil {
		return err
	}
	return stream.Send(&ckptdv1.GetMigrationStatusResponse{Groups: groups})
}

func (s migrations) PlanMigration(ctx context.Context, req *connect.Request[ckptdv1.PlanMigrationRequest], stream *connect.ServerStream[ckptdv1.PlanMigrationResponse]) error {
	plan, err := s.migrator.Plan(ctx, req.Msg.GetTenant(), req.Msg.GetSpec())
	if err != nil {
		return err
	}
	return stream.Send(plan)
}

// jobAnswer makes the answer about a job, and notes it for the audit log.
func jobAnswer[T any](ctx context.Context, job *ckptdv1.MigrationJob, err error, answer *T) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	callOf(ctx).about = "migration:" + job.GetId()
	return connect.NewResponse(answer), nil
}

func (s migrations) StartMigrationJob(ctx context.Context, req *connect.Request[ckptdv1.StartMigrationJobRequest]) (*connect.Response[ckptdv1.StartMigrationJobResponse], error) {
	job, err := s.migrator.Start(req.Msg)
	return jobAnswer(ctx, job, err, &ckptdv1.StartMigrationJobResponse{Job: job})
}

func (s migrations) GetMigrationJob(ctx context.Context, req *connect.Request[ckptdv1.GetMigrationJobRequest]) (*connect.Response[ckptdv1.GetMigrationJobResponse], error) {
	job, err := s.migrator.Job(req.Msg.GetTenant(), req.Msg.GetId())
	return jobAnswer(ctx, job, err, &ckptdv1.GetMigrationJobResponse{Job: job})
}

func (s migrations) ListMigrationJobs(_ context.Context, req *connect.Request[ckptdv1.ListMigrationJobsRequest]) (*connect.Response[ckptdv1.ListMigrationJobsResponse], error) {
	jobs, err := s.migrator.Jobs(req.Msg.GetTenant())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListMigrationJobsResponse{Jobs: jobs}), nil
}

// jobHeartbeat is the interval of messages in the watch of a job that makes no progress.
const jobHeartbeat = 5 * time.Second

func (s migrations) WatchMigrationJob(ctx context.Context, req *connect.Request[ckptdv1.WatchMigrationJobRequest], stream *connect.ServerStream[ckptdv1.WatchMigrationJobResponse]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		defer panics.To(func(err error) { cancel(err) })
		select {
		case <-s.draining:
			cancel(s.shuttingDown())
		case <-ctx.Done():
		}
	}()
	err := s.migrator.Watch(ctx, req.Msg.GetTenant(), req.Msg.GetId(), jobHeartbeat, func(job *ckptdv1.MigrationJob) error {
		if err := s.authorizeAgain(ctx, req.Msg); err != nil {
			return err
		}
		callOf(ctx).about = "migration:" + job.GetId()
		return stream.Send(&ckptdv1.WatchMigrationJobResponse{Job: job})
	})
	if s.Draining() && err != nil && ctx.Err() != nil {
		return s.shuttingDown()
	}
	return err
}

func (s migrations) CancelMigrationJob(ctx context.Context, req *connect.Request[ckptdv1.CancelMigrationJobRequest]) (*connect.Response[ckptdv1.CancelMigrationJobResponse], error) {
	job, err := s.migrator.Cancel(ctx, req.Msg.GetTenant(), req.Msg.GetId())
	return jobAnswer(ctx, job, err, &ckptdv1.CancelMigrationJobResponse{Job: job})
}
