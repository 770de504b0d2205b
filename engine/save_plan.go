package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/internal/alike"
)

// plan compares d with the parent t, without modifying t: it fills w.changes and returns the
// attributes of the new checkpoint, or t.meta itself if they are the same. hooks are those that
// made d.
func (w *saving) plan(ctx context.Context, t *checkpointState, d *Draft, hooks []codec.Hook) (*codec.Attrs, error) {
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
		return nil, fmt.Errorf("%w: the thread has kind %q, but the draft has kind %q", ErrInvalid, t.meta.Kind, d.Kind)
	}
	if next.Delta = d.deltaChannels(t.meta.Delta); len(next.Delta) > codec.MaxChannels {
		return nil, fmt.Errorf("%w: %d delta channels, at most %d are allowed", ErrInvalid, len(next.Delta), codec.MaxChannels)
	}
	if d.Keep && d.RunID == "" && !d.NoRun {
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

// deltaChannels are the delta channels of the checkpoint that d makes on a parent with some: sorted,
// without those that d sets or removes.
func (d *Draft) deltaChannels(parent []string) []string {
	if len(d.Delta) == 0 && (!d.Keep || len(parent) == 0) {
		return nil
	}
	names := slices.Clone(d.Delta)
	if d.Keep {
		for _, name := range parent {
			if !slices.ContainsFunc(d.Channels, func(c Change) bool { return c.Name == name }) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// planChannel finds the bytes that a change changes in the parent's value. Not ok means that the
// base of a splice does not match.
func (w *saving) planChannel(t *checkpointState, d *Change) (ch change, ok bool, err error) {
	i := t.channelIndex(d.Name)
	ch = change{name: d.Name, typ: d.Type, index: i, remove: d.Remove}
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
		if w.edits, err = w.u.s.edits(w.edits, d, len(c.value)); err != nil {
			return ch, false, err
		}
		ch.edits = w.edits[n:len(w.edits):len(w.edits)]
	}
	ch.same = !slices.ContainsFunc(ch.edits, func(e codec.Edit) bool { return !bytes.Equal(e.Data, c.value[e.From:e.To]) })
	return ch, true, nil
}

// edit returns a list of one edit, in the memory of w.
func (w *saving) edit(e codec.Edit) []codec.Edit {
	n := len(w.edits)
	w.edits = append(w.edits, e)
	return w.edits[n : n+1 : n+1]
}

// whole is the edit that turns old into value.
func whole(old, value []byte) codec.Edit {
	prefix := alike.Prefix(old, value)
	suffix := alike.Suffix(old[prefix:], value[prefix:])
	return codec.Edit{From: prefix, To: len(old) - suffix, Data: value[prefix : len(value)-suffix]}
}

func (w *saving) planBlobs(ctx context.Context, t *checkpointState, d *Draft, next *codec.Attrs) error {
	var made [][32]byte // not stored yet
	if w.hooked != nil && w.hooked.blobs != nil {
		made = w.hooked.blobs.ids
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
		return fmt.Errorf("%w: %d blobs, including those put by hooks; at most %d are allowed", ErrInvalid, len(next.Blobs), codec.MaxBlobs)
	}
	for _, id := range next.Blobs {
		if slices.Contains(kept, id) || slices.Contains(made, id) {
			continue
		}
		if got, err := w.u.s.be.Get(ctx, w.u.BlobKey(id)); err != nil {
			return fmt.Errorf("looking for a blob: %w", err)
		} else if got[0].Version == "" {
			return fmt.Errorf("%w: blob %v", ErrNotFound, BlobID(id))
		}
	}
	return nil
}

// planTable lists the channels of the new checkpoint, and sorts w.changes in the order of its
// table. The parent's channels keep their numbers; new ones get greater numbers.
func (w *saving) planTable(t *checkpointState, d *Draft, next *codec.Attrs) error {
	same, had := true, 0
	for i := range w.changes {
		ch := &w.changes[i]
		if ch.remove && !d.Keep {
			return fmt.Errorf("%w: channel %q: Remove needs Keep", ErrInvalid, ch.name)
		}
		ch.rewritten = d.Channels[i].rewritten || w.hooked.rewrote(ch.name)
		if ch.index < 0 {
			same = same && ch.remove
			continue
		}
		had++
		info := &t.meta.Channels[ch.index]
		same = same && !ch.remove && ch.typ == info.Type && ch.rewritten == info.Rewritten
	}
	if same && (d.Keep || had == len(t.meta.Channels)) {
		next.Channels = t.meta.Channels
	} else {
		next.Channels = w.newTable(t, d.Keep)
	}
	if len(next.Channels) > codec.MaxChannels {
		return fmt.Errorf("%w: %d channels, at most %d are allowed", ErrInvalid, len(next.Channels), codec.MaxChannels)
	}
	slices.SortFunc(w.changes, func(a, b change) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// newTable returns the parent's table with the changes: with the channels they do not name, if keep
// is set, and the new ones.
func (w *saving) newTable(t *checkpointState, keep bool) []codec.ChannelInfo {
	by := make([]*change, len(t.meta.Channels))
	used := uint64(0)
	if n := len(by); n > 0 {
		used = t.meta.Channels[n-1].Number
	}
	for i := range w.changes {
		if ch := &w.changes[i]; ch.index >= 0 {
			by[ch.index] = ch
		}
	}
	table := make([]codec.ChannelInfo, 0, len(by)+len(w.changes))
	for i, info := range t.meta.Channels {
		switch ch := by[i]; {
		case ch == nil && keep:
			table = append(table, info)
		case ch != nil && !ch.remove:
			table = append(table, codec.ChannelInfo{Number: info.Number, Name: info.Name, Type: ch.typ, Rewritten: ch.rewritten})
		}
	}
	for i := range w.changes {
		if ch := &w.changes[i]; ch.index < 0 && !ch.remove {
			used++
			ch.number = used
			table = append(table, codec.ChannelInfo{Number: used, Name: ch.name, Type: ch.typ, Rewritten: ch.rewritten})
		}
	}
	return table
}

func sameAttrs(a, b *codec.Attrs) bool {
	return a.RunID == b.RunID && a.Branch == b.Branch && a.Kind == b.Kind && slices.Equal(a.Delta, b.Delta) && maps.Equal(a.Labels, b.Labels) && bytes.Equal(a.Meta, b.Meta) &&
		slices.Equal(a.Blobs, b.Blobs) && sameTable(a.Channels, b.Channels) && slices.Equal(a.Hooks, b.Hooks)
}

// sameTable compares tables, which mostly are the same slice.
func sameTable(a, b []codec.ChannelInfo) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}
