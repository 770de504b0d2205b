package client

import (
	"context"
	"time"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/wire"
)

// Plugin is a plugin as it is installed on the server.
type Plugin struct {
	Name, Version        string // that runs
	Digest               [32]byte
	Description          string
	Stages, Capabilities []string
	Bindings             []PluginBinding
	Enabled              bool
	Suspended            bool            // it failed so often that it is not called for now
	Versions             []PluginVersion // that are kept, the newest first
	Calls, Errors        uint64          // since the server started
}

// PluginBinding says where a plugin runs.
type PluginBinding struct {
	Tenants        []string // none is every tenant
	ThreadPrefixes []string // none is every thread
	Order          *int     // nil is what the manifest says
	Config         []byte   // JSON; nil is the manifest's defaults. Lists leave it out
}

// PluginVersion is a version of a plugin that can be rolled back to.
type PluginVersion struct {
	Version   string
	Digest    [32]byte
	Installed time.Time
	Signer    string // id of the trusted key, "" for no signature
}

// PluginInstall is what InstallPlugin installs.
type PluginInstall struct {
	Tenant   string   // "" is the whole store, and takes a right on it
	Archive  []byte   // the plugin's files, or nothing for
	Builtin  string   // "redact"
	Digest   [32]byte // that it must have, zero for any
	Bindings []PluginBinding
	Disabled bool
}

// PluginKey is a key whose signatures of plugins count.
type PluginKey struct {
	ID        string
	PublicKey []byte // Ed25519
	Note      string
	Trusted   time.Time
}

// InstallPlugin makes a plugin, or another version of one, run on the server. Its methods with a tenant are about plugins
// that run for that tenant and no other; without one they are about the whole store.
func (s *Store) InstallPlugin(ctx context.Context, p PluginInstall) (Plugin, error) {
	req := &ckptdv1.InstallPluginRequest{Tenant: p.Tenant, Archive: p.Archive, Builtin: p.Builtin, Disabled: p.Disabled}
	if p.Digest != [32]byte{} {
		req.Digest = p.Digest[:]
	}
	for _, b := range p.Bindings {
		m := &ckptdv1.PluginBinding{Tenants: b.Tenants, ThreadPrefixes: b.ThreadPrefixes, Config: string(b.Config)}
		if b.Order != nil {
			order := int32(*b.Order)
			m.Order = &order
		}
		req.Bindings = append(req.Bindings, m)
	}
	m, err := call(ctx, s, repeats, s.plugins.InstallPlugin, req)
	return unpackPlugin(m.GetPlugin()), err
}

// Plugins returns the plugins that are installed, those of a tenant only if it is named.
func (s *Store) Plugins(ctx context.Context, tenant string) ([]Plugin, error) {
	m, err := call(ctx, s, reads, s.plugins.ListPlugins, &ckptdv1.ListPluginsRequest{Tenant: tenant})
	var ps []Plugin
	for _, p := range m.GetPlugins() {
		ps = append(ps, unpackPlugin(p))
	}
	return ps, err
}

// Plugin returns a plugin with its configuration.
func (s *Store) Plugin(ctx context.Context, tenant, name string) (Plugin, error) {
	m, err := call(ctx, s, reads, s.plugins.GetPlugin, &ckptdv1.GetPluginRequest{Tenant: tenant, Name: name})
	return unpackPlugin(m.GetPlugin()), err
}

// SetPluginEnabled lets a plugin run, or no longer run.
func (s *Store) SetPluginEnabled(ctx context.Context, tenant, name string, enabled bool) (Plugin, error) {
	m, err := call(ctx, s, repeats, s.plugins.SetPluginEnabled, &ckptdv1.SetPluginEnabledRequest{Tenant: tenant, Name: name, Enabled: enabled})
	return unpackPlugin(m.GetPlugin()), err
}

// RollbackPlugin lets a version that was installed run again; "" is the one that ran before.
func (s *Store) RollbackPlugin(ctx context.Context, tenant, name, version string) (Plugin, error) {
	m, err := call(ctx, s, once, s.plugins.RollbackPlugin, &ckptdv1.RollbackPluginRequest{Tenant: tenant, Name: name, Version: version})
	return unpackPlugin(m.GetPlugin()), err
}

// RemovePlugin removes a plugin with all its versions.
func (s *Store) RemovePlugin(ctx context.Context, tenant, name string) error {
	_, err := call(ctx, s, once, s.plugins.RemovePlugin, &ckptdv1.RemovePluginRequest{Tenant: tenant, Name: name})
	return err
}

// TrustKey lets signatures made with an Ed25519 key count.
func (s *Store) TrustKey(ctx context.Context, public []byte, note string) (PluginKey, error) {
	m, err := call(ctx, s, repeats, s.plugins.TrustKey, &ckptdv1.TrustKeyRequest{PublicKey: public, Note: note})
	return unpackPluginKey(m.GetKey()), err
}

// UntrustKey takes that back; plugins that are installed stay.
func (s *Store) UntrustKey(ctx context.Context, id string) error {
	_, err := call(ctx, s, once, s.plugins.UntrustKey, &ckptdv1.UntrustKeyRequest{Id: id})
	return err
}

// PluginKeys returns the keys whose signatures count.
func (s *Store) PluginKeys(ctx context.Context) ([]PluginKey, error) {
	m, err := call(ctx, s, reads, s.plugins.ListKeys, &ckptdv1.ListKeysRequest{})
	var ks []PluginKey
	for _, k := range m.GetKeys() {
		ks = append(ks, unpackPluginKey(k))
	}
	return ks, err
}

func unpackPlugin(m *ckptdv1.Plugin) Plugin {
	p := Plugin{Name: m.GetName(), Version: m.GetVersion(), Description: m.GetDescription(), Stages: m.GetStages(), Capabilities: m.GetCapabilities(),
		Enabled: m.GetEnabled(), Suspended: m.GetSuspended(), Calls: m.GetCalls(), Errors: m.GetErrors()}
	copy(p.Digest[:], m.GetDigest())
	for _, b := range m.GetBindings() {
		binding := PluginBinding{Tenants: b.GetTenants(), ThreadPrefixes: b.GetThreadPrefixes()}
		if b.Order != nil {
			order := int(b.GetOrder())
			binding.Order = &order
		}
		if b.GetConfig() != "" {
			binding.Config = []byte(b.GetConfig())
		}
		p.Bindings = append(p.Bindings, binding)
	}
	for _, v := range m.GetVersions() {
		version := PluginVersion{Version: v.GetVersion(), Installed: wire.UnpackTime(v.GetInstalled()), Signer: v.GetSigner()}
		copy(version.Digest[:], v.GetDigest())
		p.Versions = append(p.Versions, version)
	}
	return p
}

func unpackPluginKey(m *ckptdv1.PluginKey) PluginKey {
	return PluginKey{ID: m.GetId(), PublicKey: m.GetPublicKey(), Note: m.GetNote(), Trusted: wire.UnpackTime(m.GetTrusted())}
}
