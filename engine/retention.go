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
)

// RetentionPolicy says what GC removes from every lineage of a tenant, as PruneOptions do. The zero value keeps all.
type RetentionPolicy struct {
	KeepLast     int
	OlderThan    time.Duration // in whole milliseconds, rounded up
	KeepLabelled bool
}

func (p *RetentionPolicy) keepsAll() bool { return p.KeepLast == 0 && p.OlderThan == 0 }

// SetRetention makes p the policy of a tenant from the next GC on; a zero KeepLast and OlderThan remove the policy. It is
// durable when the call returns.
func (s *Store) SetRetention(ctx context.Context, tenant string, p RetentionPolicy) error {
	if err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false)); err != nil {
		return fmt.Errorf("setting retention: %w", err)
	}
	if p.KeepLast < 0 || p.OlderThan < 0 {
		return fmt.Errorf("setting retention: %w: KeepLast and OlderThan must not be negative", ErrInvalid)
	}
	key := s.space.RetentionKey(tenant)
	mut := backend.Mut{Key: key, Delete: true}
	if !p.keepsAll() {
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

// Retention returns the policy of a tenant, the zero value if it has none.
func (s *Store) Retention(ctx context.Context, tenant string) (RetentionPolicy, error) {
	p, err := s.retention(ctx, tenant)
	if err != nil {
		return p, fmt.Errorf("reading retention: %w", err)
	}
	return p, nil
}

func (s *Store) retention(ctx context.Context, tenant string) (RetentionPolicy, error) {
	if err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false)); err != nil {
		return RetentionPolicy{}, err
	}
	key := s.space.RetentionKey(tenant)
	got, err := s.be.Get(ctx, key)
	if err != nil || got[0].Version == "" {
		return RetentionPolicy{}, err
	}
	p, err := unseal(s.space, space.Retention, key, got[0].Value)
	if err != nil {
		return RetentionPolicy{}, err
	}
	return RetentionPolicy{int(p.KeepLast), time.Duration(p.OlderThan) * time.Millisecond, p.KeepLabelled}, nil
}

// wholeMillis is d in milliseconds, rounded up: a time that is not 0 does not become 0, which means something else. The longest
// times are not, since what comes after them is no Duration.
func wholeMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond && ms < math.MaxInt64/int64(time.Millisecond) {
		ms++
	}
	return ms
}
