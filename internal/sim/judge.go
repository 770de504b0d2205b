package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// judge compares the answers of a round's calls and the final contents of the store with each
// other.
func (w *world) judge() {
	slices.SortFunc(w.calls, func(a, b *call) int { return cmp.Or(cmp.Compare(a.inv, b.inv), strings.Compare(a.name, b.name)) })
	f := w.newFacts()
	for pass := range 3 {
		for _, c := range w.calls {
			if effectPass(c) == pass {
				c.act.effect(f)
			}
		}
	}
	cold := w.fresh()
	f.dump = w.read(cold, "cold", f)
	if chance(400, w.plan.Seed, w.calls0(), "warm") {
		if diff := f.dump.sameAs(w.read(w.store, "warm", f)); diff != "" {
			w.problem("the working store and a freshly opened one differ: %s", diff)
		}
	}
	f.match()
	f.link()
	for _, ref := range slices.SortedFunc(maps.Keys(f.lines), engine.Ref.Compare) {
		f.judgeLine(f.lines[ref])
	}
	f.judgeLives()
	for _, c := range w.calls {
		c.act.check(f)
	}
	f.judgeWatch()
	w.verify(cold, f)
	cold.Close()
	if len(w.result.Problems) == 0 {
		f.next()
	}
}

// effectPass is the pass in which to record the effect of a call. A SetLabels call that changes
// nothing answers with another call's save or labels; one whose label names the call itself always
// changes something.
func effectPass(c *call) int {
	a, ok := c.act.(*label)
	switch {
	case !ok:
		return 0
	case a.named():
		return 1
	}
	return 2
}

func (w *world) calls0() string {
	if len(w.calls) > 0 {
		return w.calls[0].name
	}
	return ""
}

// match determines who made the checkpoints that were seen, oldest first: a migrated head has the
// step of its predecessor, but the save with that step did not make it.
func (f *facts) match() {
	var found, seen []*engine.Checkpoint
	for _, line := range f.dump.lines {
		found = append(found, line.cps...)
	}
	for _, c := range f.w.calls {
		if w, ok := c.act.(witness); ok && !c.unknown {
			seen = append(seen, w.saw()...)
		}
	}
	all := slices.Concat(found, seen)
	slices.SortStableFunc(all, oldestFirst)
	for _, cp := range all {
		f.resolve(cp)
	}
	slices.SortFunc(found, oldestFirst)
	for _, cp := range found {
		r := f.find(cp.Ref, cp)
		if r == nil {
			if r = f.restored(cp.Ref, cp); r != nil {
				f.line(cp.Ref).add(r)
			}
		}
		if r == nil {
			f.w.problem("%s/%s: a checkpoint exists that nobody saved or whose save failed: %s, seq %d, step %d, status %s",
				cp.Ref.Thread, cp.Ref.Namespace, cp.ID, cp.Seq, cp.Step, cp.Status)
			continue
		}
		r.there = true
	}
}

func oldestFirst(a, b *engine.Checkpoint) int {
	return cmp.Or(a.Ref.Compare(b.Ref), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Seq, b.Seq))
}

// restored returns a checkpoint that was pruned after its thread's history was migrated, and that
// came back when the history was restored.
func (f *facts) restored(ref engine.Ref, cp *engine.Checkpoint) *rev {
	life := f.m.lives[ref.Thread]
	if life == nil || !slices.ContainsFunc(f.hist[ref.Thread], func(h *histEvent) bool { return h.to == 0 }) {
		return nil
	}
	c := life.kept[keptKey{ref.Namespace, cp.Seq}]
	if c == nil {
		return nil
	}
	r := &rev{born: span{-1, never}, want: []*content{c}, wanted: true}
	r.take(cp)
	return r
}

