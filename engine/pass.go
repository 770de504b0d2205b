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

// passage is a draft as hooks made it, and what the save of it must know about that. Nil is a draft that no hook saw.
type passage struct {
	draft     Draft
	hooks     []codec.Hook
	submitted uint64 // mark of what the caller gave; 0 for a draft without an id
	labels    bool   // only the labels change, and what came with hooks that are new to the checkpoint
	rewritten map[string]bool
	fuel      uint64
	blobs     *madeBlobs

	// on is the hash of the parent that the hooks saw. Stands says that what is kept of it passed, too, and crossed that
	// it was migrated for the draft: then the draft holds on no other parent.
	on      [32]byte
	stands  bool
	crossed bool
}

// moved reports whether a draft that keeps from its parent cannot be saved on t. Splices look after themselves, since
// they name the version of their base.
func (p *passage) moved(t *tip, d *Draft) bool {
	if p == nil || t.hash == p.on || !d.Keep && !p.crossed {
		return false
	}
	return p.stands || p.crossed || !slices.Equal(t.meta.Hooks, p.hooks)
}

// identities are those to record.
func (p *passage) identities() []codec.Hook {
	if p == nil {
		return nil
	}
	return p.hooks
}

func (p *passage) rewrote(channel string) bool { return p != nil && p.rewritten[channel] }

// pass runs the hooks on a draft. A checkpoint and no error means that the draft made it already.
func (t *Thread) pass(ctx context.Context, chain hook.Chain, d *Draft, x crossings) (*passage, *Checkpoint, error) {
	if err := checkMeta(d.Meta); err != nil {
		return nil, nil, err
	}
	hooks, err := hooksOf(chain)
	if err != nil {
		return nil, nil, err
	}
	in := &intake{t: t, given: d, d: d, p: &passage{draft: *d, hooks: hooks}}
	cp, err := in.look(ctx, x)
	if err != nil || cp != nil {
		return nil, cp, err
	}
	if err := in.run(ctx, chain); err != nil {
		return nil, nil, err
	}
	return in.p, nil, nil
}

// intake is a draft on its way through the hooks.
type intake struct {
	t     *Thread
	u     *user
	given *Draft // by the caller
	d     *Draft // the same as it stands on the parent that is stored
	p     *passage

	chans  []incoming
	meta   []byte
	labels map[string]string // those that pass
	items  []hook.Item       // chans, metadata if there is any, labels
}

// incoming is the value of a channel before the hooks.
type incoming struct {
	change *Change // of the draft; nil for what is kept
	name   string
	typ    string
	base   []byte  // what the parent has
	on     Version // of base, if the change stands on it
	prev   bool    // base passed the same hooks
}

// look finds out what the draft stands on, before the hooks run: whether it was saved already, and of the parent what
// they need. Those are copies, since the next save changes the state of the parent in place.
func (in *intake) look(ctx context.Context, x crossings) (cp *Checkpoint, err error) {
	l, err := in.t.s.acquireLive(ctx, in.t.ref)
	if err != nil {
		return nil, err
	}
	defer l.release()
	in.u = l.u
	w := l.s.newSaving()
	defer l.s.putSaving(w)
	w.crossings = x
	w.on(l)
	if err := l.mu.lock(ctx); err != nil {
		return nil, err
	}
	defer l.mu.unlock()
	g, err := w.ground(ctx, in.d)
	switch {
	case err != nil:
		return nil, err
	case g.same:
		return g.old.checkpoint(nil), nil
	}
	if t := g.parent; t.seq == l.latest && l.tips[t.seq] == nil && len(t.attrs.path) > 0 {
		l.remember(t) // the save need not read it again
		l.s.cache.used(t)
	}
	if in.d, err = w.cross(g.parent, in.given); err != nil {
		return nil, err
	}
	in.p.draft, in.p.crossed = *in.d, in.d != in.given
	return nil, in.copy(g.parent)
}

// copy takes from the parent what the hooks need.
func (in *intake) copy(t *tip) error {
	d := in.d
	in.p.on = t.hash
	known := slices.Equal(t.meta.Hooks, in.p.hooks) // what the parent has, the hooks made
	var missing []string
	for i := range d.Channels {
		c := &d.Channels[i]
		if c.Remove {
			continue
		}
		from := incoming{change: c, name: c.Name, typ: c.Type}
		at := t.place(c.Name)
		if c.Base != 0 && (at < 0 || version(&t.chans[at].commit) != c.Base) {
			missing = append(missing, c.Name)
			continue
		}
		if c.Base != 0 {
			if from.on = c.Base; from.typ == "" {
				from.typ = t.meta.Channels[at].Type
			}
		}
		if from.typ == "" {
			from.typ = "bytes"
		}
		from.prev = known && at >= 0 && t.meta.Channels[at].Type == from.typ
		if from.on != 0 || from.prev {
			from.base = append([]byte{}, t.chans[at].value...)
		}
		if from.on != 0 {
			var room [4]codec.Edit
			if _, err := in.t.s.edits(room[:0], c, len(from.base)); err != nil {
				return err
			}
		}
		in.chans = append(in.chans, from)
	}
	if missing != nil {
		return &NeedFullError{missing}
	}
	in.meta, in.labels = d.Meta, d.Labels
	if d.Keep && !known {
		in.keep(t)
	}
	return nil
}

