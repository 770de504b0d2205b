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
)

// apply changes t as planned, and fills w.coded with how its channels are to be stored.
func (w *saving) apply(t *tip, meta *codec.Attrs) (attrsChanged bool, err error) {
	w.coded = w.coded[:0]
	w.payload = w.payload[:0]
	if meta != t.meta {
		t.retable(meta)
		w.check = codec.AppendAttrs(w.check[:0], meta)
		value := bytes.Clone(w.check)
		if err := w.change(t, &t.attrs, change{insert: value}, true); err != nil {
			return false, err
		}
		t.meta, attrsChanged = meta, true
	}
	at := 0
	for i := range meta.Channels {
		c := &t.chans[i]
		ch := w.changeOf(meta.Channels[i].Name, &at)
		if ch == nil || ch.same {
			continue
		}
		if err := w.change(t, c, *ch, false); err != nil {
			return false, err
		}
	}
	return attrsChanged, nil
}

// changeOf finds the change of a channel. Drafts name channels mostly in the order of the table.
func (w *saving) changeOf(name string, at *int) *change {
	for range w.changes {
		c := &w.changes[*at]
		if *at++; *at == len(w.changes) {
			*at = 0
		}
		if c.name == name {
			return c
		}
	}
	return nil
}

// change encodes one change of a value: by itself if it is new, else against the value before.
func (w *saving) change(t *tip, c *chanState, ch change, diff bool) (err error) {
	var e encoded
	floor := c.floor()
	switch {
	case len(c.path) == 0:
		c.splice(0, 0, ch.insert)
		c.commit = c.chunks.Commitment(&w.l.th.u.commitKey)
		e, err = w.full(c)
	case diff:
		prefix := codec.CommonPrefix(c.value, ch.insert)
		suffix := codec.CommonSuffix(c.value[prefix:], ch.insert[prefix:])
		e, err = w.encode(c, prefix, suffix, ch.insert[prefix:len(ch.insert)-suffix])
	default:
		e, err = w.encode(c, ch.prefix, ch.suffix, ch.insert)
	}
	t.floors += c.floor() - floor
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
}

// noAttrs are those of no checkpoint.
var noAttrs = &codec.Attrs{} // never modified

// build applies the plan to t, seals the record of the new checkpoint, and makes t its tip.
func (w *saving) build(ctx context.Context, t *tip, meta *codec.Attrs, d *Draft, dangling string, old *tip) (*pending, error) {
	l := w.l
	seq := l.head + 1
	before, beforeStatus := t.meta, t.rec.status
	h := header{parent: dangling, dangling: dangling, step: d.Step, status: d.status(), schema: d.SchemaVersion}
	rec := codec.Record{Step: d.Step, Status: h.status, Schema: d.SchemaVersion, ID: d.ID, ParentID: dangling}
	if t.seq != 0 {
		h.parent, h.parentSeq, h.parentHash = t.id, t.seq, t.hash
		rec.ParentDist, rec.ParentHash = seq-t.seq, t.hash
	}
	h.time = max(w.began, l.lastTime, t.rec.time)
	rec.Time = h.time
	if p := w.passage; p != nil {
		h.fuel, rec.Fuel = p.fuel, p.fuel
		if p.changed && p.submitted != noHash {
			h.submitted, rec.Submitted, rec.HasSubmitted = p.submitted, p.submitted, true
		}
	}
	h.origin, h.own = seq, d.ID == ""
	if old != nil {
		h.origin, h.own = old.rec.origin, old.rec.own
		rec.Replaced = seq - h.origin
	}
	if h.own && d.ID != "" {
		rec.ID = ""
		rec.UUID, _ = parseUUID(d.ID)
	}
	if _, err := w.apply(t, meta); err != nil {
		return nil, err
	}
	if err := w.bound(t, t.seq); err != nil {
		return nil, err
	}
	p := newPending(seq, t)
	l.th.u.naming.noteBlobs(meta.Blobs)
	if err := w.place(ctx, p, t.seq == 0); err != nil {
		return nil, err
	}
	entries, err := w.table(t)
	if err != nil {
		return nil, err
	}
	rec.Entries = entries
	w.plain = codec.AppendRecord(w.plain[:0], seq, &rec)
	key := l.recordKey(seq)
	value, err := w.seal(key, w.plain)
	if err != nil {
		return nil, err
	}
	id := d.ID
	if id == "" {
		id = formatUUID(l.makeID(l.epoch, seq, h.time))
	}
	w.hash, t.hash = hashOf(w.hash, id, seq, &h, t.attrs.commit, t.chans)
	delete(l.tips, t.seq)
	t.seq, t.id, t.rec, t.stored = seq, id, h, int64(len(value))+p.parts
	w.stored(t, seq, int64(len(value)))
	for i := range w.coded {
		if c := w.coded[i].c; c.justMeasured() && w.coded[i].e.entry.Mode != codec.Full { // else a restore finds it
			l.measures.note(seq, c)
		}
	}
	l.tips[seq] = t
	p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: versionOne})
	if !l.s.caps.Exclusive { // else l.head is known to be the newest, and the look-up costs a tenth of the save
		p.conds = append(p.conds, backend.Cond{Key: key})
	}
	if err := w.around(ctx, p, d, old, before, beforeStatus); err != nil {
		return nil, err
	}
	for i := range p.muts {
		p.size += mutSize(&p.muts[i])
	}
	l.head, l.lastTime = seq, h.time
	if h.origin >= l.origin {
		l.latest, l.origin = seq, h.origin
	}
	p.event = Event{Ref: l.ref, Generation: l.generation, ID: id, Seq: seq, Time: h.time, Step: h.step, Status: h.status, Before: beforeStatus, began: w.began, counted: w.counted}
	return p, nil
}

