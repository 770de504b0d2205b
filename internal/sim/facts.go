package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// facts are the events of a round, as far as the answers of its calls and the final dump reveal
// them. An operation takes effect at some point between its call and its answer, so each fact has a
// span of steps in which it became true.
type facts struct {
	w        *world
	m        *model
	end      int // the step at which the round ended
	now      time.Time
	lines    map[engine.Ref]*lineFacts
	gone     []removal
	scramb   map[string][]*call // calls that may have changed branches and writes of a thread in ways that are not tracked
	hist     map[string][]*histEvent
	ttls     map[string][]ttlEvent
	began    map[string][]*call // calls that may have begun a new generation of a thread
	rewrites map[string][]*call // calls that may have rewritten a thread
	sweeps   []*call            // calls that may have collected blobs
	dump     *dump
}

// span is the time of an event: no earlier than lo and no later than hi.
type span struct{ lo, hi int }

const never = math.MaxInt // also: at an unknown time

// anyID stands for an unknown id.
const anyID = "*"

// lineFacts are the facts of a lineage.
type lineFacts struct {
	ref      engine.Ref
	revs     map[revKey]*rev
	ids      map[idKey][]*rev    // by seq
	gens     map[string][]uint64 // generations of the checkpoints with an id
	branches map[string]*register
	moves    []written // of any branch
	writes   map[writeKey]*register
	copies   []written // copies of all writes of a checkpoint: val is "from to"
}

type revKey struct{ gen, seq uint64 }

type idKey struct {
	gen uint64
	id  string
}

// rev is one revision of a checkpoint, made by one save. A replacement is another revision with the
// same id.
type rev struct {
	gen, seq  uint64
	id        string
	parent    string
	parentSeq uint64
	time      time.Time
	origin    uint64 // its position in the order of the lineage; 0: unknown
	born      span
	by        *call // nil: made before the round
	next      *rev  // the revision that replaced it
	there     bool  // present at the end of the round

	// Source of the revision: a draft, another revision with different labels, or another one
	// migrated.
	draft   *engine.Draft
	labels  map[string]string
	labelOf uint64 // seq
	headOf  uint64 // seq
	to      uint64

	want   []*content // possible contents; nil: unknown
	wanted bool       // want has been computed
	all    []*content // want and possible migrations of it
}

func (r *rev) String() string {
	return fmt.Sprintf("seq %d (at position %d) of generation %d, %s", r.seq, r.origin, r.gen, r.id)
}

// clock returns the time by which r was made.
func (r *rev) clock(f *facts) time.Time {
	if r.by == nil {
		return f.now
	}
	return r.by.to
}

// removal is a call that may have removed checkpoints.
type removal struct {
	call  *call
	span  span
	after time.Time // it was impossible before
	takes func(ref engine.Ref, r *rev) bool
	sure  func(ref engine.Ref, r *rev) bool // nil: never
}

// histEvent is a call that may have migrated the states of a thread.
type histEvent struct {
	call *call
	to   uint64 // 0: back to the original versions
}

type ttlEvent struct {
	call  *call
	ttl   time.Duration
	maybe bool // a repeated save, which is answered like the first, changes nothing
}

func (w *world) newFacts() *facts {
	f := &facts{w: w, m: w.model, end: w.sched.step, now: time.Now(), lines: map[engine.Ref]*lineFacts{}, scramb: map[string][]*call{},
		hist: map[string][]*histEvent{}, ttls: map[string][]ttlEvent{}, began: map[string][]*call{}, rewrites: map[string][]*call{}}
	for ref, st := range w.model.lines {
		l := f.line(ref)
		for _, r := range st.revs {
			l.add(r)
		}
	}
	threads := map[string]bool{}
	for _, c := range w.calls {
		threads[c.ref.Thread] = true
		if a, ok := c.act.(*copying); ok {
			threads[a.dst.Thread] = true
		}
	}
	for thread := range w.model.lives {
		threads[thread] = true
	}
	for thread := range threads {
		f.expiry(thread, w.model.lives[thread])
	}
	return f
}

