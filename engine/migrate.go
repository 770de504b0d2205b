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

// States are migrated whole, in memory, with no lock held: a step may take seconds. Steps are pure,
// so their result depends only on the state and the set. It is cached by the hash of the
// checkpoint, and its values have commitments, and versions to splice on, like stored values.

// migrationPath is the list of steps from one schema version of a kind to another.
type migrationPath struct {
	set      *migrate.Set
	from, to uint64
	steps    []*migrate.Step
}

// migrationPath finds the path for a state; nil if there is nothing to do.
func (s *Store) migrationPath(tenant, kind string, from, to uint64, down bool) (*migrationPath, error) {
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
	return &migrationPath{set, from, to, steps}, nil
}

// setOf returns the set of a kind; nil if there is none.
func (s *Store) setOf(tenant, kind string) *migrate.Set {
	if s.migrations == nil || kind == "" {
		return nil
	}
	return s.migrations(tenant, kind)
}

// describe lists the steps for callers.
func (w *migrationPath) describe() *Migrated {
	m := &Migrated{From: w.from, To: w.to}
	for _, step := range w.steps {
		m.Steps = append(m.Steps, fmt.Sprintf("%s (%s)", cmp.Or(step.Description, fmt.Sprintf("%d to %d", step.From, step.To)), step.Source))
	}
	return m
}

// migratedState is a state at another version than the stored one. It is shared, and never
// modified.
type migratedState struct {
	state   migrate.State // channels in order of name
	commits [][32]byte    // of the channels
}

// migrationKey names a migrated state in the cache.
type migrationKey struct {
	user crypto.Token
	hash [32]byte // of the checkpoint
	set  *migrate.Set
	to   uint64
}

func (m *migratedState) memory() int64 {
	n := int64(len(m.state.Meta)) + 400
	for i := range m.state.Channels {
		n += int64(len(m.state.Channels[i].Data)) + 200
	}
	return n
}

// bytesOf is the size of a copy of the wanted channels.
func (m *migratedState) bytesOf(want func(name string) bool) (n int64) {
	for i := range m.state.Channels {
		if ch := &m.state.Channels[i]; want(ch.Name) {
			n += int64(len(ch.Data))
		}
	}
	return n
}

// migrate migrates the state of the checkpoint with a hash along a path, unless the result is in
// the cache. The result may share the bytes of the state.
func (u *user) migrate(ctx context.Context, w *migrationPath, hash [32]byte, state func() migrate.State) (*migratedState, error) {
	name := migrationKey{u.Tok, hash, w.set, w.to}
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
func (u *user) runSteps(ctx context.Context, w *migrationPath, state migrate.State) (*migratedState, error) {
	var decoded reservation
	if err := decoded.reserve(ctx, state.Decoded()); err != nil {
		return nil, err
	}
	defer decoded.release()
	out, _, err := w.set.Migrate(ctx, state, w.from, w.to, w.to < w.from)
	if err != nil {
		return nil, err
	}
	if path, err := u.s.checkMigrated(&out); err != nil {
		last := w.steps[len(w.steps)-1]
		return nil, &migrate.StepError{Kind: w.set.Kind(), From: last.From, To: last.To, Source: last.Source, Path: path,
			Reason: fmt.Sprintf("its output cannot be stored: %v", err), Err: err}
	}
	m := &migratedState{state: out, commits: make([][32]byte, len(out.Channels))}
	for i := range out.Channels {
		var c crypto.Chunks
		c.Splice(out.Channels[i].Data, 0, 0)
		m.commits[i] = c.Commitment(&u.CommitKey)
	}
	return m, nil
}

// checkMigrated returns an error, and the place of it, if steps made a state that no checkpoint can
// have.
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

// find returns the channel with a name, and its commitment; nil if there is none.
func (m *migratedState) find(name string) (*migrate.Channel, *[32]byte) {
	for i := range m.state.Channels {
		if m.state.Channels[i].Name == name {
			return &m.state.Channels[i], &m.commits[i]
		}
	}
	return nil, nil
}

// loadMigration is a load that asks for a schema version. Its want chooses the channels to read
// once the checkpoint is found, with the lineage locked; finish then migrates the state, with no
// lock held.
type loadMigration struct {
	u      *user
	o      *LoadOptions
	path   *migrationPath
	result *migratedState // it was remembered
	err    error
}

func (z *loadMigration) want(cp *Checkpoint) func(name string) bool {
	s := z.u.s
	z.result = nil
	if z.path, z.err = s.migrationPath(cp.Ref.Tenant, cp.Kind, cp.SchemaVersion, z.o.Schema, z.o.Down); z.err != nil {
		return nil
	}
	if z.path == nil || z.o.HeadersOnly {
		return z.o.want(cp)
	}
	if z.result = s.cache.migrated(migrationKey{z.u.Tok, cp.Hash, z.path.set, z.path.to}); z.result != nil {
		return nil
	}
	return func(string) bool { return true }
}

// finish migrates cp, if needed.
func (z *loadMigration) finish(ctx context.Context, cp *Checkpoint) error {
	if z.path == nil && z.err == nil {
		return nil
	}
	if z.err == nil && !z.o.HeadersOnly && z.result == nil {
		z.result, z.err = z.u.migrate(ctx, z.path, cp.Hash, cp.schemaState)
	}
	if z.err != nil {
		return ofThread(cp.Ref, z.err)
	}
	cp.Migrated = z.path.describe()
	if z.o.HeadersOnly {
		return nil
	}
	want := z.o.want(cp)
	if err := reserve(ctx, z.result.bytesOf(want)); err != nil {
		return ofThread(cp.Ref, err)
	}
	cp.setState(z.result, want)
	return nil
}

// ofThread adds the thread to an error of a migration.
func ofThread(ref Ref, err error) error { return fmt.Errorf("thread %q: %w", ref.Thread, err) }

// schemaState is the state that cp holds.
func (c *Checkpoint) schemaState() migrate.State {
	s := migrate.State{Meta: c.Meta, Labels: c.Labels}
	for i := range c.Channels {
		s.Channels = append(s.Channels, migrate.Channel{Name: c.Channels[i].Name, Type: c.Channels[i].Type, Data: c.Channels[i].Data})
	}
	return s
}

// setState replaces the state of c by copies from m. A channel without data gets a version that is
// not valid as a base, since the caller may have the bytes from before the migration.
func (c *Checkpoint) setState(m *migratedState, want func(name string) bool) {
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
