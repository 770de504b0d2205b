package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/wire"
)

// target is the subject of a request. Without a thread it is a user, without a user a tenant,
// without a tenant the store.
type target struct{ tenant, user, thread string }

// authorize decides about a request by its method and message. It fills in the names that follow
// from the credentials.
func (s *Server) authorize(c *call, m any) (*target, error) {
	rule := c.rule
	if rule == nil {
		return nil, &denial{wire.ErrDenied}
	}
	message, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%w: the request is not a message", engine.ErrInvalid)
	}
	if rule.GetEach() { // the handler decides
		return &target{}, nil
	}
	c.exports = rule.Exports(message)
	now := time.Now()
	t, err := targetOf(c, message, now)
	if err != nil {
		return t, err
	}
	needs := access.PermissionOf(rule.NeedsFor(message))
	if err := s.allow(c, needs, rule.GetOn(), t, now); err != nil {
		return t, err
	}
	if thread, ok := rule.Also(message); ok {
		return t, s.allow(c, needs, ckptdv1.Scope_SCOPE_THREAD, &target{t.tenant, t.user, thread}, now)
	}
	return t, nil
}

// allow decides whether the caller has a permission where it is needed.
func (s *Server) allow(c *call, p access.Permission, on ckptdv1.Scope, t *target, now time.Time) error {
	switch on {
	case ckptdv1.Scope_SCOPE_NOTHING, ckptdv1.Scope_SCOPE_GRANTS: // of the grants those that deal with them decide
		return nil
	case ckptdv1.Scope_SCOPE_THREADS:
		if t.thread != "" {
			break
		}
		prefixes, all := c.caller.Prefixes(p, t.tenant, t.user, now)
		switch {
		case all:
			return nil
		case len(prefixes) > 0:
			c.visible = beginsWith(prefixes)
			return nil
		}
	}
	if c.caller.May(p, t.tenant, t.user, t.thread, now) {
		return nil
	}
	return refuse(c.caller, p, t, now)
}

func beginsWith(prefixes []string) func(string) bool {
	return func(thread string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(thread, p) {
				return true
			}
		}
		return false
	}
}

// refuse tells a caller with some right on the target that this right is missing, and gives
// everybody else the same answer as if the target did not exist.
func refuse(c *access.Caller, needs access.Permission, t *target, now time.Time) error {
	for p := access.Read; p <= access.Audit; p <<= 1 {
		if t.tenant == "" || c.May(p, t.tenant, t.user, t.thread, now) {
			return &denial{fmt.Errorf("%w: missing the right to %v%s", wire.ErrDenied, needs, takes(needs, t))}
		}
	}
	return &denial{engine.ErrNotFound}
}

// takes names the roles that have a permission, and for whom they must be granted.
func takes(needs access.Permission, t *target) string {
	var roles []string
	for _, r := range access.Roles() {
		if r.Permissions()&needs == needs {
			roles = append(roles, string(r))
		}
	}
	scope := ""
	if t.tenant == "" {
		scope = " for every tenant"
	} else if t.user == "" {
		scope = " for every user of the tenant"
	}
	return ", which takes the role " + strings.Join(roles, " or ") + scope
}

// targetOf finds the target of a request. An omitted tenant or user defaults to the one that all
// grants of the caller are for.
func targetOf(c *call, message proto.Message, now time.Time) (*target, error) {
	if t, ok := fullyNamed(message); ok {
		return t, nil
	}
	names := message.ProtoReflect()
	if ref := names.Descriptor().Fields().ByName("ref"); ref != nil {
		names = names.Mutable(ref).Message()
	}
	t := &target{}
	tenant, user := c.caller.Only(now)
	whole := c.rule.WholeTenant(message)
	switch c.rule.GetOn() {
	case ckptdv1.Scope_SCOPE_STORE, ckptdv1.Scope_SCOPE_NAMED:
		tenant, user = "", ""
	case ckptdv1.Scope_SCOPE_TENANT:
		user = ""
	}
	t.tenant = complete(names, "tenant", tenant)
	if !whole {
		t.user = complete(names, "user", user)
	}
	t.thread = complete(names, "thread", "")
	if missing := t.missing(c.rule.GetOn(), whole || c.rule.AnyUser(message)); missing != "" {
		if missing != "thread" {
			missing += ", and the credentials are not for exactly one"
		}
		return t, fmt.Errorf("%w: the request names no %s", engine.ErrInvalid, missing)
	}
	return t, nil
}

// fullyNamed is targetOf for the requests that come by the thousand.
func fullyNamed(m any) (*target, bool) {
	r, ok := m.(interface{ GetRef() *ckptdv1.Ref })
	if !ok {
		return nil, false
	}
	ref := r.GetRef()
	t := &target{ref.GetTenant(), ref.GetUser(), ref.GetThread()}
	return t, t.tenant != "" && t.user != "" && t.thread != ""
}

// complete returns the value of a field of a message, which is set if it is empty.
func complete(m protoreflect.Message, field protoreflect.Name, value string) string {
	fd := m.Descriptor().Fields().ByName(field)
	if fd == nil {
		return ""
	}
	if have := m.Get(fd).String(); have != "" || value == "" {
		return have
	}
	m.Set(fd, protoreflect.ValueOfString(value))
	return value
}

// missing returns the name that a request must give and does not.
func (t *target) missing(on ckptdv1.Scope, anyUser bool) string {
	switch on {
	case ckptdv1.Scope_SCOPE_NOTHING, ckptdv1.Scope_SCOPE_GRANTS, ckptdv1.Scope_SCOPE_STORE, ckptdv1.Scope_SCOPE_NAMED:
		return ""
	}
	switch {
	case t.tenant == "":
		return "tenant"
	case on == ckptdv1.Scope_SCOPE_TENANT || anyUser:
		return ""
	case t.user == "":
		return "user"
	case on == ckptdv1.Scope_SCOPE_THREAD && t.thread == "":
		return "thread"
	}
	return ""
}

// authorizeSave decides about one save of a batch.
func (s *Server) authorizeSave(ctx context.Context, m *ckptdv1.SaveRequest) error {
	c := *callOf(ctx)
	c.procedure = ckptdv1.CheckpointServiceSaveProcedure
	c.rule = s.api.Method(c.procedure)
	t, err := s.authorize(&c, m)
	if _, ok := errors.AsType[*denial](err); ok {
		s.record(&c, t, audit.Denied, err)
	}
	return err
}

// authorizeAgain checks a long-running request again: the credentials may have been revoked or have
// expired since.
func (s *Server) authorizeAgain(ctx context.Context, m any) error {
	c := callOf(ctx)
	caller, err := s.access.Load().Authenticate(ctx, c.credentials)
	if err != nil {
		return err
	}
	c.caller = caller
	_, err = s.authorize(c, m)
	return err
}
