package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ckptd/ckptd/codec"
)

// plan finds what d changes about the parent t, without modifying it: w.changes, and the attributes of the new checkpoint,
// which are t.meta itself when they are the same. Hooks are those that made d.
func (w *saving) plan(ctx context.Context, t *tip, d *Draft, hooks []codec.Hook) (*codec.Attrs, error) {
	w.changes, w.edits = w.changes[:0], w.edits[:0]
	var missing []string
	for i := range d.Channels {
		ch, ok, err := w.planChannel(t, &d.Channels[i])
		if err != nil {
			return nil, err
		}
		if !ok {
			missing = append(missing, d.Channels[i].Name)
		}
		w.changes = append(w.changes, ch)
	}
	if missing != nil {
		return nil, &NeedFullError{missing}
	}
	next := codec.Attrs{RunID: d.RunID, Labels: d.Labels, Meta: d.Meta, Branch: d.Branch, Hooks: hooks, Kind: cmp.Or(d.Kind, t.meta.Kind)}
	if t.meta.Kind != "" && next.Kind != t.meta.Kind {
		return nil, fmt.Errorf("%w: the thread is of kind %q, the draft of kind %q", ErrInvalid, t.meta.Kind, d.Kind)
	}
	if d.Keep && d.RunID == "" {
		next.RunID = t.meta.RunID
	}
	if d.Keep && d.Labels == nil {
		next.Labels = t.meta.Labels
	}
	if d.Keep && d.Meta == nil {
		next.Meta = t.meta.Meta
	}
	if !bytes.Equal(next.Meta, t.meta.Meta) {
		if err := checkMeta(next.Meta); err != nil {
			return nil, err
		}
	}
	if err := w.planBlobs(ctx, t, d, &next); err != nil {
		return nil, err
	}
	if err := w.planTable(t, d, &next); err != nil {
		return nil, err
	}
	if len(t.attrs.path) > 0 && sameAttrs(&next, t.meta) {
		return t.meta, nil
	}
	next.Labels, next.Meta = maps.Clone(next.Labels), bytes.Clone(next.Meta)
	return &next, nil
}

// planChannel finds where a change differs from the parent's value. Not ok means that the base of a splice is another.
func (w *saving) planChannel(t *tip, d *Change) (ch change, ok bool, err error) {
	ch = change{name: d.Name, typ: d.Type}
	i := slices.IndexFunc(t.meta.Channels, func(c codec.ChannelInfo) bool { return c.Name == d.Name })
	if i < 0 {
		if ch.typ == "" {
			ch.typ = "bytes"
		}
		ch.edits = w.edit(codec.Edit{Data: d.Data})
		return ch, d.Base == 0, nil
	}
	info, c := &t.meta.Channels[i], &t.chans[i]
	ch.number = info.Number
	if ch.typ == "" && d.Base != 0 {
		ch.typ = info.Type
	} else if ch.typ == "" {
		ch.typ = "bytes"
	}
	if d.Base == 0 {
		ch.edits = w.edit(whole(c.value, d.Data))
	} else {
		if d.Base != version(&c.commit) {
			return ch, false, nil
		}
		n := len(w.edits)
		if w.edits, err = w.l.s.edits(w.edits, d, len(c.value)); err != nil {
			return ch, false, err
		}
		ch.edits = w.edits[n:len(w.edits):len(w.edits)]
	}
	ch.same = !slices.ContainsFunc(ch.edits, func(e codec.Edit) bool { return !bytes.Equal(e.Data, c.value[e.From:e.To]) })
	return ch, true, nil
}

// edit is a list of one edit, in the memory of w.
func (w *saving) edit(e codec.Edit) []codec.Edit {
	n := len(w.edits)
	w.edits = append(w.edits, e)
	return w.edits[n : n+1 : n+1]
}

// whole is the edit that makes value of old.
func whole(old, value []byte) codec.Edit {
	prefix := codec.CommonPrefix(old, value)
	suffix := codec.CommonSuffix(old[prefix:], value[prefix:])
	return codec.Edit{From: prefix, To: len(old) - suffix, Data: value[prefix : len(value)-suffix]}
}

