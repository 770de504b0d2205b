package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// The steps of the storm.

func (w *stormWorker) save(ctx context.Context, th *Thread) {
	p := w.pick(th.Ref())
	var d Draft
	var state map[string]string
	onPoint := p != nil && !p.chosen && w.r.IntN(3) > 0
	if onPoint {
		d, state = w.child(p)
	} else {
		d, state = w.whole(p)
	}
	d.Step = int64(w.i)
	if w.r.IntN(6) == 0 {
		d.Branch = w.branchName()
	}
	if w.r.IntN(3) == 0 {
		d.Labels = map[string]string{w.labelName(): "a"}
	}
	if w.r.IntN(4) == 0 {
		d.ID = fmt.Sprintf("id-%d-%d", w.n, w.i)
	}
	cp, err := th.Save(ctx, d)
	var allowed []error
	if d.Expect != (Expect{}) {
		allowed = append(allowed, ErrConflict)
	}
	if onPoint && !w.there(p) {
		allowed = append(allowed, ErrUnknownParent, ErrNeedFull)
	}
	w.outcome(ctx, "save", err, allowed...)
	w.keep(th.Ref(), d.ID, cp, state, err)
}

// keep remembers the outcome of a save.
func (w *stormWorker) keep(ref Ref, id string, cp *Checkpoint, state map[string]string, err error) {
	p := &point{ref: ref, id: id, chosen: id != "", versions: map[string]Version{}, states: []map[string]string{state}}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.saved.Add(1)
		p.id, p.gen, p.seq = cp.ID, cp.Generation, cp.Seq
		for _, ch := range cp.Channels {
			p.versions[ch.Name] = ch.Version
		}
		w.points[ref] = append(w.points[ref], p)
	case id == "":
	case errors.Is(err, ErrAmbiguous):
		w.unknown = append(w.unknown, p)
	default:
		w.refused = append(w.refused, p)
	}
}

// child drafts a child of a checkpoint, with some channels that are new, removed, spliced or sent
// whole.
func (w *stormWorker) child(p *point) (d Draft, state map[string]string) {
	d = Draft{Parent: p.id, Keep: true}
	state = maps.Clone(p.states[0])
	for _, n := range w.r.Perm(5)[:1+w.r.IntN(3)] {
		c := Change{Name: fmt.Sprint("c", n)}
		have, ok := state[c.Name]
		switch {
		case !ok:
			c.Data = randomText(w.r, w.r.IntN(3000))
			state[c.Name] = string(c.Data)
		case w.r.IntN(8) == 0:
			c.Remove = true
			delete(state, c.Name)
		case w.r.IntN(2) == 0:
			c.Base = p.versions[c.Name]
			c.Prefix = w.r.IntN(len(have) + 1)
			c.Suffix = w.r.IntN(len(have) - c.Prefix + 1)
			c.Data = randomText(w.r, w.r.IntN(200))
			state[c.Name] = have[:c.Prefix] + string(c.Data) + have[len(have)-c.Suffix:]
		default:
			c.Data = append([]byte(have), randomText(w.r, w.r.IntN(100))...)
			state[c.Name] = string(c.Data)
		}
		d.Channels = append(d.Channels, c)
	}
	return d, state
}

// whole drafts a checkpoint with all its channels, on the head, sometimes only if that is p, or as
// a root.
func (w *stormWorker) whole(p *point) (d Draft, state map[string]string) {
	state = map[string]string{}
	for n := range 1 + w.r.IntN(4) {
		size := w.r.IntN(2000)
		if w.r.IntN(40) == 0 {
			size = 100 << 10
		}
		c := Change{Name: fmt.Sprint("c", n), Data: randomText(w.r, size)}
		d.Channels = append(d.Channels, c)
		state[c.Name] = string(c.Data)
	}
	if p != nil && w.r.IntN(5) == 0 {
		d.Expect = ExpectHead(p.seq)
	}
	d.Root = w.r.IntN(10) == 0
	return d, state
}

