package client

import (
	"context"
	"iter"
	"math"
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/wire"
)

// Grant gives its holder the rights of a role, for a tenant, a user and threads.
type Grant struct {
	Role         string // reader, writer, approver, auditor or admin
	Tenant, User string // "*" is every one
	ThreadPrefix string // if set, only threads whose names begin with it
	Expires      time.Time
}

// Token is a bearer token without its secret.
type Token struct {
	ID, Note string
	Grants   []Grant
	Created  time.Time
	MadeBy   string // token:ID, peer:UID, certificate:… or jwt:…, "" for the first of a store
}

// AuditEntry is a line of the audit log of the server. Known names replace their pseudonyms.
type AuditEntry struct {
	Number               uint64
	Time                 time.Time
	Kind, Method, Caller string
	Tenant, User, Thread string
	About                string // any other subject, such as a token
	Code                 string // RPC code of the answer
	Count                int    // count, if it was repeated several times in a row
}

func packGrants(gs []Grant) []*ckptdv1.Grant {
	var ms []*ckptdv1.Grant
	for _, g := range gs {
		ms = append(ms, &ckptdv1.Grant{Role: g.Role, Tenant: g.Tenant, User: g.User, ThreadPrefix: g.ThreadPrefix, Expires: wire.PackTime(g.Expires)})
	}
	return ms
}

func unpackGrants(ms []*ckptdv1.Grant) []Grant {
	var gs []Grant
	for _, m := range ms {
		gs = append(gs, Grant{m.GetRole(), m.GetTenant(), m.GetUser(), m.GetThreadPrefix(), wire.UnpackTime(m.GetExpires())})
	}
	return gs
}

func unpackToken(m *ckptdv1.Token) Token {
	return Token{m.GetId(), m.GetNote(), unpackGrants(m.GetGrants()), wire.UnpackTime(m.GetCreated()), m.GetMadeBy()}
}

// CreateToken makes a bearer token. The secret is shown this once; the server keeps only its hash.
func (s *Store) CreateToken(ctx context.Context, note string, grants ...Grant) (t Token, secret string, err error) {
	m, err := call(ctx, s, s.admin.CreateToken, &ckptdv1.CreateTokenRequest{Note: note, Grants: packGrants(grants)})
	return unpackToken(m.GetToken()), m.GetSecret(), err
}

// Tokens returns the tokens that there are.
func (s *Store) Tokens(ctx context.Context) ([]Token, error) {
	m, err := call(ctx, s, s.admin.ListTokens, &ckptdv1.ListTokensRequest{})
	var ts []Token
	for _, t := range m.GetTokens() {
		ts = append(ts, unpackToken(t))
	}
	return ts, err
}

// RevokeToken makes a token invalid at once, and with it those that were made with it, unless they
// are to be kept. The ids of all of them are returned.
func (s *Store) RevokeToken(ctx context.Context, id string, keepChildren bool) (revoked []string, err error) {
	m, err := call(ctx, s, s.admin.RevokeToken, &ckptdv1.RevokeTokenRequest{Id: id, KeepChildren: keepChildren})
	return m.GetRevoked(), err
}

// WhoAmI returns the caller's name on the server, such as token:ID, and its rights.
func (s *Store) WhoAmI(ctx context.Context) (caller string, grants []Grant, err error) {
	m, err := call(ctx, s, s.admin.WhoAmI, &ckptdv1.WhoAmIRequest{})
	return m.GetCaller(), unpackGrants(m.GetGrants()), err
}

// Status returns statistics of the server.
func (s *Store) Status(ctx context.Context) (*ckptdv1.GetStatusResponse, error) {
	return call(ctx, s, s.admin.GetStatus, &ckptdv1.GetStatusRequest{})
}

// ReadAudit yields the entries of the audit log since a time, the oldest first. After an error it
// ends.
func (s *Store) ReadAudit(ctx context.Context, since time.Time) iter.Seq2[AuditEntry, error] {
	return func(yield func(AuditEntry, error) bool) {
		req, last := &ckptdv1.ReadAuditRequest{Since: wire.PackTime(since)}, uint64(0)
		err := s.retry(ctx, req, func(ctx context.Context) (progress bool, err error) {
			err = receive(ctx, s, s.admin.ReadAudit, req, func(m *ckptdv1.ReadAuditResponse) error {
				for _, e := range m.GetEntries() {
					if e.GetNumber() <= last {
						continue
					}
					progress, last = true, e.GetNumber()
					if !yield(unpackEntry(e), nil) {
						return errEnough
					}
				}
				return nil
			})
			return progress, err
		})
		if err != nil && err != errEnough {
			yield(AuditEntry{}, err)
		}
	}
}

func unpackEntry(m *ckptdv1.AuditEntry) AuditEntry {
	return AuditEntry{Number: m.GetNumber(), Time: wire.UnpackTime(m.GetTime()), Kind: m.GetKind(), Method: m.GetMethod(), Caller: m.GetCaller(),
		Tenant: m.GetTenant(), User: m.GetUser(), Thread: m.GetThread(), About: m.GetAbout(), Code: m.GetCode(), Count: int(min(m.GetCount(), math.MaxInt32))}
}
