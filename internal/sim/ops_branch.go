package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/engine"
)

// move forks, sets or deletes a branch.
type move struct {
	call
	name string
	to   engine.Which
	how  string // "fork", "set", "delete"
	id   string // new end of the branch
	cp   *engine.Checkpoint
}

func (a *move) String() string { return fmt.Sprintf("%s %s at %s", a.how, a.name, whichText(a.to)) }

func (a *move) run(ctx context.Context, s *engine.Store) (err error) {
	th := s.Thread(a.ref)
	switch a.how {
	case "fork":
		a.cp, err = th.Fork(ctx, a.to, a.name)
	case "set":
		err = th.SetBranch(ctx, a.name, a.to)
	default:
		err = th.DeleteBranch(ctx, a.name)
	}
	return err
}

func (a *move) saw() []*engine.Checkpoint {
	if a.cp == nil || a.err != nil {
		return nil
	}
	return []*engine.Checkpoint{a.cp}
}

func (a *move) effect(f *facts) {
	val := a.id
	switch {
	case a.how == "delete":
		val = ""
	case a.cp != nil && a.acked():
		val = a.cp.ID
	case val == "":
		val = anyID
	}
	if a.acked() || a.doubtful() {
		f.branch(a.ref, a.name).write(&a.call, val, true)
	}
}

func (a *move) check(f *facts) {
	c := &a.call
	b := f.branch(a.ref, a.name)
	moves := f.line(a.ref).moves
	var exists *engine.BranchExistsError
	switch {
	case c.unknown:
	case c.err == nil:
		if a.cp != nil {
			f.show(c, a.cp)
			f.chosen(c, a.to, a.cp)
		}
		if a.how == "fork" && f.followed(a.ref.Thread, c.res) && !b.legal("", c.inv, c.res, moves) {
			f.problem(c, "the branch existed: it was at %q, then %v", b.was, b.writes)
		}
	case errors.As(c.err, &exists):
		if f.followed(a.ref.Thread, c.res) && b.was == "" && !slices.ContainsFunc(append(b.writes, moves...), func(w written) bool { return w.val != "" && w.span.lo <= c.res && w.span != (span{c.inv, c.res}) }) {
			f.problem(c, "there is no such branch: %v", c.err)
		}
	case errors.Is(c.err, engine.ErrNotFound) && a.how == "delete":
		if f.followed(a.ref.Thread, c.res) && !b.legal("", c.inv, c.res, moves) {
			f.problem(c, "the branch exists: it was at %q, then %v", b.was, b.writes)
		}
	case errors.Is(c.err, engine.ErrNotFound):
		f.notFound(c, a.to)
	default:
		f.plainError(c)
	}
}

func makeMove(g *gen) action {
	a := &move{call: call{ref: g.ref()}, name: g.branch()}
	a.how = []string{"fork", "fork", "set", "delete"}[g.rand.IntN(4)]
	if a.how == "delete" {
		return a
	}
	k := g.known(a.ref)
	if k == nil {
		return nil
	}
	a.to, a.id = engine.At(k.cp.ID), k.cp.ID
	if a.how == "fork" && g.one(3) {
		a.to, _ = g.which(a.ref)
		a.id = ""
	}
	return a
}

// forks makes many branches end at one checkpoint.
type forks struct {
	call
	id    string
	names []string
	done  []*call
}

func (a *forks) String() string { return fmt.Sprintf("%d at %s", len(a.names), a.id) }

func (a *forks) run(ctx context.Context, s *engine.Store) error {
	for _, name := range a.names {
		sub := a.call.as(a.ref)
		a.done = append(a.done, sub)
		if _, sub.err = s.Thread(a.ref).Fork(ctx, engine.At(a.id), name); sub.err != nil && !errors.Is(sub.err, engine.ErrConflict) {
			return sub.err
		}
	}
	return nil
}

func (a *forks) effect(f *facts) {
	for i, sub := range a.done {
		sub.inv, sub.res, sub.ended = a.inv, a.res, a.ended
		sub.unknown = a.unknown
		if sub.acked() || sub.doubtful() {
			f.branch(a.ref, a.names[i]).write(sub, a.id, true)
		}
	}
}

func (a *forks) check(f *facts) {
	if errors.Is(a.err, engine.ErrNotFound) {
		f.missing(&a.call, a.id)
	} else {
		f.plainError(&a.call)
	}
}

