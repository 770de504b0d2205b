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
	"github.com/ckptd/ckptd/plugins/hook"
)

// HeadMigration says which head is migrated, and to which version.
type HeadMigration struct {
	Branch string // the head of this branch; "" is the newest checkpoint of the lineage
	// Seq, if Branch is "", is the seq of the head: for one in which no branch ends, and that was the newest until other heads
	// of the lineage were migrated. It is a head as long as no checkpoint stands on it. 0 is the newest checkpoint.
	Seq    uint64
	To     uint64
	Down   bool // ways back are allowed
	DryRun bool // the steps run, and nothing is written
}

// HeadMigrated tells what became of a head.
type HeadMigrated struct {
	Old   *Checkpoint // the head as it was, without data
	New   *Checkpoint // the head as it is now, without data; nil after a dry run, and if it was of that version already
	Steps []string    // that ran, as in Migrated
}

// MigrateHead saves the head, migrated, as a new checkpoint on itself, with the step, status, run id, branch and blobs that it
// has. Its pending writes move along, and so do the branches that end there; what is left of the time of a thread that
// expires stays the same. Where the id of the head is a UUID that the caller chose, that of the new one is the next UUID; it
// is derived from any other id that the caller chose. A branch whose head is not the newest checkpoint gets its migrated
// head as the newest one, as with any save on a branch: whoever migrates all heads of a lineage begins with the oldest.
//
// The steps and the hooks of saves run with no lock held; the other operations on the thread wait while the outcome is
// written. If the head has moved meanwhile, that is ErrConflict, nothing is written, and the caller may look again.
func (t *Thread) MigrateHead(ctx context.Context, o HeadMigration) (*HeadMigrated, error) {
	for try := 1; ; try++ {
		out, err := t.migrateHead(ctx, &o)
		if errors.Is(err, backend.ErrConflict) && try < conflictRetries {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("migrating a head: %w", err)
		}
		return out, nil
	}
}

