package engine

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/migrate"
)

// A draft whose schema version is not its parent's is rebased. The caller saw the parent as a load
// migrated it, so the draft keeps channels of the migrated parent and splices into them. Rebasing
// turns it into an equivalent draft on the parent as stored: then the record is encoded against the
// old bytes as usual, and no old record is rewritten. Steps do not run while the lineage is locked:
// a save that needs them gives up the lock, runs them and starts over.

// migratedParents are the parents that were migrated for a save.
type migratedParents map[migrationKey]*migratedState

// unmigratedError says that the parent of a save has to be migrated first.
type unmigratedError struct {
	u     *user
	path  *migrationPath
	hash  [32]byte
	state migrate.State // a copy
}

func (*unmigratedError) Error() string { return "the parent has another schema version" }

// rebase returns d as a draft on the stored parent: d itself unless it is based on another version
// of it.
func (w *saving) rebase(t *checkpointState, d *Draft) (*Draft, error) {
	s, u := w.u.s, w.u
	if s.migrations == nil || t.seq == 0 || t.pruned() || t.rec.schema == d.SchemaVersion || !d.usesParent() ||
		d.Kind != "" && d.Kind != t.meta.Kind {
		return d, nil
	}
	set := s.setOf(u.tenant, t.meta.Kind)
	if set == nil {
		return d, nil
	}
	steps, err := set.Path(t.rec.schema, d.SchemaVersion, true)
	if err != nil {
		return nil, ofThread(w.l.ref, err)
	}
	name := migrationKey{u.Tok, t.hash, set, d.SchemaVersion}
	m := w.migrated[name]
	if m == nil {
		m = s.cache.migrated(name)
	}
	if m == nil {
		return nil, &unmigratedError{u, &migrationPath{set, t.rec.schema, d.SchemaVersion, steps}, t.hash, t.schemaState()}
	}
	return d.rebase(t, m)
}

// finalDraft returns the draft to save on t. A hooked draft is valid only on the parent that the
// hooks saw.
func (w *saving) finalDraft(t *checkpointState, d *Draft) (*Draft, error) {
	p := w.hooked
	switch {
	case p.stale(t, d):
		return nil, &movedError{}
	case p != nil && p.rebased:
		return d, nil
	}
	next, err := w.rebase(t, d)
	if _, ok := errors.AsType[*unmigratedError](err); p != nil && (ok || err == nil && next != d) {
		return nil, &movedError{}
	}
	return next, err
}

// usesParent reports whether the state of the draft depends on its parent's.
func (d *Draft) usesParent() bool {
	return d.Keep || slices.ContainsFunc(d.Channels, func(c Change) bool { return c.Base != 0 })
}

// schemaState is a copy of the state of t.
func (t *checkpointState) schemaState() migrate.State {
	s := migrate.State{Meta: bytes.Clone(t.meta.Meta), Labels: maps.Clone(t.meta.Labels)}
	for i, info := range t.meta.Channels {
		s.Channels = append(s.Channels, migrate.Channel{Name: info.Name, Type: info.Type, Data: append([]byte{}, t.chans[i].value...)})
	}
	return s
}

// rebase turns a draft on m, which is t migrated, into one on t.
func (d *Draft) rebase(t *checkpointState, m *migratedState) (*Draft, error) {
	next := *d
	next.Channels = make([]Change, 0, len(d.Channels))
	var missing []string
	for _, c := range d.Channels {
		if c.Base != 0 {
			from, commit := m.find(c.Name)
			if from == nil || version(commit) != c.Base {
				missing = append(missing, c.Name)
				continue
			}
			value, err := t.l.s.spliced(from.Data, &c)
			if err != nil {
				return nil, err
			}
			c = Change{Name: c.Name, Type: cmp.Or(c.Type, from.Type), Data: value}
		}
		next.Channels = append(next.Channels, c)
	}
	if missing != nil {
		return nil, &NeedFullError{missing}
	}
	if d.Keep {
		next.keepMigrated(t, m)
	}
	return &next, nil
}

// keepMigrated adds to a draft on t the channels, labels and metadata of m that differ from t,
// unless the draft sets them.
func (d *Draft) keepMigrated(t *checkpointState, m *migratedState) {
	given := make(map[string]bool, len(d.Channels))
	for i := range d.Channels {
		given[d.Channels[i].Name] = true
	}
	unread := slices.ContainsFunc(t.meta.Channels, func(c codec.ChannelInfo) bool { return c.Rewritten })
	for i := range m.state.Channels {
		ch := &m.state.Channels[i]
		at := t.channelIndex(ch.Name)
		if given[ch.Name] || at >= 0 && t.meta.Channels[at].Type == ch.Type && t.chans[at].commit == m.commits[i] {
			continue
		}
		d.Channels = append(d.Channels, Change{Name: ch.Name, Type: ch.Type, Data: ch.Data,
			rewritten: unread && (at < 0 || t.meta.Channels[at].Rewritten)})
	}
	for _, info := range t.meta.Channels {
		if ch, _ := m.find(info.Name); ch == nil && !given[info.Name] {
			d.Channels = append(d.Channels, Change{Name: info.Name, Remove: true})
		}
	}
	if d.Labels == nil && !maps.Equal(m.state.Labels, t.meta.Labels) {
		d.Labels = maps.Clone(m.state.Labels)
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
	}
	if d.Meta == nil && !bytes.Equal(m.state.Meta, t.meta.Meta) {
		d.Meta = append([]byte{}, m.state.Meta...)
	}
}
