package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/hook"
)

func (t threadUpkeep) MigrateHead(ctx context.Context, o upkeep.HeadMigration) (*upkeep.HeadMigrated[*Checkpoint], error) {
	a := attempt{t: t.Thread}
	var out *upkeep.HeadMigrated[*Checkpoint]
	_, err := a.run(ctx, func() (_ *Checkpoint, err error) {
		out, err = t.migrateHead(ctx, &o)
		return nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("migrating a head: %w", err)
	}
	return out, nil
}

func (t threadUpkeep) migrateHead(ctx context.Context, o *upkeep.HeadMigration) (*upkeep.HeadMigrated[*Checkpoint], error) {
	which := Latest
	if o.Branch != "" {
		which = HeadOf(o.Branch)
	} else if o.Seq != 0 {
		which = AtSeq(o.Seq)
	}
	old, id, err := t.findHead(ctx, which, o.To)
	if err != nil {
		return nil, err
	}
	out := &upkeep.HeadMigrated[*Checkpoint]{Old: old.checkpoint(nil)}
	way, err := t.s.wayTo(t.ref.Tenant, old.meta.Kind, old.rec.schema, o.To, o.Down)
	if err != nil {
		return nil, ofThread(t.ref, err)
	}
	if way == nil {
		return out, nil
	}
	m, err := old.l.u.runSteps(ctx, way, old.state())
	if err != nil {
		return nil, ofThread(t.ref, err)
	}
	if out.Steps = way.describe().Steps; o.DryRun {
		return out, nil
	}
	d := old.migrate(m, o.To)
	d.ID, d.Parent = id, old.id
	out.New, err = t.saveHead(ctx, d, &carrying{old: old, branch: o.Branch, leaf: o.Branch == "" && o.Seq != 0})
	return out, err
}

// findHead restores a head for the caller alone, and finds an id that a checkpoint on it can have.
func (t *Thread) findHead(ctx context.Context, which Which, to uint64) (*tip, string, error) {
	l, err := t.acquireThere(ctx)
	if err != nil {
		return nil, "", err
	}
	defer l.release()
	now, err := l.durableNow(ctx)
	if err != nil {
		return nil, "", err
	}
	r, err := l.findAt(ctx, now, which)
	if err != nil {
		return nil, "", err
	}
	old, err := l.restorer().tip(ctx, r)
	if err != nil || old.rec.own {
		return old, "", err
	}
	for id := range nextIDs(old.id, to) {
		_, err := l.findID(ctx, now.head, id)
		if errors.Is(err, ErrNotFound) {
			return old, id, nil
		}
		if err != nil {
			return nil, "", err
		}
	}
	return old, "", nil // the engine's own
}

// nextIDs yields what the checkpoint may be called that a migration to a version makes of the one with an id. UUIDs come
// after it, and before any that is made later.
func nextIDs(id string, to uint64) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		uuid, isUUID := space.ParseUUID(id)
		for n := range 100 {
			next := fmt.Sprintf("%s~v%d", id, to)
			if n > 0 {
				next = fmt.Sprintf("%s.%d", next, n)
			}
			if isUUID {
				lo := binary.BigEndian.Uint64(uuid[8:]) + 1
				if binary.BigEndian.PutUint64(uuid[8:], lo); lo == 0 {
					return
				}
				next = formatUUID(uuid)
			}
			if len(next) > codec.MaxName || !yield(next) {
				return
			}
		}
	}
}

// migrate drafts t with the state m.
func (t *tip) migrate(m *migrated, to uint64) *Draft {
	d := &Draft{Keep: true} // to see what differs, which says what hooks rewrote
	d.keep(t, m)
	rewritten := map[string]bool{}
	for _, c := range d.Channels {
		rewritten[c.Name] = c.rewritten
	}
	for _, info := range t.meta.Channels {
		if _, changed := rewritten[info.Name]; !changed {
			rewritten[info.Name] = info.Rewritten
		}
	}
	d = t.draft()
	d.SchemaVersion, d.Labels, d.Meta, d.Channels = to, m.state.Labels, m.state.Meta, nil
	for _, ch := range m.state.Channels {
		d.Channels = append(d.Channels, Change{Name: ch.Name, Type: ch.Type, Data: ch.Data, rewritten: rewritten[ch.Name]})
	}
	return d
}

