package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/alike"
)

// MaxPatchInput is the maximum size in bytes of a JSON value for which Diff makes a patch. For
// larger ones, and for those with very many small values, it returns only sizes and common prefixes
// and suffixes.
const MaxPatchInput = 8 << 20

// DiffKind says how something differs between two checkpoints.
type DiffKind string

// The kinds of differences.
const (
	Added   DiffKind = "added"
	Removed DiffKind = "removed"
	Changed DiffKind = "changed"
	Same    DiffKind = "same"
)

// Diff describes how the checkpoint To differs from From.
type Diff struct {
	From, To *Checkpoint // without data

	Channels []ChannelDiff // all channels of either, in order of name
	Meta     ValueDiff

	// Fields are those of step, status, kind, schema version, run id, branch and blobs that differ,
	// Labels the labels, both in order of name.
	Fields, Labels []FieldDiff
}

// ChannelDiff describes how a channel differs.
type ChannelDiff struct {
	Name             string
	OldType, NewType string // "" where there is no such channel
	ValueDiff
}

// ValueDiff describes how bytes differ.
type ValueDiff struct {
	Kind             DiffKind
	OldSize, NewSize int64

	// Prefix and Suffix are the numbers of bytes that old and new have in common at the beginning
	// and, in the rest, at the end.
	Prefix, Suffix int64

	// Patch is an RFC 6902 patch from the old JSON value to the new one, if both are JSON and their
	// bytes differ; "[]" means that only the spelling differs. Numbers are compared and written as
	// spelled. If Patch is nil, NoPatch has the reason, "" if nothing changed or one side has no
	// JSON.
	Patch   []byte
	NoPatch string
}

// FieldDiff describes how a field or label differs; "" is a missing one.
type FieldDiff struct {
	Name     string
	Kind     DiffKind
	Old, New string
}