func (f *facts) line(ref engine.Ref) *lineFacts {
	l := f.lines[ref]
	if l == nil {
		l = &lineFacts{ref: ref, revs: map[revKey]*rev{}, ids: map[idKey][]*rev{}, gens: map[string][]uint64{}, branches: map[string]*register{}, writes: map[writeKey]*register{}}
		f.lines[ref] = l
	}
	return l
}

func (l *lineFacts) add(r *rev) {
	l.revs[revKey{r.gen, r.seq}] = r
	k := idKey{r.gen, r.id}
	if !slices.Contains(l.gens[r.id], r.gen) {
		l.gens[r.id] = append(l.gens[r.id], r.gen)
	}
	l.ids[k] = append(l.ids[k], r)
	slices.SortFunc(l.ids[k], func(a, b *rev) int { return cmp.Compare(a.seq, b.seq) })
}

// problem records an answer that a call must not have given.
func (f *facts) problem(c *call, format string, args ...any) {
	if c.unknown {
		return
	}
	f.w.problem("%s (%s; steps %d to %d): %s", c.name, describe(c), c.inv, c.res, fmt.Sprintf(format, args...))
}

// made records a checkpoint made by a call, if it is new.
func (f *facts) made(c *call, cp *engine.Checkpoint, r *rev) *rev {
	l := f.line(cp.Ref)
	if cp.Ref != c.ref {
		f.problem(c, "answered with a checkpoint of %v", cp.Ref)
		return nil
	}
	if had := l.revs[revKey{cp.Generation, cp.Seq}]; had != nil {
		if had.id != cp.ID {
			f.problem(c, "seq %d was assigned twice: to %s (%v) and to %s", cp.Seq, had.id, had.by.who(), cp.ID)
		} else if had.by != nil {
			had.born.lo, had.born.hi = min(had.born.lo, c.inv), min(had.born.hi, c.res)
		}
		return had
	}
	r.take(cp)
	r.by, r.born = c, span{c.inv, c.res}
	earlier := slices.ContainsFunc(l.ids[idKey{cp.Generation, cp.ID}], func(q *rev) bool { return q.seq < cp.Seq })
	if r.labelOf != 0 && !earlier { // the labelled revision is another call's and may be this one
		r.born.lo = -1
	}
	if cp.Time.Before(c.from.Truncate(time.Millisecond)) { // the call found it: it belongs to another call, which is in doubt
		if r.born.lo = -1; r.draft == nil {
			r.labelOf, r.headOf, r.wanted = 0, 0, true
		}
	}
	if !c.acked() {
		r.born.hi = never
	}
	l.add(r)
	return r
}

func (c *call) who() string {
	if c == nil {
		return "before the round"
	}
	return c.name
}

func (r *rev) take(cp *engine.Checkpoint) {
	r.gen, r.seq, r.id, r.parent, r.parentSeq, r.time = cp.Generation, cp.Seq, cp.ID, cp.Parent, cp.ParentSeq, cp.Time
}

// remove records a call that may have removed checkpoints.
func (f *facts) remove(c *call, takes, sure func(engine.Ref, *rev) bool) {
	s := span{c.inv, c.res}
	if !c.acked() {
		s.hi = never
		sure = nil
	}
	f.gone = append(f.gone, removal{call: c, span: s, takes: takes, sure: sure})
}

// saved records a save that may have changed the expiry of its thread.
func (f *facts) saved(c *call, ttl time.Duration, maybe bool) {
	if c.acked() || c.doubtful() {
		f.ttls[c.ref.Thread] = append(f.ttls[c.ref.Thread], ttlEvent{c, ttl, maybe})
	}
}

