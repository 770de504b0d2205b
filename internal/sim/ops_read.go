package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/engine"
)

// load loads a checkpoint by any Which, with or without data.
type load struct {
	call
	which engine.Which
	opts  engine.LoadOptions
	cp    *engine.Checkpoint
}

func (a *load) String() string {
	return fmt.Sprintf("%s headers %v schema %d", whichText(a.which), a.opts.HeadersOnly, a.opts.Schema)
}

func (a *load) run(ctx context.Context, s *engine.Store) (err error) {
	a.cp, err = s.Thread(a.ref).Load(ctx, a.which, a.opts)
	return err
}

func (a *load) saw() []*engine.Checkpoint {
	if a.err != nil || a.opts.Schema != 0 {
		return nil
	}
	return []*engine.Checkpoint{a.cp}
}

func (a *load) check(f *facts) {
	c := &a.call
	if !c.acked() {
		if errors.Is(c.err, engine.ErrNotFound) {
			f.notFound(c, a.which)
		} else {
			f.plainError(c)
		}
		return
	}
	if a.opts.Schema != 0 {
		f.showMigrated(c, a.cp, a.opts.Schema)
		return
	}
	f.show(c, a.cp)
	f.chosen(c, a.which, a.cp)
}

// showMigrated judges a checkpoint that a load returned at another version.
func (f *facts) showMigrated(c *call, cp *engine.Checkpoint, to uint64) {
	r := f.find(c.ref, cp)
	if r == nil {
		return // a save in doubt: the version shown differs from the one it saved
	}
	first := ""
	for _, want := range f.variants(c.ref, r) {
		if m := want.migrated(to); m != nil {
			diff := m.differs(cp)
			if diff == "" {
				return
			}
			first = diff
		}
	}
	if first != "" && !f.maybeLabelled(c.ref, cp) {
		f.problem(c, "%v at version %d: %s", r, to, first)
	}
}

// notFound judges the answer that a Which matches nothing.
func (f *facts) notFound(c *call, w engine.Which) {
	by, name, seq := w.Parts()
	switch by {
	case engine.ByID:
		f.missing(c, name)
	case engine.BySeq: // a replaced revision is not found
		for _, r := range f.line(c.ref).revs {
			if r.seq == seq && f.always(c, r) && f.onlyGeneration(c, r.gen) {
				f.problem(c, "%v existed throughout: %v", r, c.err)
			}
		}
	case engine.ByNewest, engine.ByGreatestID:
		for _, r := range f.line(c.ref).revs {
			if f.alive(c, r.gen, r.id) {
				f.problem(c, "%v existed throughout: %v", r, c.err)
				return
			}
		}
	case engine.ByBranch:
		if b := f.branch(c.ref, name); f.followed(c.ref.Thread, c.res) && !b.legal("", c.inv, c.res, f.line(c.ref).moves) {
			f.problem(c, "the branch existed throughout: it was at %q, then %v: %v", b.was, b.writes, c.err)
		}
	case engine.ByRun:
		for _, r := range f.line(c.ref).revs {
			if f.isRun(c, r, name) && f.always(c, r) {
				f.problem(c, "%v, by %s, belongs to that run and existed throughout: %v", r, r.by.who(), c.err)
				return
			}
		}
	}
}

// onlyGeneration reports whether a thread had no other generation during a call.
func (f *facts) onlyGeneration(c *call, gen uint64) bool {
	for _, r := range f.line(c.ref).revs {
		if r.gen != gen {
			return false
		}
	}
	return f.followed(c.ref.Thread, c.res)
}

// always reports whether r certainly existed, unchanged, throughout a call.
func (f *facts) always(c *call, r *rev) bool {
	if r.by != nil && r.born.hi >= c.inv || r.next == nil && !f.unchanged(c, r.id) || r.next != nil && r.next.born.lo <= c.res ||
		f.doubtsID(c, r.id) {
		return false
	}
	for _, o := range f.line(c.ref).ids[idKey{r.gen, r.id}] { // saved again after r was removed
		if o.seq > r.seq && o.born.lo <= c.res {
			return false
		}
	}
	return f.alive(c, r.gen, r.id)
}

