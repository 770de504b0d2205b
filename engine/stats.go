package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// Stats counts what a user has stored. Sizes are in bytes.
type Stats struct {
	Threads       int // neither deleted nor expired
	Lineages      int
	Checkpoints   int
	Ghosts        int   // records that are only there because checkpoints are encoded against them
	Stubs         int   // what stands for runs of removed checkpoints
	StateBytes    int64 // all channels of all checkpoints, as they were handed in
	StoredBytes   int64 // sealed records
	Parts         int
	PartBytes     int64 // sealed parts: large values, shared first states, and blobs
	Blobs         int
	Keyframes     int   // checkpoints with a channel that is stored in full
	MaxDepth      int   // records that a restore of one channel reads at most
	MaxDepthBytes int64 // bytes of records and parts that it reads at most
	IndexEntries  int   // entries in the index
	KeptBytes     int64 // sealed records of threads as they were before MigrateHistory
	DiskBytes     int64 // files of the whole store; 0 if the backend cannot tell
}

// Stats reads the headers of all checkpoints of a user and the keys of the tenant's index, so it takes time in proportion
// to their number. Counts are of
// what was durable when it came by.
func (s *Store) Stats(ctx context.Context, tenant, name string) (*Stats, error) {
	st, err := s.stats(ctx, tenant, name)
	if err != nil {
		return nil, fmt.Errorf("counting: %w", err)
	}
	return st, nil
}

// DiskBytes returns how many bytes the files of the whole store take; 0 if the backend cannot tell.
func (s *Store) DiskBytes(ctx context.Context) (int64, error) {
	if sizer, ok := s.be.(backend.Sizer); ok {
		return sizer.DiskBytes(ctx)
	}
	return 0, nil
}

func (s *Store) stats(ctx context.Context, tenant, name string) (*Stats, error) {
	st := &Stats{}
	var err error
	if st.DiskBytes, err = s.DiskBytes(ctx); err != nil {
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
			return st.lineage(ctx, l)
		})
		if errors.Is(err, ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		st.Threads++
		if err := st.kept(ctx, u, id); err != nil {
			return nil, err
		}
	}
	return st, st.shared(ctx, u)
}

// kept adds what a thread keeps besides itself.
func (st *Stats) kept(ctx context.Context, u *user, id string) error {
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
		st.KeptBytes += int64(len(e.Value))
		return nil
	})
}

// lineage adds one lineage.
func (st *Stats) lineage(ctx context.Context, l *lineage) error {
	rs := l.restorer()
	seen := false
	sizes := map[holding]int64{}
	err := l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		seen = true
		st.StoredBytes += r.size
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
			st.Stubs++
			return nil
		case r.rec.Ghost:
			st.Ghosts++
			return nil
		}
		rs = rs.next()
		cp, err := rs.checkpoint(ctx, r, nil)
		if err != nil {
			return err
		}
		st.Checkpoints++
		st.StateBytes += cp.Cost.State
		st.MaxDepth = max(st.MaxDepth, cp.Cost.Depth)
		for number, e := range r.rec.Channels {
			st.MaxDepthBytes = max(st.MaxDepthBytes, restoreBytes(r, number, e, sizes))
		}
		if cp.Cost.Full {
			st.Keyframes++
		}
		return nil
	})
	if seen {
		st.Lineages++
	}
	return err
}

// holding names the record at a seq or, with the number of a channel and 1, the parts that it names for that.
type holding struct{ seq, channel uint64 }

// restoreBytes is what a restore of a channel reads, but for a record that only keeps it.
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
func (st *Stats) shared(ctx context.Context, u *user) error {
	err := u.s.scan(ctx, u.Parts(), func(e backend.Entry) error {
		st.Parts++
		st.PartBytes += int64(len(e.Value))
		return nil
	})
	if err != nil {
		return err
	}
	blobs := u.Blobs()
	blobs.KeysOnly = true
	err = u.s.scan(ctx, blobs, func(backend.Entry) error {
		st.Blobs++
		return nil
	})
	if err != nil {
		return err
	}
	index := u.OfTenant(u.tenant)
	index.KeysOnly = true
	return u.s.scan(ctx, index, func(e backend.Entry) error {
		if at, ok := space.ParseIndex(e.Key); ok && at.User == u.Tok {
			st.IndexEntries++
		}
		return nil
	})
}