func (w *stormWorker) branchName() string { return fmt.Sprint("b", w.r.IntN(4)) }
func (w *stormWorker) labelName() string  { return fmt.Sprint("k", w.r.IntN(3)) }

func (w *stormWorker) load(ctx context.Context, th *Thread) {
	if p := w.pick(th.Ref()); p != nil {
		w.check(ctx, p)
	}
}

// replace saves a checkpoint again under its id, with another state.
func (w *stormWorker) replace(ctx context.Context, th *Thread) {
	p := w.pick(th.Ref())
	if p == nil || !p.chosen {
		return
	}
	p.replacing.Lock()
	defer p.replacing.Unlock()
	data := randomText(w.r, w.r.IntN(2000))
	w.mu.Lock()
	at := len(p.states)
	p.states = append(p.states, map[string]string{"c0": string(data)})
	w.mu.Unlock()
	cp, err := th.Save(ctx, Draft{ID: p.id, Step: int64(w.i), Channels: []Change{{Name: "c0", Data: data}}})
	w.outcome(ctx, "replace", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && cp.Generation == p.gen:
		p.sure = at
	case err != nil && !errors.Is(err, ErrAmbiguous):
		p.states[at] = nil
	}
}

func (w *stormWorker) label(ctx context.Context, th *Thread) {
	p := w.pick(th.Ref())
	if p == nil {
		return
	}
	_, err := th.SetLabels(ctx, At(p.id), map[string]string{w.labelName(): []string{"", "a", "b"}[w.r.IntN(3)]})
	w.outcome(ctx, "label", err, w.notFound(p)...)
}

// notFound allows a call that needs a checkpoint not to find it, if it may be gone.
func (w *stormWorker) notFound(p *point) []error {
	if w.there(p) {
		return nil
	}
	return []error{ErrNotFound}
}

func (w *stormWorker) branch(ctx context.Context, th *Thread) {
	p := w.pick(th.Ref())
	if p == nil {
		return
	}
	name := w.branchName()
	switch w.r.IntN(3) {
	case 0:
		w.outcome(ctx, "delete branch", th.DeleteBranch(ctx, name), ErrNotFound)
	case 1:
		err := th.SetBranch(ctx, name, At(p.id))
		w.outcome(ctx, "set branch", err, w.notFound(p)...)
	default:
		_, err := th.Fork(ctx, At(p.id), name)
		w.outcome(ctx, "fork", err, append(w.notFound(p), ErrConflict)...)
	}
}

// putWrites puts writes of a task of its own, and reads them.
func (w *stormWorker) putWrites(ctx context.Context, th *Thread) {
	p := w.pick(th.Ref())
	if p == nil {
		return
	}
	task := fmt.Sprint("task", w.n)
	put := Write{Index: int64(w.r.IntN(3)), Channel: "c", Data: randomText(w.r, w.r.IntN(100))}
	_, err := th.PutWrites(ctx, p.id, task, "", Upsert, []Write{put}, 0)
	w.outcome(ctx, "put writes", err)
	if err != nil {
		return
	}
	got, err := th.Writes(ctx, p.id)
	w.outcome(ctx, "writes", err, w.notFound(p)...)
	has := slices.ContainsFunc(got, func(g PendingWrite) bool {
		return g.Task == task && g.Index == put.Index && string(g.Data) == string(put.Data)
	})
	if err == nil && !has && w.there(p) {
		w.fail("%+v %s lacks a write that was acknowledged", p.ref, p.id)
	}
}

// prune removes some checkpoints. Pruning a head or the head of a branch is refused, with
// everything else in the call.
func (w *stormWorker) prune(ctx context.Context, th *Thread) {
	o := upkeep.PruneOptions{Erase: w.r.IntN(3) == 0}
	var claimed []*point
	for range 1 + w.r.IntN(6) {
		if p := w.pick(th.Ref()); p != nil && w.claim(p) {
			claimed = append(claimed, p)
			o.Remove = append(o.Remove, p.id)
		}
	}
	if len(claimed) == 0 {
		return
	}
	_, err := th.Upkeep().Prune(ctx, o)
	w.outcome(ctx, "prune", err, ErrInvalid, ErrNotFound)
	if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotFound) {
		w.dropGone(th.Ref())
		return
	}
	if all := w.unclaim(claimed); all && errors.Is(err, ErrNotFound) {
		w.fail("pruning %q, which are all there: %v", o.Remove, err)
	}
}

