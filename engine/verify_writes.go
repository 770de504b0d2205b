package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// ledgerClaim is the ledger of a checkpoint's pending writes according to its children.
type ledgerClaim struct {
	id     string
	ledger codec.Ledger // the one with the most changes
	by     uint64       // seq of a checkpoint that says so
}

// noteClaim notes the ledger of its parent's pending writes that r records. It is kept by the
// parent's origin, since the parent may have been replaced or pruned.
func (c *lineageCheck) noteClaim(ctx context.Context, r *record) error {
	if r.rec.Writes.Changes == 0 {
		return nil
	}
	seq := r.seq - r.rec.ParentDist
	if p := c.rows[seq]; p == nil || p.broken || p.stub {
		return nil
	}
	parent, err := c.l.readRecord(ctx, seq)
	if err != nil || parent == nil || parent.rec == nil {
		return c.note(err)
	}
	if c.claims == nil {
		c.claims = map[uint64]ledgerClaim{}
	}
	if origin := seq - parent.rec.Replaced; r.rec.Writes.Changes > c.claims[origin].ledger.Changes {
		c.claims[origin] = ledgerClaim{c.l.recordID(parent), r.rec.Writes, r.seq}
	}
	return nil
}

// currentClaims returns, by id, the claims about records that still are checkpoints.
func (c *lineageCheck) currentClaims() map[string]ledgerClaim {
	now := map[string]ledgerClaim{}
	for seq, row := range c.rows {
		o, ok := c.claims[row.origin]
		switch {
		case !ok || row.broken || row.stub:
		case row.holds:
			o.id = space.Held(seq)
			now[o.id] = o
		case !row.ghost:
			now[o.id] = o
		}
	}
	return now
}

// writes decodes the pending writes of the lineage, and compares them with their ledgers, and the
// ledgers with the claims.
func (c *lineageCheck) writes(ctx context.Context) error {
	y, owed := tally{u: c.l.u}, c.currentClaims()
	c.heldAt = map[string]uint64{}
	for seq, row := range c.rows {
		if row.holds {
			c.heldAt[string(c.l.WritesPrefix(space.Held(seq)))] = seq
		}
	}
	broken := false
	err := c.l.s.scan(ctx, c.l.Writes(), func(e backend.Entry) error {
		if y.key != nil && !bytes.HasPrefix(e.Key, space.SameWrites(y.key)) {
			if err := c.checkLedger(ctx, &y, owed, broken); err != nil {
				return err
			}
			y, broken = tally{u: c.l.u}, false
		}
		if y.key == nil {
			y.key = e.Key
		}
		w, ledger, err := openWrites(c.l, e)
		if err != nil {
			broken = true
			return c.note(err)
		}
		y.add(e.Key, w, ledger)
		if w != nil {
			return c.task(ctx, e.Key, w)
		}
		return nil
	})
	if err == nil {
		err = c.checkLedger(ctx, &y, owed, broken)
	}
	for _, o := range owed {
		c.damaged(c.l.RecordKey(o.by), "the pending writes of its parent are missing")
	}
	return err
}

// checkLedger checks the writes of a checkpoint after all of them were seen. Broken ones are
// reported already.
func (c *lineageCheck) checkLedger(ctx context.Context, y *tally, all map[string]ledgerClaim, broken bool) error {
	if y.key == nil {
		return nil
	}
	name := y.id
	seq, held := c.heldAt[string(space.SameWrites(y.key))]
	if held {
		name = space.Held(seq)
	} else if !broken && !bytes.Equal(space.SameWrites(y.key), c.l.WritesPrefix(y.id)) {
		return nil // an interrupted prune left copies, perhaps not all of them
	}
	owed := all[name]
	delete(all, name)
	if broken {
		of := space.SameWrites(y.key)
		maps.DeleteFunc(all, func(id string, _ ledgerClaim) bool { return bytes.Equal(space.SameWrites(c.l.LedgerKey(id)), of) })
		return nil
	}
	if err := y.err(); err != nil && held {
		return c.note(err)
	} else if err != nil {
		return c.note(c.l.forgiveWrites(ctx, c.next-1, y.id, err))
	}
	if is := y.ledger.Ledger; is.Changes < owed.ledger.Changes || is.Changes == owed.ledger.Changes && is != owed.ledger {
		c.damaged(y.key, fmt.Sprintf("pending writes changed %d times, but seq %d recorded %d changes", is.Changes, owed.by, owed.ledger.Changes))
	}
	return nil
}

// forgiveWrites ignores damage to the pending writes of an id without a checkpoint: an interrupted
// migration of a head leaves some without a ledger.
func (l *storedLineage) forgiveWrites(ctx context.Context, head uint64, checkpoint string, damage error) error {
	_, err := l.findID(ctx, head, checkpoint)
	if errors.Is(err, ErrNotFound) {
		err = l.idNotFound(ctx, head, checkpoint, err) // its entry may have been removed, too
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil || errors.Is(err, ErrCorrupt):
		return damage
	}
	return err
}

// task checks the writes of one task.
func (c *lineageCheck) task(ctx context.Context, key []byte, w *codec.Writes) error {
	if !bytes.Equal(key, c.l.WritesKey(w.Checkpoint, w.Task)) {
		switch seq, held := c.heldAt[string(space.SameWrites(key))]; {
		case held && bytes.Equal(key, c.l.WritesKey(space.Held(seq), w.Task)):
		case c.leftHeld(key, w.Task):
			return nil
		default:
			c.damaged(key, "is for another task")
		}
	}
	c.counts.Writes += len(w.Writes)
	for i := range w.Writes {
		if err := c.write(ctx, key, &w.Writes[i]); err != nil {
			return err
		}
	}
	return nil
}

// leftHeld reports whether an interrupted prune left the writes of a task, for an ancestor that it did
// not make or had removed.
func (c *lineageCheck) leftHeld(key []byte, task string) bool {
	for seq := uint64(1); seq < c.next; seq++ {
		if bytes.Equal(key, c.l.WritesKey(space.Held(seq), task)) {
			return true
		}
	}
	return false
}

func (c *lineageCheck) write(ctx context.Context, key []byte, w *codec.Write) error {
	block := w.Payload
	if len(w.Parts) > 0 {
		reason, err := c.u.checkParts(ctx, w.Parts, w.PartBytes)
		if err != nil {
			return err
		}
		if reason != "" {
			c.damaged(key, reason)
			return nil
		}
		parts := map[codec.PartID][]byte{}
		if err := c.u.readParts(ctx, parts, w.Parts); err != nil {
			return c.note(err)
		}
		if block, err = joinParts(parts, w.Parts, w.PartBytes); err != nil {
			c.damaged(key, err.Error())
			return nil
		}
	}
	raw, err := c.l.s.z.AppendRaw(nil, block, int(w.Size))
	if err != nil || uint64(len(raw)) != w.Size {
		c.damaged(key, fmt.Sprintf("write %d does not restore", w.Index))
	}
	return nil
}
