package client

import (
	"context"
	"fmt"
	"iter"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/wire"
)

// Retention returns the policy of a tenant, the zero value if it has none.
func (s *Store) Retention(ctx context.Context, tenant string) (upkeep.RetentionPolicy, error) {
	m, err := call(ctx, s, s.admin.GetRetention, &ckptdv1.GetRetentionRequest{Tenant: tenant})
	return wire.UnpackRetention(m.GetPolicy()), err
}

// SetRetention makes p the policy of a tenant from the next GC on.
func (s *Store) SetRetention(ctx context.Context, tenant string, p upkeep.RetentionPolicy) error {
	_, err := call(ctx, s, s.admin.SetRetention, &ckptdv1.SetRetentionRequest{Tenant: tenant, Policy: wire.PackRetention(p)})
	return err
}

// GC collects the garbage of a tenant. Users whose data cannot be read are skipped, and reported in
// the error.
func (s *Store) GC(ctx context.Context, tenant string, o upkeep.GCOptions) (*upkeep.GCReport, error) {
	return s.collect(ctx, tenant, "", o)
}

func (s *Store) collect(ctx context.Context, tenant, user string, o upkeep.GCOptions) (report *upkeep.GCReport, err error) {
	req := &ckptdv1.CollectGarbageRequest{Tenant: tenant, User: user, DryRun: o.DryRun, Compact: o.Compact}
	if o.Grace != 0 {
		req.Grace = durationpb.New(o.Grace)
	}
	err = last(ctx, s, s.admin.CollectGarbage, req, func(m *ckptdv1.CollectGarbageResponse) bool {
		if m.GetReport() != nil {
			report = wire.UnpackGarbage(m.GetReport())
		} else if o.Progress != nil {
			o.Progress(upkeep.GCProgress{User: m.GetUser(), Stage: m.GetStage(), Done: int(m.GetDone())})
		}
		return report != nil
	})
	return report, err
}

// Verify reads all stored data and reports every fault. On an error, the report covers only the
// data read so far.
func (s *Store) Verify(ctx context.Context, o upkeep.VerifyOptions) (report *upkeep.VerifyReport, err error) {
	req := &ckptdv1.VerifyRequest{Tenant: o.Tenant, User: o.User, Thread: o.Thread, Deep: o.Deep}
	err = last(ctx, s, s.admin.Verify, req, func(m *ckptdv1.VerifyResponse) bool {
		if m.GetReport() != nil {
			report = wire.UnpackVerify(m.GetReport())
		} else if o.Progress != nil {
			o.Progress(int(m.GetDone()), int(m.GetTotal()))
		}
		return report != nil
	})
	return report, err
}

// last makes a call that is answered by a stream whose last message is the result: each reports
// whether a message is that one. An error can follow it.
func last[Req, Res any](ctx context.Context, s *Store,
	open func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), m *Req, each func(*Res) bool) error {
	return s.retry(ctx, m, func(ctx context.Context) (bool, error) {
		done := false
		err := receive(ctx, s, open, m, func(m *Res) error {
			done = each(m)
			return nil
		})
		if err == nil && !done {
			err = fmt.Errorf("%w: the server sent no report", engine.ErrUnavailable)
		}
		return false, err
	})
}

// Stats counts the threads, checkpoints and bytes of a user.
func (s *Store) Stats(ctx context.Context, tenant, name string) (*upkeep.Stats, error) {
	m, err := call(ctx, s, s.admin.GetStats, &ckptdv1.GetStatsRequest{Tenant: tenant, User: name})
	if err != nil {
		return nil, err
	}
	return wire.UnpackStats(m), nil
}

// Tenants yields the tenants that have users, in no particular order. After an error it ends.
func (s *Store) Tenants(ctx context.Context) iter.Seq2[string, error] {
	return names(ctx, s, s.admin.ListTenants, &ckptdv1.ListTenantsRequest{}, (*ckptdv1.ListTenantsResponse).GetTenants)
}

// Users yields the users of a tenant that have keys, in no particular order. After an error it
// ends.
func (s *Store) Users(ctx context.Context, tenant string) iter.Seq2[string, error] {
	return names(ctx, s, s.admin.ListUsers, &ckptdv1.ListUsersRequest{Tenant: tenant}, (*ckptdv1.ListUsersResponse).GetUsers)
}

// names yields the names in a stream. If the stream breaks, it starts over and skips names that it
// has yielded.
func names[Req, Res any](ctx context.Context, s *Store,
	open func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), m *Req, of func(*Res) []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		had := map[string]bool{}
		err := s.retry(ctx, m, func(ctx context.Context) (progress bool, err error) {
			err = receive(ctx, s, open, m, func(m *Res) error {
				for _, name := range of(m) {
					if had[name] {
						continue
					}
					progress, had[name] = true, true
					if !yield(name, nil) {
						return errEnough
					}
				}
				return nil
			})
			return progress, err
		})
		if err != nil && err != errEnough {
			yield("", err)
		}
	}
}
