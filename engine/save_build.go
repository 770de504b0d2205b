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

// apply changes t as planned, and fills w.coded with the encodings of its channels.
func (w *saving) apply(t *checkpointState, meta *codec.Attrs) (attrsChanged bool, err error) {
	w.coded = w.coded[:0]
	w.payload = w.payload[:0]
	if meta != t.meta {
		t.setTable(meta)
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
		if err := w.change(t, t.byNumber(ch.number), ch.edits); err != nil {
			return false, err
		}
	}
	return attrsChanged, nil
}

// attrsValue encodes the attributes and checks that they parse.
func (w *saving) attrsValue(meta *codec.Attrs) ([]byte, error) {
	w.check = codec.AppendAttrs(w.check[:0], meta)
	value := bytes.Clone(w.check)
	if got, err := codec.ParseAttrs(value); err != nil || !sameAttrs(got, meta) {
		return nil, fmt.Errorf("checking the attributes before commit: they would be unreadable (%v)", err)
	}
	return value, nil
}

// rewrite replaces a value.
func (w *saving) rewrite(t *checkpointState, c *channelState, value []byte) error {
	return w.change(t, c, []codec.Edit{whole(c.value, value)})
}

// change encodes edits of a value: in full if the channel is new, else against its previous value.
func (w *saving) change(t *checkpointState, c *channelState, edits []codec.Edit) (err error) {
	var e encoded
	floor, memory := c.minFull(), c.memory()
	if len(c.path) == 0 {
		c.splice(0, 0, edits[0].Data)
		c.commit = c.chunks.Commitment(&w.u.CommitKey)
		e, err = w.full(c)
	} else {
		e, err = w.encode(c, edits)
	}
	t.minFulls += c.minFull() - floor
	t.values += c.memory() - memory
	t.tree.Changed(c.number)
	t.storeAs(c, &e)
	w.coded = append(w.coded, coded{c, e})
	return err
}

// setTable gives t.chans the channels of meta, in its order.
func (t *checkpointState) setTable(meta *codec.Attrs) {
	chans := make([]channelState, len(meta.Channels))
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
			t.minFulls -= c.minFull()
			t.storeAs(c, &encoded{})
		}
	}
	t.chans = chans
	t.tableChanged()
}

// tableChanged recomputes the data that depends on the table of t's channels.
func (t *checkpointState) tableChanged() {
	t.tree.Reset()
	t.collectKept()
	t.values = 0
	for c := range t.all {
		t.values += c.memory()
	}
}

// noAttrs are the attributes in place of a missing checkpoint's.
var noAttrs = &codec.Attrs{} // never modified

// build applies the plan to t, which becomes the state of the new checkpoint, and seals its record.
// given is the draft as the caller submitted it; hooks or a rebase made d of it.
func (w *saving) build(ctx context.Context, t *checkpointState, meta *codec.Attrs, d, given *Draft, dangling string, old *checkpointState) (*pending, error) {
	l := w.l
	seq := l.head + 1
	before, beforeStatus := t.meta, t.rec.status
	h := header{parent: dangling, dangling: dangling, step: d.Step, status: d.status(), schema: d.SchemaVersion}
	rec := &w.rec
	*rec = codec.Record{Step: d.Step, Status: h.status, Schema: d.SchemaVersion, ID: d.ID, ParentID: dangling}
	if t.seq != 0 {
		h.parent, h.parentSeq, h.parentHash = t.id, t.seq, t.hash
		rec.ParentDist, rec.ParentHash = seq-t.seq, t.hash
		if w.transfer == nil { // else they move to the new checkpoint
			h.writes, rec.Writes = t.ledger, t.ledger
		}
		rec.Took = w.transfer != nil || old != nil && old.rec.took && old.rec.parentSeq == t.seq
		h.took = rec.Took
	}
	h.time = max(w.began, l.lastTime, t.rec.time)
	rec.Time = h.time
	if p := w.hooked; p != nil {
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
	if err := l.reserveSeq(p); err != nil {
		return nil, err
	}
	delete(l.states, t.seq) // it is put back, as that of the new checkpoint, when nothing can fail any more
	if _, err := w.apply(t, meta); err != nil {
		return nil, err
	}
	if err := w.bound(t, t.seq); err != nil {
		return nil, err
	}
	l.u.naming.noteBlobs(meta.Blobs)
	if err := w.spillParts(ctx, p, t.seq == 0); err != nil {
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
	t.ledger, t.ledgerKnown = codec.Ledger{}, d.ID == "" // an id that did not exist has no pending writes
	w.stored(t, seq, int64(len(value)))
	p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: space.Once})
	if err := w.addRelated(ctx, p, d, given, old, before, beforeStatus); err != nil {
		return nil, err
	}
	for i := range w.coded {
		if c := w.coded[i].c; c.measuredNow() && w.coded[i].e.entry.Mode != codec.Full { // else a restore measures it
			l.measures.note(seq, c)
		}
	}
	p.event = Event{Ref: l.ref, Generation: l.generation(), ID: id, Seq: seq, Time: h.time, Step: h.step, Status: h.status, Before: beforeStatus, began: w.began, counted: w.counted}
	return p, nil
}