// saveHead saves a migrated head as any other draft, but for what moves along.
func (t *Thread) saveHead(ctx context.Context, d *Draft, c *carrying) (*Checkpoint, error) {
	chain, err := t.s.chain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err != nil {
		return nil, err
	}
	var p *passage
	if chain != nil {
		if p, _, err = t.pass(ctx, chain, d, nil); err != nil {
			return nil, err
		}
		if p == nil {
			return nil, &ConflictError{}
		}
		d = &p.draft
	}
	l, err := t.s.seize(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	h := hold{seized: true}
	if _, there := l.th.record(); !there {
		l.letGo(h)
		return nil, ErrNotFound
	}
	return l.save(ctx, h, func(w *saving) (*pending, *Checkpoint, error) {
		w.passage, w.carry = p, c
		return w.prepare(ctx, d)
	})
}

// carrying is a head that is being migrated.
type carrying struct {
	old    *tip
	branch string // whose head it is; "": the lineage's
	leaf   bool   // or it is one because nothing stands on it
}

// check makes sure that the head is still what was migrated.
func (c *carrying) check(ctx context.Context, l *lineage, g *ground) error {
	if c == nil {
		return nil
	}
	head := l.latest
	if c.branch != "" {
		b, err := l.branch(ctx, c.branch)
		if err != nil {
			return err
		}
		head = b.head
	} else if c.leaf {
		by, err := l.needOf(ctx, c.old.seq)
		if err != nil {
			return err
		}
		if by.line {
			return l.conflict(ctx)
		}
		head = c.old.seq
	}
	if head != c.old.seq || g.old != nil || g.parent.hash != c.old.hash {
		return l.conflict(ctx)
	}
	return nil
}

// conflict is the error that tells of the durable head. The caller holds l.mu.
func (l *lineage) conflict(ctx context.Context) error {
	now, _ := l.durable.get(l.openEpoch)
	if now.latest == 0 {
		return &ConflictError{}
	}
	r, err := l.findAt(ctx, now, Latest)
	if err != nil {
		return err
	}
	return &ConflictError{HeadSeq: r.seq, HeadID: l.recordID(r)}
}

// What is committed with the checkpoint that it moves to. More writes than that are written before it, where nobody looks
// for them yet; for more branches see announce.
const (
	carriedInline     = 256 << 10
	carriedInlineKeys = backend.MaxBatchKeys / 8
	carriedBranches   = backend.MaxBatchKeys / 8
)

// over adds to the save of a migrated head the branches and pending writes of the head that it was made of.
func (c *carrying) over(ctx context.Context, l *lineage, p *pending) error {
	if err := c.moveBranches(ctx, l, p); err != nil {
		return fmt.Errorf("moving branches: %w", err)
	}
	// A migration that was cut short may have left some, of what the head was then.
	if err := l.purgeWrites(ctx, p.tip.id); err != nil {
		return fmt.Errorf("removing writes of an earlier attempt: %w", err)
	}
	early, size, keys := &pending{}, 0, 0
	var ledger codec.Ledger
	y := tally{u: l.u} // what was put back on the disk must not get a ledger that it matches
	err := l.s.eachWrites(ctx, l, l.WritesOf(c.old.id), func(e backend.Entry, w *codec.Writes, is *codec.WritesLedger) error {
		if y.add(e.Key, w, is); w == nil {
			return nil
		}
		for i := range w.Writes {
			l.u.naming.noteParts(w.Writes[i].Parts)
		}
		w.Checkpoint = p.tip.id
		ledger.Changes++
		ledger.Sum = addSum(ledger.Sum, l.u.writesSum(codec.AppendWrites(nil, w)))
		into := p
		if keys++; size+len(e.Value) > carriedInline || keys > carriedInlineKeys {
			into = early
		} else {
			size += len(e.Value)
		}
		batch := l.s.newBatchID()
		return addSealed(l, into, space.Writes, l.WritesKey(w.Checkpoint, w.Task), w, string(batch[:]))
	})
	if err == nil {
		err = y.err()
	}
	if err == nil && ledger.Changes > 0 {
		batch := l.s.newBatchID()
		err = l.addLedger(p, p.tip.id, ledger, string(batch[:]))
	}
	if err != nil {
		return fmt.Errorf("moving writes: %w", err)
	}
	if err := l.s.commitAll(ctx, early.muts); err != nil {
		return fmt.Errorf("moving writes: %w", err)
	}
	return nil
}

func (c *carrying) moveBranches(ctx context.Context, l *lineage, p *pending) error {
	ends, err := l.branchEnds(ctx)
	if err != nil {
		return err
	}
	ends = slices.DeleteFunc(ends, func(e branchEnd) bool { return e.at.seq != c.old.seq })
	if len(ends) > carriedBranches {
		return l.announce(ctx, p, ends)
	}
	for _, e := range ends {
		if err := l.moveBranch(ctx, p, e.name, p.seq); err != nil {
			return err
		}
	}
	return nil
}

// announce makes more branches than fit into its batch end at the checkpoint of p. It is stored as a ghost first: a branch
// that names it still ends at its parent then, and at itself when p makes it a checkpoint. Until then nothing has changed.
func (l *lineage) announce(ctx context.Context, p *pending, ends []branchEnd) error {
	key, id := l.RecordKey(p.seq), p.tip.id
	var first []backend.Mut
	for _, m := range p.muts {
		switch {
		case bytes.Equal(m.Key, key):
			r, err := l.openRecord(key, m.Value)
			if err != nil {
				return err
			}
			if m, err = l.ghostMut(r); err != nil {
				return err
			}
		case bytes.Equal(m.Key, l.IDKey(id)):
			continue
		}
		first = append(first, m)
	}
	for i := range p.conds {
		if bytes.Equal(p.conds[i].Key, key) {
			p.conds[i].Version = versionGhost
		}
	}
	out := &batcher{s: l.s}
	if err := out.add(ctx, first...); err != nil {
		return err
	}
	for _, e := range ends {
		mut, err := l.branchMut(e.name, p.seq)
		if err == nil {
			err = out.add(ctx, mut)
		}
		if err != nil {
			return err
		}
	}
	clear(l.branches)
	return out.flush(ctx)
}