// contents returns the possible contents of a revision, or nil if they are unknown.
func (f *facts) contents(ref engine.Ref, r *rev) []*content {
	if r.wanted {
		return r.want
	}
	r.wanted = true
	revs := f.line(ref).revs
	var from []*content
	switch {
	case r.draft != nil:
		from = f.variants(ref, revs[revKey{r.gen, r.parentSeq}])
		if from == nil && (r.parentSeq == 0 || !stands(r.draft)) { // a thread has a single kind, which all its drafts name
			from = []*content{empty}
		}
	case r.labelOf != 0:
		if old := f.before(ref, r); old != nil && !(f.doubts(r.by) && f.unseenSince(ref, r, old)) {
			from = f.variants(ref, old)
		}
	case r.headOf != 0:
		from = f.variants(ref, revs[revKey{r.gen, r.headOf}])
	}
	for _, c := range from {
		switch {
		case r.draft != nil:
			c = c.with(r.draft)
		case r.labelOf != 0:
			c = c.relabelled(r.labels)
		default:
			c = c.migrated(r.to)
		}
		if c != nil {
			r.want = append(r.want, c)
		}
	}
	r.want = distinct(r.want)
	return r.want
}

// variants returns the contents of a revision and all possible migrations of them.
func (f *facts) variants(ref engine.Ref, r *rev) []*content {
	if r == nil || len(f.hist[ref.Thread]) == 0 {
		if r == nil {
			return nil
		}
		return f.contents(ref, r)
	}
	if r.all != nil {
		return r.all
	}
	all := slices.Clone(f.contents(ref, r))
	for _, h := range f.hist[ref.Thread] {
		if h.to == 0 {
			if life := f.m.lives[ref.Thread]; life != nil && life.kept[keptKey{ref.Namespace, r.seq}] != nil {
				all = append(all, life.kept[keptKey{ref.Namespace, r.seq}])
			}
			continue
		}
		for _, c := range f.contents(ref, r) {
			if m := c.migrated(h.to); m != nil {
				all = append(all, m)
			}
		}
	}
	r.all = distinct(all)
	return r.all
}

// distinct removes duplicate contents.
func distinct(all []*content) (out []*content) {
	if len(all) < 2 {
		return all
	}
	seen := map[string]bool{}
	for _, c := range all {
		if sum := c.digest(); !seen[sum] {
			seen[sum] = true
			out = append(out, c)
		}
	}
	return out
}

// fits compares a checkpoint with the possible contents of its revision.
func (f *facts) fits(ref engine.Ref, r *rev, cp *engine.Checkpoint) string {
	all := f.variants(ref, r)
	var diffs []string
	for _, c := range all {
		diff := c.differs(cp)
		if diff == "" {
			return f.sameVersions(c, cp)
		}
		if !slices.Contains(diffs, diff) {
			diffs = append(diffs, diff)
		}
	}
	if diffs != nil && f.maybeLabelled(ref, cp) {
		return ""
	}
	return strings.Join(diffs, "; or ")
}

// maybeLabelled reports whether a checkpoint has, or has kept, a label from a call in doubt.
func (f *facts) maybeLabelled(ref engine.Ref, cp *engine.Checkpoint) bool {
	return slices.ContainsFunc(f.w.calls, func(c *call) bool {
		a, ok := c.act.(*label)
		if !ok || c.ref != ref || !c.doubtful() {
			return false
		}
		for k, v := range a.labels {
			if cp.Labels[k] != v {
				return false
			}
		}
		return true
	})
}

// sameVersions checks that a version always names the same bytes.
func (f *facts) sameVersions(c *content, cp *engine.Checkpoint) string {
	for _, ch := range cp.Channels {
		sum := digest(c.chans[ch.Name].data)
		if had, ok := f.m.versions[ch.Version]; ok && had != sum {
			return "the version of channel " + ch.Name + " names other bytes elsewhere"
		}
		f.m.versions[ch.Version] = sum
	}
	return ""
}

// digest identifies a long value.
func digest(data string) string { return fmt.Sprintf("%d %x", len(data), hash(0, data)) }

