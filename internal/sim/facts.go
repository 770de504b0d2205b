package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// facts are what happened in a round, as far as the answers of its calls and what was found at its end tell. An operation
// takes effect somewhere between its call and its answer, so facts have a span of steps in which they became so.
type facts struct {
	w        *world
	m        *model
	end      int // the step at the end of the round
	now      time.Time
	lines    map[engine.Ref]*lineFacts
	gone     []removal
	scramb   map[string][]*call // calls that may have moved branches and writes of a thread in ways that are not followed
	hist     map[string][]*histEvent
	ttls     map[string][]ttlEvent
	began    map[string][]*call // calls that may have begun a thread anew
	rewrites map[string][]*call // calls that may have written a thread anew
	sweeps   []*call            // calls that may have collected blobs
	dump     *dump
}

// span is when something happened: at lo at the earliest, and at hi at the latest.
type span struct{ lo, hi int }

const never = math.MaxInt // and "not known when"

// anyID stands for an id that is not known.
const anyID = "*"

// lineFacts are those of a lineage.
type lineFacts struct {
	ref      engine.Ref
	revs     map[revKey]*rev
	ids      map[idKey][]*rev    // by seq
	gens     map[string][]uint64 // of the checkpoints with an id
	branches map[string]*register
	moves    []written // of any branch
	writes   map[writeKey]*register
	copies   []written // of all writes of a checkpoint: val is "from to"
}

type revKey struct{ gen, seq uint64 }

type idKey struct {
	gen uint64
	id  string
}

// rev is a checkpoint as one save made it. A replacement is another one with the same id.
type rev struct {
	gen, seq  uint64
	id        string
	parent    string
	parentSeq uint64
	time      time.Time
	origin    uint64 // its place in line; 0: not known
	born      span
	by        *call // nil: it is from before the round
	next      *rev  // what replaced it
	there     bool  // at the end of the round

	// What it was made of: a draft, another one with other labels, or another one migrated.
	draft   *engine.Draft
	labels  map[string]string
	labelOf uint64 // seq
	headOf  uint64 // seq
	to      uint64

	want   []*content // what it may hold; nil: not known
	wanted bool       // want is made
	all    []*content // and what migrations may have made of them
}

func (r *rev) String() string {
	return fmt.Sprintf("seq %d (in place %d) of generation %d, %s", r.seq, r.origin, r.gen, r.id)
}

// clock is the time by which r was made.
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
	after time.Time // it could not before
	takes func(ref engine.Ref, r *rev) bool
	sure  func(ref engine.Ref, r *rev) bool // nil: never
}

// histEvent is a call that may have given the states of a thread another version.
type histEvent struct {
	call *call
	to   uint64 // 0: back to what they were
}

type ttlEvent struct {
	call  *call
	ttl   time.Duration
	maybe bool // a save that is answered as the first time changes nothing
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

// problem notes what a call must not have answered.
func (f *facts) problem(c *call, format string, args ...any) {
	if c.unknown {
		return
	}
	f.w.problem("%s (%s; steps %d to %d): %s", c.name, describe(c), c.inv, c.res, fmt.Sprintf(format, args...))
}

// made takes note of a checkpoint that a call made, if it is new.
func (f *facts) made(c *call, cp *engine.Checkpoint, r *rev) *rev {
	l := f.line(cp.Ref)
	if cp.Ref != c.ref {
		f.problem(c, "answered with a checkpoint of %v", cp.Ref)
		return nil
	}
	if had := l.revs[revKey{cp.Generation, cp.Seq}]; had != nil {
		if had.id != cp.ID {
			f.problem(c, "seq %d was given out twice: to %s (%v), and to %s", cp.Seq, had.id, had.by.who(), cp.ID)
		} else if had.by != nil {
			had.born.lo, had.born.hi = min(had.born.lo, c.inv), min(had.born.hi, c.res)
		}
		return had
	}
	r.take(cp)
	r.by, r.born = c, span{c.inv, c.res}
	earlier := slices.ContainsFunc(l.ids[idKey{cp.Generation, cp.ID}], func(q *rev) bool { return q.seq < cp.Seq })
	if r.labelOf != 0 && !earlier { // what it labelled is of another call, and may be this
		r.born.lo = -1
	}
	if cp.Time.Before(c.from.Truncate(time.Millisecond)) { // the call found it: it is of another one, which is in doubt
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

// remove takes note of a call that may have removed checkpoints.
func (f *facts) remove(c *call, takes, sure func(engine.Ref, *rev) bool) {
	s := span{c.inv, c.res}
	if !c.acked() {
		s.hi = never
		sure = nil
	}
	f.gone = append(f.gone, removal{call: c, span: s, takes: takes, sure: sure})
}

// saved takes note of a save that may have changed when its thread expires.
func (f *facts) saved(c *call, ttl time.Duration, maybe bool) {
	if c.acked() || c.doubtful() {
		f.ttls[c.ref.Thread] = append(f.ttls[c.ref.Thread], ttlEvent{c, ttl, maybe})
	}
}

// expiry takes note that a thread may have expired in the round.
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
			at = c.from.Add(time.Minute) // the time to live is that of the source, at least a minute
		}
	}
	if at.IsZero() || at.After(f.now) {
		return
	}
	f.gone = append(f.gone, removal{call: &call{name: "expiry"}, span: span{-1, never}, after: at,
		takes: func(ref engine.Ref, r *rev) bool { return ref.Thread == thread }})
	f.scramb[thread] = append(f.scramb[thread], &call{name: "expiry", inv: -1, res: never})
}

