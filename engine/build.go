package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/engine/internal/space"
)

// apply changes t as planned, and fills w.coded with how its channels are to be stored.
func (w *saving) apply(t *tip, meta *codec.Attrs) (attrsChanged bool, err error) {
	w.coded = w.coded[:0]
	w.payload = w.payload[:0]
	if meta != t.meta {
		t.retable(meta)
		value, err := w.attrsValue(meta)
		if err != nil {
			return false, err
		}
		if err := w.rewrite(t, &t.attrs, value); err != nil {
			return false, err
		}
		t.meta, attrsChanged = meta, true
	}
	for i := range w.changes {
		ch := &w.changes[i]
		if ch.same || ch.remove {
			continue
		}
		if err := w.change(t, t.numbered(ch.number), ch.edits); err != nil {
			return false, err
		}
	}
	return attrsChanged, nil
}

// attrsValue is the value of the channel of the attributes, as it restores.
func (w *saving) attrsValue(meta *codec.Attrs) ([]byte, error) {
	w.check = codec.AppendAttrs(w.check[:0], meta)
	value := bytes.Clone(w.check)
	if got, err := codec.ParseAttrs(value); err != nil || !sameAttrs(got, meta) {
		return nil, fmt.Errorf("checking the attributes before commit: they cannot be read (%v)", err)
	}
	return value, nil
}

// rewrite changes a value to another one.
func (w *saving) rewrite(t *tip, c *chanState, value []byte) error {
	return w.change(t, c, []codec.Edit{whole(c.value, value)})
}

// change encodes edits of a value: by itself if it is new, else against the value before.
func (w *saving) change(t *tip, c *chanState, edits []codec.Edit) (err error) {
	var e encoded
	floor, memory := c.floor(), c.memory()
	if len(c.path) == 0 {
		c.splice(0, 0, edits[0].Data)
		c.commit = c.chunks.Commitment(&w.u.CommitKey)
		e, err = w.full(c)
	} else {
		e, err = w.encode(c, edits)
	}
	t.floors += c.floor() - floor
	t.values += c.memory() - memory
	t.tree.Changed(c.number)
	t.standOn(c, &e)
	w.coded = append(w.coded, coded{c, e})
	return err
}

// retable makes room in t.chans for the channels of meta, in its order.
func (t *tip) retable(meta *codec.Attrs) {
	chans := make([]chanState, len(meta.Channels))
	for i, info := range meta.Channels {
		j, ok := slices.BinarySearchFunc(t.meta.Channels, info.Number, func(c codec.ChannelInfo, n uint64) int {
			return cmp.Compare(c.Number, n)
		})
		if ok {
			chans[i] = t.chans[j]
		}
		chans[i].number = info.Number
	}
	for i := range t.chans {
		c := &t.chans[i]
		_, ok := slices.BinarySearchFunc(meta.Channels, c.number, func(info codec.ChannelInfo, n uint64) int {
			return cmp.Compare(info.Number, n)
		})
		if !ok {
			t.floors -= c.floor()
			t.standOn(c, &encoded{})
		}
	}
	t.chans = chans
	t.settle()
}

// settle finds out anew what follows from the table of t's channels.
func (t *tip) settle() {
	t.tree.Reset()
	t.rekeep()
	t.values = 0
	for c := range t.all {
		t.values += c.memory()
	}
}

// noAttrs are those of no checkpoint.
var noAttrs = &codec.Attrs{} // never modified

