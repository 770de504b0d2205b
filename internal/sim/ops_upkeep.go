package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// prune removes checkpoints.
type prune struct {
	call
	opts upkeep.PruneOptions
	rep  *upkeep.PruneReport
}

func (a *prune) String() string {
	return fmt.Sprintf("keep %d remove %v erase %v all %v", a.opts.KeepLast, a.opts.Remove, a.opts.Erase, a.opts.AllNamespaces)
}

func (a *prune) run(ctx context.Context, s *engine.Store) (err error) {
	a.rep, err = s.Thread(a.ref).Upkeep().Prune(ctx, a.opts)
	return err
}

func (a *prune) effect(f *facts) {
	if a.opts.Erase {
		f.sweeps = append(f.sweeps, &a.call)
		f.rewrites[a.ref.Thread] = append(f.rewrites[a.ref.Thread], &a.call)
	}
	if !a.acked() {
		if a.partial() || a.unknown {
			f.remove(&a.call, a.may, nil)
		}
		return
	}
	removed := func(ref engine.Ref, r *rev) bool {
		return ref.Thread == a.ref.Thread && slices.ContainsFunc(a.rep.Removed, func(it upkeep.PruneItem) bool {
			return it.Namespace == ref.Namespace && it.ID == r.id && it.Seq >= r.seq // one in doubt may have replaced r
		})
	}
	f.remove(&a.call, removed, removed)
}

// may reports whether the prune may have removed r.
func (a *prune) may(ref engine.Ref, r *rev) bool {
	here := ref == a.ref || a.opts.AllNamespaces && ref.Thread == a.ref.Thread
	return here && (a.opts.KeepLast > 0 || slices.Contains(a.opts.Remove, r.id))
}

func (a *prune) check(f *facts) {
	c := &a.call
	switch {
	case c.unknown, errors.Is(c.err, engine.ErrInvalid) && len(a.opts.Remove) > 0:
	case errors.Is(c.err, engine.ErrNotFound):
		if len(a.opts.Remove) > 0 {
			f.missing(c, a.opts.Remove[0])
		}
	case c.err != nil:
		f.plainError(c)
	default:
		a.checkRemoved(f)
	}
}

// checkRemoved judges the removals of an acknowledged prune.
func (a *prune) checkRemoved(f *facts) {
	for _, it := range a.rep.Removed {
		ref := a.ref
		ref.Namespace = it.Namespace
		why := ""
		for _, r := range f.line(ref).revs {
			if r.seq != it.Seq || r.id != it.ID || !f.possible(a.as(ref), r) {
				continue
			}
			switch all := f.variants(ref, r); {
			case !a.may(ref, r):
				why = "which it was not to remove"
			case len(all) > 0 && !slices.ContainsFunc(all, func(c *content) bool { return !c.pinned() }):
				why = "which is pinned"
			default:
				why = ""
			}
			if why == "" {
				break
			}
		}
		if why != "" {
			f.problem(&a.call, "it removed seq %d of %q, %s, %s", it.Seq, it.Namespace, it.ID, why)
		}
	}
}

func (c *content) pinned() bool {
	_, ok := c.labels[engine.LabelPin]
	return ok
}

func makePrune(g *gen) action {
	a := &prune{call: call{ref: g.ref()}}
	a.opts.Erase, a.opts.AllNamespaces = g.one(2), g.one(4)
	if g.one(3) {
		a.opts.KeepLast = max(1, g.w.prof.keep) + g.rand.IntN(30)
	} else if k := g.known(a.ref); k != nil {
		a.opts.Remove = []string{k.cp.ID}
	} else {
		return nil
	}
	return a
}

// collect collects garbage.
type collect struct {
	call
	opts upkeep.GCOptions
}

func (a *collect) run(ctx context.Context, s *engine.Store) error {
	_, err := s.User(tenant, user).Upkeep().GC(ctx, a.opts)
	return err
}

func (a *collect) effect(f *facts) { f.sweeps = append(f.sweeps, &a.call) }