// isRun reports whether r certainly belongs to a run.
func (f *facts) isRun(c *call, r *rev, run string) bool {
	all := f.contents(c.ref, r)
	return len(all) > 0 && !slices.ContainsFunc(all, func(w *content) bool { return w.run != run })
}

// chosen judges whether a checkpoint is the one that a Which refers to.
func (f *facts) chosen(c *call, w engine.Which, cp *engine.Checkpoint) {
	by, name, seq := w.Parts()
	r := f.find(c.ref, cp)
	if r == nil {
		return
	}
	// newer finds a later one that existed throughout.
	newer := func(place uint64, ok func(*rev) bool) {
		for _, o := range f.line(c.ref).revs {
			if o.gen == r.gen && o.id != r.id && o.origin > place && r.origin != 0 && ok(o) && f.alive(c, o.gen, o.id) && o.born.hi < c.inv {
				f.problem(c, "it is %v, but %v is later and existed throughout", r, o)
				return
			}
		}
	}
	switch by {
	case engine.ByNewest:
		newer(r.origin, func(*rev) bool { return true })
	case engine.ByRun:
		if cp.RunID != name {
			f.problem(c, "it belongs to the run %q", cp.RunID)
		}
		newer(r.seq, func(o *rev) bool { return f.isRun(c, o, name) && f.always(c, o) })
	case engine.ByID:
		if cp.ID != name {
			f.problem(c, "it is %s", cp.ID)
		}
	case engine.BySeq:
		if cp.Seq != seq {
			f.problem(c, "it is seq %d", cp.Seq)
		}
	case engine.ByBranch:
		b := f.branch(c.ref, name)
		if f.followed(c.ref.Thread, c.res) && !b.legal(cp.ID, c.inv, c.res, f.line(c.ref).moves) {
			f.problem(c, "the branch ends at %s; it was at %q, then %v", cp.ID, b.was, b.writes)
		}
	case engine.ByBefore:
		if cp.ID == name {
			f.problem(c, "it is that checkpoint itself")
		}
	}
}

func makeLoad(g *gen) action {
	a := &load{call: call{ref: g.ref()}}
	a.which, _ = g.which(a.ref)
	switch {
	case g.one(4):
		a.opts.HeadersOnly = true
	case g.one(6) && versioned(a.ref):
		a.opts.Schema, a.opts.Down = uint64(1+g.rand.IntN(3)), true
	}
	return a
}

// history walks a lineage.
type history struct {
	call
	opts engine.HistoryOptions
	cps  []*engine.Checkpoint
}

func (a *history) String() string {
	return fmt.Sprintf("limit %d from %s branch %s run %s data %v", a.opts.Limit, a.opts.From, a.opts.Branch, a.opts.RunID, a.opts.Data)
}

func (a *history) run(ctx context.Context, s *engine.Store) error {
	for cp, err := range s.Thread(a.ref).History(ctx, a.opts) {
		if err != nil {
			return err
		}
		a.cps = append(a.cps, cp)
	}
	return nil
}

func (a *history) saw() []*engine.Checkpoint { return a.cps }

