// Package registry manages the plugins installed with a store: their archives, the versions to roll
// back to, the bindings that say where each runs and with which configuration, and the trusted
// signing keys. It builds the pipeline from them.
//
// Every change is checked as a whole and made durable; from then on it applies to new chains. A
// failed change changes nothing. A plugin that is damaged or cannot be loaded does not prevent a
// store from being opened, but every operation that would have to pass through it fails.
// docs/format.md §19 describes the files.
//
// Only one process at a time can have a directory open. The lock of the store ensures that.
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

// ErrNotFound reports a plugin, version or key that does not exist.
var ErrNotFound = errors.New("not found")

// Options of a Registry. All but Pipeline, Keep and Now are required.
type Options struct {
	Dir    string // created when the first plugin is installed
	Loader pipeline.Loader

	// Seal and Unseal protect the state file, which names tenants and threads and decides which
	// plugins run.
	Seal, Unseal func([]byte) ([]byte, error)

	Pipeline pipeline.Options
	Keep     int              // number of versions to keep of each plugin; 0: 5
	Now      func() time.Time // nil: time.Now
}

// Binding defines where a plugin runs.
type Binding struct {
	Tenants  []string // empty means all
	Prefixes []string // of thread names; empty means all threads, and items that belong to no thread
	Order    *int     // nil: the manifest's
	Config   []byte   // JSON, a merge patch over the defaults of the manifest; for the redactor, its configuration
}

// Install describes an installation.
type Install struct {
	Tenant   string         // owner of the plugin, which runs for that tenant only; "" means the whole store
	Bundle   *bundle.Bundle // nil: the built-in redactor
	Digest   [32]byte       // the expected digest of the bundle, unless zero
	Bindings []Binding      // empty means a single binding for everything
	Disabled bool           // do not run the plugin until it is enabled
}

// Plugin is an installed plugin.
type Plugin struct {
	Tenant       string // "": the whole store
	Name         string
	Version      string   // the active one; "builtin" for the redactor
	Digest       [32]byte // of its bundle; for the redactor, of the rules
	Description  string
	Stages       []hook.Stage
	Capabilities []string
	Bindings     []Binding // with Config as it was given
	Enabled      bool
	Versions     []Version // all kept versions, newest first
	Problem      string    // why an enabled plugin cannot run, or ""

	Calls, Errors uint64 // since it was loaded
	Suspended     bool
}

// Version is a version of a plugin, along with the bindings it had.
type Version struct {
	Version   string
	Digest    [32]byte
	Installed time.Time
	Signer    string // id of the trusted key that signed it, or ""
	Active    bool
}

// TrustedKey is a key whose signatures are accepted.
type TrustedKey struct {
	Key     bundle.Key
	Note    string
	Trusted time.Time
}

// Registry manages the plugins of a store. Its methods are safe for concurrent use.
type Registry struct {
	o        Options
	pipeline *pipeline.Pipeline

	mu      sync.Mutex // held during a change
	state   state      // contents of the file
	running running    // plugins bound in the pipeline
}

// Open reads the state file and loads the installed plugins. If the directory does not exist, none
// are installed.
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

// Hooks returns the engine's source of hooks for each operation.
func (r *Registry) Hooks() hook.Hooks { return r.pipeline }

// Pipeline returns the pipeline that runs the hooks.
func (r *Registry) Pipeline() *pipeline.Pipeline { return r.pipeline }

// Close makes every later operation fail. The caller must close the loader's host.
func (r *Registry) Close() error { return r.pipeline.Close() }

// Reload reads the state file again, in case it was replaced from outside, and retries plugins that
// failed to load. An error changes nothing.
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

// Install installs a plugin, a different version of it, or different bindings. If exactly this is
// installed already, nothing changes.
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
		if in.Disabled && !same { // it must be known to work by the time it is enabled
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

// versionOf checks an installation on its own, without the state.
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

// signer returns the id of the trusted key that signed the bundle. If there is any trusted key, a
// signature is required.
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

// Enable tries a plugin and then enables it. If an enabled plugin could not be loaded, Enable loads
// it again.
func (r *Registry) Enable(ctx context.Context, tenant, name string) (Plugin, error) {
	return r.edit(ctx, tenant, name, func(s *state, p *plugin) error {
		p.Enabled = true
		return nil
	})
}

// Disable disables a plugin: items pass without it.
func (r *Registry) Disable(ctx context.Context, tenant, name string) (Plugin, error) {
	return r.edit(ctx, tenant, name, func(s *state, p *plugin) error {
		p.Enabled = false
		return nil
	})
}

// Rollback activates another version with the bindings that it had: the newest with that name or,
// for "", the one installed before. If there are trusted keys, one of them must have signed it.
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

// Remove removes a plugin and all its versions.
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

// Trust adds a trusted signing key. As soon as there is one, only signed plugins can be installed.
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

// Untrust removes a trusted signing key. Installed plugins stay.
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

// Keys returns the trusted keys, oldest first.
func (r *Registry) Keys() []TrustedKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []TrustedKey
	for _, k := range r.state.Keys {
		keys = append(keys, k.export())
	}
	return keys
}

// List returns the plugins ordered by tenant and name.
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

// change makes a new state durable and activates it. A plugin that cannot be loaded is an error
// only if the change is about that plugin.
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
