package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// index removes the index entries of users that point to no record.
func (g *collection) index(ctx context.Context, users map[crypto.Token]string) error {
	r := g.s.space.OfTenant(g.tenant)
	r.KeysOnly = true
	var errs []error
	var keys [][]byte
	var of crypto.Token
	check := func() {
		if len(keys) > 0 {
			u, err := g.s.user(ctx, userName{g.tenant, users[of]}, false)
			if err == nil {
				err = g.checkEntries(ctx, u, keys)
			}
			errs = append(errs, err)
		}
		keys = nil
	}
	err := g.s.scan(ctx, r, func(e backend.Entry) error {
		if !space.IsIndex(e.Key) {
			return nil
		}
		at, err := parseIndexKey(e.Key)
		if err != nil {
			return err
		}
		if at.User != of || len(keys) == backend.MaxBatchKeys {
			check()
		}
		of = at.User
		if _, ok := users[of]; ok {
			keys = append(keys, e.Key)
		}
		return nil
	})
	check()
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("checking the index: %w", err)
	}
	return nil
}

// checkEntries deletes those of some index entries that point nowhere. It checks them twice, since
// a save may write entries before their record, and a rewrite before the thread record names its
// epoch.
func (g *collection) checkEntries(ctx context.Context, u *user, keys [][]byte) error {
	stale, err := u.staleEntries(ctx, keys)
	if err != nil || len(stale) == 0 {
		return err
	}
	if err := u.rewrites.lock(ctx); err != nil {
		return err
	}
	defer u.rewrites.unlock()
	if err := u.sweep.lock(ctx); err != nil {
		return err
	}
	defer u.sweep.unlock()
	if stale, err = u.staleEntries(ctx, stale); err != nil {
		return err
	}
	muts := make([]backend.Mut, len(stale))
	for i, key := range stale {
		muts[i] = backend.Mut{Key: key, Delete: true}
	}
	if !g.o.DryRun {
		err = u.s.commitAll(ctx, muts)
	}
	if err == nil {
		g.rep.IndexEntries += len(stale)
	}
	return err
}

// staleEntries returns those of some index keys whose record is not in an epoch of its thread.
func (u *user) staleEntries(ctx context.Context, keys [][]byte) (stale [][]byte, err error) {
	records := make([][]byte, len(keys))
	threads := make([][]byte, len(keys))
	for i, key := range keys {
		at, err := parseIndexKey(key)
		if err != nil {
			return nil, err
		}
		threads[i], records[i] = u.ThreadKey(at.Thread), at.RecordKey()
	}
	got, err := u.s.be.Get(ctx, append(records, threads...)...)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		r, th := got[i], got[len(keys)+i]
		if r.Version != "" && th.Version != "" && !space.Stubs.Is(r.Value) {
			rec, err := u.openThread(th.Key, th.Value)
			if err != nil {
				return nil, err
			}
			if epoch := uint64(space.EpochOf(r.Key)); !rec.Deleted && (epoch == rec.Epoch || epoch == rec.Kept) {
				continue
			}
		}
		stale = append(stale, key)
	}
	return stale, nil
}
