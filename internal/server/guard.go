package server

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// guard stands before every handler: no request reaches one that its caller may not make. It fills in the tenant and user
// that a request leaves out, and packs the error of the answer.
type guard struct{ *Server }

func (g *guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		c, began := callOf(ctx), time.Now()
		ctx, cancel := context.WithTimeout(ctx, g.limits.Load().RequestTimeout)
		defer cancel()
		target, err := g.authorize(c, req.Any())
		var res connect.AnyResponse
		if err == nil {
			if err = g.enterTenant(target.tenant); err == nil {
				res, err = next(ctx, req)
				g.leaveTenant(target.tenant)
			}
		}
		if err = g.finish(ctx, c, target, began, err); err != nil {
			return nil, err
		}
		return res, nil
	}
}

func (g *guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (g *guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c, began := callOf(ctx), time.Now()
		guarded := &guardedConn{StreamingHandlerConn: conn, g: g, c: c}
		err := next(ctx, guarded)
		if guarded.entered {
			g.leaveTenant(guarded.target.tenant)
		}
		if guarded.refused != nil {
			err = guarded.refused
		}
		return g.finish(ctx, c, guarded.target, began, err)
	}
}

// guardedConn authorizes the first message of a stream, and hands out none unless that succeeds.
type guardedConn struct {
	connect.StreamingHandlerConn
	g       *guard
	c       *call
	once    sync.Once
	target  *target
	entered bool
	refused error
}

func (s *guardedConn) Receive(m any) error {
	if err := s.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	s.once.Do(func() {
		if s.target, s.refused = s.g.authorize(s.c, m); s.refused == nil && !endless(s.c.procedure) {
			s.refused = s.g.enterTenant(s.target.tenant)
			s.entered = s.refused == nil
		}
	})
	return s.refused
}

func (s *Server) enterTenant(tenant string) error {
	if tenant == "" {
		return nil
	}
	return s.gate.enterTenant(s.limits.Load(), tenant)
}

func (s *Server) leaveTenant(tenant string) {
	if tenant != "" {
		s.gate.leaveTenant(tenant)
	}
}

// denial is a refusal that goes to the audit log. The caller is shown what it matches.
type denial struct{ shown error }

func (d *denial) Error() string { return d.shown.Error() }
func (d *denial) Unwrap() error { return d.shown }