// reserveSeq makes sure that the seq of a save is free. On an exclusive backend the head is known
// to be the newest record, and a read would cost a tenth of the save. But a seq that was issued
// before may have reached the disk after all, and a pending one would be overwritten in its own
// batch. The caller holds l.mu.
func (l *lineage) reserveSeq(p *pending) error {
	if l.last != nil && p.seq <= l.last.headsAfter.head {
		return corrupt(space.Describe(l.RecordKey(p.seq)), "would be issued twice", nil)
	}
	if p.seq <= l.lastIssued || !l.s.caps.Exclusive {
		p.conds = append(p.conds, backend.Cond{Key: l.RecordKey(p.seq)})
	}
	return nil
}

// seal seals a record in a buffer of w.
func (w *saving) seal(of space.Owner, key []byte, rec *codec.Record) ([]byte, error) {
	value, err := space.Records.AppendSealed(w.sealed[:0], &w.scratch, of, key, rec)
	if err != nil {
		return nil, ofKeys(err)
	}
	w.sealed = value[:0]
	return value, nil
}

// addRelated adds everything else that belongs to the new checkpoint: the ghost that it replaces,
// and the entries of its id, branch, terms, thread and namespace. If it replaces a checkpoint of
// its branch, the branch moves only if that was its head.
func (w *saving) addRelated(ctx context.Context, p *pending, d, given *Draft, old *checkpointState, before *codec.Attrs, beforeStatus string) error {
	l, t := w.l, p.state
	if d.ID != "" {
		cond := backend.Cond{Key: l.IDKey(d.ID)}
		if t.rec.own {
			cond.Key = l.OwnIDKey(d.ID)
		}
		if old != nil {
			if !t.rec.own || old.seq != old.rec.origin {
				cond.Version = strconv.FormatUint(old.seq, 10)
			}
			if err := l.ghostReplaced(ctx, p, old.seq); err != nil {
				return err
			}
		}
		entry := &codec.IDEntry{Seq: p.seq, ID: d.ID, Submitted: w.fingerprint(given, t)}
		value, err := space.IDs.AppendSealed(nil, &w.scratch, l, cond.Key, entry)
		if err != nil {
			return ofKeys(err)
		}
		p.muts = append(p.muts, backend.Mut{Key: cond.Key, Value: value, Version: strconv.FormatUint(p.seq, 10)})
		if old != nil || !l.s.caps.Exclusive { // else resolve looked for it, and nobody else can have added it since
			p.conds = append(p.conds, cond)
		}
	}
	if d.Branch != "" && w.transfer == nil && (old == nil || old.meta.Branch != d.Branch) {
		if err := l.moveBranch(ctx, p, d.Branch, p.seq); err != nil {
			return err
		}
	}
	if t.meta != before || t.rec.status != beforeStatus {
		if err := l.indexTerms(ctx, p, newTerms(before, beforeStatus, t.meta, t.rec.status)); err != nil {
			return err
		}
	}
	if err := l.addNamespace(p, d.CalledFrom); err != nil {
		return err
	}
	if w.transfer != nil {
		err := w.transfer.addTo(ctx, l, p)
		if err == nil {
			err = l.updateActivity(p, t.rec.time)
		}
		if err != nil { // the record may be stored as a ghost already, with branches naming it
			l.forget()
		}
		return err
	}
	return l.updateThread(p, d.TTL, t.rec.time)
}
