package main

import (
	"os"

	"github.com/spf13/cobra"
)

// newPluginCommand is the command with all that is done with plugins.
func (a *app) newPluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Write, install and look after plugins",
		Long: `A plugin is a WASM module with a manifest, and runs on everything that is saved, loaded, exported or migrated, to redact
or to transform it. redact is the name of the built-in redactor, which is installed like a plugin and runs last.

What is installed counts at once, through a server as well as without one. If a plugin that must run on a save fails or is
not there, nothing is saved.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	installed := installedPlugins{a: a}
	installing := []*cobra.Command{a.pluginInstallCmd(&installed), a.pluginListCmd(&installed), a.pluginShowCmd(&installed),
		a.pluginEnableCmd(&installed, true), a.pluginEnableCmd(&installed, false), a.pluginRollbackCmd(&installed), a.pluginRemoveCmd(&installed)}
	for _, c := range installing[1:] { // installing takes several
		c.Flags().StringVar(&installed.tenant, "tenant", "", "only what runs for this tenant and no other (`name`; default: the whole store)")
	}
	keys := []*cobra.Command{a.pluginTrustCmd(&installed), a.pluginUntrustCmd(&installed), a.pluginKeysCmd(&installed)}
	for _, c := range append(installing, keys...) {
		c.Flags().StringVar(&installed.log, "audit-log", os.Getenv(envName("audit-log")), auditLogUsage)
	}
	cmd.AddCommand(a.writingPlugins()...)
	cmd.AddCommand(installing...)
	cmd.AddCommand(keys...)
	return cmd
}
