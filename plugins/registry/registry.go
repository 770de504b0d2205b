// Package registry keeps the plugins that are installed beside a store: their archives, the versions to roll back to,
// where each runs and with which configuration, and the keys whose signatures count. It builds the pipeline of them.
//
// Whatever changes is checked as a whole, then made durable, and then counts for the chains that are asked for from then
// on; a change that fails changes nothing. A plugin that is damaged or cannot be loaded does not keep a store from being
// opened, and makes every operation fail that it would have to see. docs/format.md §19 has the files.
//
// One process at a time may have a directory open. Who has the store open has it; the lock of that is enough.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
)

// Redact is the name of the built-in redactor.
const Redact = "redact"

// ErrNotFound is that there is no such plugin, version or key.
var ErrNotFound = errors.New("not found")

// Options of a Registry. All but Pipeline, Keep and Now are required.
type Options struct {
	Dir    string // is made when the first plugin is installed
	Loader pipeline.Loader

	// Seal and Unseal protect the state file: it names tenants and threads, and decides what runs.
	Seal, Unseal func([]byte) ([]byte, error)

	Pipeline pipeline.Options
	Keep     int              // versions of a plugin that are kept, 0: 5
	Now      func() time.Time // nil: time.Now
}

// Binding says where a plugin runs.
type Binding struct {
	Tenants  []string // none is all
	Prefixes []string // of names of threads; none is all, and what belongs to no thread
	Order    *int     // nil is what the manifest says
	Config   []byte   // JSON, a merge patch over the defaults of the manifest; of the redactor its configuration
}

// Install is what to install.
type Install struct {
	Tenant   string         // whose plugin it is, which runs for that tenant alone; "" is the whole store's
	Bundle   *bundle.Bundle // nil is the built-in redactor
	Digest   [32]byte       // which the bundle must have, unless it is zero
	Bindings []Binding      // none is one for everything
	Disabled bool           // it does not run until it is enabled
}

// Plugin is an installed plugin.
type Plugin struct {
	Tenant       string // "" is the whole store's
	Name         string
	Version      string   // the one that runs; of the redactor "builtin"
	Digest       [32]byte // of its bundle; of the redactor that of the rules
	Description  string
	Stages       []hook.Stage
	Capabilities []string
	Bindings     []Binding // Config is what was given
	Enabled      bool
	Versions     []Version // that are kept, the newest first
	Problem      string    // why it cannot run although it must, "" if it can

	Calls, Errors uint64 // since it was loaded
	Suspended     bool
}

// Version is a version of a plugin with the bindings that it had.
type Version struct {
	Version   string
	Digest    [32]byte
	Installed time.Time
	Signer    string // id of the trusted key that it was signed with, or ""
	Active    bool
}

// TrustedKey is a key whose signatures count.
type TrustedKey struct {
	Key     bundle.Key
	Note    string
	Trusted time.Time
}

// Registry is the plugins of a store. Methods are safe for concurrent use.
type Registry struct {
	o        Options
	pipeline *pipeline.Pipeline

	mu      sync.Mutex // held while anything changes
	state   state      // what is in the file
	running running    // what is bound in the pipeline
}

