package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// watching is a watch of everything that continues from round to round: it is interrupted and
// resumed, even after a crash.
type watching struct {
	call
	w      *world
	active bool // in this round
	over   chan struct{}

	began   bool
	since   int // the step from which on it must miss nothing
	cursor  engine.Cursor
	session int
	events  []sighting // of the round
	seen    map[place]bool
	owed    []*rev // saved but not delivered yet
	refs    map[*rev]engine.Ref
}

// sighting is an event and the time of its arrival.
type sighting struct {
	engine.Event
	session, step int
}

func (w *world) beginWatch(round string) {
	if w.watch == nil {
		w.watch = &watching{w: w, seen: map[place]bool{}, refs: map[*rev]engine.Ref{}}
	}
	a := w.watch
	a.events, a.active = nil, chance(600, w.plan.Seed, round, "watch")
	if !a.active {
		return
	}
	s := w.sched
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{name: round + "w", ref: engine.Ref{Tenant: tenant, User: user}, kind: "watch", cancel: cancel, endAt: -1, inv: s.step, from: time.Now()}
	a.over = make(chan struct{})
	s.mu.Lock()
	s.running[c.name] = c
	s.mu.Unlock()
	go func() {
		defer close(a.over)
		a.follow(context.WithValue(ctx, callKey{}, c), w.store, c.name)
	}()
	a.cancel = cancel
}

// follow watches until ctx ends.
func (a *watching) follow(ctx context.Context, s *engine.Store, round string) {
	for failures := 0; ctx.Err() == nil && failures < 100; a.session++ {
		stop := int(hash(a.w.plan.Seed, "watch", fmt.Sprint(a.session)) % 30)
		scope := engine.WatchScope{Tenant: tenant, Began: !a.began}
		for e, err := range s.Watch(ctx, scope, a.cursor) {
			if err != nil {
				failures++
				break
			}
			a.w.sched.mu.Lock()
			step := a.w.sched.step
			a.w.sched.mu.Unlock()
			if v, err := a.w.sched.park(ctx, fmt.Sprintf("%s event %d of %d", round, len(a.events), a.session), 's'); v == dead || err != nil {
				break // it was not seen
			}
			a.cursor = e.Cursor
			if !a.began {
				a.began, a.since = true, step
				continue
			}
			a.events = append(a.events, sighting{e, a.session, step})
			if stop--; stop == 0 {
				break
			}
		}
	}
}

func (w *world) endWatch() {
	if a := w.watch; a.active {
		a.cancel()
		<-a.over
		w.sched.mu.Lock()
		delete(w.sched.running, fmt.Sprintf("r%dw", w.round))
		w.sched.mu.Unlock()
	}
}

// judgeWatch judges the events that the watch received in a round.
func (f *facts) judgeWatch() {
	a := f.w.watch
	type lineIn struct {
		line
		session int
	}
	last := map[lineIn]uint64{}
	for _, e := range a.events {
		l := line{e.Ref, e.Generation}
		at := place{l, e.Seq}
		r := f.line(e.Ref).revs[revKey{e.Generation, e.Seq}]
		switch {
		case r == nil:
			if !f.doubts(&call{ref: e.Ref}) && !a.seen[at] && !f.earlier(at) && !f.isCopy(e.Ref) {
				f.w.problem("watch: an event of a checkpoint that nobody saved: %s/%s seq %d, %s, step %d", e.Ref.Thread, e.Ref.Namespace, e.Seq, e.ID, e.Step)
			}
		case r.id != e.ID, r.born.lo > e.step:
			f.w.problem("watch: the event of %s/%s seq %d, %s, came at step %d; it is %v, by %s", e.Ref.Thread, e.Ref.Namespace, e.Seq, e.ID, e.step, r, r.by.who())
		}
		in := lineIn{l, e.session}
		if e.Seq <= last[in] {
			f.w.problem("watch: the event of %s/%s seq %d came after that of seq %d", e.Ref.Thread, e.Ref.Namespace, e.Seq, last[in])
		}
		last[in] = e.Seq
		a.seen[at] = true
	}
	if !a.began {
		return
	}
	for ref, l := range f.lines {
		for _, r := range l.revs {
			if _, copied := r.act().(*copying); r.by != nil && !copied && r.by.acked() && r.by.inv > a.since {
				a.owed = append(a.owed, r)
				a.refs[r] = ref
			}
		}
	}
	if !a.active || f.w.sched.crashed {
		return
	}
	for _, r := range a.owed {
		ref := a.refs[r]
		now := f.line(ref).revs[revKey{r.gen, r.seq}]
		if now != nil && now.there && now.next == nil && !a.seen[place{line{ref, r.gen}, r.seq}] && len(f.hist[ref.Thread]) == 0 {
			f.w.problem("watch: there was no event of %s/%s %v, by %s", ref.Thread, ref.Namespace, r, r.by.who())
		}
	}
	a.owed = nil
	clear(a.refs)
}

// isCopy reports whether a thread was made by a copy in the round. A watch may or may not report
// copied checkpoints.
func (f *facts) isCopy(ref engine.Ref) bool {
	return slices.ContainsFunc(f.w.calls, func(c *call) bool {
		a, ok := c.act.(*copying)
		return ok && a.dst.Thread == ref.Thread
	})
}

// earlier reports whether a seq was assigned in an earlier round.
func (f *facts) earlier(at place) bool {
	_, ok := f.m.given[at]
	return ok
}

func (r *rev) act() action {
	if r.by == nil {
		return nil
	}
	return r.by.act
}
