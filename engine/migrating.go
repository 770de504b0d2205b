package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/migrate"
)

// States are migrated whole, in memory, with no lock held: a step may take seconds. What steps make of a state is a function
// of the state and the set, since steps are pure; so it is remembered by the hash of the checkpoint, and its bytes have
// commitments, and versions to splice on, like bytes that are stored.

// way is how a state gets from one version of its kind to another one.
type way struct {
	set      *migrate.Set
	from, to uint64
	steps    []*migrate.Step
}

// wayTo finds the way of a state; nil if there is nothing to do.
func (s *Store) wayTo(tenant, kind string, from, to uint64, down bool) (*way, error) {
	if from == to {
		return nil, nil
	}
	set := s.setOf(tenant, kind)
	if set == nil {
		e := &migrate.VersionError{Kind: ErrNoMigration, Of: kind, From: from, To: to, Why: "no migrations for this kind"}
		if from > to {
			e.Kind = ErrSchemaTooNew
		}
		return nil, e
	}
	steps, err := set.Path(from, to, down)
	if err != nil {
		return nil, err
	}
	return &way{set, from, to, steps}, nil
}

// setOf is the set of a kind; nil if there is none.
func (s *Store) setOf(tenant, kind string) *migrate.Set {
	if s.migrations == nil || kind == "" {
		return nil
	}
	return s.migrations(tenant, kind)
}

// describe lists the steps for callers.
func (w *way) describe() *Migrated {
	m := &Migrated{From: w.from, To: w.to}
	for _, step := range w.steps {
		m.Steps = append(m.Steps, fmt.Sprintf("%s (%s)", cmp.Or(step.Description, fmt.Sprintf("%d to %d", step.From, step.To)), step.Source))
	}
	return m
}

// migrated is a state at another version than it is stored in. It is shared, and never modified.
type migrated struct {
	state   migrate.State // channels in order of name
	commits [][32]byte    // of the channels
}

// migratedName names a migrated state in the cache.
type migratedName struct {
	user crypto.Token
	hash [32]byte // of the checkpoint
	set  *migrate.Set
	to   uint64
}

func (m *migrated) memory() int64 {
	n := int64(len(m.state.Meta)) + 400
	for i := range m.state.Channels {
		n += int64(len(m.state.Channels[i].Data)) + 200
	}
	return n
}

// bytesOf is how many bytes a copy of the wanted channels has.
func (m *migrated) bytesOf(want func(name string) bool) (n int64) {
	for i := range m.state.Channels {
		if ch := &m.state.Channels[i]; want(ch.Name) {
			n += int64(len(ch.Data))
		}
	}
	return n
}

// migrate brings the state of the checkpoint with a hash along a way, unless the cache has the outcome. The outcome may share
// the bytes of the state.
func (u *user) migrate(ctx context.Context, w *way, hash [32]byte, state func() migrate.State) (*migrated, error) {
	name := migratedName{u.Tok, hash, w.set, w.to}
	if m := u.s.cache.migrated(name); m != nil {
		return m, nil
	}
	m, err := u.runSteps(ctx, w, state())
	if err == nil {
		u.s.cache.keepMigrated(name, m)
	}
	return m, err
}

// runSteps is migrate without the cache.
func (u *user) runSteps(ctx context.Context, w *way, state migrate.State) (*migrated, error) {
	var decoded taken
	if err := decoded.take(ctx, state.Decoded()); err != nil {
		return nil, err
	}
	defer decoded.give()
	out, _, err := w.set.Migrate(ctx, state, w.from, w.to, w.to < w.from)
	if err != nil {
		return nil, err
	}
	if path, err := u.s.checkMigrated(&out); err != nil {
		last := w.steps[len(w.steps)-1]
		return nil, &migrate.StepError{Kind: w.set.Kind(), From: last.From, To: last.To, Source: last.Source, Path: path,
			Reason: fmt.Sprintf("the migrated state cannot be stored: %v", err), Err: err}
	}
	m := &migrated{state: out, commits: make([][32]byte, len(out.Channels))}
	for i := range out.Channels {
		var c crypto.Chunks
		c.Splice(out.Channels[i].Data, 0, 0)
		m.commits[i] = c.Commitment(&u.CommitKey)
	}
	return m, nil
}

