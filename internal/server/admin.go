package server

import (
	"cmp"
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/wire"
)

// admin serves the AdminService, except for the methods in tokens.go.
type admin struct{ *Server }

func (s admin) GetRetention(ctx context.Context, req *connect.Request[ckptdv1.GetRetentionRequest]) (*connect.Response[ckptdv1.GetRetentionResponse], error) {
	p, err := s.store.Upkeep().Retention(ctx, req.Msg.GetTenant())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.GetRetentionResponse{Policy: wire.PackRetention(p)}), nil
}

func (s admin) SetRetention(ctx context.Context, req *connect.Request[ckptdv1.SetRetentionRequest]) (*connect.Response[ckptdv1.SetRetentionResponse], error) {
	if err := s.store.Upkeep().SetRetention(ctx, req.Msg.GetTenant(), wire.UnpackRetention(req.Msg.GetPolicy())); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.SetRetentionResponse{}), nil
}

// progressEvery is the interval at which a long operation reports its progress.
const progressEvery = 200 * time.Millisecond

// sometimes reports whether progress is due.
type sometimes struct{ told time.Time }

func (s *sometimes) now() bool {
	if time.Since(s.told) < progressEvery {
		return false
	}
	s.told = time.Now()
	return true
}

func (s admin) CollectGarbage(ctx context.Context, req *connect.Request[ckptdv1.CollectGarbageRequest], stream *connect.ServerStream[ckptdv1.CollectGarbageResponse]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := req.Msg
	var tell sometimes
	var gone error
	o := upkeep.GCOptions{DryRun: m.GetDryRun(), Compact: m.GetCompact(), Grace: m.GetGrace().AsDuration(), Progress: func(p upkeep.GCProgress) {
		if gone == nil && tell.now() {
			if gone = stream.Send(&ckptdv1.CollectGarbageResponse{User: p.User, Stage: p.Stage, Done: uint64(p.Done)}); gone != nil {
				cancel() // nobody waits for the end
			}
		}
	}}
	var report *upkeep.GCReport
	var err error
	if m.GetUser() != "" {
		report, err = s.store.User(m.GetTenant(), m.GetUser()).Upkeep().GC(ctx, o)
	} else {
		report, err = s.store.Upkeep().GC(ctx, m.GetTenant(), o)
	}
	if gone != nil {
		return gone
	}
	if report == nil {
		return err
	}
	res := &ckptdv1.CollectGarbageResponse{Stage: "done", Done: uint64(report.Users), Report: wire.PackGarbage(report)}
	return cmp.Or(stream.Send(res), err) // the error concerns users that were skipped
}

func (s admin) Verify(ctx context.Context, req *connect.Request[ckptdv1.VerifyRequest], stream *connect.ServerStream[ckptdv1.VerifyResponse]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := req.Msg
	var tell sometimes
	var gone error
	o := upkeep.VerifyOptions{Tenant: m.GetTenant(), User: m.GetUser(), Thread: m.GetThread(), Deep: m.GetDeep(), Progress: func(done, total int) {
		if gone == nil && tell.now() {
			if gone = stream.Send(&ckptdv1.VerifyResponse{Done: uint64(done), Total: uint64(total)}); gone != nil {
				cancel()
			}
		}
	}}
	report, err := s.store.Upkeep().Verify(ctx, o)
	if gone != nil {
		return gone
	}
	if report == nil {
		return err
	}
	n := uint64(report.Threads)
	return cmp.Or(stream.Send(&ckptdv1.VerifyResponse{Done: n, Total: n, Report: wire.PackVerify(report)}), err)
}

func (s admin) GetStats(ctx context.Context, req *connect.Request[ckptdv1.GetStatsRequest]) (*connect.Response[ckptdv1.GetStatsResponse], error) {
	stats, err := s.store.Upkeep().Stats(ctx, req.Msg.GetTenant(), req.Msg.GetUser())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(wire.PackStats(stats)), nil
}

func (s admin) ListTenants(ctx context.Context, _ *connect.Request[ckptdv1.ListTenantsRequest], stream *connect.ServerStream[ckptdv1.ListTenantsResponse]) error {
	return sendNames(s.store.Upkeep().Tenants(ctx), func(names []string) error {
		return stream.Send(&ckptdv1.ListTenantsResponse{Tenants: names})
	})
}

func (s admin) ListUsers(ctx context.Context, req *connect.Request[ckptdv1.ListUsersRequest], stream *connect.ServerStream[ckptdv1.ListUsersResponse]) error {
	return sendNames(s.store.Upkeep().Users(ctx, req.Msg.GetTenant()), func(names []string) error {
		return stream.Send(&ckptdv1.ListUsersResponse{Users: names})
	})
}

func sendNames(names iter.Seq2[string, error], send func([]string) error) error {
	var page []string
	for name, err := range names {
		if err != nil {
			return err
		}
		if page = append(page, name); len(page) == 1000 {
			if err := send(page); err != nil {
				return err
			}
			page = nil
		}
	}
	return send(page)
}

func (s admin) CreateUser(ctx context.Context, req *connect.Request[ckptdv1.CreateUserRequest]) (*connect.Response[ckptdv1.CreateUserResponse], error) {
	if err := s.store.User(req.Msg.GetTenant(), req.Msg.GetUser()).Upkeep().Create(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.CreateUserResponse{}), nil
}

func (s admin) GetStatus(context.Context, *connect.Request[ckptdv1.GetStatusRequest]) (*connect.Response[ckptdv1.GetStatusResponse], error) {
	m := s.metrics.Snapshot()
	m.Version, m.Started = s.version, timestamppb.New(s.started)
	return connect.NewResponse(m), nil
}
