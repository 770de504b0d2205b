package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/backendtest"
)

// save saves and fails the test if that fails.
func save(t *testing.T, th *Thread, d Draft) *Checkpoint {
	t.Helper()
	cp, err := th.Save(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

// saveLine saves n checkpoints, each on the one before.
func saveLine(t *testing.T, th *Thread, n int) (cps []*Checkpoint) {
	t.Helper()
	for i := range n {
		cps = append(cps, save(t, th, Draft{Step: int64(i + 1), Keep: true, Channels: []Change{jsonChannel("n", fmt.Sprintf(`{"n":%d}`, i+1))}}))
	}
	return cps
}

func TestBranches(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	cps := saveLine(t, th, 3)
	at, err := th.Fork(ctx, At(cps[0].ID), "retry")
	if err != nil || at.ID != cps[0].ID || at.Channels[0].Data != nil {
		t.Fatalf("fork gave %+v, %v", at, err)
	}
	_, err = th.Fork(ctx, Latest, "retry")
	var exists *BranchExistsError
	if !errors.Is(err, ErrConflict) || !errors.As(err, &exists) || exists.HeadSeq != 1 || !strings.Contains(err.Error(), `branch "retry" already exists`) {
		t.Errorf("a second fork of the name gives %v", err)
	}
	fourth := save(t, th, Draft{Branch: "retry", Channels: []Change{jsonChannel("n", `{"n":4}`)}})
	if fourth.Parent != cps[0].ID {
		t.Errorf("the branch grew on %s, want %s", fourth.Parent, cps[0].ID)
	}
	if err := th.SetBranch(ctx, "main", AtSeq(2)); err != nil {
		t.Fatal(err)
	}
	if err := th.SetBranch(ctx, "main", At(cps[2].ID)); err != nil {
		t.Fatal(err)
	}
	if err := th.SetBranch(ctx, "main", HeadOf("main")); err != nil { // moves nothing
		t.Fatal(err)
	}
	want := []Branch{{"main", cps[2].ID, 3}, {"retry", fourth.ID, 4}}
	for range 2 {
		got, err := f.Thread(testRef("t")).Branches(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("branches (-want +got):\n%s", d)
		}
		f.reopen()
	}
	th = f.Thread(testRef("t"))
	if err := th.DeleteBranch(ctx, "retry"); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Load(ctx, HeadOf("retry")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted branch loads: %v", err)
	}
	if _, err := th.Load(ctx, At(fourth.ID)); err != nil {
		t.Errorf("deleting a branch took its checkpoint: %v", err)
	}
	if _, err := th.Fork(ctx, At(cps[1].ID), "retry"); err != nil {
		t.Errorf("the name of a deleted branch: %v", err)
	}
	if cp, err := th.Load(ctx, HeadOf("retry")); err != nil || cp.ID != cps[1].ID {
		t.Errorf("the new branch loads %+v, %v", cp, err)
	}
}

func TestBranchesBadInput(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	none := f.Thread(testRef("none"))
	if _, err := none.Branches(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("branches of a user that does not exist: %v", err)
	}
	th := f.Thread(testRef("t"))
	saveLine(t, th, 2)
	if _, err := none.Branches(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("branches of a thread that does not exist: %v", err)
	}
	if err := none.SetBranch(ctx, "b", Latest); !errors.Is(err, ErrNotFound) {
		t.Errorf("a branch of a thread that does not exist: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("b", 257), "\xff"} {
		if _, err := th.Fork(ctx, Latest, name); !errors.Is(err, ErrInvalid) {
			t.Errorf("forking %q: %v", name, err)
		}
		if err := th.SetBranch(ctx, name, Latest); !errors.Is(err, ErrInvalid) {
			t.Errorf("setting %q: %v", name, err)
		}
		if err := th.DeleteBranch(ctx, name); !errors.Is(err, ErrInvalid) {
			t.Errorf("deleting %q: %v", name, err)
		}
	}
	if err := th.DeleteBranch(ctx, "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting a branch that does not exist: %v", err)
	}
	for _, w := range []Which{At("nobody"), AtSeq(3), HeadOf("b")} {
		if err := th.SetBranch(ctx, "b", w); !errors.Is(err, ErrNotFound) {
			t.Errorf("a branch at %+v: %v", w, err)
		}
	}
	if got, err := th.Branches(ctx); err != nil || got != nil {
		t.Errorf("refused branches left %v, %v", got, err)
	}
}

// A failed change of a branch returns an error, and a later read returns the backend's state.
func TestBranchFaults(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	fault := backendtest.NewFault(f.be)
	f.be = fault.Backend()
	f.reopen()
	th := f.Thread(testRef("t"))
	saveLine(t, th, 2)
	for name, op := range map[string]func(*Thread) error{
		"set":    func(th *Thread) error { return th.SetBranch(ctx, "set", Latest) },
		"fork":   func(th *Thread) error { _, err := th.Fork(ctx, Latest, "fork"); return err },
		"delete": func(th *Thread) error { return th.DeleteBranch(ctx, "gone") },
		"list":   func(th *Thread) error { _, err := th.Branches(ctx); return err },
		"tree":   func(th *Thread) error { _, err := th.Tree(ctx); return err },
		"names":  func(th *Thread) error { _, err := th.Namespaces(ctx); return err },
	} {
		for k := 0; ; k++ {
			if err := th.SetBranch(ctx, "gone", AtSeq(1)); err != nil {
				t.Fatal(err)
			}
			f.reopen()
			th = f.Thread(testRef("t"))
			if _, err := th.Load(ctx, Latest); err != nil {
				t.Fatal(err)
			}
			fault.Arm(backendtest.Plan{Ops: backendtest.OpAny, After: k, Err: backend.ErrUnavailable})
			err := op(th)
			fault.Disarm()
			if fault.Fired() == 0 {
				if err != nil {
					t.Errorf("%s without a fault: %v", name, err)
				}
				break
			}
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s with fault %d: %v", name, k, err)
			}
			got, err := th.Branches(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range got {
				if b.Name == name {
					t.Errorf("%s with fault %d left the branch", name, k)
				}
			}
			if _, err := th.Load(ctx, HeadOf(name)); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s with fault %d left the branch in memory: %v", name, k, err)
			}
			if len(got) == 0 || !slices.ContainsFunc(got, func(b Branch) bool { return b.Name == "gone" }) {
				t.Errorf("%s with fault %d took a branch: %v", name, k, got)
			}
		}
	}
}

// Branches in memory hold no states, which the cache could not bound.
func TestBranchesInMemoryHoldNoStates(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	l, err := f.refLineage(ctx, testRef("t"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.unrefLineage(l)
	for i := range 3 {
		cp := mustSave(t, f, testRef("t"), Draft{Branch: fmt.Sprint("b", i)})
		if err := f.Thread(testRef("t")).SetBranch(ctx, "moved", At(cp.ID)); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range l.branches {
		if b.by != nil {
			t.Errorf("branch %s keeps the change that moved it", name)
		}
	}
}