func (w *stormWorker) collect(ctx context.Context, th *Thread) {
	_, err := w.s.User("acme", "alice").Upkeep().GC(ctx, upkeep.GCOptions{Grace: -1})
	w.outcome(ctx, "gc", err)
}

// delete deletes a thread or a namespace. It runs to its end: otherwise the generation of later
// saves would be unknown.
func (w *stormWorker) delete(_ context.Context, th *Thread) {
	of := th.Ref()
	w.mu.Lock()
	w.deleting[of]++
	w.mu.Unlock()
	gen, err := th.Delete(context.Background())
	w.outcome(context.Background(), "delete", err, ErrNotFound)
	w.mu.Lock()
	w.deleting[of]--
	w.least[of] = max(w.least[of], gen)
	if thread := wholeThread(of); gen>>32 != 0 { // it may have been all that the thread held
		w.least[thread] = max(w.least[thread], gen>>32)
	}
	var refs []Ref
	for ref := range w.points {
		if ref.Thread == of.Thread {
			refs = append(refs, ref)
		}
	}
	w.mu.Unlock()
	for _, ref := range refs {
		w.dropGone(ref)
	}
}

func (w *stormWorker) copy(ctx context.Context, th *Thread) {
	to := refOf(fmt.Sprintf("copy-%d-%d", w.n, w.i))
	err := th.Copy(ctx, to)
	w.outcome(ctx, "copy", err, ErrNotFound)
	if err == nil && w.r.IntN(4) > 0 { // else verify looks at it in the end
		_, err := w.s.Thread(to).Delete(ctx)
		w.outcome(ctx, "delete copy", err)
	}
}

func (w *stormWorker) history(ctx context.Context, th *Thread) {
	seen := map[string]bool{}
	for cp, err := range th.History(ctx, HistoryOptions{Data: w.r.IntN(2) == 0, Limit: 200}) {
		if err != nil {
			w.outcome(ctx, "history", err, ErrNotFound, ErrGeneration)
			return
		}
		if seen[cp.ID] {
			w.fail("%+v: %s comes twice in its history", th.Ref(), cp.ID)
		}
		seen[cp.ID] = true
	}
	w.outcome(ctx, "history", nil)
}

func (w *stormWorker) query(ctx context.Context, _ *Thread) {
	for cp, err := range w.s.User("acme", "alice").Query(ctx, Query{Filter: Filter{Labels: map[string]string{"k1": "a"}}, Limit: 20}) {
		if err != nil {
			w.outcome(ctx, "query", err, ErrNotFound)
			return
		}
		if cp.Labels["k1"] != "a" {
			w.fail("asked for k1=a, got %s with %v", cp.ID, cp.Labels)
		}
	}
	w.outcome(ctx, "query", nil)
}

func (w *stormWorker) tree(ctx context.Context, th *Thread) {
	_, err := th.Tree(ctx)
	w.outcome(ctx, "tree", err, ErrNotFound)
}

func (w *stormWorker) branches(ctx context.Context, th *Thread) {
	_, err := th.Branches(ctx)
	w.outcome(ctx, "branches", err, ErrNotFound)
}

// verify finds nothing wrong, also when it is given up.
func (w *stormWorker) verify(ctx context.Context, th *Thread) {
	rep, err := w.s.Upkeep().Verify(ctx, upkeep.VerifyOptions{Tenant: "acme", User: "alice", Thread: th.Ref().Thread, Deep: w.r.IntN(2) == 0})
	w.outcome(ctx, "verify", err, ErrNotFound)
	if rep == nil {
		return
	}
	for _, p := range rep.Problems {
		w.fail("concurrent verify (%v): %+v", err, p)
	}
}
