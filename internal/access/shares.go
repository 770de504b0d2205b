package access

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// share is the share of a store's tokens, in thousandths of their number and bytes, that a tenant
// or a user can have. An empty tenant means all tenants, an empty user all users of the tenant.
type share struct {
	tenant, user string
	thousandths  int
}

// shares are the limits that a new token must fit into. Issuers for every tenant have the whole
// capacity, a tenth of which is reserved for them. Issuers for one tenant share a tenth, and
// issuers for one user share a hundredth, with all others for the same tenant or user; a tenth of
// the tenant's share is reserved for issuers for the whole tenant. So nobody uses up the capacity
// of those above them.
func (c *Caller) shares(grants []Grant, now time.Time) []share {
	var all []share
	for _, g := range grants {
		switch {
		case c.givesAs(g, Any, Any, now):
			continue
		case c.givesAs(g, g.Tenant, Any, now):
			all = append(all, share{g.Tenant, "", 100})
		default:
			all = append(all, share{g.Tenant, g.User, 10}, share{g.Tenant, "", 90})
		}
		all = append(all, share{"", "", 900})
	}
	return all
}

// givesAs reports whether a grant of the caller for just this tenant and user gives g.
func (c *Caller) givesAs(g Grant, tenant, user string, now time.Time) bool {
	for _, own := range c.Grants {
		if own.Tenant == tenant && own.User == user && (&Caller{Grants: []Grant{own}}).MayGive(g, now) {
			return true
		}
	}
	return false
}

// covers reports whether a token counts.
func (s share) covers(t *storedToken) bool {
	for _, g := range t.Grants {
		if s.tenant == "" || g.Tenant == s.tenant && (s.user == "" || g.User == s.user) {
			return true
		}
	}
	return false
}

// check reports whether there is room for another token.
func (s share) check(tokens []storedToken) error {
	number, bytes := 0, 0
	for i := range tokens {
		if !s.covers(&tokens[i]) {
			continue
		}
		number++
		text, err := json.Marshal(&tokens[i])
		if err != nil {
			return fmt.Errorf("counting tokens: %w", err)
		}
		bytes += len(text)
	}
	if number < maxTokens*s.thousandths/1000 && bytes < maxTokenFile*s.thousandths/1000 {
		return nil
	}
	whose := "of the store"
	if s.tenant != "" {
		whose = fmt.Sprintf("of tenant %s", s.tenant)
	}
	if s.user != "" {
		whose += fmt.Sprintf(", user %s,", s.user)
	}
	return fmt.Errorf("%w: the tokens %s reach the limit of this right (%d tokens, %d bytes): revoke some", engine.ErrInvalid, whose, number, bytes)
}