// judgeLine judges the final state of a lineage.
func (f *facts) judgeLine(l *lineFacts) {
	w, name := f.w, l.ref.Thread+"/"+l.ref.Namespace
	d := f.dump.lines[l.ref]
	if d == nil {
		d = &lineDump{}
	}
	order, newer := uint64(never), (*rev)(nil)
	for _, cp := range d.cps {
		r := f.find(l.ref, cp)
		if r == nil {
			continue
		}
		if diff := f.fits(l.ref, r, cp); diff != "" {
			w.problem("%s: %v, by %s: %s", name, r, r.by.who(), diff)
		}
		if r.parentSeq != cp.ParentSeq && cp.ParentSeq != 0 || cp.Parent != r.parent && cp.Parent != "" && f.quietHistory(l.ref) {
			w.problem("%s: %v, by %s: its parent is shown as %q (seq %d) but is %q (seq %d)", name, r, r.by.who(), cp.Parent, cp.ParentSeq, r.parent, r.parentSeq)
		}
		at := order
		if r.origin != 0 {
			at = f.place(l.ref, r, order)
		}
		if at == 0 {
			w.problem("%s: %v, by %s, is seen after %v, which precedes it", name, r, r.by.who(), newer)
			at = order
		}
		order, newer = at, r
		if r.next != nil {
			w.problem("%s: %v, by %s, exists, but was replaced by seq %d", name, r, r.by.who(), r.next.seq)
		}
		if _, sure := f.removable(l.ref, r, f.end+1, f.end, f.now); sure && f.quietHistory(l.ref) {
			w.problem("%s: %v, by %s, exists, but was removed", name, r, r.by.who())
		}
		f.judgeBlobs(cp, name)
	}
	f.judgeRevs(l, name)
	for _, b := range slices.Sorted(maps.Keys(l.branches)) {
		if f.followed(l.ref.Thread, f.end) && !l.branches[b].legal(d.branches[b], f.end+1, f.end+1, l.moves) {
			w.problem("%s: branch %s ends at %q; it was %q, then %v", name, b, d.branches[b], l.branches[b].was, l.branches[b].writes)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.writes), compareWrites) {
		if f.followed(l.ref.Thread, f.end) && !l.writes[k].legal(d.writes[k], f.end+1, f.end+1, f.movedWrites(l, k)) {
			w.problem("%s: the pending write %v is %.40q; it was %.40q, then %v", name, k, d.writes[k], l.writes[k].was, l.writes[k].writes)
		}
	}
}

func compareWrites(a, b writeKey) int {
	return cmp.Or(strings.Compare(a.checkpoint, b.checkpoint), strings.Compare(a.task, b.task), cmp.Compare(a.index, b.index))
}

// judgeRevs judges the saved checkpoints, including those that are gone.
func (f *facts) judgeRevs(l *lineFacts, name string) {
	w := f.w
	revs := slices.SortedFunc(maps.Values(l.revs), func(a, b *rev) int { return cmp.Or(cmp.Compare(a.gen, b.gen), cmp.Compare(a.seq, b.seq)) })
	var late, before *rev // the latest request among smaller seqs, and the one before it
	for _, r := range revs {
		if before == nil || before.gen != r.gen {
			late = nil
		} else if r.time.Before(before.time) {
			w.problem("%s: %v has the time %v, and %v before it %v", name, r, r.time, before, before.time)
		}
		if late != nil && r.born.hi < late.born.lo {
			w.problem("%s: %v, by %s, was acknowledged before %v was requested, by %s", name, r, r.by.who(), late, late.by.who())
		}
		if before = r; late == nil || r.born.lo > late.born.lo {
			late = r
		}
		if maybe, _ := f.removable(l.ref, r, f.end, f.end, f.now); !r.there && r.next == nil && !maybe {
			w.problem("%s: %v, acknowledged to %s, is lost", name, r, r.by.who())
		}
		at := place{line{l.ref, r.gen}, r.seq}
		if r.by == nil {
			continue
		}
		if had, ok := f.m.given[at]; ok && (had.id != r.id || had.by != r.by.name) {
			w.problem("%s: %v, by %s, was assigned before, to %s", name, r, r.by.who(), had.by)
		}
		if r.seq <= f.m.highest[at.line] {
			w.problem("%s: %v, by %s, is not above %d, which was acknowledged rounds ago", name, r, r.by.who(), f.m.highest[at.line])
		}
	}
}

// judgeBlobs checks that the blobs named by a checkpoint exist.
func (f *facts) judgeBlobs(cp *engine.Checkpoint, name string) {
	for _, id := range cp.Blobs {
		var b bytes.Buffer
		if _, err := f.w.store.User(tenant, user).GetBlob(context.Background(), id, &b); err != nil {
			f.w.problem("%s: seq %d, %s, names a blob: %v", name, cp.Seq, cp.ID, err)
		} else if want, ok := f.m.blobs[id]; ok && want != b.String() {
			f.w.problem("%s: seq %d, %s, names a blob with different bytes", name, cp.Seq, cp.ID)
		}
	}
}

