package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/ckptd/ckptd/backend"
)

// Tree is a lineage with all its branches.
type Tree struct {
	Nodes    []*Node // every checkpoint, oldest first
	Roots    []*Node // those without Node.Parent
	Heads    []*Node // those without children
	Branches []Branch
}

// Node is a checkpoint, without data, in the tree of its lineage.
type Node struct {
	*Checkpoint

	// Parent is the nearest existing ancestor: if the checkpoint that Checkpoint.Parent names was
	// replaced, that is its replacement; if it was pruned, its own parent and so on, as far as
	// known. It is nil for a root, and if no ancestor is left.
	Parent   *Node
	Children []*Node // oldest first
	Branches []string

	origin uint64
}

// Tree reads the headers of all checkpoints of the lineage and links them. It needs memory for all
// of them.
func (t *Thread) Tree(ctx context.Context) (*Tree, error) {
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading tree: %w", err)
	}
	g := treeBuilder{l: l, tree: &Tree{}, bySeq: map[uint64]*Node{}, byID: map[string]*Node{}, removed: map[uint64]removedNode{}}
	err = g.build(ctx)
	for i := 0; err == nil && i < len(g.tree.Nodes); i++ {
		err = t.s.applyLoadHooks(ctx, g.tree.Nodes[i].Checkpoint, false)
	}
	if err != nil {
		return nil, fmt.Errorf("reading tree: %w", err)
	}
	g.connect()
	return g.tree, nil
}

// build reads the whole lineage, and unlocks its thread.
func (g *treeBuilder) build(ctx context.Context) (err error) {
	defer g.l.runlockThread()
	// Branches first: then their heads are among the records read after them.
	if g.tree.Branches, err = g.l.allBranches(ctx); err == nil {
		err = g.read(ctx)
	}
	return err
}

// treeBuilder makes a tree.
type treeBuilder struct {
	l       *lineage
	tree    *Tree
	bySeq   map[uint64]*Node
	byID    map[string]*Node
	removed map[uint64]removedNode
}

// removedNode is the rest of a checkpoint that was pruned or replaced. The zero value has no
// parent.
type removedNode struct {
	id, dangling string
	parentSeq    uint64
}

func (g *treeBuilder) read(ctx context.Context) error {
	rs := g.l.restorer()
	err := g.l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
		rs = rs.next()
		return g.add(ctx, rs, r)
	})
	slices.SortFunc(g.tree.Nodes, func(a, b *Node) int { return cmp.Compare(a.origin, b.origin) })
	return err
}

func (g *treeBuilder) add(ctx context.Context, rs *restorer, r *record) error {
	if r.rec == nil {
		return nil
	}
	rs.remember(r)
	if r.rec.Ghost {
		left := removedNode{id: g.l.recordID(r), dangling: r.rec.ParentID}
		if r.rec.ParentDist != 0 {
			left.parentSeq = r.seq - r.rec.ParentDist
		}
		g.removed[r.seq] = left
		return nil
	}
	cp, err := rs.checkpoint(ctx, r, nil)
	if err != nil {
		return err
	}
	if err := reserve(ctx, cp.bytesOfHeader()); err != nil {
		return err
	}
	n := &Node{Checkpoint: cp, origin: r.origin()}
	if old := g.byID[n.ID]; old != nil { // it was replaced since it was read
		g.removed[old.Seq] = removedNode{id: old.ID, parentSeq: old.ParentSeq}
		delete(g.bySeq, old.Seq)
		g.tree.Nodes = slices.DeleteFunc(g.tree.Nodes, func(n *Node) bool { return n == old })
	}
	g.tree.Nodes = append(g.tree.Nodes, n)
	g.bySeq[n.Seq], g.byID[n.ID] = n, n
	return nil
}

// connect sets the parents, children and branches of nodes. A parent that was saved after its
// child, because it is a replacement or the child named it before it existed, can close a cycle;
// one saved before its child cannot by itself. So the former are connected last, and links that
// would close a cycle are skipped.
func (g *treeBuilder) connect() {
	var late []*Node
	for _, n := range g.tree.Nodes {
		for p := range g.ancestors(n) {
			if n.Parent = p; p.Seq >= n.Seq {
				n.Parent, late = nil, append(late, n)
			}
			break
		}
	}
	slices.SortStableFunc(late, func(a, b *Node) int { return cmp.Compare(b.ParentSeq, a.ParentSeq) }) // dangling ones last
	for _, n := range late {
		for p := range g.ancestors(n) {
			if !p.descends(n) {
				n.Parent = p
				break
			}
		}
	}
	for _, n := range g.tree.Nodes {
		if n.Parent == nil {
			g.tree.Roots = append(g.tree.Roots, n)
		} else {
			n.Parent.Children = append(n.Parent.Children, n)
		}
	}
	for _, n := range g.tree.Nodes {
		if len(n.Children) == 0 {
			g.tree.Heads = append(g.tree.Heads, n)
		}
	}
	for _, b := range g.tree.Branches {
		if n := g.byID[b.HeadID]; n != nil {
			n.Branches = append(n.Branches, b.Name)
		}
	}
}

// ancestors yields possible parents of n, the best first.
func (g *treeBuilder) ancestors(n *Node) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		at := removedNode{parentSeq: n.ParentSeq, dangling: n.Checkpoint.Parent}
		for at.parentSeq != 0 {
			if p := g.bySeq[at.parentSeq]; p != nil {
				yield(p)
				return
			}
			left, ok := g.removed[at.parentSeq]
			if !ok {
				return
			}
			if p := g.byID[left.id]; p != nil && !yield(p) {
				return
			}
			at = left
		}
		if p := g.byID[at.dangling]; p != nil {
			yield(p)
		}
	}
}

// descends reports whether n is a or a descendant of a.
func (n *Node) descends(a *Node) bool {
	for ; n != nil; n = n.Parent {
		if n == a {
			return true
		}
	}
	return false
}

// Namespaces lists the namespaces of the thread that hold checkpoints or pending writes, in order;
// the unnamed one is "".
func (t *Thread) Namespaces(ctx context.Context) ([]string, error) {
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	defer l.runlockThread()
	all, err := l.th.namespaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	used, err := l.th.usesUnnamed(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Name
	}
	slices.Sort(names) // the unnamed one comes first
	if !used {
		names = names[1:]
	}
	return names, nil
}

// usesUnnamed reports whether the unnamed namespace, which has no record of its own, holds
// anything.
func (t *storedThread) usesUnnamed(ctx context.Context) (bool, error) {
	l := t.Namespace("")
	for _, r := range []backend.Range{l.Records(), l.Writes()} {
		r.Limit, r.KeysOnly = 1, true
		page, _, err := t.u.s.be.Scan(ctx, r)
		if err != nil || len(page) > 0 {
			return len(page) > 0, err
		}
	}
	return false, nil
}