// Diff compares two checkpoints of the lineage. It holds one channel of both in memory at a time,
// or all of them if there are load hooks: then it compares their output.
func (t *Thread) Diff(ctx context.Context, from, to Which) (*Diff, error) {
	chain, err := t.s.hookChain(hook.Load, t.ref.Tenant, t.ref.Thread)
	if err == nil && chain != nil {
		var d *Diff
		if d, err = t.diffLoaded(ctx, from, to); err == nil {
			return d, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("comparing checkpoints: %w", err)
	}
	l, err := t.rlockExisting(ctx)
	if err != nil {
		return nil, fmt.Errorf("comparing checkpoints: %w", err)
	}
	defer l.runlockThread()
	d, err := l.diff(ctx, from, to)
	if err != nil {
		return nil, fmt.Errorf("comparing checkpoints: %w", err)
	}
	return d, nil
}

// diffLoaded compares checkpoints as Load returns them.
func (t *Thread) diffLoaded(ctx context.Context, from, to Which) (*Diff, error) {
	var a, b side
	var err error
	if a.cp, err = t.Load(ctx, from); err != nil {
		return nil, err
	}
	if b.cp, err = t.Load(ctx, to); err != nil {
		return nil, err
	}
	d, err := diffSides(ctx, &a, &b)
	if err == nil {
		for _, cp := range []*Checkpoint{a.cp, b.cp} {
			for i := range cp.Channels {
				cp.Channels[i].Data = nil
			}
		}
	}
	return d, err
}

// side is one of two checkpoints being compared. cp has its data if rs is nil.
type side struct {
	rs   *restorer
	r    *record
	meta *codec.Attrs
	cp   *Checkpoint
}

func (l *lineage) diff(ctx context.Context, from, to Which) (*Diff, error) {
	rs := l.restorer()
	a, b := side{rs: rs}, side{rs: rs}
	if err := l.findBoth(ctx, from, to, &a.r, &b.r); err != nil {
		return nil, err
	}
	for _, s := range []*side{&a, &b} {
		var err error
		if s.cp, err = rs.checkpoint(ctx, s.r, nil); err != nil {
			return nil, err
		}
		if s.meta, err = rs.meta(ctx, s.r); err != nil {
			return nil, err
		}
	}
	return diffSides(ctx, &a, &b)
}

func diffSides(ctx context.Context, a, b *side) (*Diff, error) {
	d := &Diff{From: a.cp, To: b.cp, Fields: diffFields(a.cp, b.cp), Labels: diffMaps(a.cp.Labels, b.cp.Labels)}
	var err error
	if d.Meta, err = diffValues(ctx, present(a.cp.Meta), present(b.cp.Meta), true); err != nil {
		return nil, err
	}
	for _, name := range channelNames(a.cp, b.cp) {
		c, err := diffChannel(ctx, name, a, b)
		if err != nil {
			return nil, err
		}
		d.Channels = append(d.Channels, c)
	}
	return d, nil
}

// findBoth finds two checkpoints in the durable state of one moment.
func (l *lineage) findBoth(ctx context.Context, from, to Which, a, b **record) (err error) {
	now, err := l.durableNow(ctx)
	if err != nil {
		return err
	}
	if *a, err = l.findAt(ctx, now, from); err != nil {
		return err
	}
	*b, err = l.findAt(ctx, now, to)
	return err
}

// present returns nil for an empty value.
func present(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func channelNames(a, b *Checkpoint) []string {
	var names []string
	for _, chs := range [][]Channel{a.Channels, b.Channels} {
		for i := range chs {
			names = append(names, chs[i].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func diffChannel(ctx context.Context, name string, a, b *side) (ChannelDiff, error) {
	old, inOld := a.cp.Channel(name)
	now, inNew := b.cp.Channel(name)
	d := ChannelDiff{Name: name, OldType: old.Type, NewType: now.Type}
	d.OldSize, d.NewSize = old.Size, now.Size
	switch {
	case !inOld:
		d.Kind = Added
	case !inNew:
		d.Kind = Removed
	case a.rs != nil && old.Version == now.Version && old.Type == now.Type:
		d.Kind, d.Prefix = Same, old.Size
	default:
		was, err := a.value(ctx, name)
		if err != nil {
			return d, err
		}
		is, err := b.value(ctx, name)
		if err != nil {
			return d, err
		}
		if d.ValueDiff, err = diffValues(ctx, was, is, old.Type == "json" && now.Type == "json"); err != nil {
			return d, err
		}
		if old.Type != now.Type {
			d.Kind = Changed
		}
	}
	return d, nil
}

// value restores one channel of s, which must exist.
func (s *side) value(ctx context.Context, name string) ([]byte, error) {
	if s.rs == nil {
		ch, _ := s.cp.Channel(name)
		return ch.Data, nil
	}
	i := slices.IndexFunc(s.meta.Channels, func(c codec.ChannelInfo) bool { return c.Name == name })
	got, err := s.rs.channels(ctx, s.r, func(number uint64) bool { return number == s.meta.Channels[i].Number })
	clear(s.rs.parts)
	if err != nil {
		return nil, err
	}
	return append([]byte{}, got[0].value...), nil
}

// diffValues compares two values; nil is a missing one.
func diffValues(ctx context.Context, old, now []byte, isJSON bool) (d ValueDiff, err error) {
	d = ValueDiff{Kind: Changed, OldSize: int64(len(old)), NewSize: int64(len(now))}
	switch {
	case old == nil && now != nil:
		d.Kind = Added
		return d, nil
	case old != nil && now == nil:
		d.Kind = Removed
		return d, nil
	case bytes.Equal(old, now):
		d.Kind, d.Prefix = Same, int64(len(old))
		return d, nil
	}
	prefix := alike.Prefix(old, now)
	d.Prefix, d.Suffix = int64(prefix), int64(alike.Suffix(old[prefix:], now[prefix:]))
	if isJSON {
		d.Patch, d.NoPatch, err = jsonPatch(ctx, old, now)
	}
	return d, err
}

// diffFields lists the header fields that differ.
func diffFields(a, b *Checkpoint) []FieldDiff {
	fields := func(c *Checkpoint) map[string]string {
		return map[string]string{"step": strconv.FormatInt(c.Step, 10), "status": c.Status, "run id": c.RunID, "branch": c.Branch, "kind": c.Kind,
			"schema version": strconv.FormatUint(c.SchemaVersion, 10)}
	}
	out := diffMaps(fields(a), fields(b))
	for _, id := range a.Blobs {
		if !slices.Contains(b.Blobs, id) {
			out = append(out, FieldDiff{Name: "blob", Kind: Removed, Old: id.String()})
		}
	}
	for _, id := range b.Blobs {
		if !slices.Contains(a.Blobs, id) {
			out = append(out, FieldDiff{Name: "blob", Kind: Added, New: id.String()})
		}
	}
	slices.SortStableFunc(out, func(a, b FieldDiff) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// diffMaps lists the entries that differ; "" is a missing one.
func diffMaps(a, b map[string]string) (out []FieldDiff) {
	all := maps.Clone(b)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, a)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		old, hadOld := a[name]
		now, hasNew := b[name]
		d := FieldDiff{Name: name, Kind: Changed, Old: old, New: now}
		switch {
		case hadOld && hasNew && old == now:
			continue
		case !hadOld || old == "" && now != "":
			d.Kind = Added
		case !hasNew || now == "":
			d.Kind = Removed
		}
		out = append(out, d)
	}
	return out
}
