package pluginset

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/registry"
)

// InstallPlugin makes a plugin part of the store, or another version or other bindings of it.
func (s *Set) InstallPlugin(ctx context.Context, m *ckptdv1.InstallPluginRequest) (*ckptdv1.Plugin, error) {
	in, err := unpackInstall(m)
	if err != nil {
		return nil, err
	}
	r, err := s.registry(ctx)
	if err != nil {
		return nil, err
	}
	p, err := r.Install(ctx, in)
	return answer(p, err)
}

func unpackInstall(m *ckptdv1.InstallPluginRequest) (registry.Install, error) {
	in := registry.Install{Tenant: m.GetTenant(), Disabled: m.GetDisabled()}
	switch n := len(m.GetDigest()); {
	case n != 0 && n != len(in.Digest):
		return in, fmt.Errorf("%w: a digest has %d bytes, not %d", engine.ErrInvalid, len(in.Digest), n)
	case n != 0 && [sha256.Size]byte(m.GetDigest()) == in.Digest: // which would be none
		return in, fmt.Errorf("%w: the digest is all zeros", engine.ErrInvalid)
	case m.GetBuiltin() != "" && m.GetBuiltin() != registry.Redact:
		return in, fmt.Errorf("%w: the only built-in plugin is %s", engine.ErrInvalid, registry.Redact)
	case (m.GetBuiltin() == "") == (len(m.GetArchive()) == 0):
		return in, fmt.Errorf("%w: give an archive, or the name of a built-in plugin", engine.ErrInvalid)
	}
	copy(in.Digest[:], m.GetDigest())
	for _, b := range m.GetBindings() {
		binding := registry.Binding{Tenants: b.GetTenants(), Prefixes: b.GetThreadPrefixes(), Config: []byte(b.GetConfig())}
		if b.Order != nil {
			order := int(b.GetOrder())
			binding.Order = &order
		}
		in.Bindings = append(in.Bindings, binding)
	}
	if len(m.GetArchive()) > 0 {
		var err error
		if in.Bundle, err = bundle.LoadArchive(m.GetArchive()); err != nil {
			return in, err
		}
	}
	return in, nil
}

// Plugins returns the plugins that are installed, without their configurations; with a tenant those
// that run for it, also such of the whole store, but nothing of other tenants.
func (s *Set) Plugins(ctx context.Context, tenant string) ([]*ckptdv1.Plugin, error) {
	if s.none.Load() {
		return nil, nil
	}
	r, err := s.registry(ctx)
	if err != nil {
		return nil, err
	}
	var list []*ckptdv1.Plugin
	for _, p := range r.List() {
		m := packPlugin(p)
		if tenant != "" {
			m.Bindings = bindingsOf(tenant, m.GetBindings())
		}
		if len(m.GetBindings()) == 0 {
			continue
		}
		for _, b := range m.GetBindings() {
			b.Config = ""
		}
		list = append(list, m)
	}
	return list, nil
}

// bindingsOf returns the bindings for a tenant.
func bindingsOf(tenant string, bindings []*ckptdv1.PluginBinding) (found []*ckptdv1.PluginBinding) {
	for _, b := range bindings {
		if len(b.GetTenants()) == 0 || slices.Contains(b.GetTenants(), tenant) {
			if len(b.GetTenants()) > 0 {
				b.Tenants = []string{tenant}
			}
			found = append(found, b)
		}
	}
	return found
}

// Plugin returns a plugin of a tenant or, for "", of the whole store.
func (s *Set) Plugin(ctx context.Context, tenant, name string) (*ckptdv1.Plugin, error) {
	return s.with(ctx, func(r *registry.Registry) (registry.Plugin, error) { return r.Get(tenant, name) })
}

// SetPluginEnabled enables or disables a plugin.
func (s *Set) SetPluginEnabled(ctx context.Context, tenant, name string, enabled bool) (*ckptdv1.Plugin, error) {
	return s.with(ctx, func(r *registry.Registry) (registry.Plugin, error) {
		if enabled {
			return r.Enable(ctx, tenant, name)
		}
		return r.Disable(ctx, tenant, name)
	})
}

