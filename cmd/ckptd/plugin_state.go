package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
)

// pluginKeeper has the methods that the commands need to manage plugins, on a server or in a local
// store.
type pluginKeeper interface {
	InstallPlugin(context.Context, *ckptdv1.InstallPluginRequest) (*ckptdv1.Plugin, error)
	Plugins(ctx context.Context, tenant string) ([]*ckptdv1.Plugin, error)
	Plugin(ctx context.Context, tenant, name string) (*ckptdv1.Plugin, error)
	SetPluginEnabled(ctx context.Context, tenant, name string, enabled bool) (*ckptdv1.Plugin, error)
	RollbackPlugin(ctx context.Context, tenant, name, version string) (*ckptdv1.Plugin, error)
	RemovePlugin(ctx context.Context, tenant, name string) error
	TrustKey(ctx context.Context, public []byte, note string) (*ckptdv1.PluginKey, error)
	UntrustKey(ctx context.Context, id string) error
	TrustedKeys(context.Context) ([]*ckptdv1.PluginKey, error)
}

var (
	errNoPlugin = errors.New("no such plugin")
	errNoKey    = errors.New("no such trusted key")
)

// noPlugin says of a plugin that was not found that it is one.
func noPlugin(err error, name string) error {
	if errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("%w %q", errNoPlugin, name)
	}
	return err
}

func (a *app) pluginEnableCmd(p *installedPlugins, enable bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable NAME",
		Short: "Disable a plugin, without undoing its changes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				one, err := k.SetPluginEnabled(cmd.Context(), p.tenant, args[0], enable)
				if err != nil {
					return noPlugin(err, args[0])
				}
				return a.pluginNow(one)
			})
		},
		ValidArgsFunction: p.complete,
	}
	if enable {
		cmd.Use, cmd.Short = "enable NAME", "Enable a plugin that was disabled or failed to load"
	}
	return cmd
}

func (a *app) pluginRollbackCmd(p *installedPlugins) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback NAME [VERSION]",
		Short: "Roll a plugin back to its previous version, or another stored one",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			version := ""
			if len(args) == 2 {
				version = args[1]
			}
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				one, err := k.RollbackPlugin(cmd.Context(), p.tenant, args[0], version)
				if errors.Is(err, engine.ErrNotFound) {
					return fmt.Errorf("%w %q, or no other version of it", errNoPlugin, args[0])
				}
				if err != nil {
					return err
				}
				return a.pluginNow(one)
			})
		},
		ValidArgsFunction: p.complete,
	}
}

func (a *app) pluginRemoveCmd(p *installedPlugins) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a plugin and all its versions, without undoing its changes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				if err := k.RemovePlugin(cmd.Context(), p.tenant, args[0]); err != nil {
					return noPlugin(err, args[0])
				}
				if a.json {
					return a.emit(map[string]string{"removed": args[0]})
				}
				return a.printf("removed %s\n", printable(args[0]))
			})
		},
		ValidArgsFunction: p.complete,
	}
}

// pluginNow says how it stands with a plugin after a change.
func (a *app) pluginNow(p *ckptdv1.Plugin) error {
	if a.json {
		return a.emit(viewPlugin(p))
	}
	return a.printf("%s %s %s: %s, for %s\n", printable(p.GetName()), printable(p.GetVersion()), shortDigest(p.GetDigest()), stateOf(p), whereOf(p.GetBindings()))
}