// expiry records that a thread may have expired in the round.
func (f *facts) expiry(thread string, was *life) {
	var at time.Time
	if was != nil {
		at = was.expires
	}
	for _, c := range f.w.calls {
		if s, ok := c.act.(*save); ok && c.ref.Thread == thread && s.draft.TTL > 0 && (at.IsZero() || c.from.Add(s.draft.TTL).Before(at)) {
			at = c.from.Add(s.draft.TTL)
		}
		if a, ok := c.act.(*copying); ok && a.dst.Thread == thread {
			at = c.from.Add(time.Minute) // the time to live is that of the source, which is at least a minute
		}
	}
	if at.IsZero() || at.After(f.now) {
		return
	}
	f.gone = append(f.gone, removal{call: &call{name: "expiry"}, span: span{-1, never}, after: at,
		takes: func(ref engine.Ref, r *rev) bool { return ref.Thread == thread }})
	f.scramb[thread] = append(f.scramb[thread], &call{name: "expiry", inv: -1, res: never})
}

// find returns the revision that an answer shows, or nil.
func (f *facts) find(ref engine.Ref, cp *engine.Checkpoint) *rev {
	if cp == nil {
		return nil
	}
	r := f.line(ref).revs[revKey{cp.Generation, cp.Seq}]
	if r != nil && r.id != cp.ID {
		return nil
	}
	return r
}

// resolve determines who made a checkpoint in an answer: a call whose save was acknowledged or left
// in doubt.
func (f *facts) resolve(cp *engine.Checkpoint) *rev {
	if r := f.find(cp.Ref, cp); r != nil {
		return r
	}
	for _, c := range f.w.calls {
		if a, ok := c.act.(*copying); ok {
			if r := a.copied(f, cp); r != nil {
				return r
			}
		}
	}
	// The step of a checkpoint reveals who saved it, and its labels who labelled it afterwards. A
	// migrated head has the step of another checkpoint.
	for pass := range 3 {
		for _, c := range f.w.calls {
			claimer, ok := c.act.(claimer)
			if !ok || claimPass(c) != pass || c.acked() || !c.doubtful() {
				continue
			}
			if r := claimer.claim(f, cp); r != nil && !f.isMade(c, cp) {
				if made := f.made(c, cp, r); made != nil && r.draft != nil {
					made.born.lo = f.firstTry(c, r.draft.Step)
				}
				return f.find(cp.Ref, cp)
			}
		}
	}
	return nil
}

// claimPass is the pass in which to ask a call whether a checkpoint is its own.
func claimPass(c *call) int {
	switch c.act.(type) {
	case *label:
		return 0
	case *headMigration:
		return 2
	}
	return 1
}

// firstTry is the earliest request for a draft among all equal saves.
func (f *facts) firstTry(c *call, step int64) int {
	first := c.inv
	for _, o := range f.w.calls {
		if s, ok := o.act.(*save); ok && s.draft.Step == step {
			first = min(first, o.inv)
		}
	}
	return first
}

// isMade reports whether a call already made another checkpoint, and so did not make this one.
func (f *facts) isMade(c *call, cp *engine.Checkpoint) bool {
	if _, many := c.act.(*appends); many {
		return false
	}
	for _, r := range f.line(c.ref).revs {
		if r.by == c && r.seq != cp.Seq {
			return true
		}
	}
	return false
}

// link determines which revision replaced which, and their positions in the order.
func (f *facts) link() {
	for _, l := range f.lines {
		for _, revs := range l.ids {
			for i, r := range revs {
				if _, copied := r.act().(*copying); r.by == nil || copied { // a copy has the positions of its source
					continue
				}
				r.origin = r.seq
				if i == 0 {
					if r.labelOf != 0 || r.draft != nil && r.draft.ID != "" && f.doubts(r.by) {
						r.origin = 0 // it may have replaced an unseen one
					}
					continue
				}
				before := revs[i-1]
				removed, sure := f.removable(l.ref, before, r.born.lo, r.born.hi, r.clock(f))
				switch {
				case sure && !f.doubts(r.by):
				case sure, removed: // it may have replaced an unseen one
					r.origin = 0
				default:
					r.origin = before.origin
				}
				if !sure {
					before.next = r
				}
			}
		}
	}
}