// RollbackPlugin lets a version that is kept run again; "" is the one before.
func (s *Set) RollbackPlugin(ctx context.Context, tenant, name, version string) (*ckptdv1.Plugin, error) {
	return s.with(ctx, func(r *registry.Registry) (registry.Plugin, error) { return r.Rollback(ctx, tenant, name, version) })
}

// RemovePlugin removes a plugin with all its versions.
func (s *Set) RemovePlugin(ctx context.Context, tenant, name string) error {
	_, err := s.with(ctx, func(r *registry.Registry) (registry.Plugin, error) {
		return registry.Plugin{}, r.Remove(ctx, tenant, name)
	})
	return err
}

// with calls f with the registry, if there is one.
func (s *Set) with(ctx context.Context, f func(*registry.Registry) (registry.Plugin, error)) (*ckptdv1.Plugin, error) {
	if s.none.Load() {
		return nil, engine.ErrNotFound
	}
	r, err := s.registry(ctx)
	if err != nil {
		return nil, err
	}
	p, err := f(r)
	return answer(p, err)
}

// TrustKey lets signatures made with an Ed25519 key count.
func (s *Set) TrustKey(ctx context.Context, public []byte, note string) (*ckptdv1.PluginKey, error) {
	if len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: an Ed25519 key has %d bytes, not %d", engine.ErrInvalid, ed25519.PublicKeySize, len(public))
	}
	r, err := s.registry(ctx)
	if err != nil {
		return nil, err
	}
	key, err := r.Trust(ctx, bundle.Key(public), note)
	if err != nil {
		return nil, err
	}
	return packKey(key), nil
}

// UntrustKey takes that back.
func (s *Set) UntrustKey(ctx context.Context, id string) error {
	_, err := s.with(ctx, func(r *registry.Registry) (registry.Plugin, error) { return registry.Plugin{}, r.Untrust(ctx, id) })
	return err
}

// TrustedKeys returns the keys whose signatures count.
func (s *Set) TrustedKeys(ctx context.Context) ([]*ckptdv1.PluginKey, error) {
	if s.none.Load() {
		return nil, nil
	}
	r, err := s.registry(ctx)
	if err != nil {
		return nil, err
	}
	var keys []*ckptdv1.PluginKey
	for _, k := range r.Keys() {
		keys = append(keys, packKey(k))
	}
	return keys, nil
}

func answer(p registry.Plugin, err error) (*ckptdv1.Plugin, error) {
	if errors.Is(err, registry.ErrNotFound) {
		return nil, engine.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return packPlugin(p), nil
}

func packPlugin(p registry.Plugin) *ckptdv1.Plugin {
	m := &ckptdv1.Plugin{Tenant: p.Tenant, Name: p.Name, Version: p.Version, Digest: p.Digest[:], Description: p.Description, Capabilities: p.Capabilities,
		Enabled: p.Enabled, Problem: p.Problem, Calls: p.Calls, Errors: p.Errors, Suspended: p.Suspended}
	for _, stage := range p.Stages {
		m.Stages = append(m.Stages, stage.String())
	}
	for _, b := range p.Bindings {
		binding := &ckptdv1.PluginBinding{Tenants: b.Tenants, ThreadPrefixes: b.Prefixes, Config: string(b.Config)}
		if b.Order != nil {
			order := int32(min(max(*b.Order, math.MinInt32), math.MaxInt32))
			binding.Order = &order
		}
		m.Bindings = append(m.Bindings, binding)
	}
	for _, v := range p.Versions {
		m.Versions = append(m.Versions, &ckptdv1.PluginVersion{Version: v.Version, Digest: v.Digest[:], Installed: timestamppb.New(v.Installed), Signer: v.Signer, Active: v.Active})
	}
	return m
}

func packKey(k registry.TrustedKey) *ckptdv1.PluginKey {
	return &ckptdv1.PluginKey{Id: k.Key.ID(), PublicKey: k.Key[:], Note: k.Note, Trusted: timestamppb.New(k.Trusted)}
}

// Summary names a plugin for the audit log.
func Summary(p *ckptdv1.Plugin) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("plugin:%s@%s %.6x", p.GetName(), p.GetVersion(), p.GetDigest())
}
