package server

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ckptd/ckptd/engine"
)

// guard stands before every handler: no request reaches one that its caller may not make. It fills
// in the tenant and user that a request leaves out, and packs the error of the answer.
type guard struct{ *Server }

func (g *guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		c := callOf(ctx)
		ctx, cancel := context.WithTimeout(ctx, g.limits.Load().RequestTimeout)
		defer cancel()
		message := req.Any().(proto.Message)
		if c.body.grows > 1 {
			c.body.decoded(int64(proto.Size(message)))
		}
		c.account.copies = answerCopies
		ctx = engine.WithBudget(ctx, c.account)
		target, err := g.authorize(c, message)
		var res connect.AnyResponse
		if err == nil {
			err = g.forTenant(target.tenant, func() (err error) {
				if res, err = next(ctx, req); err == nil {
					err = payForAnswer(c, req.Spec(), res.Any())
				}
				return err
			})
		}
		if err = g.finish(ctx, c, target, err); err != nil {
			return nil, err
		}
		return res, nil
	}
}

// payForAnswer pays for an answer before it is encoded. A request that changed something is
// answered in any case: an error would mean that nothing was done.
func payForAnswer(c *call, spec connect.Spec, answer any) error {
	err := c.account.answer(int64(proto.Size(answer.(proto.Message))))
	if spec.IdempotencyLevel != connect.IdempotencyNoSideEffects {
		return nil
	}
	return err
}

// forTenant calls f if the tenant has not reached its limit. It gives the place back even if f
// panics.
func (g *guard) forTenant(tenant string, f func() error) error {
	if tenant == "" {
		return f()
	}
	if err := g.gate.enterTenant(g.limits.Load(), tenant); err != nil {
		return err
	}
	defer g.gate.leaveTenant(tenant)
	return f()
}

func (g *guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (g *guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		guarded := &guardedConn{StreamingHandlerConn: conn, g: g, c: callOf(ctx)}
		defer guarded.leave()
		err := next(engine.WithBudget(ctx, guarded.c.account), guarded)
		switch {
		case guarded.refused != nil:
			err = guarded.refused
		case guarded.target == nil && connect.CodeOf(err) == connect.CodeInternal: // the library could not read it
			err = connect.NewError(connect.CodeInvalidArgument, errors.New("the request is not one message in an envelope"))
		}
		return g.finish(ctx, guarded.c, guarded.target, err)
	}
}

// guardedConn authorizes the first message of a stream, and hands out none unless that succeeds.
type guardedConn struct {
	connect.StreamingHandlerConn
	g       *guard
	c       *call
	once    sync.Once
	target  *target
	entered bool // counted as in flight for the tenant
	refused error
}

func (s *guardedConn) Receive(m any) error {
	if err := s.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	if message, ok := m.(proto.Message); ok {
		s.c.body.decoded(int64(proto.Size(message)))
	}
	s.once.Do(func() { s.refused = s.enter(m) })
	return s.refused
}

// Send pays for a message as long as it is sent.
func (s *guardedConn) Send(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return s.StreamingHandlerConn.Send(m)
	}
	size := int64(proto.Size(message))
	switch err := s.c.account.take(size); {
	case err == nil:
		defer s.c.account.give(size)
	case s.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects:
		return err
	}
	return s.StreamingHandlerConn.Send(m)
}

func (s *guardedConn) enter(m any) (err error) {
	if s.target, err = s.g.authorize(s.c, m); err != nil || s.target.tenant == "" || s.c.endless() {
		return err
	}
	err = s.g.gate.enterTenant(s.g.limits.Load(), s.target.tenant)
	s.entered = err == nil
	return err
}

func (s *guardedConn) leave() {
	if s.entered {
		s.g.gate.leaveTenant(s.target.tenant)
	}
}

// denial is a refusal that goes to the audit log. The caller gets the error that it wraps.
type denial struct{ shown error }

func (d *denial) Error() string { return d.shown.Error() }
func (d *denial) Unwrap() error { return d.shown }
