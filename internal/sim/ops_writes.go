package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/engine"
)

// putWrites adds pending writes of a task.
type putWrites struct {
	call
	checkpoint, task string
	mode             engine.WriteMode
	writes           []engine.Write
}

func (a *putWrites) String() string {
	return fmt.Sprintf("%d of %s to %s, mode %d", len(a.writes), a.task, a.checkpoint, a.mode)
}

func (a *putWrites) run(ctx context.Context, s *engine.Store) error {
	_, err := s.Thread(a.ref).PutWrites(ctx, a.checkpoint, a.task, "", a.mode, a.writes, 0)
	return err
}

func (a *putWrites) effect(f *facts) {
	f.saved(&a.call, 0, false)
	if !a.acked() && !a.partial() {
		return
	}
	for _, w := range a.writes {
		r := f.pendingWrite(a.ref, writeKey{a.checkpoint, a.task, w.Index})
		r.write(&a.call, string(w.Data), a.mode == engine.Upsert)
	}
}

func makePutWrites(g *gen) action {
	tasks := 2
	if g.one(3) {
		tasks = 24 // enough that moving or removing them takes more than one batch
	}
	a := &putWrites{call: call{ref: g.ref()}, task: fmt.Sprintf("task%d", g.rand.IntN(tasks))}
	a.checkpoint = g.writesOf(a.ref)
	if g.one(4) {
		a.mode = engine.Ignore
	}
	for i := range 1 + g.rand.IntN(3) {
		a.writes = append(a.writes, engine.Write{Index: int64(i), Channel: "c", Data: append([]byte(g.name+" "), g.text(g.rand.IntN(100))...)})
	}
	return a
}

// writesOf picks a checkpoint for pending writes, which need not exist.
func (g *gen) writesOf(ref engine.Ref) string {
	if k := g.known(ref); k != nil && !g.one(8) {
		return k.cp.ID
	}
	return fmt.Sprintf("later%d", g.rand.IntN(2))
}

// readWrites reads the pending writes of a checkpoint.
type readWrites struct {
	call
	checkpoint string
	writes     []engine.PendingWrite
}

func (a *readWrites) String() string { return a.checkpoint }

func (a *readWrites) run(ctx context.Context, s *engine.Store) (err error) {
	a.writes, err = s.Thread(a.ref).Writes(ctx, a.checkpoint)
	return err
}

func (a *readWrites) effect(f *facts) {
	for _, w := range a.writes {
		f.pendingWrite(a.ref, writeKey{a.checkpoint, w.Task, w.Index})
	}
}

func (a *readWrites) check(f *facts) {
	c := &a.call
	switch {
	case errors.Is(c.err, engine.ErrNotFound):
		f.notFound(c, engine.Latest)
		return
	case c.err != nil:
		f.plainError(c)
		return
	case c.unknown, !f.followed(a.ref.Thread, c.res):
		return
	}
	seen := map[writeKey]string{}
	for _, w := range a.writes {
		seen[writeKey{a.checkpoint, w.Task, w.Index}] = string(w.Data)
	}
	l := f.line(a.ref)
	for k, r := range l.writes {
		if k.checkpoint == a.checkpoint && !r.legal(seen[k], c.inv, c.res, f.movedWrites(l, k)) {
			f.problem(c, "write %d of %s is %.40q; it was %.40q, then %v", k.index, k.task, seen[k], r.was, r.writes)
		}
	}
}

func makeReadWrites(g *gen) action {
	a := &readWrites{call: call{ref: g.ref()}}
	a.checkpoint = g.writesOf(a.ref)
	return a
}

// movedWrites returns the possible effects of other calls on a pending write: of those that removed
// its checkpoint, and of head migrations, which copy the writes.
func (f *facts) movedWrites(l *lineFacts, k writeKey) []written {
	var out []written
	for i := range f.gone {
		for id, revs := range l.ids {
			for _, r := range revs {
				if id.id == k.checkpoint && f.gone[i].takes(l.ref, r) {
					out = append(out, written{"", f.gone[i].span, false})
				}
			}
		}
	}
	for _, c := range l.copies {
		var from, to string
		if fmt.Sscan(c.val, &from, &to); to != k.checkpoint {
			continue
		}
		r := f.pendingWrite(l.ref, writeKey{from, k.task, k.index})
		out = append(out, written{r.was, c.span, false})
		for _, w := range r.writes {
			out = append(out, written{w.val, c.span, false})
		}
	}
	return out
}
