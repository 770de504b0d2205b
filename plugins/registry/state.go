package registry

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/durable"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// Bounds of the state.
const (
	stateFile    = "state"
	stateVersion = 1
	maxState     = 16 << 20 // bytes, before sealing
	maxPlugins   = 1000
	maxKeys      = 1000
	maxNote      = 256 // bytes
	maxBindings  = 64
	maxNames     = 1000 // tenants or prefixes of a binding
	maxName      = 512  // bytes
)

// state is the contents of the state file.
type state struct {
	Format   int          `json:"version"`
	Sequence uint64       `json:"sequence"` // counts the changes
	Keys     []trustedKey `json:"keys"`
	Plugins  []plugin     `json:"plugins"` // ordered by tenant and name
}

type trustedKey struct {
	Key     digest    `json:"key"`
	Note    string    `json:"note,omitempty"`
	Trusted time.Time `json:"trusted"`
}

type plugin struct {
	Tenant   string    `json:"tenant,omitempty"`
	Name     string    `json:"name"`
	Enabled  bool      `json:"enabled"`
	Active   int       `json:"active"`   // index of the active version
	Versions []version `json:"versions"` // newest first
}

// version is a version of a plugin, with all facts that are needed even if its archive is gone.
type version struct {
	Version      string      `json:"version"`
	Digest       digest      `json:"digest"`
	Installed    time.Time   `json:"installed"`
	Signer       string      `json:"signer,omitempty"`
	Description  string      `json:"description,omitempty"`
	Stages       []string    `json:"stages"`
	Capabilities []string    `json:"capabilities,omitempty"`
	Migrations   []migration `json:"migrations,omitempty"`
	Bindings     []binding   `json:"bindings"`
}