// table lists the entries of t: those of w.coded, and keep for the rest. No reader may refuse them.
func (w *saving) table(t *tip) ([]codec.Entry, error) {
	w.entries = w.entries[:0]
	coded := w.coded
	for c := range t.all {
		e := codec.Entry{Number: c.number, Mode: codec.Keep, Path: c.path}
		if len(coded) > 0 && coded[0].c == c {
			e, coded = coded[0].e.entry, coded[1:]
		}
		if err := e.CheckPath(); err != nil {
			return nil, fmt.Errorf("checking a checkpoint before commit: %w", err)
		}
		w.entries = append(w.entries, e)
	}
	return w.entries, nil
}

// seal seals a record, opens it again and compares, so that what reaches the backend is known to restore.
func (w *saving) seal(key, plain []byte) ([]byte, error) {
	value, err := w.l.th.sealer.Seal(w.sealed[:0], kindRecord, key, plain)
	if err != nil {
		return nil, fmt.Errorf("sealing a checkpoint: %w", err)
	}
	w.sealed = value[:0]
	w.check, err = w.l.th.sealer.Open(w.check[:0], kindRecord, key, value)
	if err != nil || !bytes.Equal(w.check, plain) {
		return nil, fmt.Errorf("checking a checkpoint before commit: it does not open (%v)", err)
	}
	return value, nil
}

// around adds what belongs to the new checkpoint besides its record: the ghost that it replaces, and the entries of its
// id, branch, terms, thread and namespace. A replacement on the branch of the old moves it only if the old was its head.
func (w *saving) around(ctx context.Context, p *pending, d *Draft, old *tip, before *codec.Attrs, beforeStatus string) error {
	l, t := w.l, p.tip
	if d.ID != "" {
		cond := backend.Cond{Key: l.idKey(d.ID)}
		if t.rec.own {
			cond.Key = l.ownIDKey(d.ID)
		}
		if old != nil {
			if !t.rec.own || old.seq != old.rec.origin {
				cond.Version = strconv.FormatUint(old.seq, 10)
			}
			if err := l.ghost(ctx, p, old.seq); err != nil {
				return err
			}
		}
		value, err := l.th.sealer.Seal(nil, kindID, cond.Key, codec.AppendIDEntry(nil, &codec.IDEntry{Seq: p.seq, ID: d.ID}))
		if err != nil {
			return fmt.Errorf("sealing an id: %w", err)
		}
		p.muts = append(p.muts, backend.Mut{Key: cond.Key, Value: value, Version: strconv.FormatUint(p.seq, 10)})
		if old != nil || !l.s.caps.Exclusive { // else it was looked for, and nobody else can have added it since
			p.conds = append(p.conds, cond)
		}
		l.noteID(d.ID)
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
		key := l.th.nsKey(kindNamespace, l.ns)
		value, err := l.th.sealer.Seal(nil, kindNamespace, key, codec.AppendName(nil, l.ref.Namespace))
		if err != nil {
			return fmt.Errorf("sealing a namespace: %w", err)
		}
		p.muts = append(p.muts, backend.Mut{Key: key, Value: value, Version: versionOne})
	}
	if w.carry != nil {
		return w.carry.over(ctx, l, p)
	}
	return l.th.touch(p, d.TTL, t.rec.time, l)
}
