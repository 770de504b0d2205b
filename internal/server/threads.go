package server

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/internal/wire"
)

// threads serves the ThreadService.
type threads struct{ *Server }

func (s threads) ListNamespaces(ctx context.Context, req *connect.Request[ckptdv1.ListNamespacesRequest]) (*connect.Response[ckptdv1.ListNamespacesResponse], error) {
	names, err := s.thread(req.Msg).Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListNamespacesResponse{Namespaces: names}), nil
}

func (s threads) Copy(ctx context.Context, req *connect.Request[ckptdv1.CopyRequest]) (*connect.Response[ckptdv1.CopyResponse], error) {
	dst := wire.UnpackRef(req.Msg.GetRef())
	dst.Thread, dst.Namespace = req.Msg.GetTo(), ""
	if err := s.thread(req.Msg).Copy(ctx, dst); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.CopyResponse{}), nil
}

func (s threads) Delete(ctx context.Context, req *connect.Request[ckptdv1.DeleteRequest]) (*connect.Response[ckptdv1.DeleteResponse], error) {
	if ref := wire.UnpackRef(req.Msg.GetRef()); ref.Namespace != "" {
		callOf(ctx).about = "namespace:" + s.store.Upkeep().Pseudonym("audit", ref.Tenant, ref.User, ref.Thread, ref.Namespace)
	}
	generation, err := s.thread(req.Msg).Delete(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.DeleteResponse{Generation: generation}), nil
}

func (s threads) DeleteRun(ctx context.Context, req *connect.Request[ckptdv1.DeleteRunRequest]) (*connect.Response[ckptdv1.DeleteRunResponse], error) {
	n, lost, err := s.store.User(req.Msg.GetTenant(), req.Msg.GetUser()).Upkeep().DeleteRun(ctx, req.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.DeleteRunResponse{Removed: uint64(n), Lost: wire.PackLost(req.Msg.GetTenant(), req.Msg.GetUser(), lost)}), nil
}

func (s threads) Prune(ctx context.Context, req *connect.Request[ckptdv1.PruneRequest]) (*connect.Response[ckptdv1.PruneResponse], error) {
	report, err := s.thread(req.Msg).Upkeep().Prune(ctx, wire.UnpackPrune(req.Msg))
	if err != nil {
		return nil, err
	}
	if n := len(report.Namespaces); n > 0 && !req.Msg.GetDryRun() {
		callOf(ctx).about = fmt.Sprintf("%d namespaces", n)
	}
	return connect.NewResponse(wire.PackPruneReport(report)), nil
}

// How often a heartbeat may come, and comes if the caller does not say.
const (
	minHeartbeat     = time.Second
	maxHeartbeat     = 10 * time.Minute
	defaultHeartbeat = 15 * time.Second
)

// Watch sends an answer without an event at once, when nothing can be missed any more, and then
// events and heartbeats. The right to it is looked at before each of them.
func (s threads) Watch(ctx context.Context, req *connect.Request[ckptdv1.WatchRequest], stream *connect.ServerStream[ckptdv1.WatchResponse]) error {
	m := req.Msg
	from := engine.Cursor(m.GetCursor())
	if from == "" && m.GetSince() != nil {
		from = engine.CursorAt(m.GetSince().AsTime())
	}
	every := defaultHeartbeat
	if m.GetHeartbeat() != nil {
		every = min(max(m.GetHeartbeat().AsDuration(), minHeartbeat), maxHeartbeat)
	}
	s.metrics.WatcherBegan()
	defer s.metrics.WatcherEnded()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scope := engine.WatchScope{Tenant: m.GetTenant(), User: m.GetUser(), Thread: m.GetThread(), Began: true}
	events, ended := s.pump(ctx, scope, from)
	beat := time.NewTicker(every)
	defer beat.Stop()
	cursor, next := m.GetCursor(), m.GetCursor()
	for {
		res := &ckptdv1.WatchResponse{}
		select {
		case e := <-events:
			next = string(e.Cursor)
			if e.Seq != 0 {
				res.Event = wire.PackEvent(&e)
			}
		case <-beat.C:
		case err := <-ended:
			return err
		case <-s.draining:
			return s.shuttingDown()
		}
		if err := s.authorizeAgain(ctx, m); err != nil {
			return err
		}
		if e := res.GetEvent(); e != nil {
			if !visibleTo(ctx)(e.GetRef().GetThread()) {
				next = cursor // the other one sends this event
				continue
			}
			beat.Reset(every)
		}
		cursor = next
		res.Cursor = cursor
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

// pump runs a watch until ctx ends. A slow reader of events holds up nobody: the watch falls
// behind, and catches up from storage.
func (s *Server) pump(ctx context.Context, scope engine.WatchScope, from engine.Cursor) (<-chan engine.Event, <-chan error) {
	events, ended := make(chan engine.Event), make(chan error, 1)
	go func() {
		defer panics.To(func(err error) { ended <- err })
		for e, err := range s.store.Watch(ctx, scope, from) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	return events, ended
}