// keep adds what the draft keeps of a parent with other hooks.
func (in *intake) keep(t *tip) {
	in.p.stands = true
	given := make(map[string]bool, len(in.d.Channels))
	for i := range in.d.Channels {
		given[in.d.Channels[i].Name] = true
	}
	for i, info := range t.meta.Channels {
		if !given[info.Name] {
			c := &t.chans[i]
			in.chans = append(in.chans, incoming{name: info.Name, typ: info.Type, base: append([]byte{}, c.value...), on: version(&c.commit)})
		}
	}
	if in.d.Meta == nil {
		in.meta = t.meta.Meta
	}
	if in.d.Labels == nil {
		in.labels = t.meta.Labels
	}
}

// run passes everything through the chain, with no lock held.
func (in *intake) run(ctx context.Context, chain hook.Chain) error {
	d, p := in.d, in.p
	p.submitted = in.u.submission(in.given)
	in.items = make([]hook.Item, 0, len(in.chans)+1+len(in.labels))
	for i := range in.chans {
		in.items = append(in.items, in.chans[i].item(in.t.s))
	}
	if len(in.meta) > 0 {
		in.items = append(in.items, hook.Item{Kind: hook.Meta, Type: "json", Data: in.meta})
	}
	in.items = appendLabels(in.items, in.labels)
	p.blobs = &madeBlobs{u: in.u}
	c := &hook.Call{Items: in.items, Names: in.t.names(d), PutBlob: p.blobs.put, Place: hook.Place{Thread: in.t.ref.Thread, Namespace: in.t.ref.Namespace,
		Checkpoint: d.ID, Step: d.Step, Status: d.status(), SchemaVersion: d.SchemaVersion, Time: in.t.s.clock()}}
	before := slices.Clone(in.items)
	err := in.u.runHooks(ctx, chain, c, p.on[:], stepBytes(d.Step))
	p.blobs.close()
	if err != nil {
		return err
	}
	if len(c.Items) != len(before) {
		return unfit(hook.PreSave, fmt.Errorf("%d items out of %d", len(c.Items), len(before)))
	}
	in.items, p.fuel = c.Items, c.Fuel
	in.take(before)
	if err := errors.Join(in.t.checkDraft(&p.draft), checkMeta(p.draft.Meta)); err != nil {
		return unfit(hook.PreSave, err)
	}
	return nil
}

// names are what of a draft is stored as it is.
func (t *Thread) names(d *Draft) []hook.Name {
	return []hook.Name{{What: "thread", Text: t.ref.Thread}, {What: "namespace", Text: t.ref.Namespace}, {What: "id", Text: d.ID}, {What: "branch", Text: d.Branch},
		{What: "kind", Text: d.Kind}, {What: "status", Text: d.Status}, {What: "run id", Text: d.RunID}}
}

// item is the channel as the hooks get it.
func (c *incoming) item(s *Store) hook.Item {
	it := hook.Item{Kind: hook.Channel, Name: c.name, Type: c.typ, Data: c.base}
	if c.change != nil {
		it.Data = c.change.Data
	}
	if c.change != nil && c.on != 0 {
		it.Data, _ = s.spliced(c.base, c.change) // it was looked at
	}
	if c.prev {
		it.Prev = c.base
	}
	return it
}

// take makes the draft of what the hooks made of the items before them.
func (in *intake) take(before []hook.Item) {
	d, p := in.d, in.p
	p.draft.Channels = slices.DeleteFunc(slices.Clone(d.Channels), func(c Change) bool { return !c.Remove })
	n := len(in.chans)
	for i := range in.chans {
		in.takeChannel(&in.chans[i], &before[i], &in.items[i])
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

// takeChannel adds to the draft what became of a channel. What stood on a value of the parent still does, so that a save
// which finds another parent there is told so.
func (in *intake) takeChannel(c *incoming, before, it *hook.Item) {
	p := in.p
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
	case c.on != 0:
		prefix := alike.Prefix(c.base, it.Data)
		suffix := alike.Suffix(c.base[prefix:], it.Data[prefix:])
		p.draft.Channels = append(p.draft.Channels, Change{Name: c.name, Type: c.typ, Base: c.on, Prefix: prefix, Suffix: suffix,
			Data: it.Data[prefix : len(it.Data)-suffix]})
	default:
		p.draft.Channels = append(p.draft.Channels, Change{Name: c.name, Type: c.typ, Data: it.Data})
	}
	if !it.Dropped {
		p.markRewritten(c.name)
	}
}

func (p *passage) markRewritten(channel string) {
	if p.rewritten == nil {
		p.rewritten = map[string]bool{}
	}
	p.rewritten[channel] = true
}

// checkMeta is for metadata that is not known to be fine.
func checkMeta(meta []byte) error {
	if len(meta) > 0 && (!json.Valid(meta) || !utf8.Valid(meta)) {
		return fmt.Errorf("%w: metadata is not JSON in UTF-8", ErrInvalid)
	}
	return nil
}
