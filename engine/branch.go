package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	return unseal(l.th.sealer, branchLayout, e.Key, e.Value)
}

// moveBranch adds to a batch that a branch, which need not exist, now ends at seq. The caller holds l.mu.
func (l *lineage) moveBranch(ctx context.Context, p *pending, name string, seq uint64) error {
	b, err := l.branch(ctx, name)
	if err != nil {
		return err
	}
	if b.version != "" && b.head == seq {
		return nil
	}
	key := l.branchKey(name)
	value, err := seal(l.th.sealer, branchLayout, key, &codec.Branch{Name: name, Head: seq})
	if err != nil {
		return err
	}
	version := strconv.FormatUint(seq, 10)
	p.conds = append(p.conds, backend.Cond{Key: key, Version: b.version})
	p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: version})
	b.head, b.version = seq, version
	return nil
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

// Branch is a named head of a lineage.
type Branch struct {
	Name    string
	HeadID  string
	HeadSeq uint64
}

// BranchExistsError says that a branch that was to be created is there. It matches ErrConflict.
type BranchExistsError struct {
	Name    string
	HeadSeq uint64
}

func (e *BranchExistsError) Error() string {
	return fmt.Sprintf("branch %q exists already, with its head at seq %d", e.Name, e.HeadSeq)
}
func (e *BranchExistsError) Is(target error) bool { return target == ErrConflict }

// Branches lists the named heads of the lineage in order of name.
func (t *Thread) Branches(ctx context.Context) ([]Branch, error) {
	l, err := t.acquireThere(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing branches: %w", err)
	}
	defer l.release()
	branches, err := l.allBranches(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing branches: %w", err)
	}
	return branches, nil
}

// acquireThere acquires the lineage of a thread that exists.
func (t *Thread) acquireThere(ctx context.Context) (*lineage, error) {
	l, err := t.s.acquire(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	if _, there := l.th.record(); !there {
		l.release()
		return nil, ErrNotFound
	}
	return l, nil
}

func (l *lineage) allBranches(ctx context.Context) ([]Branch, error) {
	var out []Branch
	var heads []uint64
	err := l.eachBranch(ctx, func(b *codec.Branch) error {
		out, heads = append(out, Branch{Name: b.Name, HeadSeq: b.Head}), append(heads, b.Head)
		return nil
	})
	if err != nil {
		return nil, err
	}
	records := map[uint64]*record{}
	if err := l.readRecords(ctx, records, heads); err != nil {
		return nil, err
	}
	for i := range out {
		r := records[out[i].HeadSeq]
		if r == nil {
			return nil, corrupt(place(l.recordKey(out[i].HeadSeq)), "missing, and a branch ends there", nil)
		}
		out[i].HeadID = l.recordID(r)
	}
	slices.SortFunc(out, func(a, b Branch) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Fork creates a branch that ends at a checkpoint, which it returns without data. Saves that name the branch extend it.
// A branch of that name that exists is a *BranchExistsError. The branch is durable when the call returns.
func (t *Thread) Fork(ctx context.Context, from Which, branch string) (*Checkpoint, error) {
	cp, err := t.changeBranch(ctx, branch, &from, true)
	if err != nil {
		return nil, fmt.Errorf("forking: %w", err)
	}
	return cp, nil
}

// SetBranch makes a branch, which need not exist, end at a checkpoint, and returns when that is durable.
func (t *Thread) SetBranch(ctx context.Context, name string, to Which) error {
	if _, err := t.changeBranch(ctx, name, &to, false); err != nil {
		return fmt.Errorf("setting a branch: %w", err)
	}
	return nil
}

// DeleteBranch deletes a name; the checkpoints that it led to stay. A branch that does not exist is ErrNotFound.
func (t *Thread) DeleteBranch(ctx context.Context, name string) error {
	if _, err := t.changeBranch(ctx, name, nil, false); err != nil {
		return fmt.Errorf("deleting a branch: %w", err)
	}
	return nil
}

// changeBranch moves a branch to a checkpoint, which it returns, or deletes it if to is nil.
func (t *Thread) changeBranch(ctx context.Context, name string, to *Which, mustBeNew bool) (*Checkpoint, error) {
	if err := checkName("branch", name, false); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		cp, err := t.tryBranch(ctx, name, to, mustBeNew)
		if !errors.Is(err, backend.ErrConflict) || try == conflictRetries {
			return cp, err
		}
	}
}

// tryBranch holds up the saves of the lineage until the branch is durable, so that none extends one that never was.
func (t *Thread) tryBranch(ctx context.Context, name string, to *Which, mustBeNew bool) (*Checkpoint, error) {
	l, err := t.acquireThere(ctx)
	if err != nil {
		return nil, err
	}
	defer l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	var at *Checkpoint
	if to != nil {
		r, err := l.find(ctx, *to)
		if err != nil {
			return nil, err
		}
		if at, err = l.restorer().checkpoint(ctx, r, nil); err != nil {
			return nil, err
		}
	}
	b, err := l.branch(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case to == nil && b.version == "":
		return nil, fmt.Errorf("%w: branch %q", ErrNotFound, name)
	case mustBeNew && b.version != "":
		return nil, &BranchExistsError{name, b.head}
	}
	p := &pending{}
	if to == nil {
		p.muts = []backend.Mut{{Key: l.branchKey(name), Delete: true}}
		p.conds = []backend.Cond{{Key: p.muts[0].Key, Version: b.version}}
		*b = branchState{}
	} else if err := l.moveBranch(ctx, p, name, at.Seq); err != nil {
		return nil, err
	}
	if len(p.muts) > 0 {
		if err := l.s.commit(ctx, p.muts, p.conds); err != nil {
			delete(l.branches, name)
			return nil, err
		}
	}
	return at, nil
}
