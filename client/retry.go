package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/ckptd/ckptd/engine"
)

// retry makes attempts at a request until one succeeds or another would not help. An attempt that
// got somewhere does not count.
func (s *Store) retry(ctx context.Context, request any, attempt func(context.Context) (progress bool, err error)) error {
	may := s.mayRepeat(request)
	doubt := false // an attempt may have done it
	for n := 1; ; n++ {
		if s.life.Err() != nil {
			return doubted(doubt, engine.ErrClosed)
		}
		if err := ctx.Err(); err != nil {
			return doubted(doubt, err)
		}
		progress, err := attempt(ctx)
		if err == nil {
			return nil
		}
		f := s.judge(ctx, may, err)
		doubt = doubt || errors.Is(f.err, engine.ErrAmbiguous)
		if progress {
			n = 1
		}
		if !f.again || n >= s.o.Attempts {
			return doubted(doubt, f.err)
		}
		wait := f.after + rand.N(min(s.o.MaxBackoff, s.o.Backoff<<min(n-1, 20)))
		if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
			return doubted(doubt, f.err)
		}
		if s.o.Waiting != nil {
			s.o.Waiting(f.err, wait)
		}
		if err := s.pause(ctx, wait); err != nil {
			return fmt.Errorf("%w: %w", err, doubted(doubt, f.err))
		}
	}
}

// doubted is the error of a call of which an earlier attempt had no answer, if its outcome is in
// doubt: an error that concerns only the last attempt does not settle the outcome of the earlier
// one.
func doubted(doubt bool, err error) error {
	if !doubt || errors.Is(err, engine.ErrAmbiguous) {
		return err
	}
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return fmt.Errorf("%w: no answer: %w", engine.ErrAmbiguous, err)
		}
	}
	for _, is := range []error{ErrUnreachable, ErrOverloaded, ErrShuttingDown, ErrUnauthenticated, ErrDenied, engine.ErrUnavailable, engine.ErrClosed} {
		if errors.Is(err, is) { // and means that nothing was done, which must not be said of the whole
			return fmt.Errorf("%w: no answer, and then: %v", engine.ErrAmbiguous, err)
		}
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request makes a request with the credentials.
func request[T any](s *Store, m *T) *connect.Request[T] {
	req := connect.NewRequest(m)
	if s.o.Token != "" {
		req.Header().Set("Authorization", "Bearer "+s.o.Token)
	}
	return req
}

// call makes a call that has one answer.
func call[Req, Res any](ctx context.Context, s *Store,
	do func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), m *Req) (answer *Res, err error) {
	err = s.retry(ctx, m, func(ctx context.Context) (bool, error) {
		if s.o.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.o.Timeout)
			defer cancel()
		}
		res, err := do(ctx, request(s, m))
		if err != nil {
			return false, err
		}
		answer = res.Msg
		return false, nil
	})
	return answer, err
}

// receive makes one attempt at a call that is answered by a stream, and hands over its messages one
// by one until there are no more or each returns an error.
func receive[Req, Res any](ctx context.Context, s *Store,
	open func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), m *Req, each func(*Res) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Close, which would wait for the rest
	defer context.AfterFunc(s.life, cancel)()
	stream, err := open(ctx, request(s, m))
	if err != nil {
		return err
	}
	defer func() { cancel(); stream.Close() }()
	for stream.Receive() {
		if err := each(stream.Msg()); err != nil {
			return err
		}
	}
	return stream.Err()
}
