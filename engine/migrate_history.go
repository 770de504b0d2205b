package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/hook"
)

func (t threadUpkeep) MigrateHistory(ctx context.Context, to uint64, down bool) (*upkeep.HistoryMigrated, error) {
	out, err := t.migrateHistory(ctx, &historyMigration{to: to, down: down})
	if err != nil {
		return nil, fmt.Errorf("migrating a history: %w", err)
	}
	return out, nil
}

// historyMigration is the migration of a history by a rewrite.
type historyMigration struct {
	to    uint64
	down  bool
	count upkeep.HistoryMigrated
}

func (t threadUpkeep) migrateHistory(ctx context.Context, m *historyMigration) (*upkeep.HistoryMigrated, error) {
	chain, err := t.s.hookChain(hook.PreSave, t.ref.Tenant, t.ref.Thread)
	if err != nil {
		return nil, err
	}
	if chain != nil {
		return nil, fmt.Errorf("%w: save hooks apply to the thread, and a rewritten history would bypass them; migrate its heads", ErrRejected)
	}
	l, err := t.s.lockThread(ctx, t.ref, false)
	if err != nil {
		return nil, err
	}
	defer l.unlockThread()
	rec, there := l.th.record()
	if !there {
		return nil, ErrNotFound
	}
	p, err := l.th.newPruning(ctx, func(string) *pruneRule { return nil }, true)
	if err != nil {
		return nil, err
	}
	p.history = m
	if todo, err := p.hasOtherSchema(ctx, m.to); !todo {
		return &m.count, err
	}
	if rec.Kept != 0 {
		return nil, fmt.Errorf("%w: thread %q still keeps its history from before an earlier migration: restore or drop it first", ErrConflict, t.ref.Thread)
	}
	rec.Kept = rec.Epoch
	if err := p.rewrite(ctx, l.th, rec); err != nil {
		return nil, err
	}
	p.forgetAll()
	return &m.count, nil
}