// checkMigrated finds what steps made and no checkpoint can have, and where it is.
func (s *Store) checkMigrated(state *migrate.State) (path string, err error) {
	if len(state.Channels) > codec.MaxChannels || len(state.Labels) > codec.MaxLabels {
		return "", fmt.Errorf("%d channels and %d labels, at most %d and %d are allowed", len(state.Channels), len(state.Labels),
			codec.MaxChannels, codec.MaxLabels)
	}
	for i := range state.Channels {
		ch := &state.Channels[i]
		if err := errors.Join(checkName("channel", ch.Name, false), checkName("type of a channel", ch.Type, true),
			s.checkSize(ch.Name, len(ch.Data))); err != nil {
			return "/channels", err
		}
	}
	for k, v := range state.Labels {
		if err := errors.Join(checkName("label", k, false), checkName("value of a label", v, true)); err != nil {
			return "/labels", err
		}
	}
	switch {
	case len(state.Meta) > codec.MaxMeta:
		return "/meta", &LimitError{"metadata", int64(len(state.Meta)), codec.MaxMeta}
	case len(state.Meta) > 0 && (!json.Valid(state.Meta) || !utf8.Valid(state.Meta)):
		return "/meta", errors.New("it is not JSON in UTF-8")
	}
	return "", nil
}

// find returns the channel of a name, and its commitment; nil if there is none.
func (m *migrated) find(name string) (*migrate.Channel, *[32]byte) {
	for i := range m.state.Channels {
		if m.state.Channels[i].Name == name {
			return &m.state.Channels[i], &m.commits[i]
		}
	}
	return nil, nil
}

// lazily is a load that wants a version. Its wants is asked for what is to be read once the checkpoint is found, with the
// lineage locked; finish then migrates it, with no lock held.
type lazily struct {
	u    *user
	o    *LoadOptions
	way  *way
	have *migrated // it was remembered
	err  error
}

func (z *lazily) want(cp *Checkpoint) func(name string) bool {
	s := z.u.s
	z.have = nil
	if z.way, z.err = s.wayTo(cp.Ref.Tenant, cp.Kind, cp.SchemaVersion, z.o.Schema, z.o.Down); z.err != nil {
		return nil
	}
	if z.way == nil || z.o.HeadersOnly {
		return z.o.want(cp)
	}
	if z.have = s.cache.migrated(migratedName{z.u.Tok, cp.Hash, z.way.set, z.way.to}); z.have != nil {
		return nil
	}
	return func(string) bool { return true }
}

// finish makes cp what was asked for.
func (z *lazily) finish(ctx context.Context, cp *Checkpoint) error {
	if z.way == nil && z.err == nil {
		return nil
	}
	if z.err == nil && !z.o.HeadersOnly && z.have == nil {
		z.have, z.err = z.u.migrate(ctx, z.way, cp.Hash, cp.state)
	}
	if z.err != nil {
		return ofThread(cp.Ref, z.err)
	}
	cp.Migrated = z.way.describe()
	if z.o.HeadersOnly {
		return nil
	}
	want := z.o.want(cp)
	if err := takeRoom(ctx, z.have.bytesOf(want)); err != nil {
		return ofThread(cp.Ref, err)
	}
	cp.become(z.have, want)
	return nil
}

// ofThread says of which thread an error of a migration is.
func ofThread(ref Ref, err error) error { return fmt.Errorf("thread %q: %w", ref.Thread, err) }

// state is the state that cp holds.
func (c *Checkpoint) state() migrate.State {
	s := migrate.State{Meta: c.Meta, Labels: c.Labels}
	for i := range c.Channels {
		s.Channels = append(s.Channels, migrate.Channel{Name: c.Channels[i].Name, Type: c.Channels[i].Type, Data: c.Channels[i].Data})
	}
	return s
}

// become makes the state of c that of m, of which the caller gets copies. A channel without data has a version that serves no
// splice: the caller may well have the bytes that it was made of.
func (c *Checkpoint) become(m *migrated, want func(name string) bool) {
	c.SchemaVersion = c.Migrated.To
	c.Meta, c.Labels = slices.Clone(m.state.Meta), maps.Clone(m.state.Labels)
	if len(c.Meta) == 0 {
		c.Meta = nil
	}
	if len(c.Labels) == 0 {
		c.Labels = nil
	}
	c.Channels = make([]Channel, 0, len(m.state.Channels))
	for i := range m.state.Channels {
		from := &m.state.Channels[i]
		ch := Channel{Name: from.Name, Type: from.Type, Size: int64(len(from.Data)), Version: version(&m.commits[i])}
		if want(from.Name) {
			ch.Data = append(make([]byte, 0, len(from.Data)), from.Data...)
		} else {
			ch.Version, ch.Rewritten = unspliceable(ch.Version), true
		}
		c.Channels = append(c.Channels, ch)
	}
}