// Open reads what is installed and loads it. A directory that is not there has nothing installed.
func Open(ctx context.Context, o Options) (*Registry, error) {
	if o.Keep <= 0 {
		o.Keep = 5
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Registry{o: o, pipeline: pipeline.New(o.Pipeline)}
	if err := r.Reload(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Hooks returns what the engine asks for the hooks of an operation.
func (r *Registry) Hooks() hook.Hooks { return r.pipeline }

// Pipeline returns what the hooks run in.
func (r *Registry) Pipeline() *pipeline.Pipeline { return r.pipeline }

// Close makes every operation fail that is asked for from now on. What the loader runs plugins in is the caller's to close.
func (r *Registry) Close() error { return r.pipeline.Close() }

// Reload reads the state file again, which may have been replaced from outside, and loads what could not be loaded before.
// After an error everything is as it was.
func (r *Registry) Reload(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.read()
	if err != nil {
		return err
	}
	next, err := r.prepare(ctx, &s, nil)
	if err != nil {
		return err
	}
	r.state = s
	r.run(next)
	return nil
}

// Install installs a plugin, or another version or other bindings of it. What is installed just so stays as it is.
func (r *Registry) Install(ctx context.Context, in Install) (Plugin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, v, err := r.versionOf(&in)
	if err != nil {
		return Plugin{}, err
	}
	s := r.state.clone()
	p := s.plugin(in.Tenant, name)
	if p == nil {
		p = s.add(in.Tenant, name)
	}
	same := len(p.Versions) > 0 && p.active().same(&v) && p.Enabled == !in.Disabled && r.running.problems[p.key()] == ""
	if !same {
		p.push(v, r.o.Keep)
		p.Enabled = !in.Disabled
	}
	if err := s.check(); err != nil {
		return Plugin{}, err
	}
	if in.Bundle != nil {
		if err := r.keep(in.Bundle); err != nil {
			return Plugin{}, err
		}
		if in.Disabled && !same { // it is enabled later, and should be known to work by then
			if err := r.try(ctx, in.Bundle, v.Bindings); err != nil {
				r.prune()
				return Plugin{}, err
			}
		}
	}
	if same {
		return r.describe(p), nil
	}
	if err := r.change(ctx, s, p); err != nil {
		return Plugin{}, err
	}
	return r.describe(p), nil
}

// versionOf checks what is to be installed by itself.
func (r *Registry) versionOf(in *Install) (name string, v version, err error) {
	if name, v, err = describeVersion(in.Bundle); err != nil {
		return "", v, err
	}
	if in.Digest != [32]byte{} && in.Digest != [32]byte(v.Digest) {
		return "", v, invalidf(v.label(name),
			"its digest is %x, want %x: get the right plugin, or check this one", v.Digest, in.Digest)
	}
	if in.Bundle != nil {
		if v.Signer, err = r.signer(in.Bundle); err != nil {
			return "", v, err
		}
	}
	v.Installed = r.o.Now().UTC().Truncate(time.Second)
	if v.Bindings, err = checkBindings(in, v.label(name)); err != nil {
		return "", v, err
	}
	if in.Bundle == nil {
		v.Stages, err = redactorStages(v.Bindings)
	}
	return name, v, err
}

// signer returns the id of the trusted key that a bundle is signed with, which it has to be if any key is trusted.
func (r *Registry) signer(b *bundle.Bundle) (string, error) {
	if len(r.state.Keys) == 0 {
		return "", nil
	}
	var keys []bundle.Key
	for _, k := range r.state.Keys {
		keys = append(keys, bundle.Key(k.Key))
	}
	key, err := b.Verify(keys)
	if err != nil {
		return "", err
	}
	return key.ID(), nil
}

// Enable lets a plugin run, which is tried first. One that runs is made ready anew if it could not be.
func (r *Registry) Enable(ctx context.Context, tenant, name string) (Plugin, error) {
	return r.edit(ctx, tenant, name, func(s *state, p *plugin) error {
		p.Enabled = true
		return nil
	})
}

// Disable lets a plugin no longer run: what it would have to see passes without it.
func (r *Registry) Disable(ctx context.Context, tenant, name string) (Plugin, error) {
	return r.edit(ctx, tenant, name, func(s *state, p *plugin) error {
		p.Enabled = false
		return nil
	})
}

// Rollback lets another version run, with the bindings that it had: the newest of that name, or, for "", the one that was
// installed before. If keys are trusted it must be signed with one.
func (r *Registry) Rollback(ctx context.Context, tenant, name, wanted string) (Plugin, error) {
	return r.edit(ctx, tenant, name, func(s *state, p *plugin) error {
		i := p.Active + 1
		if wanted != "" {
			i = slices.IndexFunc(p.Versions, func(v version) bool { return v.Version == wanted && !v.same(p.active()) })
		}
		if i < 0 || i >= len(p.Versions) {
			return fmt.Errorf("plugin %s: no other version %s: %w", name, wanted, ErrNotFound)
		}
		p.Active = i
		if name == Redact {
			return nil
		}
		b, err := r.bundle(p.active())
		if err == nil {
			_, err = r.signer(b)
		}
		return err
	})
}

// Remove removes a plugin with all its versions.
func (r *Registry) Remove(ctx context.Context, tenant, name string) error {
	_, err := r.edit(ctx, tenant, name, func(s *state, p *plugin) error {
		s.remove(tenant, name)
		return nil
	})
	return err
}

// edit changes a plugin.
func (r *Registry) edit(ctx context.Context, tenant, name string, f func(*state, *plugin) error) (Plugin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state.clone()
	p := s.plugin(tenant, name)
	if p == nil {
		return Plugin{}, fmt.Errorf("plugin %s: %w", name, ErrNotFound)
	}
	if err := f(&s, p); err != nil {
		return Plugin{}, err
	}
	if err := s.check(); err != nil {
		return Plugin{}, err
	}
	if s.plugin(tenant, name) == nil {
		return Plugin{}, r.change(ctx, s, nil)
	}
	if err := r.change(ctx, s, p); err != nil {
		return Plugin{}, err
	}
	return r.describe(p), nil
}

// Trust lets signatures that are made with a key count. From the first on, only signed plugins can be installed.
func (r *Registry) Trust(ctx context.Context, key bundle.Key, note string) (TrustedKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state.clone()
	i := slices.IndexFunc(s.Keys, func(k trustedKey) bool { return bundle.Key(k.Key) == key })
	if i < 0 {
		i = len(s.Keys)
		s.Keys = append(s.Keys, trustedKey{Key: digest(key), Trusted: r.o.Now().UTC().Truncate(time.Second)})
	}
	s.Keys[i].Note = note
	if err := s.check(); err != nil {
		return TrustedKey{}, err
	}
	return s.Keys[i].export(), r.change(ctx, s, nil)
}

// Untrust lets signatures made with a key no longer count. Installed plugins stay.
func (r *Registry) Untrust(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state.clone()
	i := slices.IndexFunc(s.Keys, func(k trustedKey) bool { return bundle.Key(k.Key).ID() == id })
	if i < 0 {
		return fmt.Errorf("trusted key %.40q: %w", id, ErrNotFound)
	}
	s.Keys = slices.Delete(s.Keys, i, i+1)
	return r.change(ctx, s, nil)
}

// Keys returns the trusted keys, the oldest first.
func (r *Registry) Keys() []TrustedKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []TrustedKey
	for _, k := range r.state.Keys {
		keys = append(keys, k.export())
	}
	return keys
}

// List returns the plugins in the order of their tenants and names.
func (r *Registry) List() []Plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Plugin
	for i := range r.state.Plugins {
		list = append(list, r.describe(&r.state.Plugins[i]))
	}
	return list
}

// Get returns a plugin.
func (r *Registry) Get(tenant, name string) (Plugin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.state.plugin(tenant, name); p != nil {
		return r.describe(p), nil
	}
	return Plugin{}, fmt.Errorf("plugin %s: %w", name, ErrNotFound)
}

// change makes another state durable and lets it count. Plugins of it that cannot be loaded are an error only for the
// one that the change is about.
func (r *Registry) change(ctx context.Context, s state, about *plugin) error {
	next, err := r.prepare(ctx, &s, about)
	if err == nil {
		s.Sequence++
		if err = r.write(&s); err != nil {
			next.closeNew()
		}
	}
	if err != nil {
		r.prune()
		return err
	}
	r.state = s
	r.run(next)
	r.prune()
	return nil
}