func makeCollect(g *gen) action {
	a := &collect{call: call{ref: engine.Ref{Tenant: tenant, User: user, Thread: "-"}}}
	if !g.one(3) {
		a.opts.Grace = -1
	}
	return a
}

// erase deletes a thread, a namespace of it, or everything of a run.
type erase struct {
	call
	byRun string // "": the thread or the namespace
	gen   uint64
	n     int
}

func (a *erase) String() string { return a.byRun }

func (a *erase) run(ctx context.Context, s *engine.Store) (err error) {
	if a.byRun != "" {
		a.n, _, err = s.User(tenant, user).Upkeep().DeleteRun(ctx, a.byRun)
		return err
	}
	a.gen, err = s.Thread(a.ref).Delete(ctx)
	return err
}

func (a *erase) effect(f *facts) {
	if !a.acked() && !a.partial() {
		return
	}
	if a.byRun != "" {
		if a.acked() && a.n == 0 {
			return
		}
		for _, t := range f.threads() {
			f.scramble(&a.call, t)
			f.began[t] = append(f.began[t], &a.call)
		}
		f.remove(&a.call, func(ref engine.Ref, r *rev) bool {
			all := f.contents(ref, r)
			return len(all) == 0 || f.doubtsID(a.as(ref), r.id) || slices.ContainsFunc(all, func(c *content) bool { return c.run == a.byRun })
		}, nil)
		return
	}
	f.scramble(&a.call, a.ref.Thread)
	f.began[a.ref.Thread] = append(f.began[a.ref.Thread], &a.call)
	takes := func(ref engine.Ref, r *rev) bool {
		switch {
		case ref.Thread != a.ref.Thread:
			return false
		case a.ref.Namespace == "":
			return a.gen == 0 || threadOf(r.gen) < a.gen
		}
		return ref == a.ref && (a.gen == 0 || r.gen < a.gen)
	}
	f.remove(&a.call, takes, takes)
}

// threadOf returns the generation of the thread in that of a lineage.
func threadOf(gen uint64) uint64 {
	if gen>>32 == 0 {
		return gen
	}
	return gen >> 32
}

// inThread returns the generation that a lineage of a generation has in another one of its thread.
func inThread(thread, gen uint64) uint64 {
	if gen>>32 == 0 {
		return thread
	}
	return thread<<32 | gen&(1<<32-1)
}

