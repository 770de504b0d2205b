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

func (s storeUpkeep) Stats(ctx context.Context, tenant, name string) (*upkeep.Stats, error) {
	st, err := s.stats(ctx, tenant, name)
	if err != nil {
		return nil, fmt.Errorf("counting: %w", err)
	}
	return st, nil
}

func (s storeUpkeep) DiskBytes(ctx context.Context) (int64, error) {
	if sizer, ok := s.be.(backend.Sizer); ok {
		return sizer.DiskBytes(ctx)
	}
	return 0, nil
}

// counter adds up the stats of a user.
type counter struct{ upkeep.Stats }

func (s storeUpkeep) stats(ctx context.Context, tenant, name string) (*upkeep.Stats, error) {
	c := &counter{}
	var err error
	if c.DiskBytes, err = s.DiskBytes(ctx); err != nil {
		return nil, err
	}
	u, err := s.User(tenant, name).keys(ctx, false)
	if err != nil {
		return nil, err
	}
	var threads []string
	err = u.eachThread(ctx, func(_ crypto.Token, rec *codec.Thread) error {
		if s.live(rec) {
			threads = append(threads, rec.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range threads {
		err := s.eachLineage(ctx, Ref{Tenant: tenant, User: name, Thread: id}, func(l *lineage) error {
			if _, there := l.th.record(); !there {
				return nil
			}
			return c.lineage(ctx, l)
		})
		if errors.Is(err, ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		c.Threads++
		if err := c.kept(ctx, u, id); err != nil {
			return nil, err
		}
	}
	return &c.Stats, c.shared(ctx, u)
}

// kept adds the history that a thread keeps.
func (c *counter) kept(ctx context.Context, u *user, id string) error {
	tok := u.ThreadToken(id)
	_, kept, err := u.epochsOf(ctx, tok)
	if err != nil || kept == 0 {
		return err
	}
	th, err := u.stored(tok, kept)
	if err != nil {
		return err
	}
	return u.s.scan(ctx, th.Records(), func(e backend.Entry) error {
		c.KeptBytes += int64(len(e.Value))
		return nil
	})
}

// lineage adds one lineage.
func (c *counter) lineage(ctx context.Context, l *lineage) error {
	rs := l.restorer()
	seen := false
	sizes := map[holding]int64{}
	err := l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		seen = true
		c.StoredBytes += r.size
		sizes[holding{seq: r.seq}] = r.size
		if r.rec != nil {
			for i := range r.rec.Entries {
				if e := &r.rec.Entries[i]; e.PartBytes > 0 {
					sizes[holding{r.seq, e.Number + 1}] = int64(e.PartBytes)
				}
			}
		}
		switch {
		case r.rec == nil:
			c.Stubs++
			return nil
		case r.rec.Ghost:
			c.Ghosts++
			return nil
		}
		rs = rs.next()
		cp, err := rs.checkpoint(ctx, r, nil)
		if err != nil {
			return err
		}
		c.Checkpoints++
		c.StateBytes += cp.Cost.State
		c.MaxDepth = max(c.MaxDepth, cp.Cost.Depth)
		for number, e := range r.rec.Channels {
			c.MaxDepthBytes = max(c.MaxDepthBytes, restoreBytes(r, number, e, sizes))
		}
		if cp.Cost.Full {
			c.Keyframes++
		}
		return nil
	})
	if seen {
		c.Lineages++
	}
	return err
}

// holding names the record at a seq or, with a channel's number plus 1, the parts that its entry
// names.
type holding struct{ seq, channel uint64 }

// restoreBytes is the number of bytes that a restore of a channel reads, without a record that only
// keeps it.
func restoreBytes(r *record, number uint64, e *codec.Entry, sizes map[holding]int64) (n int64) {
	add := func(seq uint64) {
		n += sizes[holding{seq: seq}] + sizes[holding{seq, number + 1}]
	}
	if e.Mode != codec.Keep {
		add(r.seq)
	}
	for seq := range e.Path.All {
		add(seq)
	}
	return n
}

// shared adds the parts, blobs and index entries of the user.
func (c *counter) shared(ctx context.Context, u *user) error {
	err := u.s.scan(ctx, u.Parts(), func(e backend.Entry) error {
		c.Parts++
		c.PartBytes += int64(len(e.Value))
		return nil
	})
	if err != nil {
		return err
	}
	blobs := u.Blobs()
	blobs.KeysOnly = true
	err = u.s.scan(ctx, blobs, func(backend.Entry) error {
		c.Blobs++
		return nil
	})
	if err != nil {
		return err
	}
	index := u.OfTenant(u.tenant)
	index.KeysOnly = true
	return u.s.scan(ctx, index, func(e backend.Entry) error {
		if at, ok := space.ParseIndex(e.Key); ok && at.User == u.Tok {
			c.IndexEntries++
		}
		return nil
	})
}
