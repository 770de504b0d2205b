package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// dump is everything that a store reports about its user while nobody else is working.
type dump struct {
	threads map[string]*engine.ThreadInfo
	keeps   map[string]bool // histories kept from before a migration
	lines   map[engine.Ref]*lineDump
}

// lineDump is the dump of a lineage.
type lineDump struct {
	cps      []*engine.Checkpoint // newest first, with data
	branches map[string]string    // ids of heads
	writes   map[writeKey]string
}

// fresh opens the store for reading, as another process would.
func (w *world) fresh() *engine.Store {
	d := &disk{inner: w.data, s: w.sched, shared: w.prof.shared, open: atomic.Bool{}}
	d.open.Store(true)
	o := w.opts
	o.CacheBytes = -1
	s, err := engine.Open(context.Background(), d, o)
	if err != nil {
		panic(fmt.Sprintf("opening the store again: %v", err))
	}
	return s
}

// read reads everything. Any error is a problem, because nothing is damaged and no failures are
// injected at this point.
func (w *world) read(s *engine.Store, who string, f *facts) *dump {
	ctx := context.Background()
	d := &dump{threads: map[string]*engine.ThreadInfo{}, keeps: map[string]bool{}, lines: map[engine.Ref]*lineDump{}}
	failed := func(what string, ref engine.Ref, err error) bool {
		if err != nil {
			w.problem("%s: %s of %s/%s: %v", who, what, ref.Thread, ref.Namespace, err)
		}
		return err != nil
	}
	for info, err := range s.User(tenant, user).Threads(ctx, engine.ThreadOptions{Count: true}) {
		if failed("threads", info.Ref, err) {
			return d
		}
		d.threads[info.Ref.Thread] = &info
		th := s.Thread(info.Ref)
		keeps, err := th.Upkeep().KeepsHistory(ctx)
		failed("kept history", info.Ref, err)
		d.keeps[info.Ref.Thread] = keeps
		names, err := th.Namespaces(ctx)
		failed("namespaces", info.Ref, err)
		if !slices.Contains(names, "") {
			names = append(names, "")
		}
		for _, ns := range names {
			ref := info.Ref
			ref.Namespace = ns
			d.lines[ref] = w.readLine(s, ref, f, failed)
		}
	}
	w.readActivity(s, who, d, failed)
	return d
}

// readActivity lists the threads by activity: they must be the same threads, in order, and none may
// have a checkpoint that is too new for its position.
func (w *world) readActivity(s *engine.Store, who string, d *dump, failed func(string, engine.Ref, error) bool) {
	n, last := 0, time.Time{}
	for info, err := range s.User(tenant, user).Threads(context.Background(), engine.ThreadOptions{ByActivity: true}) {
		if failed("threads by activity", info.Ref, err) {
			return
		}
		if d.threads[info.Ref.Thread] == nil || n > 0 && info.Active.After(last) {
			w.problem("%s: thread %s is listed as active at %v, after one of %v", who, info.Ref.Thread, info.Active, last)
		}
		n, last = n+1, info.Active
	}
	if n != len(d.threads) {
		w.problem("%s: %d threads by activity, %d by name", who, n, len(d.threads))
	}
	for ref, l := range d.lines {
		for _, cp := range l.cps {
			if at := d.threads[ref.Thread].Active; !cp.Time.Before(at.Add(time.Hour)) {
				w.problem("%s: %s/%s has a checkpoint of %v, but is listed as active at %v", who, ref.Thread, ref.Namespace, cp.Time, at)
			}
		}
	}
}

func (w *world) readLine(s *engine.Store, ref engine.Ref, f *facts, failed func(string, engine.Ref, error) bool) *lineDump {
	ctx := context.Background()
	l := &lineDump{branches: map[string]string{}, writes: map[writeKey]string{}}
	th := s.Thread(ref)
	for cp, err := range th.History(ctx, engine.HistoryOptions{Data: true}) {
		if failed("history", ref, err) {
			break
		}
		l.cps = append(l.cps, cp)
	}
	branches, err := th.Branches(ctx)
	failed("branches", ref, err)
	for _, b := range branches {
		l.branches[b.Name] = b.HeadID
	}
	for _, id := range f.writeIDs(ref) {
		ws, err := th.Writes(ctx, id)
		failed("writes", ref, err)
		for _, pw := range ws {
			l.writes[writeKey{id, pw.Task, pw.Index}] = string(pw.Data)
		}
	}
	return l
}

// sameAs compares the dumps of two readers.
func (d *dump) sameAs(o *dump) string {
	for ref, l := range d.lines {
		m := o.lines[ref]
		if m == nil {
			return fmt.Sprintf("%s/%s is not there", ref.Thread, ref.Namespace)
		}
		if len(l.cps) != len(m.cps) {
			return fmt.Sprintf("%s/%s has %d checkpoints, and %d", ref.Thread, ref.Namespace, len(l.cps), len(m.cps))
		}
		for i, cp := range l.cps {
			if m.cps[i].Hash != cp.Hash || m.cps[i].ID != cp.ID || m.cps[i].Parent != cp.Parent {
				return fmt.Sprintf("%s/%s: %s (seq %d, parent %s) is %s (seq %d, parent %s)", ref.Thread, ref.Namespace, cp.ID, cp.Seq, cp.Parent,
					m.cps[i].ID, m.cps[i].Seq, m.cps[i].Parent)
			}
			if diff := contentOf(cp).differs(m.cps[i]); diff != "" {
				return fmt.Sprintf("%s/%s: %s: %s", ref.Thread, ref.Namespace, cp.ID, diff)
			}
		}
		for name, id := range l.branches {
			if m.branches[name] != id {
				return fmt.Sprintf("%s/%s: branch %s ends at %q, and at %q", ref.Thread, ref.Namespace, name, id, m.branches[name])
			}
		}
		if len(l.branches) != len(m.branches) {
			return fmt.Sprintf("%s/%s has %d branches, and %d", ref.Thread, ref.Namespace, len(l.branches), len(m.branches))
		}
	}
	if len(d.lines) != len(o.lines) {
		return fmt.Sprintf("%d lineages, and %d", len(d.lines), len(o.lines))
	}
	return ""
}

// writeIDs returns the checkpoints of a lineage that may have pending writes. A copy has those of
// its source.
func (f *facts) writeIDs(ref engine.Ref) []string {
	copied := slices.Contains(f.m.copies(), ref.Thread) || f.isCopy(ref)
	may := func(from engine.Ref) bool { return from == ref || copied && from.Namespace == ref.Namespace }
	var ids []string
	for from, st := range f.m.lines {
		if may(from) {
			for k := range st.writes {
				ids = append(ids, k.checkpoint)
			}
		}
	}
	for from, l := range f.lines {
		if !may(from) {
			continue
		}
		for k := range l.writes {
			ids = append(ids, k.checkpoint)
		}
		for _, c := range l.copies {
			_, to, _ := strings.Cut(c.val, " ")
			ids = append(ids, to)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
