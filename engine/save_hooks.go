package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/alike"
)

// hookedDraft is a draft as the hooks returned it, with the facts that saving it needs. Nil stands
// for a draft without hooks.
type hookedDraft struct {
	draft       Draft
	hooks       []codec.Hook
	fingerprint uint64 // of the draft as the caller submitted it; 0 for one without an id
	onlyLabels  bool   // only the labels change, and whatever hooks new to the checkpoint change
	rewritten   map[string]bool
	fuel        uint64
	blobs       *hookBlobs

	// parentHash is that of the parent that the hooks saw. hookedKept means that the channels kept
	// from it ran through the hooks, too, and rebased that it was migrated for the draft. Either
	// way the draft is valid on no other parent.
	parentHash [32]byte
	hookedKept bool
	rebased    bool
}

// stale reports whether a draft that keeps data from its parent cannot be saved on t. Splices need
// no check here, since they name the version of their base.
func (p *hookedDraft) stale(t *checkpointState, d *Draft) bool {
	if p == nil || t.hash == p.parentHash || !d.Keep && !p.rebased {
		return false
	}
	return p.hookedKept || p.rebased || !slices.Equal(t.meta.Hooks, p.hooks)
}

// identities are those to record.
func (p *hookedDraft) identities() []codec.Hook {
	if p == nil {
		return nil
	}
	return p.hooks
}

func (p *hookedDraft) rewrote(channel string) bool { return p != nil && p.rewritten[channel] }

// runSaveHooks runs the hooks on a draft. A checkpoint and no error means that the draft was saved
// before.
func (t *Thread) runSaveHooks(ctx context.Context, chain hook.Chain, d *Draft, migrated migratedParents) (*hookedDraft, *Checkpoint, error) {
	if err := checkMeta(d.Meta); err != nil {
		return nil, nil, err
	}
	hooks, err := hooksOf(chain)
	if err != nil {
		return nil, nil, err
	}
	in := &hookRun{t: t, given: d, d: d, out: &hookedDraft{draft: *d, hooks: hooks}}
	cp, err := in.readParent(ctx, migrated)
	if err != nil || cp != nil {
		return nil, cp, err
	}
	if err := in.run(ctx, chain); err != nil {
		return nil, nil, err
	}
	return in.out, nil, nil
}

// hookRun runs the hooks on one draft.
type hookRun struct {
	t     *Thread
	u     *user
	given *Draft // by the caller
	d     *Draft // the same, rebased on the stored parent
	out   *hookedDraft

	inputs []hookInput
	meta   []byte
	labels map[string]string // those that pass
	items  []hook.Item       // chans, metadata if there is any, labels
}

// hookInput is the value of a channel before the hooks.
type hookInput struct {
	change      *Change // of the draft; nil for kept channels
	name        string
	typ         string
	base        []byte  // the parent's value
	baseVersion Version // of base, if the change is based on it
	prev        bool    // base passed the same hooks
}

// readParent reads, before the hooks run, whether the draft was saved before and the parent's data
// that they need. It copies those, since the next save changes the parent's state in place.
func (in *hookRun) readParent(ctx context.Context, migrated migratedParents) (cp *Checkpoint, err error) {
	l, err := in.t.s.rlockLive(ctx, in.t.ref)
	if err != nil {
		return nil, err
	}
	defer l.runlockThread()
	in.u = l.u
	w := l.s.newSaving()
	defer l.s.putSaving(w)
	w.migrated = migrated
	w.on(l)
	if err := l.mu.lock(ctx); err != nil {
		return nil, err
	}
	defer l.mu.unlock()
	g, err := w.resolve(ctx, in.d)
	switch {
	case err != nil:
		return nil, err
	case g.same:
		return g.old.checkpoint(nil), nil
	}
	if t := g.parent; t.seq == l.latest && l.states[t.seq] == nil && len(t.attrs.path) > 0 {
		l.remember(t) // the save need not read it again
		l.s.cache.used(t)
	}
	if in.d, err = w.rebase(g.parent, in.given); err != nil {
		return nil, err
	}
	in.out.draft, in.out.rebased = *in.d, in.d != in.given
	return nil, in.copyParent(g.parent)
}

