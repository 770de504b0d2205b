package main

import (
	"context"
	"errors"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/pluginset"
)

var _ pluginKeeper = (*client.Store)(nil)

// installedPlugins are the plugins that the commands manage: those of the server, if there is one,
// or of the local store.
type installedPlugins struct {
	a      *app
	tenant string // "": the whole store
	log    string // audit log
}

// with calls f with the plugins of the server, if there is one, or of the store, which create makes
// if there is none.
func (p *installedPlugins) with(ctx context.Context, create bool, f func(pluginKeeper) error) error {
	if p.a.server.addr != "" {
		c, err := p.a.dial()
		if err != nil {
			return err
		}
		return errors.Join(f(c), c.Close())
	}
	return p.a.withOwn(ctx, create, func(*engine.Store) error {
		return f(ownPlugins{p.a.plugins, p.a.auditLog(p.log)})
	})
}

// ownPlugins are the plugins of a store that no server has open. Changes to them go to the audit
// log.
type ownPlugins struct {
	*pluginset.Set
	log string // path, "" for none
}

func (o ownPlugins) InstallPlugin(ctx context.Context, m *ckptdv1.InstallPluginRequest) (*ckptdv1.Plugin, error) {
	p, err := o.Set.InstallPlugin(ctx, m)
	return p, o.record(ckptdv1.PluginServiceInstallPluginProcedure, pluginset.Summary(p), err)
}

func (o ownPlugins) SetPluginEnabled(ctx context.Context, tenant, name string, enabled bool) (*ckptdv1.Plugin, error) {
	p, err := o.Set.SetPluginEnabled(ctx, tenant, name, enabled)
	return p, o.record(ckptdv1.PluginServiceSetPluginEnabledProcedure, pluginset.Summary(p), err)
}

func (o ownPlugins) RollbackPlugin(ctx context.Context, tenant, name, version string) (*ckptdv1.Plugin, error) {
	p, err := o.Set.RollbackPlugin(ctx, tenant, name, version)
	return p, o.record(ckptdv1.PluginServiceRollbackPluginProcedure, pluginset.Summary(p), err)
}

func (o ownPlugins) RemovePlugin(ctx context.Context, tenant, name string) error {
	p, err := o.Set.Plugin(ctx, tenant, name)
	if err == nil {
		err = o.Set.RemovePlugin(ctx, tenant, name)
	}
	return o.record(ckptdv1.PluginServiceRemovePluginProcedure, pluginset.Summary(p), err)
}

func (o ownPlugins) TrustKey(ctx context.Context, public []byte, note string) (*ckptdv1.PluginKey, error) {
	k, err := o.Set.TrustKey(ctx, public, note)
	return k, o.record(ckptdv1.PluginServiceTrustKeyProcedure, "key:"+k.GetId(), err)
}

func (o ownPlugins) UntrustKey(ctx context.Context, id string) error {
	return o.record(ckptdv1.PluginServiceUntrustKeyProcedure, "key:"+id, o.Set.UntrustKey(ctx, id))
}

// record records an operation, and returns its error or that of recording it.
func (o ownPlugins) record(procedure, about string, err error) error {
	if err != nil {
		return err
	}
	return recordOwn(o.log, procedure, about)
}