// verify makes the store verify itself.
func (w *world) verify(s *engine.Store, f *facts) {
	n := 0
	for _, l := range f.dump.lines {
		n += len(l.cps)
	}
	deep := n < 200 || w.round == w.prof.rounds-1
	rep, err := s.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{Tenant: tenant, User: user, Deep: deep})
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		w.problem("verify: %v", err)
		return
	}
	for _, p := range rep.Problems {
		w.problem("verify: %s/%s: %v", p.Thread, p.Namespace, p.Err)
	}
	// Load every checkpoint individually from the disk.
	for _, ref := range slices.SortedFunc(maps.Keys(f.dump.lines), engine.Ref.Compare) {
		cps := f.dump.lines[ref].cps
		for i, cp := range cps {
			if len(cps) > 60 && i > 5 && !chance(60, w.plan.Seed, cp.ID, "load") {
				continue
			}
			got, err := s.Thread(ref).Load(context.Background(), engine.At(cp.ID))
			if err != nil {
				w.problem("%s/%s: loading seq %d, %s: %v", ref.Thread, ref.Namespace, cp.Seq, cp.ID, err)
			} else if diff := contentOf(cp).differs(got); diff != "" || got.Hash != cp.Hash {
				w.problem("%s/%s: loading seq %d, %s: differs from the history: %s", ref.Thread, ref.Namespace, cp.Seq, cp.ID, diff)
			}
		}
	}
}

// plainError judges an error that the arguments of the call do not explain.
func (f *facts) plainError(c *call) {
	if c.err == nil || c.unknown || f.excused(c) {
		return
	}
	f.problem(c, "%v", c.err)
}

// excused reports whether the error of a call was caused by the simulation or by the call's own
// context.
func (f *facts) excused(c *call) bool {
	switch {
	case c.unknown:
		return true
	case errors.Is(c.err, engine.ErrCorrupt), errors.Is(c.err, engine.ErrTooLarge):
		return false
	case errors.Is(c.err, context.Canceled), c.ended && errors.Is(c.err, backend.ErrAmbiguous):
		return c.ended
	case f.w.injected(c.err):
		return f.w.sched.faults > 0 || f.w.sched.crashed
	}
	return false
}

// judgeLives judges the expiry of threads.
func (f *facts) judgeLives() {
	for thread, info := range f.dump.threads {
		if !info.Expires.IsZero() && !info.Expires.After(f.now) {
			f.w.problem("thread %s exists, but expired at %v", thread, info.Expires)
		}
		events := f.ttls[thread]
		if len(f.began[thread]) > 0 || !f.followed(thread, f.end) {
			continue
		}
		least, most, none := f.ttlRange(thread, events)
		switch {
		case most == 0 && !info.Expires.IsZero() && f.knownTTL(thread):
			f.w.problem("thread %s expires at %v, but no call requested that", thread, info.Expires)
		case !none && least > 0 && info.Expires.IsZero():
			f.w.problem("thread %s never expires, but its time to live is %v", thread, least)
		case !none && most > 0 && info.Expires.After(f.now.Add(most+most/8+time.Second)):
			f.w.problem("thread %s expires at %v, but its time to live is at most %v", thread, info.Expires, most)
		}
	}
}

func (f *facts) knownTTL(thread string) bool {
	life := f.m.lives[thread]
	return life == nil || life.expires.IsZero()
}

// ttlRange returns the possible time to live of a thread: between least and most, or none.
func (f *facts) ttlRange(thread string, events []ttlEvent) (least, most time.Duration, none bool) {
	surely := func(e ttlEvent) bool { return e.ttl != 0 && !e.maybe && e.call.acked() }
	add := func(ttl time.Duration) {
		if ttl <= 0 {
			none = true
			return
		}
		if most = max(most, ttl); least == 0 || ttl < least {
			least = ttl
		}
	}
	last := !slices.ContainsFunc(events, surely)
	if last {
		life := f.m.lives[thread]
		if life == nil || life.ttl == 0 {
			none = true
		} else {
			add(life.ttl)
		}
	}
	for _, e := range events {
		over := slices.ContainsFunc(events, func(o ttlEvent) bool { return surely(o) && e.call.acked() && e.call.precedes(o.call) })
		if e.ttl != 0 && !over {
			add(e.ttl)
		}
	}
	return least, most, none
}