func makeForks(g *gen) action {
	a := &forks{call: call{ref: g.ref()}}
	k := g.known(a.ref)
	if k == nil || g.w.prof.branches < 50 {
		return nil
	}
	a.id = k.cp.ID
	from := g.rand.IntN(3) * 100
	for i := range 50 + g.rand.IntN(50) {
		a.names = append(a.names, fmt.Sprintf("b%d", from+i))
	}
	return a
}

// label changes labels.
type label struct {
	call
	which  engine.Which
	labels map[string]string
	cp     *engine.Checkpoint
}

func (a *label) String() string { return fmt.Sprintf("%s: %v", whichText(a.which), a.labels) }

func (a *label) run(ctx context.Context, s *engine.Store) (err error) {
	a.cp, err = s.Thread(a.ref).SetLabels(ctx, a.which, a.labels)
	return err
}

func (a *label) saw() []*engine.Checkpoint {
	if a.acked() {
		return []*engine.Checkpoint{a.cp}
	}
	return nil
}

func (a *label) learn(m *model) {
	m.learn(a.ref, a.name, a.cp, nil)
}

func (a *label) effect(f *facts) {
	f.saved(&a.call, 0, false)
	if !a.acked() {
		return
	}
	// It is a replacement of the newest revision with its id, unless the labels were already set.
	r := f.madeLabel(&a.call, a.cp, a.labels)
	if r == nil || r.by == nil {
		return
	}
	if r.by == &a.call {
		if !a.named() && f.labelledInDoubt(a.cp) { // that call may have been the last to label it
			r.wanted = true
		}
		return
	}
	if s, ok := r.by.act.(*save); ok && s.repeat { // one of the two answered with the other's checkpoint
		switch {
		case a.named() || a.precedes(r.by):
			r.by, r.draft, r.labels, r.labelOf = &a.call, nil, a.labels, lateBound
		case !r.by.precedes(&a.call):
			r.draft, r.wanted = nil, true // whichever it was
		}
	}
}

// named reports whether the labels name the call, so that it cannot have found them already set.
func (a *label) named() bool { return a.labels["by"] == a.name }

// labelledInDoubt reports whether a checkpoint has the label of a call with an unknown outcome.
func (f *facts) labelledInDoubt(cp *engine.Checkpoint) bool {
	return slices.ContainsFunc(f.w.calls, func(o *call) bool {
		l, ok := o.act.(*label)
		return ok && l.named() && cp.Labels["by"] == l.name && o.ref == cp.Ref && !o.acked() && o.doubtful()
	})
}

// madeLabel records a checkpoint whose labels changed.
func (f *facts) madeLabel(c *call, cp *engine.Checkpoint, labels map[string]string) *rev {
	return f.made(c, cp, &rev{labels: labels, labelOf: lateBound})
}

// lateBound is the seq of a checkpoint that is determined once all checkpoints are known.
const lateBound = never

func (a *label) claim(f *facts, cp *engine.Checkpoint) *rev {
	_, id, _ := a.which.Parts()
	if cp.Ref != a.ref || id != "" && cp.ID != id || id == "" && f.line(cp.Ref).gens[cp.ID] == nil {
		return nil
	}
	for k, v := range a.labels {
		if cp.Labels[k] != v {
			return nil
		}
	}
	return &rev{labels: a.labels, labelOf: lateBound}
}

func (a *label) check(f *facts) {
	c := &a.call
	switch {
	case c.unknown:
	case errors.Is(c.err, engine.ErrNotFound):
		f.notFound(c, a.which)
	case c.err != nil:
		f.plainError(c)
	default:
		f.show(c, a.cp)
		for k, v := range a.labels {
			if a.cp.Labels[k] != v {
				f.problem(c, "it has the labels %v", a.cp.Labels)
			}
		}
	}
}

func makeLabel(g *gen) action {
	a := &label{call: call{ref: g.ref()}}
	k := g.forked(a.ref)
	if k == nil || g.one(2) {
		k = g.known(a.ref)
	}
	if k == nil {
		return nil
	}
	if a.which = engine.At(k.cp.ID); g.one(4) {
		a.which = engine.Latest
	}
	a.labels = map[string]string{"by": g.name}
	if g.one(6) {
		a.labels = map[string]string{engine.LabelPin: []string{"", "yes"}[g.rand.IntN(2)]}
	}
	return a
}