func (a *history) check(f *facts) {
	c := &a.call
	seen := map[string]bool{}
	order := uint64(never)
	for _, cp := range a.cps {
		f.show(c, cp)
		r := f.find(c.ref, cp)
		if seen[cp.ID] {
			f.problem(c, "%s comes twice", cp.ID)
		}
		seen[cp.ID] = true
		if r != nil && r.origin != 0 && a.opts.From == "" && a.opts.Branch == "" {
			at := f.place(c.ref, r, order)
			if at == 0 && f.rewritten(c) { // the walk passed its position after the record there was gone
				continue
			}
			if at == 0 {
				f.problem(c, "%v, whose position is %d, comes after one that it precedes", r, r.origin)
				at = order
			}
			order = at
		}
	}
	switch {
	case c.unknown:
	case errors.Is(c.err, engine.ErrNotFound) || errors.Is(c.err, engine.ErrGeneration):
		if a.opts.From == "" && a.opts.Branch == "" || errors.Is(c.err, engine.ErrGeneration) {
			f.notFound(c, engine.Latest)
		} else if a.opts.From != "" {
			f.missing(c, a.opts.From)
		}
	case c.err != nil:
		f.plainError(c)
	case a.opts.From == "" && a.opts.Branch == "" && a.opts.Limit == 0 && a.opts.RunID == "":
		for _, r := range f.line(c.ref).revs {
			// If the first record of a replaced checkpoint is gone, the rest moves when the thread
			// is rewritten, or when the checkpoint is replaced again. The walk may have passed that
			// position already, or not reach it any more.
			if r.origin != r.seq && (f.rewritten(c) || !f.unchanged(c, r.id)) {
				continue
			}
			if !seen[r.id] && (r.by == nil || r.born.hi < c.inv) && f.alive(c, r.gen, r.id) && len(a.cps) > 0 && a.cps[0].Generation == r.gen {
				f.problem(c, "%v, which existed throughout, is left out", r)
				return
			}
		}
	}
}

// rewritten reports whether the thread of a call may have been rewritten during the call.
func (f *facts) rewritten(c *call) bool {
	return slices.ContainsFunc(f.rewrites[c.ref.Thread], func(o *call) bool { return o.inv <= c.res && o.res >= c.inv })
}

func makeHistory(g *gen) action {
	a := &history{call: call{ref: g.ref()}}
	a.opts.Data = g.one(2)
	switch k := g.known(a.ref); g.rand.IntN(6) {
	case 0:
		a.opts.Limit = 1 + g.rand.IntN(10)
	case 1:
		if k != nil {
			a.opts.From = k.cp.ID
		}
	case 2:
		a.opts.RunID = g.run()
	case 3:
		a.opts.Branch = g.branch()
		if g.one(2) {
			a.opts.Branch = ""
		}
	}
	return a
}

// tree reads all headers of a lineage.
type tree struct {
	call
	tree *engine.Tree
}

func (a *tree) run(ctx context.Context, s *engine.Store) (err error) {
	a.tree, err = s.Thread(a.ref).Tree(ctx)
	return err
}

func (a *tree) saw() (cps []*engine.Checkpoint) {
	if a.err == nil && a.tree != nil {
		for _, n := range a.tree.Nodes {
			cps = append(cps, n.Checkpoint)
		}
	}
	return cps
}

func (a *tree) check(f *facts) {
	c := &a.call
	if errors.Is(c.err, engine.ErrNotFound) {
		f.notFound(c, engine.Latest)
	} else if c.err != nil {
		f.plainError(c)
	}
	if !c.acked() {
		return
	}
	seen := map[string]bool{}
	for _, cp := range a.saw() {
		f.show(c, cp)
		seen[cp.ID] = true
	}
	for _, r := range f.line(c.ref).revs {
		if !seen[r.id] && f.always(c, r) {
			f.problem(c, "%v, which existed throughout, is left out", r)
		}
	}
}

// diff compares two checkpoints.
type diff struct {
	call
	from, to engine.Which
	diff     *engine.Diff
}

func (a *diff) String() string { return whichText(a.from) + " with " + whichText(a.to) }

func (a *diff) run(ctx context.Context, s *engine.Store) (err error) {
	a.diff, err = s.Thread(a.ref).Diff(ctx, a.from, a.to)
	return err
}

func (a *diff) saw() []*engine.Checkpoint {
	if !a.acked() {
		return nil
	}
	return []*engine.Checkpoint{a.diff.From, a.diff.To}
}

func (a *diff) check(f *facts) {
	c := &a.call
	switch {
	case errors.Is(c.err, engine.ErrNotFound):
		if _, x, _ := a.from.Parts(); f.certain(c, x) {
			f.notFound(c, a.to)
		}
	case c.err != nil:
		f.plainError(c)
	case c.acked():
		f.show(c, a.diff.From)
		f.show(c, a.diff.To)
		f.chosen(c, a.to, a.diff.To)
		a.channels(f)
	}
}

