// Package access authenticates callers and authorizes their requests.
//
// A Caller has grants; each gives a role in a scope: a tenant, a user of it, threads whose names
// begin with a prefix. The permission and scope that a method needs are in its .proto file. An
// Authenticator identifies the caller: by a bearer token, a JSON web token, a client certificate,
// or the uid at the other end of a Unix socket.
//
// Whatever is not granted is refused. Nothing in this package logs, and callers are named by
// pseudonyms.
package access

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
)

// Permission is a set of things that may be done.
type Permission uint8

// The permissions.
const (
	Read     Permission = 1 << iota // states, pending writes and blobs
	Inspect                         // metadata: headers, lists, statistics, whether the data is intact
	Write                           // save, delete, prune, copy
	Annotate                        // labels, branches and pending writes, as needed to approve and resume a paused run
	Manage                          // retention, garbage collection, users
	Issue                           // tokens
	Audit                           // the audit log
)

// PermissionOf is the permission that the rule of a method names.
func PermissionOf(p ckptdv1.Permission) Permission { return 1 << p >> 1 }

// String names the permissions as docs/api.md does.
func (p Permission) String() string {
	var names []string
	for i, name := range []string{"read", "inspect", "write", "annotate", "manage", "issue", "audit"} {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// Role is a named set of permissions.
type Role string

// The roles.
const (
	Reader   Role = "reader"
	Writer   Role = "writer"
	Approver Role = "approver"
	Auditor  Role = "auditor"
	Admin    Role = "admin"
)

// Roles returns all roles, the lesser ones first.
func Roles() []Role { return []Role{Reader, Approver, Writer, Auditor, Admin} }

// Permissions returns the permissions of the role: none for an unknown role.
func (r Role) Permissions() Permission {
	switch r {
	case Reader:
		return Read | Inspect
	case Approver:
		return Read | Inspect | Annotate
	case Writer:
		return Read | Inspect | Annotate | Write
	case Auditor:
		return Inspect | Audit
	case Admin:
		return Read | Inspect | Write | Annotate | Manage | Issue | Audit
	}
	return 0
}

// Any is the tenant or user of a grant for every tenant or user. In a grant it never means one that
// is called so.
const Any = "*"

// Grant gives a role in a scope.
type Grant struct {
	Role         Role      `json:"role" toml:"role"`
	Tenant       string    `json:"tenant" toml:"tenant"`                         // or Any
	User         string    `json:"user" toml:"user"`                             // or Any
	ThreadPrefix string    `json:"thread_prefix,omitempty" toml:"thread-prefix"` // "" is every thread
	Expires      time.Time `json:"expires,omitzero" toml:"expires"`              // zero is never
}

// Everything returns the grant of an admin without limits.
func Everything() Grant { return Grant{Role: Admin, Tenant: Any, User: Any} }

// Validate reports an invalid grant. Its errors match engine.ErrInvalid.
func (g Grant) Validate() error {
	switch {
	case g.Role.Permissions() == 0:
		return fmt.Errorf("%w: unknown role %q: want reader, approver, writer, auditor or admin", engine.ErrInvalid, g.Role)
	case g.Tenant == "":
		return fmt.Errorf(`%w: a grant names no tenant, want a name or "*" for every tenant`, engine.ErrInvalid)
	case g.User == "":
		return fmt.Errorf(`%w: a grant names no user, want a name or "*" for every user`, engine.ErrInvalid)
	case g.Tenant == Any && g.User != Any:
		return fmt.Errorf("%w: a grant for one user needs a tenant: user names are per tenant", engine.ErrInvalid)
	case !g.Expires.IsZero() && (g.Expires.Year() < 1970 || g.Expires.Year() > 9999):
		return fmt.Errorf("%w: a grant expires in the year %d", engine.ErrInvalid, g.Expires.Year())
	}
	for _, name := range []string{g.Tenant, g.User, g.ThreadPrefix} {
		if len(name) > engine.MaxName || !utf8.ValidString(name) {
			return fmt.Errorf("%w: a name in a grant is not UTF-8 of at most %d bytes", engine.ErrInvalid, engine.MaxName)
		}
	}
	return nil
}

// String formats a grant for people, without its expiry.
func (g Grant) String() string {
	s := string(g.Role) + " of "
	switch {
	case g.Tenant == Any:
		s += "every tenant"
	case g.User == Any:
		s += fmt.Sprintf("tenant %s, every user", g.Tenant)
	default:
		s += fmt.Sprintf("tenant %s, user %s", g.Tenant, g.User)
	}
	if g.ThreadPrefix != "" {
		s += fmt.Sprintf(", threads %s…", g.ThreadPrefix)
	}
	return s
}

// live reports whether the grant has not expired.
func (g Grant) live(now time.Time) bool { return g.Expires.IsZero() || now.Before(g.Expires) }

// reaches reports whether the grant, whatever its thread prefix, is for a user; "" is all users, or
// all tenants.
func (g Grant) reaches(tenant, user string) bool {
	return (g.Tenant == Any || tenant != "" && g.Tenant == tenant) && (g.User == Any || user != "" && g.User == user)
}

// Caller is an authenticated caller. It is immutable and safe for concurrent use.
type Caller struct {
	// Name goes into the audit log: token:ID, peer:UID, certificate:PSEUDONYM or jwt:PSEUDONYM. It
	// never names a person.
	Name   string
	Grants []Grant
}

// May reports whether the caller has the permission for a thread. An empty thread asks for the user
// with all threads, an empty user for the whole tenant, and an empty tenant for the whole store.
func (c *Caller) May(p Permission, tenant, user, thread string, now time.Time) bool {
	for i := range c.Grants {
		g := &c.Grants[i]
		if g.Role.Permissions()&p == p && g.live(now) && g.reaches(tenant, user) &&
			strings.HasPrefix(thread, g.ThreadPrefix) {
			return true
		}
	}
	return false
}

// Prefixes returns the name prefixes of the threads that the caller has the permission for, among
// those of a user or, if user is empty, of all users of a tenant. all means every thread; no
// prefixes without all means no thread.
func (c *Caller) Prefixes(p Permission, tenant, user string, now time.Time) (prefixes []string, all bool) {
	for _, g := range c.Grants {
		if g.Role.Permissions()&p != p || !g.live(now) || !g.reaches(tenant, user) {
			continue
		}
		if g.ThreadPrefix == "" {
			return nil, true
		}
		prefixes = append(prefixes, g.ThreadPrefix)
	}
	return prefixes, false
}

// Only returns the tenant that all grants are for, and the user, or "" if there are several. They
// are the defaults for names that a request omits.
func (c *Caller) Only(now time.Time) (tenant, user string) {
	first := true
	for _, g := range c.Grants {
		switch {
		case !g.live(now):
		case first:
			tenant, user, first = g.Tenant, g.User, false
		default:
			if g.Tenant != tenant {
				tenant, user = "", ""
			}
			if g.User != user {
				user = ""
			}
		}
	}
	if tenant == Any {
		tenant = ""
	}
	if user == Any {
		user = ""
	}
	return tenant, user
}

// MayGive reports whether the caller may give a grant to others: only one that lies within its own
// grants and expires no later.
func (c *Caller) MayGive(g Grant, now time.Time) bool { return c.gives(g, now, true) }

// MayTake reports whether the caller may see and revoke a grant of others: any grant it could have
// given, whatever its expiry.
func (c *Caller) MayTake(g Grant, now time.Time) bool { return c.gives(g, now, false) }

func (c *Caller) gives(g Grant, now time.Time, lasting bool) bool {
	for _, own := range c.Grants {
		if own.Role.Permissions()&Issue == 0 || !own.live(now) || g.Role.Permissions()&^own.Role.Permissions() != 0 {
			continue
		}
		within := (own.Tenant == Any || own.Tenant == g.Tenant) && (own.User == Any || own.User == g.User) &&
			strings.HasPrefix(g.ThreadPrefix, own.ThreadPrefix)
		outlives := !own.Expires.IsZero() && (g.Expires.IsZero() || g.Expires.After(own.Expires))
		if within && !(lasting && outlives) {
			return true
		}
	}
	return false
}

// live reports whether a grant has not expired.
func (c *Caller) live(now time.Time) bool {
	for i := range c.Grants {
		if c.Grants[i].live(now) {
			return true
		}
	}
	return false
}

// validate checks the grants of a caller or a token.
func validate(grants []Grant) error {
	if len(grants) == 0 {
		return fmt.Errorf("%w: no grants: give at least one", engine.ErrInvalid)
	}
	if len(grants) > maxGrants {
		return fmt.Errorf("%w: %d grants, at most %d are allowed", engine.ErrInvalid, len(grants), maxGrants)
	}
	var errs []error
	for _, g := range grants {
		errs = append(errs, g.Validate())
	}
	return errors.Join(errs...)
}
