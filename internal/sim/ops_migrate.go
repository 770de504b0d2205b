package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// headMigration migrates a head.
type headMigration struct {
	call
	opts upkeep.HeadMigration
	out  *upkeep.HeadMigrated[*engine.Checkpoint]
}

// headUndo is a migrated head whose migration can be undone.
type headUndo struct {
	ref      engine.Ref
	old, now *engine.Checkpoint
}

func (a *headMigration) String() string {
	return fmt.Sprintf("to %d, branch %q", a.opts.To, a.opts.Branch)
}

func (a *headMigration) run(ctx context.Context, s *engine.Store) (err error) {
	a.out, err = s.Thread(a.ref).Upkeep().MigrateHead(ctx, a.opts)
	return err
}

func (a *headMigration) made() bool { return a.acked() && a.out.New != nil }

func (a *headMigration) learn(m *model) {
	if a.out.New != nil {
		m.learn(a.ref, a.name, a.out.New, nil)
		m.undos = append(m.undos, &headUndo{a.ref, a.out.Old, a.out.New})
	}
}

func (a *headMigration) saw() []*engine.Checkpoint {
	if !a.acked() {
		return nil
	}
	if a.out.New == nil {
		return []*engine.Checkpoint{a.out.Old}
	}
	return []*engine.Checkpoint{a.out.Old, a.out.New}
}

func (a *headMigration) effect(f *facts) {
	f.saved(&a.call, 0, false)
	l := f.line(a.ref)
	if a.made() {
		f.made(&a.call, a.out.New, &rev{headOf: a.out.Old.Seq, to: a.opts.To})
		l.moves = append(l.moves, writing(&a.call, a.out.New.ID, false))
		l.copies = append(l.copies, writing(&a.call, a.out.Old.ID+" "+a.out.New.ID, false))
	} else if a.doubtful() {
		f.scramble(&a.call, a.ref.Thread)
	}
}

func (a *headMigration) claim(f *facts, cp *engine.Checkpoint) *rev {
	if cp.Ref != a.ref || cp.SchemaVersion != a.opts.To && f.quietHistory(a.ref) { // it may have been migrated since
		return nil
	}
	for _, r := range f.line(a.ref).revs {
		if r.gen == cp.Generation && r.seq == cp.ParentSeq {
			return &rev{headOf: r.seq, to: a.opts.To}
		}
	}
	return nil
}

func (a *headMigration) check(f *facts) {
	c := &a.call
	switch {
	case c.unknown, errors.Is(c.err, engine.ErrConflict), errors.Is(c.err, engine.ErrUnknownParent): // it is gone
	case errors.Is(c.err, engine.ErrNotFound):
		which := engine.Latest
		if a.opts.Branch != "" {
			which = engine.HeadOf(a.opts.Branch)
		}
		f.notFound(c, which)
	case errors.Is(c.err, engine.ErrNoMigration) && !versioned(a.ref):
	case c.err != nil:
		f.plainError(c)
	default:
		for _, cp := range a.saw() {
			f.show(c, cp)
		}
	}
}

func makeHeadMigration(g *gen) action {
	a := &headMigration{call: call{ref: g.ref()}}
	if !versioned(a.ref) && !g.one(10) {
		return nil
	}
	a.opts.To, a.opts.Down = uint64(1+g.rand.IntN(3)), true
	if g.one(3) {
		a.opts.Branch = g.branch()
	}
	return a
}

// undo undoes the migration of a head. If the head is not a migrated one, it must be refused.
type undo struct {
	call
	old, now uint64
	hash     [32]byte
}

func (a *undo) String() string { return fmt.Sprintf("seq %d, back to %d", a.now, a.old) }

func (a *undo) run(ctx context.Context, s *engine.Store) error {
	return undoHead(ctx, s.Thread(a.ref), a)
}

func undoHead(ctx context.Context, th *engine.Thread, a *undo) error {
	return th.Upkeep().UndoHead(ctx, a.old, a.now, a.hash)
}

func (a *undo) effect(f *facts) {
	if !a.acked() && !a.partial() {
		return
	}
	// Only results of a migration may go. A successful call may have had nothing to do.
	f.remove(&a.call, func(ref engine.Ref, r *rev) bool {
		return ref == a.ref && r.seq == a.now && r.headOf == a.old
	}, nil)
	l := f.line(a.ref)
	l.moves = append(l.moves, writing(&a.call, anyID, false))
	f.scramble(&a.call, a.ref.Thread)
}

func (a *undo) check(f *facts) {
	if c := &a.call; !errors.Is(c.err, engine.ErrConflict) && !errors.Is(c.err, engine.ErrInvalid) && !errors.Is(c.err, engine.ErrNotFound) {
		f.plainError(c)
	}
}

func makeUndo(g *gen) action {
	if undos := g.w.model.undos; len(undos) > 0 && !g.one(4) {
		u := undos[len(undos)-1]
		if g.one(3) {
			u = undos[g.rand.IntN(len(undos))]
		}
		return &undo{call: call{ref: u.ref}, old: u.old.Seq, now: u.now.Seq, hash: u.now.Hash}
	}
	a := &undo{call: call{ref: g.ref()}}
	k := g.known(a.ref)
	switch {
	case k == nil:
		return nil
	case k.cp.ParentSeq != 0 && !g.one(3):
		a.old, a.now = k.cp.ParentSeq, k.cp.Seq
	default:
		a.old = k.cp.Seq + uint64(g.rand.IntN(3))
		a.now = a.old + 1
	}
	return a
}

// historyMigration migrates the history of a thread to a version, restores it, or drops the kept
// original.
type historyMigration struct {
	call
	how string // "migrate", "restore", "drop"
	to  uint64
	out *upkeep.HistoryMigrated
}

func (a *historyMigration) String() string { return fmt.Sprintf("%s %d", a.how, a.to) }

func (a *historyMigration) run(ctx context.Context, s *engine.Store) (err error) {
	th := s.Thread(a.ref)
	switch a.how {
	case "migrate":
		a.out, err = th.Upkeep().MigrateHistory(ctx, a.to, true)
		return err
	case "restore":
		return th.Upkeep().RestoreHistory(ctx)
	}
	return th.Upkeep().DropHistory(ctx)
}

func (a *historyMigration) effect(f *facts) {
	if a.how != "drop" && (a.acked() || a.partial()) {
		f.hist[a.ref.Thread] = append(f.hist[a.ref.Thread], &histEvent{&a.call, a.to})
		f.rewrites[a.ref.Thread] = append(f.rewrites[a.ref.Thread], &a.call)
	}
}

func (a *historyMigration) check(f *facts) {
	c := &a.call
	switch {
	case errors.Is(c.err, engine.ErrConflict):
	case errors.Is(c.err, engine.ErrNotFound):
		if a.how != "restore" {
			f.notFound(c, engine.Latest)
		}
	case errors.Is(c.err, engine.ErrNoMigration) && !versioned(a.ref):
	default:
		f.plainError(c)
	}
}

func makeHistoryMigration(g *gen) action {
	a := &historyMigration{call: call{ref: g.ref()}, how: "migrate", to: uint64(1 + g.rand.IntN(3))}
	if !versioned(a.ref) {
		return nil
	}
	return a
}

func makeHistoryRestore(g *gen) action {
	a := &historyMigration{call: call{ref: g.ref()}, how: "restore"}
	if g.one(4) {
		a.how = "drop"
	}
	return a
}