// copyParent copies the parent's data that the hooks need.
func (in *hookRun) copyParent(t *checkpointState) error {
	d := in.d
	in.out.parentHash = t.hash
	known := slices.Equal(t.meta.Hooks, in.out.hooks) // the same hooks made the parent's data
	var missing []string
	for i := range d.Channels {
		c := &d.Channels[i]
		if c.Remove {
			continue
		}
		from := hookInput{change: c, name: c.Name, typ: c.Type}
		at := t.channelIndex(c.Name)
		if c.Base != 0 && (at < 0 || version(&t.chans[at].commit) != c.Base) {
			missing = append(missing, c.Name)
			continue
		}
		if c.Base != 0 {
			if from.baseVersion = c.Base; from.typ == "" {
				from.typ = t.meta.Channels[at].Type
			}
		}
		if from.typ == "" {
			from.typ = "bytes"
		}
		from.prev = known && at >= 0 && t.meta.Channels[at].Type == from.typ
		if from.baseVersion != 0 || from.prev {
			from.base = append([]byte{}, t.chans[at].value...)
		}
		if from.baseVersion != 0 {
			var room [4]codec.Edit
			if _, err := in.t.s.edits(room[:0], c, len(from.base)); err != nil {
				return err
			}
		}
		in.inputs = append(in.inputs, from)
	}
	if missing != nil {
		return &NeedFullError{missing}
	}
	in.meta, in.labels = d.Meta, d.Labels
	if d.Keep && !known {
		in.addKept(t)
	}
	return nil
}

// addKept adds the data that the draft keeps from a parent with other hooks.
func (in *hookRun) addKept(t *checkpointState) {
	in.out.hookedKept = true
	given := make(map[string]bool, len(in.d.Channels))
	for i := range in.d.Channels {
		given[in.d.Channels[i].Name] = true
	}
	for i, info := range t.meta.Channels {
		if !given[info.Name] {
			c := &t.chans[i]
			in.inputs = append(in.inputs, hookInput{name: info.Name, typ: info.Type, base: append([]byte{}, c.value...), baseVersion: version(&c.commit)})
		}
	}
	if in.d.Meta == nil {
		in.meta = t.meta.Meta
	}
	if in.d.Labels == nil {
		in.labels = t.meta.Labels
	}
}

// run runs the chain on all items, with no lock held.
func (in *hookRun) run(ctx context.Context, chain hook.Chain) error {
	d, p := in.d, in.out
	p.fingerprint = in.u.fingerprint(in.given)
	in.items = make([]hook.Item, 0, len(in.inputs)+1+len(in.labels))
	for i := range in.inputs {
		in.items = append(in.items, in.inputs[i].item(in.t.s))
	}
	if len(in.meta) > 0 {
		in.items = append(in.items, hook.Item{Kind: hook.Meta, Type: "json", Data: in.meta})
	}
	in.items = appendLabels(in.items, in.labels)
	p.blobs = &hookBlobs{u: in.u}
	c := &hook.Call{Items: in.items, Names: in.t.hookNames(d), PutBlob: p.blobs.put, Place: hook.Place{Thread: in.t.ref.Thread, Namespace: in.t.ref.Namespace,
		Checkpoint: d.ID, Step: d.Step, Status: d.status(), SchemaVersion: d.SchemaVersion, Time: in.t.s.clock()}}
	before := slices.Clone(in.items)
	err := in.u.runHooks(ctx, chain, c, p.parentHash[:], stepBytes(d.Step))
	p.blobs.close()
	if err != nil {
		return err
	}
	if len(c.Items) != len(before) {
		return unstorable(hook.PreSave, fmt.Errorf("%d items for %d", len(c.Items), len(before)))
	}
	in.items, p.fuel = c.Items, c.Fuel
	in.collect(before)
	if err := errors.Join(in.t.checkDraft(&p.draft), checkMeta(p.draft.Meta)); err != nil {
		return unstorable(hook.PreSave, err)
	}
	return nil
}

