package sim

import (
	"cmp"
	"errors"
	"slices"

	"github.com/ckptd/ckptd/engine"
)

// at lists the revisions in a lineage when the save of a seq took effect, by position, newest
// first. The order of a lineage is that of its seqs.
func (f *facts) at(ref engine.Ref, gen, seq uint64) []*rev {
	l := f.line(ref)
	var now []*rev
	for k, revs := range l.ids {
		if k.gen != gen {
			continue
		}
		for i := len(revs) - 1; i >= 0; i-- {
			if revs[i].seq < seq {
				now = append(now, revs[i])
				break
			}
		}
	}
	slices.SortFunc(now, func(a, b *rev) int { return cmp.Or(cmp.Compare(b.origin, a.origin), cmp.Compare(b.seq, a.seq)) })
	return now
}

// latest returns the possible seqs of the newest checkpoint when the save of a seq took effect; 0
// means none.
func (f *facts) latest(c *call, gen, seq uint64) []uint64 {
	var out []uint64
	now := f.at(c.ref, gen, seq)
	for _, r := range now {
		if r.origin == 0 {
			out = append(out, r.seq)
		}
	}
	for _, r := range now {
		out = append(out, r.seq)
		if r.origin != 0 && (r.there || !f.mayGo(c, r)) {
			return out
		}
	}
	return append(out, 0)
}

// stands checks the parent of a new checkpoint.
func (f *facts) stands(r *rev, d *engine.Draft) {
	c := r.by
	if f.doubts(c) && f.unseen(c, r) {
		return
	}
	latest := f.latest(c, r.gen, r.seq)
	if seq, ok := d.Expect.Head(); ok && !slices.Contains(latest, seq) {
		f.problem(c, "it was saved as seq %d, though the newest was not %d but one of %v", r.seq, seq, latest)
	}
	old := f.before(c.ref, r)
	switch {
	case old != nil && d.Parent == "" && !d.Root:
		if r.origin != 0 && r.origin != r.seq && r.parentSeq != old.parentSeq && r.parentSeq != 0 {
			f.problem(c, "the replacement of seq %d stands on seq %d, not %d", old.seq, r.parentSeq, old.parentSeq)
		}
	case d.Root:
		if r.parentSeq != 0 || r.parent != "" {
			f.problem(c, "a root stands on seq %d", r.parentSeq)
		}
	case d.Parent != "":
		f.standsOn(c, r, d)
	case d.Branch != "":
		b := f.branch(c.ref, d.Branch)
		moves := f.line(c.ref).moves
		onHead := r.parent != "" && b.legal(r.parent, c.inv, c.res, moves)
		onLatest := b.legal("", c.inv, c.res, moves) && slices.Contains(latest, r.parentSeq)
		if f.followed(c.ref.Thread, c.res) && !onHead && !onLatest {
			f.problem(c, "on branch %s it stands on seq %d, %s; the branch was at %q, then %v", d.Branch, r.parentSeq, r.parent, b.was, b.writes)
		}
	case !slices.Contains(latest, r.parentSeq):
		f.problem(c, "seq %d stands on seq %d; the newest was one of %v, of %v", r.seq, r.parentSeq, latest, f.at(c.ref, r.gen, r.seq))
	}
}

// unseen reports whether there may be unseen checkpoints before r, from saves in doubt.
func (f *facts) unseen(c *call, r *rev) bool {
	return f.unseenSince(c.ref, r, &rev{seq: max(r.seq, 64) - 64})
}

// unseenSince is unseen for checkpoints after old.
func (f *facts) unseenSince(ref engine.Ref, r, old *rev) bool {
	for seq := old.seq + 1; seq < r.seq; seq++ {
		if f.line(ref).revs[revKey{r.gen, seq}] == nil {
			return true
		}
	}
	return false
}

// before returns the revision of the same id before r, or nil.
func (f *facts) before(ref engine.Ref, r *rev) *rev {
	revs := f.line(ref).ids[idKey{r.gen, r.id}]
	if i := slices.Index(revs, r); i > 0 {
		return revs[i-1]
	}
	return nil
}

// standsOn checks an explicitly named parent.
func (f *facts) standsOn(c *call, r *rev, d *engine.Draft) {
	if r.parent != d.Parent {
		f.problem(c, "it stands on %q", r.parent)
		return
	}
	if r.parentSeq == 0 {
		if !d.AllowDangling || f.alive(c, r.gen, d.Parent) {
			f.problem(c, "the parent exists, but is not its parent")
		}
		return
	}
	for _, p := range f.at(c.ref, r.gen, r.seq) {
		if p.id == d.Parent && p.seq != r.parentSeq {
			f.problem(c, "seq %d stands on seq %d of its parent, which was seq %d by then", r.seq, r.parentSeq, p.seq)
		}
	}
}

