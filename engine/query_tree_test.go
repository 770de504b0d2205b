package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// drawTree lists the nodes as "id<parent(children)[branches]", roots and heads marked.
func drawTree(tr *Tree) (lines []string) {
	name := func(n *Node) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(n.Step)
	}
	for _, n := range tr.Nodes {
		s := name(n) + "<" + name(n.Parent)
		var kids []string
		for _, c := range n.Children {
			kids = append(kids, name(c))
		}
		s += "(" + strings.Join(kids, " ") + ")"
		if len(n.Branches) > 0 {
			s += "[" + strings.Join(n.Branches, " ") + "]"
		}
		if slices.Contains(tr.Roots, n) {
			s += " root"
		}
		if slices.Contains(tr.Heads, n) {
			s += " head"
		}
		lines = append(lines, s)
	}
	return lines
}

func wantTree(t *testing.T, th *Thread, want ...string) {
	t.Helper()
	tr, err := th.Tree(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, drawTree(tr)); d != "" {
		t.Errorf("tree (-want +got):\n%s", d)
	}
}

// on is a draft by step number, whose id is the step too unless that is 0.
func on(step int64, parent string) Draft {
	return Draft{ID: fmt.Sprint("c", step), Parent: parent, Step: step, Root: parent == "", AllowDangling: true,
		Channels: []Change{jsonChannel("n", fmt.Sprint(step))}}
}

func TestTree(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, on(1, ""))
	save(t, th, on(2, "c1"))
	save(t, th, on(3, "c2"))
	save(t, th, on(4, "c2"))
	save(t, th, on(5, "elsewhere")) // dangling
	save(t, th, on(6, "c5"))
	if err := th.SetBranch(ctx, "b", At("c3")); err != nil {
		t.Fatal(err)
	}
	if err := th.SetBranch(ctx, "a", At("c3")); err != nil {
		t.Fatal(err)
	}
	want := []string{"1<-(2) root", "2<1(3 4)", "3<2()[a b] head", "4<2() head", "5<-(6) root", "6<5() head"}
	wantTree(t, th, want...)
	tr, err := th.Tree(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range tr.Nodes {
		if n.ID != fmt.Sprint("c", i+1) || n.Checkpoint.Channels[0].Data != nil || n.Checkpoint.Channels[0].Size == 0 {
			t.Errorf("node %d is %+v", i, n.Checkpoint)
		}
	}
	f.reopen()
	th = f.Thread(testRef("t"))
	wantTree(t, th, want...)

	// A replaced checkpoint stays where it was, and its children are its own.
	d := on(2, "c1")
	d.Step = 20
	save(t, th, d)
	d = on(3, "c2")
	d.Step = 30
	save(t, th, d)
	wantTree(t, th, "1<-(20) root", "20<1(30 4)", "30<20()[a b] head", "4<20() head", "5<-(6) root", "6<5() head")

	// A parent that was named before it existed is found once it does.
	d = on(7, "")
	d.ID = "elsewhere"
	save(t, th, d)
	wantTree(t, th, "1<-(20) root", "20<1(30 4)", "30<20()[a b] head", "4<20() head", "5<7(6)", "6<5() head", "7<-(5) root")
}

// Parents can go in a circle by id, since any checkpoint can be saved again on another parent. The
// tree does not.
func TestTreeCircle(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	save(t, th, on(1, "c3")) // dangling
	save(t, th, on(2, "c1"))
	save(t, th, on(3, "c2"))
	tr, err := th.Tree(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"1<-(2) root", "2<1(3)", "3<2() head"}, drawTree(tr)); d != "" {
		t.Errorf("tree (-want +got):\n%s", d)
	}
	d := on(2, "c2")
	d.Step = 20
	save(t, th, d) // replaced, on itself
	wantTree(t, th, "1<-(20) root", "20<1(3)", "3<20() head")
	d = on(1, "c3")
	d.Step = 10
	save(t, th, d) // replaced, on its own grandchild
	wantTree(t, th, "10<3(20)", "20<10() head", "3<-(10) root")
}

