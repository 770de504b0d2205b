package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"
)

// pages is a list that comes in messages, each with a token that resumes the list behind it.
type pages[Req, Res, T any] struct {
	limit  int // maximum number of items; 0 means unlimited
	open   func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error)
	ask    func(left uint32, token string) *Req
	unpack func(*Res) (items []T, next string, err error)
}

// all yields the items one by one. When the connection breaks, it resumes after the last complete
// message.
func (p pages[Req, Res, T]) all(ctx context.Context, s *Store) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token, left, complete := "", p.limit, false
		err := s.retry(ctx, new(Req), func(ctx context.Context) (progress bool, err error) {
			err = receive(ctx, s, p.open, p.ask(uint32(left), token), func(m *Res) error {
				if complete {
					return errEnough
				}
				items, next, err := p.unpack(m)
				if err != nil {
					return err
				}
				progress, token = true, next
				for i := 0; i < len(items) && !complete; i++ {
					if !yield(items[i], nil) {
						return errEnough
					}
					left--
					complete = left == 0 // never, if there was no limit
				}
				complete = complete || next == ""
				return nil
			})
			if complete && err != errEnough { // whatever became of the connection behind the end
				err = nil
			}
			return progress, err
		})
		if err != nil && err != errEnough {
			var none T
			yield(none, err)
		}
	}
}

// eachOf maps the messages of a page.
func eachOf[M, T any](ms []M, unpack func(M) (T, error)) ([]T, error) {
	items := make([]T, len(ms))
	for i, m := range ms {
		var err error
		if items[i], err = unpack(m); err != nil {
			return nil, err
		}
	}
	return items, nil
}
