package engine

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
)

// branch reads a named head once. A branch that does not exist has no version. The caller holds l.mu.
func (l *lineage) branch(ctx context.Context, name string) (*branchState, error) {
	if b := l.branches[name]; b != nil {
		return b, nil
	}
	key := l.branchKey(name)
	got, err := l.s.be.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading branch %q: %w", name, err)
	}
	b := &branchState{}
	if got[0].Version != "" {
		rec, err := l.openBranch(got[0])
		if err != nil {
			return nil, err
		}
		b.head, b.version = rec.Head, got[0].Version
	}
	l.branches[name] = b
	return b, nil
}

func (l *lineage) openBranch(e backend.Entry) (*codec.Branch, error) {
	plain, err := l.th.sealer.Open(nil, kindBranch, e.Key, e.Value)
	if err != nil {
		return nil, openError(e.Key, err)
	}
	rec, err := codec.ParseBranch(plain)
	if err != nil {
		return nil, corrupt(place(e.Key), "does not parse", err)
	}
	return rec, nil
}

// moveBranch adds to a batch that a branch, which need not exist, now ends at seq. The caller holds l.mu.
func (l *lineage) moveBranch(ctx context.Context, p *pending, name string, seq uint64) error {
	b, err := l.branch(ctx, name)
	if err != nil {
		return err
	}
	key := l.branchKey(name)
	value, err := l.th.sealer.Seal(nil, kindBranch, key, codec.AppendBranch(nil, &codec.Branch{Name: name, Head: seq}))
	if err != nil {
		return fmt.Errorf("sealing a branch: %w", err)
	}
	version := strconv.FormatUint(seq, 10)
	p.conds = append(p.conds, backend.Cond{Key: key, Version: b.version})
	p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: version})
	b.head, b.version = seq, version
	return nil
}

// ghost adds to a save that the checkpoint at seq is replaced by it: the record stays, since others may stand on it,
// but is no checkpoint any more, and branches that ended there end at the new one.
func (l *lineage) ghost(ctx context.Context, p *pending, seq uint64) error {
	key := l.recordKey(seq)
	got, err := l.s.be.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading the replaced checkpoint: %w", err)
	}
	r, err := l.openRecord(key, got[0].Value)
	if err != nil {
		return err
	}
	if r.rec == nil {
		return corrupt(place(key), "an id names a stub", nil)
	}
	mut, err := l.ghostMut(r)
	if err != nil {
		return err
	}
	p.muts = append(p.muts, mut)
	p.conds = append(p.conds, backend.Cond{Key: key, Version: got[0].Version})
	if t := l.tips[seq]; t != nil {
		l.s.cache.drop(t)
	}
	return l.eachBranch(ctx, func(b *codec.Branch) error {
		if b.Head != seq {
			return nil
		}
		return l.moveBranch(ctx, p, b.Name, p.seq)
	})
}

// versionGhost is the version of records that were written again as ghosts.
const versionGhost = "2"

// ghostMut writes a record again as a ghost.
func (l *lineage) ghostMut(r *record) (backend.Mut, error) {
	rec := *r.rec
	rec.Ghost = true
	key := l.recordKey(r.seq)
	value, err := l.th.sealer.Seal(nil, kindRecord, key, codec.AppendRecord(nil, r.seq, &rec))
	if err != nil {
		return backend.Mut{}, fmt.Errorf("sealing a ghost: %w", err)
	}
	return backend.Mut{Key: key, Value: value, Version: versionGhost}, nil
}

// eachBranch calls fn for every branch of the lineage that is durable.
func (l *lineage) eachBranch(ctx context.Context, fn func(*codec.Branch) error) error {
	return l.s.scan(ctx, prefixRange(l.th.nsKey(kindBranch, l.ns)), func(e backend.Entry) error {
		b, err := l.openBranch(e)
		if err != nil {
			return err
		}
		return fn(b)
	})
}
