package installed

import (
	"context"
	"fmt"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/plugins/hook"
)

var errNone error = &hook.Error{Kind: hook.ErrUnavailable, Reason: "plugins cannot be installed yet"}

func (p *Set) InstallPlugin(ctx context.Context, m *ckptdv1.InstallPluginRequest) (*ckptdv1.Plugin, error) {
	return nil, errNone
}
func (p *Set) Plugins(ctx context.Context, tenant string) ([]*ckptdv1.Plugin, error) {
	return nil, nil
}
func (p *Set) Plugin(ctx context.Context, tenant, name string) (*ckptdv1.Plugin, error) {
	return nil, errNone
}
func (p *Set) SetPluginEnabled(ctx context.Context, tenant, name string, enabled bool) (*ckptdv1.Plugin, error) {
	return nil, errNone
}
func (p *Set) RollbackPlugin(ctx context.Context, tenant, name, version string) (*ckptdv1.Plugin, error) {
	return nil, errNone
}
func (p *Set) RemovePlugin(ctx context.Context, tenant, name string) error { return errNone }
func (p *Set) TrustKey(ctx context.Context, public []byte, note string) (*ckptdv1.PluginKey, error) {
	return nil, errNone
}
func (p *Set) UntrustKey(ctx context.Context, id string) error               { return errNone }
func (p *Set) TrustedKeys(ctx context.Context) ([]*ckptdv1.PluginKey, error) { return nil, nil }

// Summary names a plugin for the audit log.
func Summary(p *ckptdv1.Plugin) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("plugin:%s@%s %.12x", p.GetName(), p.GetVersion(), p.GetDigest())
}
