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
	path, err := t.s.migrationPath(t.ref.Tenant, old.meta.Kind, old.rec.schema, o.To, o.Down)
	if err != nil {
		return nil, ofThread(t.ref, err)
	}
	if path == nil {
		return out, nil
	}
	m, err := old.l.u.runSteps(ctx, path, old.schemaState())
	if err != nil {
		return nil, ofThread(t.ref, err)
	}
	if out.Steps = path.describe().Steps; o.DryRun {
		return out, nil
	}
	d := old.migratedDraft(m, o.To)
	d.ID, d.Parent = id, old.id
	out.New, err = t.saveHead(ctx, d, &headTransfer{old: old, branch: o.Branch, leaf: o.Branch == "" && o.Seq != 0})
	return out, err
}

// findHead restores a head, outside the cache, and finds a free id for its migrated successor.
func (t *Thread) findHead(ctx context.Context, which Which, to uint64) (*checkpointState, string, error) {
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return nil, "", err
	}
	defer l.runlockThread()
	now, err := l.durableNow(ctx)
	if err != nil {
		return nil, "", err
	}
	r, err := l.findAt(ctx, now, which)
	if err != nil {
		return nil, "", err
	}
	old, err := l.restorer().state(ctx, r)
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

// nextIDs yields possible ids for the checkpoint that migrates the one with an id to a version. A
// UUID is followed by the next UUIDs, which come before any that is made later.
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

// migratedDraft drafts t with the state m.
func (t *checkpointState) migratedDraft(m *migratedState, to uint64) *Draft {
	d := &Draft{Keep: true} // to find the differences, and so which channels hooks rewrote
	d.keepMigrated(t, m)
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

// saveHead saves a migrated head like any draft, and moves its branches and writes.
func (t *Thread) saveHead(ctx context.Context, d *Draft, c *headTransfer) (*Checkpoint, error) {
	chain, err := t.s.hookChain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err != nil {
		return nil, err
	}
	var p *hookedDraft
	if chain != nil {
		if p, _, err = t.runSaveHooks(ctx, chain, d, nil); err != nil {
			return nil, err
		}
		if p == nil {
			return nil, &ConflictError{}
		}
		d = &p.draft
	}
	l, err := t.s.lockThread(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	h := changeLocks{exclusive: true}
	if _, there := l.th.record(); !there {
		l.releaseLocks(h)
		return nil, ErrNotFound
	}
	return l.save(ctx, h, func(w *saving) (*pending, *Checkpoint, error) {
		w.hooked, w.transfer = p, c
		return w.prepare(ctx, d)
	})
}

// headTransfer is the head being migrated.
type headTransfer struct {
	old    *checkpointState
	branch string // whose head it is; "": the lineage's
	leaf   bool   // or a head because no checkpoint has it as its parent
}

// check makes sure that the head has not changed since it was migrated.
func (c *headTransfer) check(ctx context.Context, l *lineage, g *resolvedDraft) error {
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
		by, err := l.dependentsOf(ctx, c.old.seq)
		if err != nil {
			return err
		}
		if by.asParent {
			return l.conflict(ctx)
		}
		head = c.old.seq
	}
	if head != c.old.seq || g.old != nil || g.parent.hash != c.old.hash {
		return l.conflict(ctx)
	}
	return nil
}

// conflict is the error that names the durable head. The caller holds l.mu.
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

// Limits of the batch with the new checkpoint. Further writes are written
// before it, under its id, where nobody looks for them yet; for further branches see
// moveManyBranches.
const (
	transferInline     = 256 << 10
	transferInlineKeys = backend.MaxBatchKeys / 8
	transferBranches   = backend.MaxBatchKeys / 8
)

// addTo adds the old head's branches and pending writes to the save of the migrated one.
func (c *headTransfer) addTo(ctx context.Context, l *lineage, p *pending) error {
	if err := c.moveBranches(ctx, l, p); err != nil {
		return fmt.Errorf("moving branches: %w", err)
	}
	// An interrupted migration may have left some.
	if err := l.purgeWrites(ctx, p.state.id); err != nil {
		return fmt.Errorf("removing writes of an earlier attempt: %w", err)
	}
	early, size, keys := &pending{}, 0, 0
	var ledger codec.Ledger
	y := tally{u: l.u} // writes restored from an old copy of the disk must not get a matching ledger
	err := l.s.eachWrites(ctx, l, l.WritesOf(c.old.id), func(e backend.Entry, w *codec.Writes, is *codec.WritesLedger) error {
		if y.add(e.Key, w, is); w == nil {
			return nil
		}
		for i := range w.Writes {
			l.u.naming.noteParts(w.Writes[i].Parts)
		}
		w.Checkpoint = p.state.id
		ledger.Changes++
		ledger.Sum = addSum(ledger.Sum, l.u.writesSum(codec.AppendWrites(nil, w)))
		into := p
		if keys++; size+len(e.Value) > transferInline || keys > transferInlineKeys {
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
		err = l.addLedger(p, p.state.id, ledger, string(batch[:]))
	}
	if err != nil {
		return fmt.Errorf("moving writes: %w", err)
	}
	if err := l.s.commitAll(ctx, early.muts); err != nil {
		return fmt.Errorf("moving writes: %w", err)
	}
	return nil
}

func (c *headTransfer) moveBranches(ctx context.Context, l *lineage, p *pending) error {
	ends, err := l.branchEnds(ctx)
	if err != nil {
		return err
	}
	ends = slices.DeleteFunc(ends, func(e branchEnd) bool { return e.at.seq != c.old.seq })
	if len(ends) > transferBranches {
		return l.moveManyBranches(ctx, p, ends)
	}
	for _, e := range ends {
		if err := l.moveBranch(ctx, p, e.name, p.seq); err != nil {
			return err
		}
	}
	return nil
}

// moveManyBranches moves more branches than fit into its batch to the checkpoint of p. It first
// stores that as a ghost, so a branch that names it still ends at its parent, until p makes it a
// checkpoint. Up to then nothing has visibly changed.
func (l *lineage) moveManyBranches(ctx context.Context, p *pending, ends []branchEnd) error {
	key, id := l.RecordKey(p.seq), p.state.id
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