// rewrite changes a stored record behind the engine's back, as prune does.
func rewrite(t *testing.T, f *fixture, ref Ref, seq uint64, change func(l *lineage, r *record) backend.Mut) {
	t.Helper()
	ctx := context.Background()
	l, err := f.rlockThread(ctx, ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.runlockThread()
	r, err := l.readRecord(ctx, seq)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.commit(ctx, []backend.Mut{change(l, r)}, nil); err != nil {
		t.Fatal(err)
	}
}

func asGhost(t *testing.T) func(*lineage, *record) backend.Mut {
	return func(l *lineage, r *record) backend.Mut {
		mut, err := l.ghostMut(r)
		if err != nil {
			t.Fatal(err)
		}
		return mut
	}
}

func asStub(t *testing.T, cp *Checkpoint) func(*lineage, *record) backend.Mut {
	return func(l *lineage, r *record) backend.Mut {
		key := l.RecordKey(cp.Seq)
		value, err := threadSealer(t, l).Seal(nil, space.TypeStub, key, codec.AppendStub(nil, &codec.Stub{Count: 1, Hash: cp.Hash, ID: cp.ID}))
		if err != nil {
			t.Fatal(err)
		}
		return backend.Mut{Key: key, Value: value, Version: space.Once}
	}
}

// aloneOn is a draft that shares so little with its parent that it is not encoded against it.
func aloneOn(parent string, step int64) Draft {
	r := rand.New(rand.NewPCG(uint64(step), 7))
	return Draft{Parent: parent, Step: step, RunID: string(words(r, 250)), Channels: []Change{jsonChannel(fmt.Sprint("own", step), "1")}}
}

func TestTreePruned(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	cps := saveLine(t, th, 5)
	f.reopen()
	rewrite(t, f, testRef("t"), 3, asGhost(t))
	rewrite(t, f, testRef("t"), 4, asGhost(t))
	th = f.Thread(testRef("t"))
	wantTree(t, th, "1<-(2) root", "2<1(5)", "5<2() head")
	tr, err := th.Tree(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if n := tr.Heads[0]; n.Checkpoint.Parent != cps[3].ID || n.Parent.ID != cps[1].ID {
		t.Errorf("head has parent %s, nearest ancestor %s", n.Checkpoint.Parent, n.Parent.ID)
	}
	rewrite(t, f, testRef("t"), 2, asGhost(t))
	rewrite(t, f, testRef("t"), 1, asGhost(t))
	wantTree(t, th, "5<-() root head")

	th = f.Thread(testRef("stub"))
	cps = []*Checkpoint{save(t, th, Draft{Step: 1})}
	save(t, th, aloneOn(cps[0].ID, 2))
	save(t, th, Draft{Step: 3, Keep: true})
	save(t, th, aloneOn(cps[0].ID, 4))
	f.reopen()
	rewrite(t, f, testRef("stub"), 1, asStub(t, cps[0]))
	th = f.Thread(testRef("stub"))
	wantTree(t, th, "2<-(3) root", "3<2() head", "4<-() root head")
}

func TestNamespaces(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	if _, err := f.Thread(ref).Namespaces(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("namespaces of nothing: %v", err)
	}
	for _, ns := range []string{"sub:2", "sub:1", ""} {
		ref.Namespace = ns
		saveLine(t, f.Thread(ref), 2)
		got, err := f.Thread(testRef("t")).Namespaces(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{"sub:2": {"sub:2"}, "sub:1": {"sub:1", "sub:2"}, "": {"", "sub:1", "sub:2"}}[ns]
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("namespaces after %q (-want +got):\n%s", ns, d)
		}
	}
	f.reopen()
	if got, err := f.Thread(ref).Namespaces(ctx); err != nil || len(got) != 3 {
		t.Errorf("namespaces after reopening: %q, %v", got, err)
	}
}
