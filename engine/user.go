package engine

import "context"

// User is a handle on one user. It is cheap to make and holds nothing open.
type User struct {
	s    *Store
	name userName
}

// User returns the handle of a user. What is wrong with the names is reported by the methods.
func (s *Store) User(tenant, name string) *User { return &User{s, userName{tenant, name}} }

// keys returns what the engine derived from the user's keys.
func (u *User) keys(ctx context.Context, create bool) (*user, error) {
	if err := (Ref{Tenant: u.name.tenant, User: u.name.name, Thread: "-"}).check(); err != nil {
		return nil, err
	}
	return u.s.user(ctx, u.name, create)
}