func (t *Thread) migrateHead(ctx context.Context, o *HeadMigration) (*HeadMigrated, error) {
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
	out := &HeadMigrated{Old: old.checkpoint(nil)}
	way, err := t.s.wayTo(t.ref.Tenant, old.meta.Kind, old.rec.schema, o.To, o.Down)
	if err != nil {
		return nil, ofThread(t.ref, err)
	}
	if way == nil {
		return out, nil
	}
	m, err := old.l.th.u.runSteps(ctx, way, old.state())
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
	l.mu.Lock()
	defer l.mu.Unlock()
	old, err := l.findTip(ctx, which)
	if err != nil || old.rec.own {
		return old, "", err
	}
	for id := range nextIDs(old.id, to) {
		_, err := l.findID(ctx, id)
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
		uuid, isUUID := parseUUID(id)
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
	defer l.vacate()
	if _, there := l.th.record(); !there {
		return nil, ErrNotFound
	}
	return l.save(func(w *saving) (*pending, *Checkpoint, error) {
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
		if err := l.childless(ctx, c.old.seq); err != nil {
			return err
		}
		head = c.old.seq
	}
	if head != c.old.seq || g.old != nil || g.parent.hash != c.old.hash {
		return l.conflict(ctx)
	}
	return nil
}

// conflict is the error that tells of the head as it is. The caller holds l.mu, with nothing pending.
func (l *lineage) conflict(ctx context.Context) error {
	e := &ConflictError{HeadSeq: l.latest}
	if l.latest != 0 {
		r, err := l.visible(ctx, l.latest)
		if err != nil {
			return err
		}
		e.HeadID = l.recordID(r)
	}
	return e
}

// carriedInline bounds the writes that are committed with the checkpoint that they move to. More than that is written before
// it, where nobody looks for it yet.
const (
	carriedInline     = 256 << 10
	carriedInlineKeys = backend.MaxBatchKeys / 8
)

// over adds to the save of a migrated head the branches and pending writes of the head that it was made of.
func (c *carrying) over(ctx context.Context, l *lineage, p *pending) error {
	err := l.eachBranch(ctx, func(b *codec.Branch) error {
		if b.Head != c.old.seq {
			return nil
		}
		return l.moveBranch(ctx, p, b.Name, p.seq)
	})
	if err != nil {
		return err
	}
	to := l.writesPrefix(p.tip.id)
	early, size, keys := &pending{}, 0, 0
	err = l.s.scan(ctx, prefixRange(l.writesPrefix(c.old.id)), func(e backend.Entry) error {
		w, err := unseal(l.th.sealer, writesLayout, e.Key, e.Value)
		if err != nil {
			return err
		}
		w.Checkpoint = p.tip.id
		into := p
		if keys++; size+len(e.Value) > carriedInline || keys > carriedInlineKeys {
			into = early
		} else {
			size += len(e.Value)
		}
		key := append(slices.Clone(to), e.Key[len(to):]...)
		batch := l.s.newBatchID()
		return addSealed(l, into, writesLayout, key, w, string(batch[:]))
	})
	if err != nil {
		return fmt.Errorf("moving writes: %w", err)
	}
	if err := l.s.commitAll(ctx, early.muts); err != nil {
		return fmt.Errorf("moving writes: %w", err)
	}
	return nil
}

// UndoHead removes a head that MigrateHead made at newSeq of the checkpoint at oldSeq, which is the head again: ids, branches
// and pending writes are as they were, and newSeq is not used again. If something was saved on the migrated head, or
// writes were put there, nothing is changed, and that is ErrConflict. It is durable when the call returns; one that
// was done before, or was cut short, is done again.
func (t *Thread) UndoHead(ctx context.Context, oldSeq, newSeq uint64) error {
	if err := t.undoHead(ctx, oldSeq, newSeq); err != nil {
		return fmt.Errorf("undoing the migration of a head: %w", err)
	}
	return nil
}

func (t *Thread) undoHead(ctx context.Context, oldSeq, newSeq uint64) error {
	l, err := t.s.seize(ctx, t.ref, false)
	if err != nil {
		return err
	}
	defer l.vacate()
	if _, there := l.th.record(); !there {
		return ErrNotFound
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	if err := l.open(ctx); err != nil {
		return err
	}
	if _, err := l.visible(ctx, oldSeq); err != nil {
		return err
	}
	r, err := l.readRecord(ctx, newSeq)
	if err != nil {
		return err
	}
	if r == nil {
		return l.absent(ctx, newSeq)
	}
	id := ""
	if r.stub != nil {
		id = r.stub.ID
	} else {
		id = l.recordID(r)
		if err := l.undoable(ctx, r, oldSeq); err != nil {
			return err
		}
		err := l.takeBack(ctx, r, oldSeq)
		l.forget()
		if err != nil {
			return err
		}
	}
	return l.s.purge(ctx, l.writesPrefix(id))
}

// undoable checks that r was made of the checkpoint at oldSeq, and that nothing came after it.
func (l *lineage) undoable(ctx context.Context, r *record, oldSeq uint64) error {
	switch {
	case r.rec.ParentDist == 0 || r.seq-r.rec.ParentDist != oldSeq:
		return fmt.Errorf("%w: seq %d is not the migrated head of seq %d", ErrInvalid, r.seq, oldSeq)
	case r.rec.Ghost || r.rec.Replaced != 0:
		return l.conflict(ctx)
	}
	if err := l.childless(ctx, r.seq); err != nil {
		return err
	}
	old, err := l.readRecord(ctx, oldSeq)
	if err != nil {
		return err
	}
	was, err := l.writesOf(ctx, l.recordID(old))
	if err != nil {
		return err
	}
	is, err := l.writesOf(ctx, l.recordID(r))
	if err != nil {
		return err
	}
	for task, plain := range is {
		if !bytes.Equal(plain, was[task]) {
			return fmt.Errorf("%w: writes were put there since", ErrConflict)
		}
	}
	return nil
}

// childless is an ErrConflict if a checkpoint stands on the one at seq, or replaced it.
func (l *lineage) childless(ctx context.Context, seq uint64) error {
	return l.eachRecord(ctx, seq+1, endSeq, false, func(later *record) error {
		if later.rec != nil && (later.rec.ParentDist == later.seq-seq || later.rec.Replaced == later.seq-seq) {
			return l.conflict(ctx)
		}
		return nil
	})
}

// writesOf are the pending writes of a checkpoint by task, encoded without its id.
func (l *lineage) writesOf(ctx context.Context, id string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := l.s.scan(ctx, prefixRange(l.writesPrefix(id)), func(e backend.Entry) error {
		w, err := unseal(l.th.sealer, writesLayout, e.Key, e.Value)
		if err != nil {
			return err
		}
		w.Checkpoint = ""
		out[w.Task] = codec.AppendWrites(nil, w)
		return nil
	})
	return out, err
}

// takeBack makes a stub of r, and lets what ended there end at the checkpoint at oldSeq, in one batch; index entries that
// lead nowhere then are removed after it.
func (l *lineage) takeBack(ctx context.Context, r *record, oldSeq uint64) error {
	rs := l.restorer()
	cp, err := rs.checkpoint(ctx, r, nil)
	if err != nil {
		return err
	}
	meta, err := rs.meta(ctx, r)
	if err != nil {
		return err
	}
	key := l.recordKey(r.seq)
	p := &pending{}
	if err := addSealed(l, p, stubLayout, key, &codec.Stub{Count: 1, Hash: cp.Hash, ID: cp.ID}, versionStub); err != nil {
		return err
	}
	p.conds = append(p.conds, backend.Cond{Key: key, Version: versionOne})
	if r.rec.ID != "" {
		p.muts = append(p.muts, backend.Mut{Key: l.idKey(cp.ID), Delete: true})
	}
	err = l.eachBranch(ctx, func(b *codec.Branch) error {
		if b.Head != r.seq {
			return nil
		}
		return l.moveBranch(ctx, p, b.Name, oldSeq)
	})
	if err != nil {
		return err
	}
	if err := l.s.commit(ctx, p.muts, p.conds); err != nil {
		return err
	}
	var entries []backend.Mut
	for _, term := range terms(meta, r.rec.Status) {
		entries = append(entries, backend.Mut{Key: l.indexKey(term, r.seq), Delete: true})
	}
	return l.s.commitAll(ctx, entries)
}
