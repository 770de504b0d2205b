package server

import (
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/wire"
)

// packGrants makes the messages of grants.
func packGrants(gs []access.Grant) []*ckptdv1.Grant {
	var ms []*ckptdv1.Grant
	for _, g := range gs {
		ms = append(ms, &ckptdv1.Grant{Role: string(g.Role), Tenant: g.Tenant, User: g.User, ThreadPrefix: g.ThreadPrefix, Expires: wire.PackTime(g.Expires)})
	}
	return ms
}

// unpackGrants is the inverse of packGrants.
func unpackGrants(ms []*ckptdv1.Grant) []access.Grant {
	var gs []access.Grant
	for _, m := range ms {
		expires := wire.UnpackTime(m.GetExpires())
		if m.GetExpires() != nil && expires.IsZero() {
			expires = time.Unix(0, 0) // the zero time means never, which the caller did not ask for
		}
		gs = append(gs, access.Grant{Role: access.Role(m.GetRole()), Tenant: m.GetTenant(), User: m.GetUser(), ThreadPrefix: m.GetThreadPrefix(), Expires: expires})
	}
	return gs
}

// packToken makes the message of a token.
func packToken(t access.Token) *ckptdv1.Token {
	return &ckptdv1.Token{Id: t.ID, Note: t.Note, Grants: packGrants(t.Grants), Created: wire.PackTime(t.Created), MadeBy: t.MadeBy}
}
