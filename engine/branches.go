package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// branch reads a named head, and caches it; pending changes count. A branch that does not exist has
// no version. The caller holds l.mu.
func (l *lineage) branch(ctx context.Context, name string) (*branchState, error) {
	if b := l.branches[name]; b != nil {
		return b, nil
	}
	b, err := l.readBranch(ctx, name)
	if err == nil && b.version != "" {
		b.head, err = l.headSeq(ctx, b.head)
	}
	if err != nil {
		return nil, err
	}
	l.branches[name] = b
	return b, nil
}

// readBranch reads the record of a branch; its head is the seq in that record.
func (l *storedLineage) readBranch(ctx context.Context, name string) (*branchState, error) {
	got, err := l.s.be.Get(ctx, l.BranchKey(name))
	if err != nil {
		return nil, fmt.Errorf("reading branch %q: %w", name, err)
	}
	if got[0].Version == "" {
		return &branchState{}, nil
	}
	rec, err := l.openBranch(got[0])
	if err != nil {
		return nil, err
	}
	return &branchState{head: rec.Head, version: got[0].Version}, nil
}

func (l *storedLineage) openBranch(e backend.Entry) (*codec.Branch, error) {
	return unseal(l, space.Branches, e.Key, e.Value)
}

// moveBranch makes a change move a branch, which need not exist, to seq. The caller holds l.mu.
func (l *lineage) moveBranch(ctx context.Context, p *pending, name string, seq uint64) error {
	b, err := l.branch(ctx, name)
	if err != nil {
		return err
	}
	if b.version != "" && b.head == seq || slices.ContainsFunc(p.moved, func(m movedBranch) bool { return m.name == name }) {
		return nil
	}
	mut, err := l.branchMut(name, seq)
	if err != nil {
		return err
	}
	p.conds = append(p.conds, backend.Cond{Key: mut.Key, Version: b.version})
	p.muts = append(p.muts, mut)
	p.moved = append(p.moved, movedBranch{name, mut.Version, seq})
	return nil
}

// deleteBranch makes a change delete an existing branch. The caller holds l.mu.
func (l *lineage) deleteBranch(p *pending, name string, b *branchState) {
	key := l.BranchKey(name)
	p.muts = append(p.muts, backend.Mut{Key: key, Delete: true})
	p.conds = append(p.conds, backend.Cond{Key: key, Version: b.version})
	p.moved = append(p.moved, movedBranch{name: name})
}

// eachBranch calls fn for every durable branch of the lineage.
func (l *storedLineage) eachBranch(ctx context.Context, fn func(*codec.Branch) error) error {
	return l.s.scan(ctx, l.Branches(), func(e backend.Entry) error {
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

// BranchExistsError says that a branch to be created exists already. It matches ErrConflict.
type BranchExistsError struct {
	Name    string
	HeadSeq uint64
}

func (e *BranchExistsError) Error() string {
	return fmt.Sprintf("branch %q already exists, with its head at seq %d", e.Name, e.HeadSeq)
}
func (e *BranchExistsError) Is(target error) bool { return target == ErrConflict }

// Branches lists the named heads of the lineage in order of name.
func (t *Thread) Branches(ctx context.Context) ([]Branch, error) {
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing branches: %w", err)
	}
	defer l.runlockThread()
	branches, err := l.allBranches(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing branches: %w", err)
	}
	return branches, nil
}

// rlockExisting is rlockThread for a thread that must exist.
func (t *Thread) rlockExisting(ctx context.Context) (*lineage, error) {
	l, err := t.s.rlockThread(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	if _, there := l.th.record(); !there {
		l.runlockThread()
		return nil, ErrNotFound
	}
	return l, nil
}

func (l *lineage) allBranches(ctx context.Context) ([]Branch, error) {
	ends, err := l.branchEnds(ctx)
	if err != nil {
		return nil, err
	}
	var out []Branch
	for _, e := range ends {
		out = append(out, Branch{Name: e.name, HeadID: l.recordID(e.at), HeadSeq: e.at.seq})
	}
	slices.SortFunc(out, func(a, b Branch) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Fork creates a branch that ends at a checkpoint, and returns that checkpoint without data. Saves
// that name the branch extend it. If the branch exists, that is a *BranchExistsError. The branch is
// durable when the call returns.
func (t *Thread) Fork(ctx context.Context, from Which, branch string) (*Checkpoint, error) {
	cp, err := t.changeBranch(ctx, branch, &from, true)
	if err != nil {
		return nil, fmt.Errorf("forking: %w", err)
	}
	return cp, nil
}

// SetBranch moves a branch, creating it if needed, to a checkpoint, and returns when that is
// durable.
func (t *Thread) SetBranch(ctx context.Context, name string, to Which) error {
	if _, err := t.changeBranch(ctx, name, &to, false); err != nil {
		return fmt.Errorf("setting a branch: %w", err)
	}
	return nil
}

// DeleteBranch deletes a branch; its checkpoints stay. A branch that does not exist is ErrNotFound.
func (t *Thread) DeleteBranch(ctx context.Context, name string) error {
	if _, err := t.changeBranch(ctx, name, nil, false); err != nil {
		return fmt.Errorf("deleting a branch: %w", err)
	}
	return nil
}

// changeBranch moves a branch to a checkpoint, which it returns, or deletes the branch if to is
// nil.
func (t *Thread) changeBranch(ctx context.Context, name string, to *Which, mustBeNew bool) (*Checkpoint, error) {
	if err := checkName("branch", name, false); err != nil {
		return nil, err
	}
	a := attempt{t: t}
	return a.run(ctx, func() (*Checkpoint, error) { return t.tryBranch(ctx, name, to, mustBeNew) })
}

func (t *Thread) tryBranch(ctx context.Context, name string, to *Which, mustBeNew bool) (*Checkpoint, error) {
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return nil, err
	}
	var at *Checkpoint
	err = l.change(ctx, changeLocks{}, func() (p *pending, err error) {
		p, at, err = l.prepareBranch(ctx, name, to, mustBeNew)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	return at, nil
}

// prepareBranch prepares the move of a branch, and returns the checkpoint it will end at. The
// caller holds l.mu.
func (l *lineage) prepareBranch(ctx context.Context, name string, to *Which, mustBeNew bool) (*pending, *Checkpoint, error) {
	var at *Checkpoint
	if to != nil {
		r, err := l.findToChange(ctx, *to)
		if err != nil {
			return nil, nil, err
		}
		if at, err = l.restorer().checkpoint(ctx, r, nil); err != nil {
			return nil, nil, err
		}
	} else if err := l.open(ctx); err != nil {
		return nil, nil, err
	}
	b, err := l.branch(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	// A pending change may decide whether the branch exists, or is already there.
	if b.by != nil && (to == nil || mustBeNew || b.head == at.Seq) {
		return nil, nil, l.dependsOn(b.by)
	}
	p := newPending(0, nil)
	switch {
	case to == nil && b.version == "":
		return nil, nil, fmt.Errorf("%w: branch %q", ErrNotFound, name)
	case to == nil:
		l.deleteBranch(p, name, b)
	case mustBeNew && b.version != "":
		return nil, nil, &BranchExistsError{name, b.head}
	default:
		err = l.moveBranch(ctx, p, name, at.Seq)
	}
	if err != nil || len(p.muts) == 0 {
		return nil, at, err
	}
	return p, at, nil
}