// find is the revision that an answer shows; nil if there is none.
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

// resolve finds out who made a checkpoint that was seen: somebody whose save was acknowledged, or left in doubt.
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
	// Who saved it is told by its step, who labelled it then by its labels; a head that was migrated has the step of another.
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

// claimPass is in which turn a call is asked whether a checkpoint is of it.
func claimPass(c *call) int {
	switch c.act.(type) {
	case *label:
		return 0
	case *headMigration:
		return 2
	}
	return 1
}

// firstTry is when the first save of a draft was asked for, of all those that are the same.
func (f *facts) firstTry(c *call, step int64) int {
	first := c.inv
	for _, o := range f.w.calls {
		if s, ok := o.act.(*save); ok && s.draft.Step == step {
			first = min(first, o.inv)
		}
	}
	return first
}

// isMade reports whether a call made another checkpoint already, and so not this one.
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

// link finds what was replaced by what, and where it stands in line.
func (f *facts) link() {
	for _, l := range f.lines {
		for _, revs := range l.ids {
			for i, r := range revs {
				if _, copied := r.act().(*copying); r.by == nil || copied { // a copy has the places of what it copies
					continue
				}
				r.origin = r.seq
				if i == 0 {
					if r.labelOf != 0 || r.draft != nil && r.draft.ID != "" && f.doubts(r.by) {
						r.origin = 0 // it may have replaced one that nobody saw
					}
					continue
				}
				before := revs[i-1]
				removed, sure := f.removable(l.ref, before, r.born.lo, r.born.hi, r.clock(f))
				switch {
				case sure && !f.doubts(r.by):
				case sure, removed: // it may have replaced one that nobody saw
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

// removable reports whether a revision may have been removed by the step at, and whether it surely was before the step
// since.
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

// alive reports whether the checkpoint with an id was surely there all the time of a call.
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
		if r.there && f.quietHistory(c.ref) && !f.mayExpire(c) { // else it may have been away
			return true
		}
		if r.born.lo <= c.res && f.mayGo(c, r) {
			return false
		}
	}
	return true
}

// mayExpire reports whether the thread of a call may have been past its time by the end of the call.
func (f *facts) mayExpire(c *call) bool {
	return slices.ContainsFunc(f.gone, func(g removal) bool {
		return !g.after.IsZero() && !g.after.After(c.to) && g.takes(c.ref, &rev{})
	})
}

// mayGo reports whether something may have removed r by the end of a call.
func (f *facts) mayGo(c *call, r *rev) bool {
	for i := range f.gone {
		g := &f.gone[i]
		if g.span.lo <= c.res && g.span.hi >= r.born.lo && !g.after.After(c.to) && g.takes(c.ref, r) {
			return true
		}
	}
	return false
}

// certain reports whether a checkpoint with an id was surely there all the time of a call, in whatever generation.
func (f *facts) certain(c *call, id string) bool {
	for _, gen := range f.line(c.ref).gens[id] {
		if f.alive(c, gen, id) {
			return true
		}
	}
	return false
}

// possible reports whether r may have been seen in the time of a call.
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

// unchanged reports whether the checkpoint with an id was surely the same all the time of a call.
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

// doubtsID reports whether the outcome of some other save of the id is not known. It need not have been seen.
func (f *facts) doubtsID(c *call, id string) bool {
	return slices.ContainsFunc(f.w.calls, func(o *call) bool {
		s, saves := o.act.(*save)
		_, labels := o.act.(*label)
		return o.ref == c.ref && o != c && o.doubtful() && (labels || saves && s.draft.ID == id)
	})
}

// quietHistory reports whether no call may have given the states of a thread another version.
func (f *facts) quietHistory(ref engine.Ref) bool { return len(f.hist[ref.Thread]) == 0 }

func (f *facts) blobsInDoubt() bool { return f.m.swept || len(f.sweeps) > 0 }

// place is where in line, before a place, a history may show r: where the first record with its id was or, if nothing is
// left of that, where another one is. 0 is nowhere.
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