// build applies the plan to t, seals the record of the new checkpoint, and makes t its tip. The caller gave given, of which
// d was made.
func (w *saving) build(ctx context.Context, t *tip, meta *codec.Attrs, d, given *Draft, dangling string, old *tip) (*pending, error) {
	l := w.l
	seq := l.head + 1
	before, beforeStatus := t.meta, t.rec.status
	h := header{parent: dangling, dangling: dangling, step: d.Step, status: d.status(), schema: d.SchemaVersion}
	rec := &w.rec
	*rec = codec.Record{Step: d.Step, Status: h.status, Schema: d.SchemaVersion, ID: d.ID, ParentID: dangling}
	if t.seq != 0 {
		h.parent, h.parentSeq, h.parentHash = t.id, t.seq, t.hash
		rec.ParentDist, rec.ParentHash = seq-t.seq, t.hash
		if w.carry == nil { // else they move along
			h.writes, rec.Writes = t.ledger, t.ledger
		}
	}
	h.time = max(w.began, l.lastTime, t.rec.time)
	rec.Time = h.time
	if p := w.passage; p != nil {
		h.fuel, rec.Fuel = p.fuel, p.fuel
	}
	h.origin, h.own = seq, d.ID == ""
	if old != nil {
		h.origin, h.own = old.rec.origin, old.rec.own
		rec.Replaced = seq - h.origin
	}
	if h.own && d.ID != "" {
		rec.ID = ""
		rec.UUID, _ = space.ParseUUID(d.ID)
	}
	p := newPending(seq, t)
	if err := l.claim(p); err != nil {
		return nil, err
	}
	delete(l.tips, t.seq) // it is put back, as that of the new checkpoint, when nothing can fail any more
	if _, err := w.apply(t, meta); err != nil {
		return nil, err
	}
	if err := w.bound(t, t.seq); err != nil {
		return nil, err
	}
	l.u.naming.noteBlobs(meta.Blobs)
	if err := w.place(ctx, p, t.seq == 0); err != nil {
		return nil, err
	}
	rec.Entries = w.table(t)
	key := l.RecordKey(seq)
	value, err := w.seal(l, key, rec)
	if err != nil {
		return nil, err
	}
	id := d.ID
	if id == "" {
		id = formatUUID(l.makeID(seq, h.time))
	}
	w.hash, t.hash = hashOf(w.hash, id, seq, &h, t.root())
	t.seq, t.id, t.rec, t.stored = seq, id, h, int64(len(value))+p.parts
	t.ledger, t.ledgerKnown = codec.Ledger{}, d.ID == "" // nobody can have put writes to an id that was not there
	w.stored(t, seq, int64(len(value)))
	p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: space.Once})
	if err := w.around(ctx, p, d, given, old, before, beforeStatus); err != nil {
		return nil, err
	}
	for i := range w.coded {
		if c := w.coded[i].c; c.justMeasured() && w.coded[i].e.entry.Mode != codec.Full { // else a restore finds it
			l.measures.note(seq, c)
		}
	}
	p.event = Event{Ref: l.ref, Generation: l.generation, ID: id, Seq: seq, Time: h.time, Step: h.step, Status: h.status, Before: beforeStatus, began: w.began, counted: w.counted}
	return p, nil
}

// claim makes sure that nothing stands at the seq of a save. On an exclusive backend the head is known to be the newest, and a
// look would cost a tenth of the save; but a seq that was given out before may have reached the disk after all, and one that
// is pending would be written over in its own batch. The caller holds l.mu.
func (l *lineage) claim(p *pending) error {
	if l.last != nil && p.seq <= l.last.after.head {
		return corrupt(space.Place(l.RecordKey(p.seq)), "is about to be assigned twice", nil)
	}
	if p.seq <= l.given || !l.s.caps.Exclusive {
		p.conds = append(p.conds, backend.Cond{Key: l.RecordKey(p.seq)})
	}
	return nil
}

// seal seals a record in the memory of w.
func (w *saving) seal(of space.Owner, key []byte, rec *codec.Record) ([]byte, error) {
	value, err := space.Records.AppendSealed(w.sealed[:0], &w.scratch, of, key, rec)
	if err != nil {
		return nil, ofKeys(err)
	}
	w.sealed = value[:0]
	return value, nil
}

// around adds what belongs to the new checkpoint besides its record: the ghost that it replaces, and the entries of its
// id, branch, terms, thread and namespace. A replacement on the branch of the old moves it only if the old was its head.
func (w *saving) around(ctx context.Context, p *pending, d, given *Draft, old *tip, before *codec.Attrs, beforeStatus string) error {
	l, t := w.l, p.tip
	if d.ID != "" {
		cond := backend.Cond{Key: l.IDKey(d.ID)}
		if t.rec.own {
			cond.Key = l.OwnIDKey(d.ID)
		}
		if old != nil {
			if !t.rec.own || old.seq != old.rec.origin {
				cond.Version = strconv.FormatUint(old.seq, 10)
			}
			if err := l.ghost(ctx, p, old.seq); err != nil {
				return err
			}
		}
		entry := &codec.IDEntry{Seq: p.seq, ID: d.ID, Submitted: w.submitted(given, t)}
		value, err := space.IDs.AppendSealed(nil, &w.scratch, l, cond.Key, entry)
		if err != nil {
			return ofKeys(err)
		}
		p.muts = append(p.muts, backend.Mut{Key: cond.Key, Value: value, Version: strconv.FormatUint(p.seq, 10)})
		if old != nil || !l.s.caps.Exclusive { // else it was looked for, and nobody else can have added it since
			p.conds = append(p.conds, cond)
		}
	}
	if d.Branch != "" && w.carry == nil && (old == nil || old.meta.Branch != d.Branch) {
		if err := l.moveBranch(ctx, p, d.Branch, p.seq); err != nil {
			return err
		}
	}
	if t.meta != before || t.rec.status != beforeStatus {
		if err := l.indexTerms(ctx, p, newTerms(before, beforeStatus, t.meta, t.rec.status)); err != nil {
			return err
		}
	}
	if p.seq == 1 && l.ref.Namespace != "" {
		if err := addSealed(l, p, space.Namespaces, l.NamespaceKey(l.NS), l.ref.Namespace, space.Once); err != nil {
			return err
		}
	}
	if w.carry != nil {
		err := w.carry.over(ctx, l, p)
		if err == nil {
			err = l.active(p, t.rec.time)
		}
		if err != nil { // it may have stored the record, as a ghost, and branches may name that
			l.forget()
		}
		return err
	}
	return l.touch(p, d.TTL, t.rec.time)
}