// conflict judges the refusal of a conditional save.
func (f *facts) conflict(c *call, d *engine.Draft, e *engine.ConflictError) {
	want, _ := d.Expect.Head()
	if e.HeadSeq == want {
		f.problem(c, "it is refused although it expects the current head")
		return
	}
	found, there := e.HeadSeq == 0, e.HeadSeq == 0
	for k, r := range f.line(c.ref).revs {
		if k.seq == e.HeadSeq && r.id == e.HeadID {
			found, there = true, there || f.possible(c, r)
		}
	}
	if found && !there && !f.doubtsID(c, e.HeadID) { // it names no generation: an unseen one may have had the same seq
		f.problem(c, "the conflict reports a head that did not exist then: seq %d, %s", e.HeadSeq, e.HeadID)
	}
	if !found && !f.doubts(c) {
		f.problem(c, "the conflict reports a head that never existed: seq %d, %s", e.HeadSeq, e.HeadID)
	}
}

// doubts reports whether the outcome of some other save of the lineage is unknown.
func (f *facts) doubts(c *call) bool {
	return slices.ContainsFunc(f.w.calls, func(o *call) bool { return o != c && o.ref == c.ref && o.doubtful() })
}

// repeatable reports whether a save must be answered like the first time: it was acknowledged, and
// its checkpoint existed unchanged throughout.
func (f *facts) repeatable(c *call, d *engine.Draft) bool {
	l := f.line(c.ref)
	for _, gen := range l.gens[d.ID] {
		revs := l.ids[idKey{gen, d.ID}]
		if len(revs) != 1 || !f.alive(c, gen, d.ID) || !f.quietHistory(c.ref) || !f.unchanged(c, d.ID) {
			continue
		}
		r := revs[0]
		if r.draft != nil && r.draft.Step == d.Step && (r.by == nil || r.born.hi < c.inv) && (d.Generation == 0 || f.generationCertain(c, d.Generation)) {
			return true
		}
	}
	return false
}

// untouched reports whether a repeated save replaced exactly its own first result.
func (f *facts) untouched(c *call, r *rev) bool {
	old := f.before(c.ref, r)
	return old != nil && r.draft != nil && old.draft != nil && old.draft.Step == r.draft.Step && old.born.hi < c.inv && r.origin != 0 && r.origin != r.seq &&
		f.before(c.ref, old) == nil && f.quietHistory(c.ref) && !f.doubtsID(c, r.id)
}

// generationCertain reports whether a lineage certainly had this generation throughout a call.
func (f *facts) generationCertain(c *call, gen uint64) bool {
	life := f.m.lives[c.ref.Thread]
	if life == nil || !life.there || life.gen != threadOf(gen) || !f.followed(c.ref.Thread, c.res) {
		return false
	}
	if c.ref.Namespace == "" {
		return true
	}
	for _, r := range f.line(c.ref).revs {
		if r.gen == gen && f.always(c, r) {
			return true
		}
	}
	return false
}

// newest is the greatest generation that is known of the lineage.
func (l *lineFacts) newest() (gen uint64) {
	for _, r := range l.revs {
		gen = max(gen, r.gen)
	}
	return gen
}

// splices reports whether the parent certainly has everything that a draft splices.
func (f *facts) splices(c *call, d *engine.Draft) bool {
	l := f.line(c.ref)
	for _, gen := range l.gens[d.Parent] {
		for _, r := range l.ids[idKey{gen, d.Parent}] {
			if f.contents(c.ref, r) == nil {
				return false
			}
			for _, w := range f.contents(c.ref, r) {
				if w.schema != d.SchemaVersion {
					return false
				}
				for _, ch := range d.Channels {
					have, ok := w.chans[ch.Name] // an empty one differs from none
					if ch.Base != 0 && (!ok || f.m.versions[ch.Base] != digest(have.data)) {
						return false
					}
				}
			}
		}
	}
	return true
}

// show judges a checkpoint in an answer: it must have existed and hold the saved data.
func (f *facts) show(c *call, cp *engine.Checkpoint) {
	r := f.find(c.ref, cp)
	switch {
	case r == nil:
		f.problem(c, "it shows a checkpoint that nobody saved: %s, seq %d of generation %d, step %d", cp.ID, cp.Seq, cp.Generation, cp.Step)
	case !f.possible(c, r):
		f.problem(c, "it shows %v, by %s, which did not exist then", r, r.by.who())
	case cp.ParentSeq != r.parentSeq && cp.ParentSeq != 0, cp.Parent != r.parent && cp.Parent != "":
		f.problem(c, "%v is shown with the parent %q (seq %d), but it is %q (seq %d)", r, cp.Parent, cp.ParentSeq, r.parent, r.parentSeq)
	default:
		if diff := f.fits(c.ref, r, cp); diff != "" {
			f.problem(c, "%v, by %s: %s", r, r.by.who(), diff)
		}
	}
}

// missing judges the answer that a checkpoint does not exist.
func (f *facts) missing(c *call, id string) {
	if errors.Is(c.err, engine.ErrNotFound) && f.certain(c, id) {
		f.problem(c, "%s existed throughout: %v", id, c.err)
	}
}