// threads returns the names of all known threads.
func (f *facts) threads() (names []string) {
	for ref := range f.lines {
		names = append(names, ref.Thread)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *erase) check(f *facts) {
	if errors.Is(a.err, engine.ErrNotFound) {
		f.notFound(&a.call, engine.Latest)
		return
	}
	f.plainError(&a.call)
}

func makeDelete(g *gen) action { return &erase{call: call{ref: g.ref()}} }

// makeDeleteNamespace makes nothing if it does not meet a named namespace.
func makeDeleteNamespace(g *gen) action {
	for range 4 {
		if ref := g.ref(); ref.Namespace != "" {
			return &erase{call: call{ref: ref}}
		}
	}
	return nil
}

func makeDeleteRun(g *gen) action {
	return &erase{call: call{ref: engine.Ref{Tenant: tenant, User: user, Thread: "-"}}, byRun: g.run()}
}

// copying copies a thread to one that does not exist yet.
type copying struct {
	call
	dst engine.Ref
}

func (a *copying) String() string { return "to " + a.dst.Thread }

func (a *copying) run(ctx context.Context, s *engine.Store) error {
	return s.Thread(a.ref).Copy(ctx, a.dst)
}

func (a *copying) effect(f *facts) {
	f.scramble(&a.call, a.dst.Thread)
	f.began[a.dst.Thread] = append(f.began[a.dst.Thread], &a.call)
}

// copied returns the revision that a checkpoint of the copy must equal.
func (a *copying) copied(f *facts, cp *engine.Checkpoint) *rev {
	if cp.Ref.Thread != a.dst.Thread || a.err != nil && !a.partial() {
		return nil
	}
	from := a.ref
	from.Namespace = cp.Ref.Namespace
	r, found, known := &rev{wanted: true}, false, true
	for k, was := range f.line(from).revs { // of any generation
		if k.seq == cp.Seq && was.id == cp.ID {
			may := f.variants(from, was)
			r.want = append(r.want, may...)
			found, known = true, known && may != nil
		}
	}
	if !known {
		r.want = nil
	}
	if !found && !f.doubts(a.as(from)) { // otherwise its save is in doubt, and the source has lost it
		return nil
	}
	return f.made(a.as(cp.Ref), cp, r)
}

func (a *copying) check(f *facts) {
	c := &a.call
	if !c.acked() {
		if errors.Is(c.err, engine.ErrNotFound) {
			f.notFound(c, engine.Latest)
		} else {
			f.plainError(c)
		}
		return
	}
	for ref, l := range f.lines {
		if ref.Thread != a.ref.Thread {
			continue
		}
		to := a.dst
		to.Namespace = ref.Namespace
		for _, r := range l.revs {
			if r.next == nil && f.always(c.as(ref), r) && len(f.line(to).ids[idKey{inThread(1, r.gen), r.id}]) == 0 && !f.goneSince(c, to, r) {
				f.problem(c, "%v, which existed throughout, is not in the copy", r)
				return
			}
		}
	}
}

// goneSince reports whether r may have been removed from a copy.
func (f *facts) goneSince(c *call, to engine.Ref, r *rev) bool {
	return slices.ContainsFunc(f.gone, func(g removal) bool { return g.span.hi >= c.inv && g.takes(to, r) })
}

func makeCopy(g *gen) action {
	copies := 0
	for t := range g.w.model.lives {
		if t[0] == 'x' {
			copies++
		}
	}
	if copies > 2 {
		return nil
	}
	a := &copying{call: call{ref: g.ref()}}
	a.ref.Namespace = ""
	a.dst = a.ref
	a.dst.Thread = "x" + g.name + a.ref.Thread[len(a.ref.Thread)-1:]
	return a
}

// blob puts a blob and reads it.
type blob struct {
	call
	data []byte
	id   engine.BlobID
	got  []byte
	gerr error
}

func (a *blob) String() string { return fmt.Sprintf("%d bytes", len(a.data)) }

func (a *blob) run(ctx context.Context, s *engine.Store) (err error) {
	u := s.User(tenant, user)
	if a.id, _, err = u.PutBlob(ctx, bytes.NewReader(a.data)); err != nil {
		return err
	}
	var b bytes.Buffer
	_, a.gerr = u.GetBlob(ctx, a.id, &b)
	a.got = b.Bytes()
	return nil
}

func (a *blob) learn(m *model) {
	m.blobs[a.id] = string(a.data)
	m.put = append(m.put, a.id)
}

func (a *blob) check(f *facts) {
	f.plainError(&a.call)
	if !a.acked() {
		return
	}
	c := a.as(a.ref)
	c.err = a.gerr
	if a.gerr == nil && !bytes.Equal(a.got, a.data) {
		f.problem(c, "the blob has different bytes")
	} else if !errors.Is(a.gerr, engine.ErrNotFound) || !f.blobsInDoubt() {
		f.plainError(c)
	}
}

// blob picks a blob from those stored.
func (g *gen) blob() (id engine.BlobID, ok bool) {
	if put := g.w.model.put; len(put) > 0 {
		return put[len(put)-1-g.rand.IntN(min(len(put), 4))], true
	}
	return id, false
}

func makeBlob(g *gen) action {
	size := 100
	if g.one(12) {
		size = 300_000
	}
	data := append(bytes.Repeat([]byte{'b', 0}, size/2), g.name...)
	if g.one(3) { // one that others store, too
		data = append(data[:size], byte(g.rand.IntN(3)))
	}
	return &blob{call: call{ref: engine.Ref{Tenant: tenant, User: user, Thread: "-"}}, data: data}
}