// removable reports whether a revision may have been removed by the step at, and whether it
// certainly was removed before the step since.
func (f *facts) removable(ref engine.Ref, r *rev, since, at int, clock time.Time) (maybe, sure bool) {
	for i := range f.gone {
		g := &f.gone[i]
		if g.after.After(clock) || g.span.lo > at || g.span.hi < r.born.lo || !g.takes(ref, r) {
			continue
		}
		maybe = true
		if g.sure != nil && g.sure(ref, r) && g.span.lo > r.born.hi && g.span.hi < since {
			sure = true
		}
	}
	return maybe, sure
}

// alive reports whether the checkpoint with an id certainly existed throughout a call.
func (f *facts) alive(c *call, gen uint64, id string) bool {
	l := f.line(c.ref)
	var r *rev
	for _, q := range l.ids[idKey{gen, id}] {
		if q.born.hi < c.inv || q.by == nil {
			r = q
		}
	}
	if r == nil {
		return false
	}
	for ; r != nil; r = r.next {
		if r.there && f.quietHistory(c.ref) && !f.mayExpire(c) { // otherwise it may have been absent
			return true
		}
		if r.born.lo <= c.res && f.mayGo(c, r) {
			return false
		}
	}
	return true
}

// mayExpire reports whether the thread of a call may have expired by the end of the call.
func (f *facts) mayExpire(c *call) bool {
	return slices.ContainsFunc(f.gone, func(g removal) bool {
		return !g.after.IsZero() && !g.after.After(c.to) && g.takes(c.ref, &rev{})
	})
}

// mayGo reports whether r may have been removed by the end of a call.
func (f *facts) mayGo(c *call, r *rev) bool {
	for i := range f.gone {
		g := &f.gone[i]
		if g.span.lo <= c.res && g.span.hi >= r.born.lo && !g.after.After(c.to) && g.takes(c.ref, r) {
			return true
		}
	}
	return false
}

// certain reports whether a checkpoint with an id certainly existed throughout a call, in any
// generation.
func (f *facts) certain(c *call, id string) bool {
	for _, gen := range f.line(c.ref).gens[id] {
		if f.alive(c, gen, id) {
			return true
		}
	}
	return false
}

// possible reports whether r may have been visible during a call.
func (f *facts) possible(c *call, r *rev) bool {
	if r.born.lo > c.res {
		return false
	}
	if n := r.next; n != nil && n.born.hi < c.inv && n.origin != 0 {
		return false
	}
	if r.there {
		return true
	}
	_, sure := f.removable(c.ref, r, c.inv, c.inv, c.to)
	return !sure
}

// unchanged reports whether the checkpoint with an id certainly stayed the same throughout a call.
func (f *facts) unchanged(c *call, id string) bool {
	l := f.line(c.ref)
	for _, gen := range l.gens[id] {
		for _, r := range l.ids[idKey{gen, id}] {
			if r.by != nil && r.born.hi >= c.inv {
				return false
			}
		}
	}
	return !f.doubtsID(c, id)
}

// doubtsID reports whether the outcome of some other save of the id is unknown, whether or not
// anybody saw its result.
func (f *facts) doubtsID(c *call, id string) bool {
	return slices.ContainsFunc(f.w.calls, func(o *call) bool {
		s, saves := o.act.(*save)
		_, labels := o.act.(*label)
		return o.ref == c.ref && o != c && o.doubtful() && (labels || saves && s.draft.ID == id)
	})
}

// quietHistory reports whether no call can have migrated the states of a thread.
func (f *facts) quietHistory(ref engine.Ref) bool { return len(f.hist[ref.Thread]) == 0 }

func (f *facts) blobsInDoubt() bool { return f.m.swept || len(f.sweeps) > 0 }

// place returns the position, before a given one, at which a history may show r: that of the first
// record with its id or, if that is gone, that of another one. 0 means none.
func (f *facts) place(ref engine.Ref, r *rev, before uint64) (at uint64) {
	if r.origin < before {
		at = r.origin
	}
	for _, o := range f.line(ref).ids[idKey{r.gen, r.id}] {
		if o.seq < before {
			at = max(at, o.seq)
		}
	}
	return at
}
