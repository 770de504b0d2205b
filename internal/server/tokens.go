package server

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/wire"
)

func (s admin) WhoAmI(ctx context.Context, _ *connect.Request[ckptdv1.WhoAmIRequest]) (*connect.Response[ckptdv1.WhoAmIResponse], error) {
	caller := callOf(ctx).caller
	return connect.NewResponse(&ckptdv1.WhoAmIResponse{Caller: caller.Name, Grants: packGrants(caller.Grants)}), nil
}

// CreateToken gives away no more than the caller has.
func (s admin) CreateToken(ctx context.Context, req *connect.Request[ckptdv1.CreateTokenRequest]) (*connect.Response[ckptdv1.CreateTokenResponse], error) {
	grants, now := unpackGrants(req.Msg.GetGrants()), time.Now()
	if !issues(callOf(ctx).caller, now) {
		return nil, &denial{fmt.Errorf("%w: only the role admin can create tokens", wire.ErrDenied)}
	}
	for _, g := range grants {
		if err := g.Validate(); err != nil {
			return nil, err
		}
		if !callOf(ctx).caller.MayGive(g, now) {
			return nil, &denial{fmt.Errorf("%w: you cannot grant a right that you do not have: %v", wire.ErrDenied, g)}
		}
	}
	token, secret, err := s.tokens.Issue(callOf(ctx).caller, req.Msg.GetNote(), grants, now)
	if err != nil {
		return nil, err
	}
	callOf(ctx).about = token.Summary()
	return connect.NewResponse(&ckptdv1.CreateTokenResponse{Token: packToken(token), Secret: secret}), nil
}

// ListTokens returns those tokens that the caller could take back.
func (s admin) ListTokens(ctx context.Context, _ *connect.Request[ckptdv1.ListTokensRequest]) (*connect.Response[ckptdv1.ListTokensResponse], error) {
	res := &ckptdv1.ListTokensResponse{}
	if !issues(callOf(ctx).caller, time.Now()) {
		return nil, &denial{wire.ErrDenied}
	}
	for _, t := range s.tokens.List() {
		if mayTake(ctx, t) {
			res.Tokens = append(res.Tokens, packToken(t))
		}
	}
	return connect.NewResponse(res), nil
}

// RevokeToken answers the same for a token that the caller must not revoke as for one that does not
// exist. A caller who may revoke a token may also revoke the tokens created with it, which have no
// more rights.
func (s admin) RevokeToken(ctx context.Context, req *connect.Request[ckptdv1.RevokeTokenRequest]) (*connect.Response[ckptdv1.RevokeTokenResponse], error) {
	if !issues(callOf(ctx).caller, time.Now()) {
		return nil, &denial{wire.ErrDenied}
	}
	t, err := s.tokens.Get(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	callOf(ctx).about = t.Summary()
	if !mayTake(ctx, t) {
		return nil, &denial{engine.ErrNotFound}
	}
	revoked, err := s.tokens.Revoke(t.ID, req.Msg.GetKeepChildren())
	if err != nil {
		return nil, err
	}
	if n := len(revoked) - 1; n > 0 {
		callOf(ctx).about += fmt.Sprintf(" and %d made with it", n)
	}
	return connect.NewResponse(&ckptdv1.RevokeTokenResponse{Revoked: revoked}), nil
}

func mayTake(ctx context.Context, t access.Token) bool {
	for _, g := range t.Grants {
		if !callOf(ctx).caller.MayTake(g, time.Now()) {
			return false
		}
	}
	return true
}

// issues reports whether the caller deals with tokens at all.
func issues(c *access.Caller, now time.Time) bool {
	for _, g := range c.Grants {
		if g.Role.Permissions()&access.Issue != 0 && (g.Expires.IsZero() || now.Before(g.Expires)) {
			return true
		}
	}
	return false
}

func (s admin) ReadAudit(ctx context.Context, req *connect.Request[ckptdv1.ReadAuditRequest], stream *connect.ServerStream[ckptdv1.ReadAuditResponse]) error {
	if s.audit == nil {
		return fmt.Errorf("%w: the server keeps no audit log", engine.ErrNotFound)
	}
	names, err := s.auditNames(ctx)
	if err != nil {
		return err
	}
	since := wire.UnpackTime(req.Msg.GetSince())
	var page []*ckptdv1.AuditEntry
	for e, err := range s.audit.Entries() {
		if err != nil {
			return err
		}
		if e.Time.Before(since) {
			continue
		}
		page = append(page, &ckptdv1.AuditEntry{Number: e.Number, Time: timestamppb.New(e.Time), Kind: string(e.Kind), Method: e.Method, Caller: e.Caller,
			Tenant: names.of(e.Tenant), User: names.of(e.User), Thread: names.of(e.Thread), About: e.About, Code: e.Code, Count: uint64(e.Count)})
		if len(page) == 256 {
			if err := stream.Send(&ckptdv1.ReadAuditResponse{Entries: page}); err != nil {
				return err
			}
			page = nil
		}
	}
	return stream.Send(&ckptdv1.ReadAuditResponse{Entries: page})
}
