package engine

import (
	"context"
	"fmt"
	"iter"
)

func (s storeUpkeep) Tenants(ctx context.Context) iter.Seq2[string, error] {
	return s.listNames(ctx, "listing tenants", func() iter.Seq2[string, error] { return s.keys.Tenants(ctx) })
}

func (s storeUpkeep) Users(ctx context.Context, tenant string) iter.Seq2[string, error] {
	return s.listNames(ctx, "listing users", func() iter.Seq2[string, error] { return s.keys.Users(ctx, tenant) })
}

func (s *Store) listNames(ctx context.Context, what string, list func() iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.ready(ctx); err != nil {
			yield("", fmt.Errorf("%s: %w", what, err))
			return
		}
		for name, err := range list() {
			if err != nil {
				err = fmt.Errorf("%s: %w", what, ofKeys(err))
			}
			if !yield(name, err) {
				return
			}
		}
	}
}

func (u userUpkeep) Create(ctx context.Context) error {
	if _, err := u.keys(ctx, true); err != nil {
		return fmt.Errorf("creating user: %w", err)
	}
	return nil
}
