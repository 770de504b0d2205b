package engine

import (
	"context"
	"fmt"
	"iter"
)

// Tenants yields the tenants that have users, in no particular order. A tenant whose name cannot be read is an error in
// the sequence, which goes on after it.
func (s *Store) Tenants(ctx context.Context) iter.Seq2[string, error] {
	return s.names(ctx, "listing tenants", func() iter.Seq2[string, error] { return s.keys.Tenants(ctx) })
}

// Users yields the users of a tenant that have keys, in no particular order. A user whose keys cannot be read is an
// error in the sequence, which goes on after it.
func (s *Store) Users(ctx context.Context, tenant string) iter.Seq2[string, error] {
	return s.names(ctx, "listing users", func() iter.Seq2[string, error] { return s.keys.Users(ctx, tenant) })
}

func (s *Store) names(ctx context.Context, what string, list func() iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.ready(ctx); err != nil {
			yield("", fmt.Errorf("%s: %w", what, err))
			return
		}
		for name, err := range list() {
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
			if !yield(name, err) {
				return
			}
		}
	}
}

// Create makes the keys of the user, durably, unless there are some. A first save does so as well.
func (u *User) Create(ctx context.Context) error {
	if _, err := u.keys(ctx, true); err != nil {
		return fmt.Errorf("creating user: %w", err)
	}
	return nil
}
