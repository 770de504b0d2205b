package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func (s storeUpkeep) GC(ctx context.Context, tenant string, o upkeep.GCOptions) (*upkeep.GCReport, error) {
	if err := errors.Join(s.ready(ctx), checkName("tenant", tenant, false)); err != nil {
		return nil, fmt.Errorf("collecting garbage: %w", err)
	}
	var names []string
	var errs []error
	for name, err := range s.keys.Users(ctx, tenant) {
		if err != nil {
			errs = append(errs, ofKeys(err))
			continue
		}
		names = append(names, name)
	}
	rep, err := s.collect(backend.MakingRoom(ctx), tenant, names, &o)
	if err = errors.Join(append(errs, err)...); err != nil {
		return rep, fmt.Errorf("collecting garbage: %w", err)
	}
	return rep, nil
}

func (u userUpkeep) GC(ctx context.Context, o upkeep.GCOptions) (*upkeep.GCReport, error) {
	_, err := u.keys(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("collecting garbage: %w", err)
	}
	rep, err := u.s.collect(ctx, u.name.tenant, []string{u.name.name}, &o)
	if err != nil {
		return rep, fmt.Errorf("collecting garbage: %w", err)
	}
	return rep, nil
}

// collection is a GC under way.
type collection struct {
	s        *Store
	o        *upkeep.GCOptions
	rep      upkeep.GCReport
	policy   upkeep.RetentionPolicy
	tenant   string
	progress upkeep.GCProgress
}

func (s *Store) collect(ctx context.Context, tenant string, names []string, o *upkeep.GCOptions) (*upkeep.GCReport, error) {
	g := &collection{s: s, o: o, tenant: tenant}
	var err error
	if g.policy, err = s.retention(ctx, tenant); err != nil {
		return &g.rep, err
	}
	var errs []error
	users := map[crypto.Token]string{}
	for i, name := range names {
		g.progress = upkeep.GCProgress{User: name, Done: i}
		u, err := s.user(ctx, userName{tenant, name}, false)
		if err == nil {
			err = g.user(ctx, u)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("user %q: %w", name, err))
			continue
		}
		users[u.Tok] = name // else index entries may be the only trace of a lost record
	}
	g.progress = upkeep.GCProgress{Done: len(names)}
	g.stage("index")
	errs = append(errs, g.index(ctx, users))
	if c, ok := s.be.(backend.Compactor); ok && o.Compact && !o.DryRun {
		g.stage("compact")
		err := c.Compact(ctx)
		g.rep.Compacted = err == nil
		errs = append(errs, err)
	}
	return &g.rep, errors.Join(errs...)
}

func (g *collection) stage(name string) {
	if g.progress.Stage = name; g.o.Progress != nil {
		g.o.Progress(g.progress)
	}
}

func (g *collection) user(ctx context.Context, u *user) error {
	g.rep.Users++
	g.stage("threads")
	if err := g.threads(ctx, u); err != nil {
		return err
	}
	g.stage("leftovers")
	if err := g.leftovers(ctx, u); err != nil {
		return err
	}
	g.stage("parts")
	grace := g.o.Grace
	if grace == 0 {
		grace = upkeep.DefaultGrace
	}
	sw := &sweeper{u: u, blobGrace: grace, partGrace: grace, dry: g.o.DryRun}
	err := sw.run(ctx)
	g.rep.Blobs, g.rep.Parts, g.rep.Bytes = g.rep.Blobs+sw.swept.blobs, g.rep.Parts+sw.swept.parts, g.rep.Bytes+sw.swept.bytes
	return err
}

// threads deletes expired threads and prunes the rest.
func (g *collection) threads(ctx context.Context, u *user) error {
	var expired []string
	err := u.eachThread(ctx, func(_ crypto.Token, rec *codec.Thread) error {
		if !rec.Deleted && !u.s.live(rec) {
			expired = append(expired, rec.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range expired {
		if !g.o.DryRun {
			if _, err := u.s.deleteThread(ctx, Ref{Tenant: u.tenant, User: u.name, Thread: id}, true); errors.Is(err, ErrNotFound) {
				continue // a save was quicker
			} else if err != nil {
				return err
			}
		}
		g.rep.Expired++
	}
	live, err := u.liveThreads(ctx)
	if err != nil {
		return err
	}
	for _, id := range live {
		if err := g.prune(ctx, Ref{Tenant: u.tenant, User: u.name, Thread: id}); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

func (g *collection) prune(ctx context.Context, ref Ref) error {
	g.rep.Threads++
	if keepsAll(g.policy) {
		return nil
	}
	p := upkeep.PruneOptions{KeepLast: g.policy.KeepLast, OlderThan: g.policy.OlderThan, KeepLabelled: g.policy.KeepLabelled,
		AllNamespaces: true, DryRun: g.o.DryRun}
	rep, err := g.s.Thread(ref).Upkeep().Prune(ctx, p)
	if rep != nil && err == nil {
		g.rep.Pruned += len(rep.Removed)
		g.rep.Bytes += rep.FreedBytes
	}
	return err
}

// leftovers purges epochs that no thread record names.
func (g *collection) leftovers(ctx context.Context, u *user) error {
	return u.eachEpoch(ctx, func(tok crypto.Token, epoch uint32) error {
		// While rewrites is locked nobody builds an epoch, so the thread record decides whether
		// this one is in use: only a rewrite could make an epoch with records current.
		if err := u.rewrites.lock(ctx); err != nil {
			return err
		}
		defer u.rewrites.unlock()
		current, kept, err := u.epochsOf(ctx, tok)
		if err != nil || epoch == current || epoch == kept {
			return err
		}
		th, err := u.stored(tok, epoch)
		if err != nil {
			return err
		}
		err = u.s.scan(ctx, th.All(), func(e backend.Entry) error {
			g.rep.Leftovers++
			g.rep.Bytes += int64(len(e.Value))
			return nil
		})
		if err != nil || g.o.DryRun {
			return err
		}
		return th.purge(ctx)
	})
}

// epochsOf returns the epoch that the thread record names, or 1 if there is no record, and the
// epoch it keeps, or 0.
func (u *user) epochsOf(ctx context.Context, tok crypto.Token) (current, kept uint32, err error) {
	key := u.ThreadKey(tok)
	got, err := u.s.be.Get(ctx, key)
	if err != nil {
		return 0, 0, fmt.Errorf("reading thread: %w", err)
	}
	if got[0].Version == "" {
		return 1, 0, nil
	}
	rec, err := u.openThread(key, got[0].Value)
	if err != nil {
		return 0, 0, err
	}
	return uint32(rec.Epoch), uint32(rec.Kept), nil
}

// eachEpoch calls fn with every epoch of every thread of the user that has keys, with or without a
// thread record.
func (u *user) eachEpoch(ctx context.Context, fn func(tok crypto.Token, epoch uint32) error) error {
	r := u.InThreads()
	r.Limit, r.KeysOnly = 1, true
	for {
		page, _, err := u.s.be.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return err
		}
		key := page[0].Key
		tok, epoch := space.ThreadOf(key), space.EpochOf(key)
		if err := fn(tok, epoch); err != nil {
			return err
		}
		r.Start = u.Epoch(tok, epoch).End
	}
}
