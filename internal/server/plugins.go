package server

import (
	"context"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/pluginset"
)

// plugins serves the PluginService. Access depends on the names in the request: a tenant's admin
// sees and changes only plugins that run for that tenant alone.
type plugins struct{ *Server }

// pluginAnswer makes the answer about a plugin, and notes it for the audit log.
func pluginAnswer[T any](ctx context.Context, p *ckptdv1.Plugin, err error, answer *T) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	callOf(ctx).about = pluginset.Summary(p)
	return connect.NewResponse(answer), nil
}

func (s plugins) InstallPlugin(ctx context.Context, req *connect.Request[ckptdv1.InstallPluginRequest]) (*connect.Response[ckptdv1.InstallPluginResponse], error) {
	p, err := s.plugins.InstallPlugin(ctx, req.Msg)
	return pluginAnswer(ctx, p, err, &ckptdv1.InstallPluginResponse{Plugin: p})
}

func (s plugins) ListPlugins(ctx context.Context, req *connect.Request[ckptdv1.ListPluginsRequest]) (*connect.Response[ckptdv1.ListPluginsResponse], error) {
	all, err := s.plugins.Plugins(ctx, req.Msg.GetTenant())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListPluginsResponse{Plugins: all}), nil
}

func (s plugins) GetPlugin(ctx context.Context, req *connect.Request[ckptdv1.GetPluginRequest]) (*connect.Response[ckptdv1.GetPluginResponse], error) {
	p, err := s.plugins.Plugin(ctx, req.Msg.GetTenant(), req.Msg.GetName())
	return pluginAnswer(ctx, p, err, &ckptdv1.GetPluginResponse{Plugin: p})
}

func (s plugins) SetPluginEnabled(ctx context.Context, req *connect.Request[ckptdv1.SetPluginEnabledRequest]) (*connect.Response[ckptdv1.SetPluginEnabledResponse], error) {
	p, err := s.plugins.SetPluginEnabled(ctx, req.Msg.GetTenant(), req.Msg.GetName(), req.Msg.GetEnabled())
	return pluginAnswer(ctx, p, err, &ckptdv1.SetPluginEnabledResponse{Plugin: p})
}

func (s plugins) RollbackPlugin(ctx context.Context, req *connect.Request[ckptdv1.RollbackPluginRequest]) (*connect.Response[ckptdv1.RollbackPluginResponse], error) {
	p, err := s.plugins.RollbackPlugin(ctx, req.Msg.GetTenant(), req.Msg.GetName(), req.Msg.GetVersion())
	return pluginAnswer(ctx, p, err, &ckptdv1.RollbackPluginResponse{Plugin: p})
}

func (s plugins) RemovePlugin(ctx context.Context, req *connect.Request[ckptdv1.RemovePluginRequest]) (*connect.Response[ckptdv1.RemovePluginResponse], error) {
	p, err := s.plugins.Plugin(ctx, req.Msg.GetTenant(), req.Msg.GetName())
	if err == nil {
		err = s.plugins.RemovePlugin(ctx, req.Msg.GetTenant(), req.Msg.GetName())
	}
	return pluginAnswer(ctx, p, err, &ckptdv1.RemovePluginResponse{})
}

func (s plugins) TrustKey(ctx context.Context, req *connect.Request[ckptdv1.TrustKeyRequest]) (*connect.Response[ckptdv1.TrustKeyResponse], error) {
	key, err := s.plugins.TrustKey(ctx, req.Msg.GetPublicKey(), req.Msg.GetNote())
	if err != nil {
		return nil, err
	}
	callOf(ctx).about = "key:" + key.GetId()
	return connect.NewResponse(&ckptdv1.TrustKeyResponse{Key: key}), nil
}

func (s plugins) UntrustKey(ctx context.Context, req *connect.Request[ckptdv1.UntrustKeyRequest]) (*connect.Response[ckptdv1.UntrustKeyResponse], error) {
	if err := s.plugins.UntrustKey(ctx, req.Msg.GetId()); err != nil {
		return nil, err
	}
	callOf(ctx).about = "key:" + req.Msg.GetId() // which is one that there was
	return connect.NewResponse(&ckptdv1.UntrustKeyResponse{}), nil
}

func (s plugins) ListKeys(ctx context.Context, _ *connect.Request[ckptdv1.ListKeysRequest]) (*connect.Response[ckptdv1.ListKeysResponse], error) {
	keys, err := s.plugins.TrustedKeys(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ckptdv1.ListKeysResponse{Keys: keys}), nil
}