// hookNames are the strings of a draft that are stored unchanged.
func (t *Thread) hookNames(d *Draft) []hook.Name {
	names := []hook.Name{{What: "thread", Text: t.ref.Thread}, {What: "namespace", Text: t.ref.Namespace}, {What: "id", Text: d.ID}, {What: "branch", Text: d.Branch},
		{What: "kind", Text: d.Kind}, {What: "status", Text: d.Status}, {What: "run id", Text: d.RunID}}
	if d.CalledFrom != "" {
		names = append(names, hook.Name{What: "id of the calling checkpoint", Text: d.CalledFrom})
	}
	for _, name := range d.Delta {
		names = append(names, hook.Name{What: "delta channel", Text: name})
	}
	return names
}

// item is the channel as the hooks get it.
func (c *hookInput) item(s *Store) hook.Item {
	it := hook.Item{Kind: hook.Channel, Name: c.name, Type: c.typ, Data: c.base}
	if c.change != nil {
		it.Data = c.change.Data
	}
	if c.change != nil && c.baseVersion != 0 {
		it.Data, _ = s.spliced(c.base, c.change) // it was looked at
	}
	if c.prev {
		it.Prev = c.base
	}
	return it
}

// collect builds the draft from the hooks' output; before are the items they got.
func (in *hookRun) collect(before []hook.Item) {
	d, p := in.d, in.out
	p.draft.Channels = slices.DeleteFunc(slices.Clone(d.Channels), func(c Change) bool { return !c.Remove })
	n := len(in.inputs)
	for i := range in.inputs {
		in.collectChannel(&in.inputs[i], &before[i], &in.items[i])
	}
	if len(in.meta) > 0 {
		if it := &in.items[n]; it.Dropped || !bytes.Equal(it.Data, before[n].Data) {
			p.draft.Meta = []byte{}
			if !it.Dropped {
				p.draft.Meta = append(p.draft.Meta, it.Data...)
			}
		}
		n++
	}
	if !slices.EqualFunc(before[n:], in.items[n:], sameItem) {
		p.draft.Labels = labelsOf(in.items[n:])
	}
}

func sameItem(a, b hook.Item) bool {
	return !b.Dropped && a.Name == b.Name && bytes.Equal(a.Data, b.Data)
}

// collectChannel adds a channel to the draft. A change based on a value of the parent stays so, so
// that a save that finds another parent gets an error.
func (in *hookRun) collectChannel(c *hookInput, before, it *hook.Item) {
	p := in.out
	same := bytes.Equal(it.Data, before.Data)
	switch {
	case it.Dropped && in.d.Keep:
		p.draft.Channels = append(p.draft.Channels, Change{Name: c.name, Remove: true})
	case it.Dropped:
	case same && c.change == nil:
		return
	case same:
		p.draft.Channels = append(p.draft.Channels, *c.change)
		return
	case c.baseVersion != 0:
		prefix := alike.Prefix(c.base, it.Data)
		suffix := alike.Suffix(c.base[prefix:], it.Data[prefix:])
		p.draft.Channels = append(p.draft.Channels, Change{Name: c.name, Type: c.typ, Base: c.baseVersion, Prefix: prefix, Suffix: suffix,
			Data: it.Data[prefix : len(it.Data)-suffix]})
	default:
		p.draft.Channels = append(p.draft.Channels, Change{Name: c.name, Type: c.typ, Data: it.Data})
	}
	if !it.Dropped {
		p.markRewritten(c.name)
	}
}

func (p *hookedDraft) markRewritten(channel string) {
	if p.rewritten == nil {
		p.rewritten = map[string]bool{}
	}
	p.rewritten[channel] = true
}

// checkMeta checks metadata from outside.
func checkMeta(meta []byte) error {
	if len(meta) > 0 && (!json.Valid(meta) || !utf8.Valid(meta)) {
		return fmt.Errorf("%w: metadata is not JSON in UTF-8", ErrInvalid)
	}
	return nil
}
