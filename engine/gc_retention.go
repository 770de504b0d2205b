package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func keepsAll(p upkeep.RetentionPolicy) bool { return p.KeepLast == 0 && p.OlderThan == 0 }

func (s storeUpkeep) SetRetention(ctx context.Context, tenant string, p upkeep.RetentionPolicy) error {
	if err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false)); err != nil {
		return fmt.Errorf("setting retention: %w", err)
	}
	if p.KeepLast < 0 || p.OlderThan < 0 {
		return fmt.Errorf("setting retention: %w: KeepLast and OlderThan must not be negative", ErrInvalid)
	}
	key := s.space.RetentionKey(tenant)
	mut := backend.Mut{Key: key, Delete: true}
	if !keepsAll(p) {
		var err error
		mut, err = sealMut(s.space, space.Retention, key, &codec.Retention{KeepLast: uint64(p.KeepLast),
			OlderThan: uint64(wholeMillis(p.OlderThan)), KeepLabelled: p.KeepLabelled}, space.Once)
		if err != nil {
			return fmt.Errorf("setting retention: %w", err)
		}
	}
	if err := s.commit(ctx, []backend.Mut{mut}, nil); err != nil {
		return fmt.Errorf("setting retention: %w", err)
	}
	return nil
}

func (s storeUpkeep) Retention(ctx context.Context, tenant string) (upkeep.RetentionPolicy, error) {
	p, err := s.retention(ctx, tenant)
	if err != nil {
		return p, fmt.Errorf("reading retention: %w", err)
	}
	return p, nil
}

func (s *Store) retention(ctx context.Context, tenant string) (upkeep.RetentionPolicy, error) {
	if err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false)); err != nil {
		return upkeep.RetentionPolicy{}, err
	}
	key := s.space.RetentionKey(tenant)
	got, err := s.be.Get(ctx, key)
	if err != nil || got[0].Version == "" {
		return upkeep.RetentionPolicy{}, err
	}
	p, err := unseal(s.space, space.Retention, key, got[0].Value)
	if err != nil {
		return upkeep.RetentionPolicy{}, err
	}
	return upkeep.RetentionPolicy{KeepLast: int(p.KeepLast), OlderThan: time.Duration(p.OlderThan) * time.Millisecond,
		KeepLabelled: p.KeepLabelled}, nil
}

// wholeMillis is d in milliseconds, rounded up, so that a nonzero time does not become 0, which has
// another meaning. The longest times are rounded down, to fit into a Duration again.
func wholeMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond && ms < math.MaxInt64/int64(time.Millisecond) {
		ms++
	}
	return ms
}