// hasOtherSchema reports whether some retained checkpoint has another schema version.
func (p *pruning) hasOtherSchema(ctx context.Context, version uint64) (found bool, err error) {
	for _, n := range p.lineages {
		err := n.l.eachRecord(ctx, 1, endSeq, false, func(r *record) error {
			if r.rec == nil || n.rows[r.seq].verdict != retained || r.rec.Schema == version {
				return nil
			}
			found = true
			return errStop
		})
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// forgetAll drops the lineages' states from memory.
func (p *pruning) forgetAll() {
	for _, n := range p.lineages {
		n.forget(true)
	}
}

// migrate turns t, the parent in the new epoch, into the checkpoint of r at the wanted version, and
// updates rec to match.
func (c *lineageCopy) migrate(ctx context.Context, t *checkpointState, r *record, rec *codec.Record) error {
	s, row, h := c.l.s, c.rows[r.seq], c.history
	old, err := c.from.state(ctx, r)
	if err != nil {
		return err
	}
	d, hooks := old.draft(), old.meta.Hooks
	d.Labels = old.meta.Labels
	for i := range d.Channels {
		d.Channels[i].rewritten = old.meta.Channels[i].Rewritten
	}
	path, err := s.migrationPath(c.l.ref.Tenant, old.meta.Kind, old.rec.schema, h.to, h.down)
	if err == nil && path != nil {
		var m *migratedState
		if m, err = c.l.u.runSteps(ctx, path, old.schemaState()); err == nil {
			d, hooks = old.migratedDraft(m, h.to), nil
			h.count.Migrated++
		}
	}
	if err != nil {
		return ofThread(c.l.ref, fmt.Errorf("checkpoint at seq %d: %w", r.seq, err))
	}
	h.count.Checkpoints++
	meta, err := c.w.plan(ctx, t, d, hooks)
	if err != nil {
		return err
	}
	if _, err := c.w.apply(t, meta); err != nil {
		return err
	}
	head := old.rec
	if hash, ok := c.hashes[row.parent]; ok {
		head.parentHash, rec.ParentHash = hash, hash
	}
	rec.Schema, head.schema = d.SchemaVersion, d.SchemaVersion
	t.rec = head
	_, t.hash = hashOf(nil, row.id, r.seq, &head, t.root())
	if c.hashes == nil {
		c.hashes = map[uint64][32]byte{}
	}
	c.hashes[r.seq] = t.hash
	row.attrs = &codec.Attrs{RunID: meta.RunID, Labels: meta.Labels, Blobs: meta.Blobs} // for its index terms
	return nil
}

func (t threadUpkeep) RestoreHistory(ctx context.Context) error {
	if err := t.restoreHistory(ctx); err != nil {
		return fmt.Errorf("restoring a history: %w", err)
	}
	return nil
}

func (t threadUpkeep) restoreHistory(ctx context.Context) error {
	l, err := t.s.lockThread(ctx, t.ref, false)
	if err != nil {
		return err
	}
	defer l.unlockThread()
	rec, there := l.th.record()
	if !there {
		return ErrNotFound
	}
	if rec.Kept == 0 {
		return fmt.Errorf("%w: thread %q has no kept history", ErrNotFound, t.ref.Thread)
	}
	now, was := l.th.in(l.th.Epoch), l.th.in(uint32(rec.Kept))
	is, err := now.outline(ctx)
	if err != nil {
		return err
	}
	had, err := was.outline(ctx)
	if err != nil {
		return err
	}
	for name, o := range is {
		if !o.within(had[name]) {
			return fmt.Errorf("%w: thread %q has changed since its history was migrated", ErrConflict, t.ref.Thread)
		}
	}
	if err := l.u.rewrites.rLock(ctx); err != nil {
		return err
	}
	defer l.u.rewrites.rUnlock()
	rec.Epoch, rec.Kept, rec.Used = rec.Kept, 0, max(rec.Used, rec.Epoch)
	if err := l.th.replace(ctx, rec); err != nil {
		return err
	}
	if err := now.purge(ctx); err != nil {
		return fmt.Errorf("removing records of the migrated history: %w", err)
	}
	return nil
}

// outline describes a lineage by properties that a migration of its history does not change.
type outline struct {
	head     uint64
	branches map[string]uint64
	writes   map[string]bool // encoded, with checkpoint and task: a prune moves those of ancestors
}

// within reports whether the current lineage, o, has nothing that had does not have.
func (o *outline) within(had *outline) bool {
	if had == nil {
		return o.head == 0 && len(o.writes) == 0
	}
	for plain := range o.writes {
		if !had.writes[plain] {
			return false
		}
	}
	return o.head == had.head && maps.Equal(o.branches, had.branches)
}

// outline reads the outlines of all lineages of the thread's epoch.
func (t *storedThread) outline(ctx context.Context) (map[string]*outline, error) {
	names, err := t.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]*outline{}
	for _, n := range names {
		l, o := t.lineage(n.Name), &outline{branches: map[string]uint64{}, writes: map[string]bool{}}
		out[n.Name] = o
		newest := l.RecordsFrom(1, endSeq)
		newest.Reverse, newest.Limit, newest.KeysOnly = true, 1, true
		page, _, err := l.s.be.Scan(ctx, newest)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 {
			o.head = space.SeqOf(page[0].Key)
		}
		ends, err := l.branchEnds(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range ends {
			o.branches[e.name] = e.at.seq
		}
		err = l.s.eachWrites(ctx, l, l.Writes(), func(_ backend.Entry, w *codec.Writes, _ *codec.WritesLedger) error {
			if w != nil {
				o.writes[string(codec.AppendWrites(nil, w))] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t threadUpkeep) DropHistory(ctx context.Context) error {
	l, err := t.s.lockThread(ctx, t.ref, false)
	if err == nil {
		if _, there := l.th.record(); there {
			err = l.th.dropKept(ctx)
		} else {
			err = ErrNotFound
		}
		l.unlockThread()
	}
	if err != nil {
		return fmt.Errorf("dropping a history: %w", err)
	}
	return nil
}

func (t threadUpkeep) KeepsHistory(ctx context.Context) (bool, error) {
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return false, fmt.Errorf("reading thread: %w", err)
	}
	defer l.runlockThread()
	rec, _ := l.th.record()
	return rec.Kept != 0, nil
}

// dropKept purges the epoch that the thread keeps. The caller holds mu for writing.
func (t *thread) dropKept(ctx context.Context) error {
	rec, _ := t.record()
	if rec.Kept == 0 {
		return nil
	}
	kept := rec.Kept
	rec.Kept = 0
	if err := t.replace(ctx, rec); err != nil {
		return err
	}
	if err := t.purgeEpoch(ctx, kept); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("removing records of a kept epoch: %w", err)
	}
	return nil
}
