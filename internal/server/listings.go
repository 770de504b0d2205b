package server

import (
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// A message of a listing is sent once it has this many items or bytes.
const (
	listItems = 64
	listBytes = 256 << 10
)

// listing sends items in messages, each with the token that resumes behind its last item.
type listing[M proto.Message] struct {
	pages   *pages
	left    uint32 // items that may still be sent; 0 at the start: any number
	send    func(items []M, token string) error
	account *account

	items []M
	size  int
	at    position // of the last item
}

// add adds an item, and reports whether it was the last that was asked for.
func (l *listing[M]) add(item M, at position) (last bool, err error) {
	size := proto.Size(item)
	if err := l.account.take(int64(size)); err != nil {
		return false, err
	}
	l.items, l.at = append(l.items, item), at
	l.size += size
	if l.left > 0 {
		l.left--
		last = l.left == 0
	}
	if last || len(l.items) == listItems || l.size >= listBytes {
		return last, l.flush()
	}
	return false, nil
}

func (l *listing[M]) flush() error {
	token, err := l.pages.token(l.at)
	if err == nil {
		err = l.send(l.items, token)
	}
	l.items = nil
	l.release()
	return err
}

// release returns the budget of the items that were not sent.
func (l *listing[M]) release() {
	l.account.give(int64(l.size))
	l.size = 0
}

// end sends the remaining items, as the end of the listing.
func (l *listing[M]) end() error { return l.send(l.items, "") }

// checkpoints sends a sequence of checkpoints, starting after the position after if that is not
// zero.
func sendCheckpoints(ctx context.Context, l *listing[*ckptdv1.Checkpoint], text bool, found iter.Seq2[*engine.Checkpoint, error], wanted func(*engine.Checkpoint) (bool, error)) error {
	for cp, err := range found {
		if err != nil {
			return err
		}
		ok, err := wanted(cp)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if last, err := l.add(wire.PackCheckpoint(cp, shownTo(ctx, cp.Ref, text)), positionOf(cp)); last || err != nil {
			return err
		}
	}
	return l.end()
}

func (s checkpoints) List(ctx context.Context, req *connect.Request[ckptdv1.ListRequest], stream *connect.ServerStream[ckptdv1.ListResponse]) error {
	m := req.Msg
	pages, err := newPages(m, func(m *ckptdv1.ListRequest) { m.PageToken, m.PageSize = "", 0 })
	if err != nil {
		return err
	}
	after, err := pages.parse(m.GetPageToken())
	if err != nil {
		return err
	}
	o := engine.HistoryOptions{Before: m.GetBefore(), From: m.GetFrom(), Branch: m.GetBranch(), Filter: wire.UnpackFilter(m.GetFilter()), Data: m.GetData(),
		Export: m.GetExport(), ByID: m.GetById()}
	if len(m.GetChannels()) > 0 {
		o.Channels = m.GetChannels()
	}
	if after.ID != "" {
		o.Before = after.ID
	}
	l := &listing[*ckptdv1.Checkpoint]{account: callOf(ctx).account, pages: pages, left: m.GetPageSize(), send: func(items []*ckptdv1.Checkpoint, token string) error {
		return stream.Send(&ckptdv1.ListResponse{Checkpoints: items, NextPageToken: token})
	}}
	defer l.release()
	return sendCheckpoints(ctx, l, m.GetText(), s.thread(m).History(ctx, o), func(cp *engine.Checkpoint) (bool, error) {
		if after.Generation != 0 && !engine.Admits(after.Generation, cp.Generation) {
			return false, engine.ErrGeneration // the thread or the namespace was deleted since, and is another one now
		}
		return true, nil
	})
}

func (s checkpoints) ListByID(ctx context.Context, req *connect.Request[ckptdv1.ListByIDRequest], stream *connect.ServerStream[ckptdv1.ListByIDResponse]) error {
	m := req.Msg
	pages, err := newPages(m, func(m *ckptdv1.ListByIDRequest) { m.PageToken, m.PageSize = "", 0 })
	if err != nil {
		return err
	}
	after, err := pages.parse(m.GetPageToken())
	if err != nil {
		return err
	}
	o := wire.UnpackListByID(m)
	o.Visible = visibleTo(ctx)
	if after.ID != "" {
		o.Before, o.After = after.ID, &after.Ref
	}
	l := &listing[*ckptdv1.Entry]{account: callOf(ctx).account, pages: pages, left: m.GetPageSize(), send: func(items []*ckptdv1.Entry, token string) error {
		return stream.Send(&ckptdv1.ListByIDResponse{Entries: items, NextPageToken: token})
	}}
	defer l.release()
	for e, err := range s.store.User(m.GetTenant(), m.GetUser()).ListByID(ctx, o) {
		if err != nil {
			return err
		}
		cp := e.Checkpoint
		if last, err := l.add(wire.PackEntry(e, shownTo(ctx, cp.Ref, m.GetText())), position{Ref: cp.Ref, ID: cp.ID}); last || err != nil {
			return err
		}
	}
	return l.end()
}

func (s threads) Query(ctx context.Context, req *connect.Request[ckptdv1.QueryRequest], stream *connect.ServerStream[ckptdv1.QueryResponse]) error {
	m := req.Msg
	pages, err := newPages(m, func(m *ckptdv1.QueryRequest) { m.PageToken, m.PageSize = "", 0 })
	if err != nil {
		return err
	}
	after, err := pages.parse(m.GetPageToken())
	if err != nil {
		return err
	}
	q := engine.Query{Filter: wire.UnpackFilter(m.GetFilter())}
	if after.Time != 0 { // of that millisecond some may be left
		if next := time.UnixMilli(after.Time + 1); q.Until.IsZero() || next.Before(q.Until) {
			q.Until = next
		}
	}
	found := s.store.User(m.GetTenant(), m.GetUser()).Query(ctx, q)
	if m.GetWholeTenant() {
		found = s.store.QueryTenant(ctx, m.GetTenant(), q)
	}
	l := &listing[*ckptdv1.Checkpoint]{account: callOf(ctx).account, pages: pages, left: m.GetPageSize(), send: func(items []*ckptdv1.Checkpoint, token string) error {
		return stream.Send(&ckptdv1.QueryResponse{Checkpoints: items, NextPageToken: token})
	}}
	defer l.release()
	visible := visibleTo(ctx)
	return sendCheckpoints(ctx, l, false, found, func(cp *engine.Checkpoint) (bool, error) {
		return visible(cp.Ref.Thread) && (after.Time == 0 || comesAfter(cp, after)), nil
	})
}

// comesAfter reports whether a query, whose results go back in time, yields cp behind the position
// at.
func comesAfter(cp *engine.Checkpoint, at position) bool {
	if t := cp.Time.UnixMilli(); t != at.Time {
		return t < at.Time
	}
	if c := cp.Ref.Compare(at.Ref); c != 0 {
		return c < 0
	}
	return cp.Seq < at.Seq
}

func (s threads) ListThreads(ctx context.Context, req *connect.Request[ckptdv1.ListThreadsRequest], stream *connect.ServerStream[ckptdv1.ListThreadsResponse]) error {
	m := req.Msg
	pages, err := newPages(m, func(m *ckptdv1.ListThreadsRequest) { m.PageToken, m.PageSize = "", 0 })
	if err != nil {
		return err
	}
	after, err := pages.parse(m.GetPageToken())
	if err != nil {
		return err
	}
	l := &listing[*ckptdv1.ThreadInfo]{account: callOf(ctx).account, pages: pages, left: m.GetPageSize(), send: func(items []*ckptdv1.ThreadInfo, token string) error {
		return stream.Send(&ckptdv1.ListThreadsResponse{Threads: items, NextPageToken: token})
	}}
	defer l.release()
	visible := visibleTo(ctx)
	o := engine.ThreadOptions{Prefix: m.GetPrefix(), Status: m.GetStatus(), Count: m.GetCount(), After: max(m.GetAfter(), after.Ref.Thread)}
	if o.ByActivity = m.GetByActivity(); o.ByActivity {
		o.After, o.ActiveAt = m.GetAfter(), wire.UnpackTime(m.GetActiveAt())
		if after.Time != 0 {
			o.After, o.ActiveAt = after.Ref.Thread, time.UnixMilli(after.Time)
		}
	}
	for info, err := range s.store.User(m.GetTenant(), m.GetUser()).Threads(ctx, o) {
		if err != nil {
			return err
		}
		if !visible(info.Ref.Thread) {
			continue
		}
		if last, err := l.add(wire.PackThreadInfo(&info), position{Ref: info.Ref, Time: info.Active.UnixMilli()}); last || err != nil {
			return err
		}
	}
	return l.end()
}
