package client

import (
	"context"
	"iter"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/wire"
)

// User is a handle on one user. Its methods are those of engine.User.
type User struct {
	s            *Store
	tenant, name string
}

// Create makes the keys of the user unless there are some. A first save does so as well.
func (u *User) Create(ctx context.Context) error {
	_, err := call(ctx, u.s, u.s.admin.CreateUser, &ckptdv1.CreateUserRequest{Tenant: u.tenant, User: u.name})
	return err
}

// Threads yields the threads of the user. After an error it ends.
func (u *User) Threads(ctx context.Context, o engine.ThreadOptions) iter.Seq2[engine.ThreadInfo, error] {
	return pages[ckptdv1.ListThreadsRequest, ckptdv1.ListThreadsResponse, engine.ThreadInfo]{
		open: u.s.threads.ListThreads,
		ask: func(left uint32, token string) *ckptdv1.ListThreadsRequest {
			return &ckptdv1.ListThreadsRequest{Tenant: u.tenant, User: u.name, Prefix: o.Prefix, Status: o.Status, Count: o.Count, After: o.After,
				ByActivity: o.ByActivity, ActiveAt: wire.PackTime(o.ActiveAt), PageToken: token}
		},
		unpack: func(m *ckptdv1.ListThreadsResponse) ([]engine.ThreadInfo, string, error) {
			infos, err := eachOf(m.GetThreads(), func(m *ckptdv1.ThreadInfo) (engine.ThreadInfo, error) { return wire.UnpackThreadInfo(m), nil })
			return infos, m.GetNextPageToken(), err
		},
	}.all(ctx, u.s)
}

// Latest returns the newest checkpoint over all threads of the user, by time.
func (u *User) Latest(ctx context.Context, opts ...engine.LoadOptions) (*engine.Checkpoint, error) {
	req := &ckptdv1.LoadNewestRequest{Tenant: u.tenant, User: u.name}
	if len(opts) > 0 {
		req.HeadersOnly, req.Channels = packLoad(&opts[0])
		req.Schema, req.Down = opts[0].Schema, opts[0].Down
	}
	m, err := call(ctx, u.s, u.s.cps.LoadNewest, req)
	if err != nil {
		return nil, err
	}
	return wire.UnpackCheckpoint(m.GetCheckpoint())
}

// ListByID yields checkpoints of the user's threads, the greatest id first. After an error it ends.
// Of the options, After and Visible have no effect: the daemon leaves out the threads that the
// caller cannot see.
func (u *User) ListByID(ctx context.Context, o engine.ListByIDOptions) iter.Seq2[*engine.Entry, error] {
	return pages[ckptdv1.ListByIDRequest, ckptdv1.ListByIDResponse, *engine.Entry]{
		limit: o.Limit,
		open:  u.s.cps.ListByID,
		ask: func(left uint32, token string) *ckptdv1.ListByIDRequest {
			req := wire.PackListByID(u.tenant, u.name, &o)
			req.PageSize, req.PageToken = left, token
			return req
		},
		unpack: func(m *ckptdv1.ListByIDResponse) ([]*engine.Entry, string, error) {
			entries, err := eachOf(m.GetEntries(), wire.UnpackEntry)
			return entries, m.GetNextPageToken(), err
		},
	}.all(ctx, u.s)
}

// Query yields the checkpoints of the user's threads that match, newest first, headers only. After
// an error it ends.
func (u *User) Query(ctx context.Context, q engine.Query) iter.Seq2[*engine.Checkpoint, error] {
	return u.s.query(ctx, &ckptdv1.QueryRequest{Tenant: u.tenant, User: u.name}, q)
}

// QueryTenant is User.Query over all users of a tenant.
func (s *Store) QueryTenant(ctx context.Context, tenant string, q engine.Query) iter.Seq2[*engine.Checkpoint, error] {
	return s.query(ctx, &ckptdv1.QueryRequest{Tenant: tenant, WholeTenant: true}, q)
}

func (s *Store) query(ctx context.Context, req *ckptdv1.QueryRequest, q engine.Query) iter.Seq2[*engine.Checkpoint, error] {
	return pages[ckptdv1.QueryRequest, ckptdv1.QueryResponse, *engine.Checkpoint]{
		limit: q.Limit,
		open:  s.threads.Query,
		ask: func(left uint32, token string) *ckptdv1.QueryRequest {
			return &ckptdv1.QueryRequest{Tenant: req.Tenant, User: req.User, WholeTenant: req.WholeTenant, Filter: wire.PackFilter(&q.Filter),
				PageSize: left, PageToken: token}
		},
		unpack: func(m *ckptdv1.QueryResponse) ([]*engine.Checkpoint, string, error) {
			cps, err := eachOf(m.GetCheckpoints(), wire.UnpackCheckpoint)
			return cps, m.GetNextPageToken(), err
		},
	}.all(ctx, s)
}

// DeleteRun removes all checkpoints with a run id from all threads of the user, and returns their
// number and the remaining checkpoints whose histories it cut off.
func (u *User) DeleteRun(ctx context.Context, runID string) (int, []upkeep.LostHistory, error) {
	m, err := call(ctx, u.s, u.s.threads.DeleteRun, &ckptdv1.DeleteRunRequest{Tenant: u.tenant, User: u.name, RunId: runID})
	return int(m.GetRemoved()), wire.UnpackLost(m.GetLost()), err
}

// GC collects the garbage of the user.
func (u *User) GC(ctx context.Context, o upkeep.GCOptions) (*upkeep.GCReport, error) {
	return u.s.collect(ctx, u.tenant, u.name, o)
}
