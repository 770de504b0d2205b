package client

import (
	"context"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// These methods manage the plugins on the server. With a tenant, a method covers only plugins that
// run for that tenant alone; with "" it covers the whole store, and requires a right on it.

// InstallPlugin makes a plugin, or another version of one, part of the store.
func (s *Store) InstallPlugin(ctx context.Context, m *ckptdv1.InstallPluginRequest) (*ckptdv1.Plugin, error) {
	res, err := call(ctx, s, s.plugins.InstallPlugin, m)
	return res.GetPlugin(), err
}

// Plugins returns the plugins that are installed, or with a tenant those that run for it.
func (s *Store) Plugins(ctx context.Context, tenant string) ([]*ckptdv1.Plugin, error) {
	res, err := call(ctx, s, s.plugins.ListPlugins, &ckptdv1.ListPluginsRequest{Tenant: tenant})
	return res.GetPlugins(), err
}

// Plugin returns a plugin with its configuration.
func (s *Store) Plugin(ctx context.Context, tenant, name string) (*ckptdv1.Plugin, error) {
	res, err := call(ctx, s, s.plugins.GetPlugin, &ckptdv1.GetPluginRequest{Tenant: tenant, Name: name})
	return res.GetPlugin(), err
}

// SetPluginEnabled enables or disables a plugin.
func (s *Store) SetPluginEnabled(ctx context.Context, tenant, name string, enabled bool) (*ckptdv1.Plugin, error) {
	res, err := call(ctx, s, s.plugins.SetPluginEnabled, &ckptdv1.SetPluginEnabledRequest{Tenant: tenant, Name: name, Enabled: enabled})
	return res.GetPlugin(), err
}

// RollbackPlugin lets a version that is kept run again; "" is the one that ran before.
func (s *Store) RollbackPlugin(ctx context.Context, tenant, name, version string) (*ckptdv1.Plugin, error) {
	res, err := call(ctx, s, s.plugins.RollbackPlugin, &ckptdv1.RollbackPluginRequest{Tenant: tenant, Name: name, Version: version})
	return res.GetPlugin(), err
}

// RemovePlugin removes a plugin with all its versions.
func (s *Store) RemovePlugin(ctx context.Context, tenant, name string) error {
	_, err := call(ctx, s, s.plugins.RemovePlugin, &ckptdv1.RemovePluginRequest{Tenant: tenant, Name: name})
	return err
}

// TrustKey lets signatures made with an Ed25519 key count.
func (s *Store) TrustKey(ctx context.Context, public []byte, note string) (*ckptdv1.PluginKey, error) {
	res, err := call(ctx, s, s.plugins.TrustKey, &ckptdv1.TrustKeyRequest{PublicKey: public, Note: note})
	return res.GetKey(), err
}

// UntrustKey takes that back; plugins that are installed stay.
func (s *Store) UntrustKey(ctx context.Context, id string) error {
	_, err := call(ctx, s, s.plugins.UntrustKey, &ckptdv1.UntrustKeyRequest{Id: id})
	return err
}

// TrustedKeys returns the keys whose signatures count.
func (s *Store) TrustedKeys(ctx context.Context) ([]*ckptdv1.PluginKey, error) {
	res, err := call(ctx, s, s.plugins.ListKeys, &ckptdv1.ListKeysRequest{})
	return res.GetKeys(), err
}