// channels compares the diff's statements about channels with the contents of both checkpoints.
func (a *diff) channels(f *facts) {
	from, to := f.find(a.ref, a.diff.From), f.find(a.ref, a.diff.To)
	if from == nil || to == nil || !f.quietHistory(a.ref) {
		return
	}
	was, is := f.contents(a.ref, from), f.contents(a.ref, to)
	if len(was) != 1 || len(is) != 1 {
		return
	}
	for _, ch := range a.diff.Channels {
		old, had := was[0].chans[ch.Name]
		now, has := is[0].chans[ch.Name]
		want := engine.Changed
		switch {
		case !had:
			want = engine.Added
		case !has:
			want = engine.Removed
		case old == now:
			want = engine.Same
		}
		if ch.Kind != want && old.typ == now.typ {
			f.problem(&a.call, "channel %s is reported as %s but is %s", ch.Name, ch.Kind, want)
		}
	}
}

func makeDiff(g *gen) action {
	a := &diff{call: call{ref: g.ref()}}
	k := g.known(a.ref)
	if k == nil {
		return nil
	}
	a.from = engine.At(k.cp.ID)
	a.to, _ = g.which(a.ref)
	return a
}

// query searches the checkpoints of all threads.
type query struct {
	call
	q   engine.Query
	cps []*engine.Checkpoint
}

func (a *query) String() string {
	return fmt.Sprintf("run %q status %q labels %v", a.q.RunID, a.q.Status, a.q.Labels)
}

func (a *query) run(ctx context.Context, s *engine.Store) error {
	for cp, err := range s.User(tenant, user).Query(ctx, a.q) {
		if err != nil {
			return err
		}
		a.cps = append(a.cps, cp)
	}
	return nil
}

func (a *query) saw() []*engine.Checkpoint { return a.cps }

func (a *query) check(f *facts) {
	c := &a.call
	if c.err != nil {
		f.plainError(c)
	}
	if !c.acked() {
		return
	}
	seen := map[place]bool{}
	for _, cp := range a.cps {
		f.show(c.as(cp.Ref), cp)
		seen[place{line{cp.Ref, cp.Generation}, cp.Seq}] = true
		if a.q.RunID != "" && cp.RunID != a.q.RunID || a.q.Status != "" && cp.Status != a.q.Status {
			f.problem(c, "it finds %s, of run %q and status %q", cp.ID, cp.RunID, cp.Status)
		}
	}
	for ref, l := range f.lines {
		// A query reads the index of one epoch. It misses checkpoints that are rewritten before it
		// follows their index entries.
		if f.rewritten(c.as(ref)) {
			continue
		}
		for _, r := range l.revs {
			all := f.contents(ref, r)
			if seen[place{line{ref, r.gen}, r.seq}] || len(all) == 0 || !f.always(c.as(ref), r) {
				continue
			}
			if !slices.ContainsFunc(all, func(w *content) bool { return !a.matches(w) }) {
				f.problem(c, "%v of %s/%s matches and existed throughout, but is left out", r, ref.Thread, ref.Namespace)
				return
			}
		}
	}
}

func (a *query) matches(w *content) bool {
	for k, v := range a.q.Labels {
		if w.labels[k] != v {
			return false
		}
	}
	return (a.q.RunID == "" || w.run == a.q.RunID) && (a.q.Status == "" || w.status == a.q.Status)
}

// as returns a copy of a call as if it were on the given lineage.
func (c *call) as(ref engine.Ref) *call {
	return &call{name: c.name, ref: ref, act: c.act, kind: c.kind, inv: c.inv, res: c.res, from: c.from, to: c.to, ended: c.ended, unknown: c.unknown, err: c.err}
}

func makeQuery(g *gen) action {
	a := &query{call: call{ref: engine.Ref{Tenant: tenant, User: user, Thread: "-"}}}
	switch g.rand.IntN(3) {
	case 0:
		a.q.RunID = g.run()
	case 1:
		a.q.Status = engine.StatusFailed
	default:
		a.q.Labels = map[string]string{"env": "prod"}
	}
	return a
}
