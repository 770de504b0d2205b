package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
)

// kind is a kind of operation. Its weight is its relative frequency.
type kind struct {
	name   string
	weight int
	make   func(*gen) action // nil: nothing to operate on
}

// action is an operation with its arguments and, after it has run, its answer.
type action interface {
	base() *call
	// run performs it. It is called in its own goroutine, concurrently with others.
	run(ctx context.Context, s *engine.Store) error
	// effect records actual and possible changes of the call in the facts.
	effect(f *facts)
	// check judges the answer, once all facts are known.
	check(f *facts)
}

// learner is an action whose answer names things that later operations can use.
type learner interface{ learn(m *model) }

// witness is an action whose answer shows checkpoints.
type witness interface{ saw() []*engine.Checkpoint }

// claimer is an action that, if its outcome is unknown, may have made a checkpoint that was seen.
type claimer interface {
	claim(f *facts, cp *engine.Checkpoint) *rev
}

func (c *call) base() *call           { return c }
func (c *call) effect(*facts)         {}
func (c *call) check(f *facts)        { f.plainError(c) }
func (c *call) String() string        { return "" }
func (c *call) acked() bool           { return c.err == nil && !c.unknown }
func (c *call) precedes(o *call) bool { return c.res < o.inv }

// doubtful reports whether the call may have taken effect although it was not acknowledged.
func (c *call) doubtful() bool {
	return c.unknown || c.err != nil && errors.Is(c.err, backend.ErrAmbiguous)
}

// partial reports whether a call with many batches may have done part of its work because something
// cut it short.
func (c *call) partial() bool {
	return c.doubtful() || c.err != nil && (c.ended || errors.Is(c.err, errInjected) || errors.Is(c.err, backend.ErrUnavailable) ||
		errors.Is(c.err, context.Canceled))
}

// gen generates an operation. Its choices depend on the operation's name and the current state, not
// on operations generated before.
type gen struct {
	w    *world
	name string
	seed uint64
	rand *rand.Rand
}

func (g *gen) kind(kinds []*kind) *kind {
	weight := func(k *kind) int {
		if v, ok := g.w.prof.weights[k.name]; ok {
			return v
		}
		return k.weight
	}
	total := 0
	for _, k := range kinds {
		total += weight(k)
	}
	n := g.rand.IntN(total)
	for _, k := range kinds {
		if n -= weight(k); n < 0 {
			return k
		}
	}
	panic("unreachable")
}

func (g *gen) one(of int) bool { return g.rand.IntN(of) == 0 }

// ref picks a lineage.
func (g *gen) ref() engine.Ref {
	ref := engine.Ref{Tenant: tenant, User: user, Thread: fmt.Sprintf("t%d", g.rand.IntN(g.w.prof.threads))}
	if copies := g.w.model.copies(); len(copies) > 0 && g.one(8) {
		ref.Thread = copies[g.rand.IntN(len(copies))]
	}
	if n := g.rand.IntN(4); n < g.w.prof.namespaces-1 {
		ref.Namespace = fmt.Sprintf("n%d", n)
	}
	return ref
}

// known picks a checkpoint of a lineage, usually a recent one; nil if there is none.
func (g *gen) known(ref engine.Ref) *known {
	return g.knownThat(ref, func(*known) bool { return true })
}

// forked picks a checkpoint at which a branch ends; nil if there is none.
func (g *gen) forked(ref engine.Ref) *known {
	st := g.w.model.lines[ref]
	if st == nil || len(st.branches) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(st.branches))
	id := st.branches[names[g.rand.IntN(len(names))]]
	return g.knownThat(ref, func(k *known) bool { return k.cp.ID == id })
}

func (g *gen) knownThat(ref engine.Ref, ok func(*known) bool) *known {
	all := g.w.model.known[ref]
	if g.rand.IntN(2) == 0 {
		all = all[max(0, len(all)-8):]
	}
	salt := fmt.Sprint(g.rand.Uint32())
	var best *known
	var rank uint64
	for _, k := range all {
		if !ok(k) {
			continue
		}
		if r := hash(g.seed, k.name, salt); best == nil || r > rank {
			best, rank = k, r
		}
	}
	return best
}

func (g *gen) branch() string { return fmt.Sprintf("b%d", g.rand.IntN(g.w.prof.branches)) }

// text returns text that does not compress well.
func (g *gen) text(n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,"
	b := make([]byte, n)
	for i := 0; i < n; {
		x := g.rand.Uint64()
		for range 10 {
			if i == n {
				break
			}
			b[i] = letters[x&63]
			x >>= 6
			i++
		}
	}
	return b
}

// which refers to a checkpoint in one of all possible ways.
func (g *gen) which(ref engine.Ref) (engine.Which, *known) {
	k := g.known(ref)
	n := g.rand.IntN(16)
	if k == nil && n >= 6 {
		n = 0
	}
	switch {
	case n < 4:
		return engine.Latest, nil
	case n == 4:
		return engine.HeadOf(g.branch()), nil
	case n == 5:
		return engine.LatestOfRun(g.run()), nil
	case n == 6:
		return engine.LatestByID(), nil
	case n == 7:
		return engine.Before(k.cp.ID), k
	case n < 10:
		return engine.AtSeq(k.cp.Seq), k
	}
	return engine.At(k.cp.ID), k
}

func (g *gen) run() string { return fmt.Sprintf("run%d", g.rand.IntN(5)) }

func whichText(w engine.Which) string {
	by, name, seq := w.Parts()
	text := [...]string{"latest", "greatest id", "id", "seq", "before", "run", "branch"}[by]
	if seq != 0 {
		name = fmt.Sprint(seq)
	}
	return strings.TrimSpace(text + " " + name)
}