func (w *saving) planBlobs(ctx context.Context, t *tip, d *Draft, next *codec.Attrs) error {
	var made [][32]byte // not stored yet
	if w.passage != nil && w.passage.blobs != nil {
		made = w.passage.blobs.ids
	}
	kept := t.keptBlobs()
	if d.Keep && d.Blobs == nil {
		if next.Blobs = t.meta.Blobs; len(made) == 0 && len(kept) == len(next.Blobs) {
			return nil
		}
		next.Blobs = slices.Clone(next.Blobs)
	}
	for _, id := range d.Blobs {
		next.Blobs = append(next.Blobs, id)
	}
	next.Blobs = append(next.Blobs, made...)
	slices.SortFunc(next.Blobs, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	if next.Blobs = slices.Compact(next.Blobs); len(next.Blobs) > codec.MaxBlobs {
		return fmt.Errorf("%w: %d blobs with those that hooks put, at most %d are allowed", ErrInvalid, len(next.Blobs), codec.MaxBlobs)
	}
	for _, id := range next.Blobs {
		if slices.Contains(kept, id) || slices.Contains(made, id) {
			continue
		}
		if got, err := w.l.s.be.Get(ctx, w.l.th.u.blobKey(id)); err != nil {
			return fmt.Errorf("looking for a blob: %w", err)
		} else if got[0].Version == "" {
			return fmt.Errorf("%w: blob %v", ErrNotFound, BlobID(id))
		}
	}
	return nil
}

// planTable lists the channels of the new checkpoint. Those that the parent has keep their numbers; new ones get
// greater numbers.
func (w *saving) planTable(t *tip, d *Draft, next *codec.Attrs) error {
	rewritten := func(at int) bool { return d.Channels[at].rewritten || w.passage.rewrote(w.changes[at].name) }
	same := true
	used := uint64(0)
	kept := 0
	for i := range t.meta.Channels {
		info := &t.meta.Channels[i]
		used = max(used, info.Number)
		at := slices.IndexFunc(d.Channels, func(c Change) bool { return c.Name == info.Name })
		if at < 0 && d.Keep {
			kept++
			continue
		}
		if at < 0 || d.Channels[at].Remove || w.changes[at].typ != info.Type || rewritten(at) != info.Rewritten {
			same = false
		}
	}
	for i := range d.Channels {
		if d.Channels[i].Remove && !d.Keep {
			return fmt.Errorf("%w: channel %q: Remove goes with Keep", ErrInvalid, d.Channels[i].Name)
		}
		same = same && w.changes[i].number != 0
	}
	if same {
		next.Channels = t.meta.Channels
		return nil
	}
	next.Channels = make([]codec.ChannelInfo, 0, kept+len(d.Channels))
	for _, info := range t.meta.Channels {
		at := slices.IndexFunc(d.Channels, func(c Change) bool { return c.Name == info.Name })
		switch {
		case at < 0 && d.Keep:
			next.Channels = append(next.Channels, info)
		case at >= 0 && !d.Channels[at].Remove:
			next.Channels = append(next.Channels, codec.ChannelInfo{Number: info.Number, Name: info.Name, Type: w.changes[at].typ,
				Rewritten: rewritten(at)})
		}
	}
	for i := range d.Channels {
		if w.changes[i].number == 0 && !d.Channels[i].Remove {
			used++
			next.Channels = append(next.Channels, codec.ChannelInfo{Number: used, Name: w.changes[i].name, Type: w.changes[i].typ,
				Rewritten: rewritten(i)})
		}
	}
	if len(next.Channels) > codec.MaxChannels {
		return fmt.Errorf("%w: %d channels, at most %d are allowed", ErrInvalid, len(next.Channels), codec.MaxChannels)
	}
	return nil
}

func sameAttrs(a, b *codec.Attrs) bool {
	return a.RunID == b.RunID && a.Branch == b.Branch && a.Kind == b.Kind && maps.Equal(a.Labels, b.Labels) && bytes.Equal(a.Meta, b.Meta) &&
		slices.Equal(a.Blobs, b.Blobs) && slices.Equal(a.Channels, b.Channels) && slices.Equal(a.Hooks, b.Hooks)
}