type migration struct {
	Kind string `json:"kind"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

type binding struct {
	Tenants  []string        `json:"tenants,omitempty"`
	Prefixes []string        `json:"thread_prefixes,omitempty"`
	Order    *int            `json:"order,omitempty"`
	Config   json.RawMessage `json:"config,omitempty"`
}

// digest marshals as 64 hexadecimal digits.
type digest [32]byte

func (d digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

func (d *digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return errors.New("want 64 hexadecimal digits")
	}
	_, err := hex.Decode(d[:], text)
	return err
}

func (k *trustedKey) export() TrustedKey { return TrustedKey{bundle.Key(k.Key), k.Note, k.Trusted} }

// pluginKey identifies a plugin.
type pluginKey struct{ tenant, name string }

func (p *plugin) key() pluginKey { return pluginKey{p.Tenant, p.Name} }

func (p *plugin) active() *version { return &p.Versions[p.Active] }

// label returns NAME@VERSION for errors.
func (v *version) label(name string) string {
	if name == Redact {
		return name
	}
	return name + "@" + v.Version
}

// same reports whether two versions have the same bundle and bindings.
func (v *version) same(w *version) bool {
	a, errA := json.Marshal(v.Bindings)
	b, errB := json.Marshal(w.Bindings)
	return v.Digest == w.Digest && errA == nil && errB == nil && bytes.Equal(a, b)
}

// stages returns the stages at which the version runs.
func (v *version) stages() []hook.Stage {
	var stages []hook.Stage
	for _, name := range v.Stages {
		if stage, ok := hook.ParseStage(name); ok {
			stages = append(stages, stage)
		}
	}
	return stages
}

// push adds a version, makes it the active one, and drops the oldest.
func (p *plugin) push(v version, keep int) {
	p.Versions = slices.DeleteFunc(p.Versions, func(old version) bool { return old.same(&v) })
	p.Versions = slices.Insert(p.Versions, 0, v)
	p.Versions = p.Versions[:min(len(p.Versions), keep)]
	p.Active = 0
}

func (s *state) clone() state {
	c := *s
	c.Keys = slices.Clone(s.Keys)
	c.Plugins = slices.Clone(s.Plugins)
	for i := range c.Plugins {
		c.Plugins[i].Versions = slices.Clone(c.Plugins[i].Versions)
	}
	return c
}

func (s *state) plugin(tenant, name string) *plugin {
	for i := range s.Plugins {
		if s.Plugins[i].Tenant == tenant && s.Plugins[i].Name == name {
			return &s.Plugins[i]
		}
	}
	return nil
}

func (s *state) add(tenant, name string) *plugin {
	s.Plugins = append(s.Plugins, plugin{Tenant: tenant, Name: name})
	slices.SortFunc(s.Plugins, func(a, b plugin) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return s.plugin(tenant, name)
}

func (s *state) remove(tenant, name string) {
	s.Plugins = slices.DeleteFunc(s.Plugins, func(p plugin) bool { return p.Tenant == tenant && p.Name == name })
}

// check checks a state as a whole: its bounds, and that no two plugins claim the same thing.
func (s *state) check() error {
	if len(s.Plugins) > maxPlugins || len(s.Keys) > maxKeys {
		return invalidf("", "more than %d plugins or %d trusted keys: remove some", maxPlugins, maxKeys)
	}
	for _, k := range s.Keys {
		if len(k.Note) > maxNote || !utf8.ValidString(k.Note) {
			return invalidf("", "the note of a key must be UTF-8 of at most %d bytes", maxNote)
		}
	}
	type claim struct {
		p *plugin
		v *version
	}
	claims := map[migration][]claim{}
	for i := range s.Plugins {
		p := &s.Plugins[i]
		if !p.Enabled {
			continue
		}
		v := p.active()
		for _, m := range v.Migrations {
			for _, c := range claims[m] {
				if overlap(v.Bindings, c.v.Bindings) {
					return invalidf(v.label(p.Name),
						"it makes the migration of %.80q from %d to %d, as does %s: disable or remove one of them",
						m.Kind, m.From, m.To, c.v.label(c.p.Name))
				}
			}
			claims[m] = append(claims[m], claim{p, v})
		}
	}
	return nil
}

// overlap reports whether two lists of bindings can cover the same thread.
func overlap(a, b []binding) bool {
	for i := range a {
		for j := range b {
			if a[i].meets(&b[j]) {
				return true
			}
		}
	}
	return false
}

// meets reports whether a thread can exist that both bindings cover.
func (b *binding) meets(c *binding) bool {
	tenants := len(b.Tenants) == 0 || len(c.Tenants) == 0 ||
		slices.ContainsFunc(b.Tenants, func(t string) bool { return slices.Contains(c.Tenants, t) })
	return tenants && (len(b.Prefixes) == 0 || len(c.Prefixes) == 0 || slices.ContainsFunc(b.Prefixes, func(p string) bool {
		return slices.ContainsFunc(c.Prefixes, func(q string) bool { return strings.HasPrefix(p, q) || strings.HasPrefix(q, p) })
	}))
}

func (r *Registry) path(name string) string { return filepath.Join(r.o.Dir, name) }

// read reads the state file. If it is missing but there are plugins, somebody removed it, and the
// installed plugins are unknown.
func (r *Registry) read() (state, error) {
	s := state{Format: stateVersion}
	sealed, err := durable.ReadFile(r.path(stateFile), 2*maxState)
	if errors.Is(err, fs.ErrNotExist) {
		archives, err := filepath.Glob(r.path("*" + bundle.Extension))
		if err != nil || len(archives) > 0 {
			return s, fmt.Errorf("reading plugins: the file %s with the bindings of the plugins is missing: restore it, or remove the folder to continue without plugins",
				r.path(stateFile))
		}
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading plugins: %w", err)
	}
	plain, err := r.o.Unseal(sealed)
	if err != nil {
		return s, fmt.Errorf("reading plugins: %s: %w", r.path(stateFile), err)
	}
	if s, err = parseState(plain); err != nil {
		return s, fmt.Errorf("reading plugins: %s: %w", r.path(stateFile), err)
	}
	return s, nil
}

// parseState parses a state, which must be in the exact form that encode writes.
func parseState(plain []byte) (state, error) {
	var s state
	if len(plain) > maxState {
		return s, errors.New("it is too large")
	}
	var head struct {
		Format int `json:"version"`
	}
	if err := json.Unmarshal(plain, &head); err != nil {
		return s, errors.New("it is damaged")
	}
	if head.Format != stateVersion {
		return s, fmt.Errorf("it has version %d, but this program supports %d: use the program that wrote it",
			head.Format, stateVersion)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, errors.New("it is damaged")
	}
	again, err := s.encode()
	if err != nil || !bytes.Equal(again, plain) {
		return s, errors.New("it is damaged")
	}
	for i := range s.Plugins {
		if p := &s.Plugins[i]; p.Active < 0 || p.Active >= len(p.Versions) {
			return s, errors.New("it is damaged")
		}
	}
	return s, s.check()
}

func (s *state) encode() ([]byte, error) {
	c := *s
	if c.Keys == nil {
		c.Keys = []trustedKey{}
	}
	if c.Plugins == nil {
		c.Plugins = []plugin{}
	}
	plain, err := json.Marshal(c)
	if err == nil && len(plain) > maxState {
		err = invalidf("", "the plugin state has %d bytes, more than the limit of %d: bind plugins by prefixes, or remove some", len(plain), maxState)
	}
	return plain, err
}

// write makes a state durable.
func (r *Registry) write(s *state) error {
	plain, err := s.encode()
	if err != nil {
		return fmt.Errorf("writing plugins: %w", err)
	}
	sealed, err := r.o.Seal(plain)
	if err == nil {
		if err = r.makeDir(); err == nil {
			err = durable.WriteFile(r.path(stateFile), sealed)
		}
	}
	if err != nil {
		return fmt.Errorf("writing plugins: %w", err)
	}
	return nil
}

func (r *Registry) makeDir() error {
	if err := os.Mkdir(r.o.Dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return durable.SyncDir(filepath.Dir(r.o.Dir))
}

// archive returns the path of a bundle's archive.
func (r *Registry) archive(d digest) string {
	return r.path(hex.EncodeToString(d[:]) + bundle.Extension)
}

// keep makes the archive of a bundle durable.
func (r *Registry) keep(b *bundle.Bundle) error {
	path := r.archive(b.Digest())
	if old, err := bundle.Open(path); err == nil && old.Digest() == b.Digest() && bytes.Equal(old.Archive(), b.Archive()) {
		return nil
	}
	err := r.makeDir()
	if err == nil {
		err = durable.WriteFile(path, b.Archive())
	}
	if err != nil {
		return fmt.Errorf("writing the archive of %s: %w", b.Name(), err)
	}
	return nil
}

// bundle reads the bundle of a version.
func (r *Registry) bundle(v *version) (*bundle.Bundle, error) {
	b, err := bundle.Open(r.archive(v.Digest))
	if err != nil {
		return nil, err
	}
	if b.Digest() != [32]byte(v.Digest) {
		return nil, invalidf("", "its archive has another plugin")
	}
	return b, nil
}

// prune removes the archives of dropped versions. If one cannot be removed, the next call tries
// again.
func (r *Registry) prune() {
	kept := map[string]bool{}
	for i := range r.state.Plugins {
		for j := range r.state.Plugins[i].Versions {
			kept[r.archive(r.state.Plugins[i].Versions[j].Digest)] = true
		}
	}
	archives, err := filepath.Glob(r.path("*" + bundle.Extension))
	if err != nil {
		return
	}
	for _, path := range archives {
		if !kept[path] {
			os.Remove(path)
		}
	}
}

func invalidf(plugin, format string, args ...any) error {
	return &hook.Error{Kind: hook.ErrInvalid, Plugin: plugin, Reason: fmt.Sprintf(format, args...)}
}
