package main

import (
	"os"

	"github.com/spf13/cobra"
)

// newPluginCommand is the command with all that is done with plugins.
func (a *app) newPluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Write, install and manage plugins",
		Long: `A plugin is a WASM module with a manifest. It runs on data that is saved, loaded, exported or
migrated, to redact or transform it. The built-in redactor is named redact: it is installed like a
plugin and runs last.

Changes take effect immediately, with and without a server. If a plugin that must run on a save
fails or is missing, nothing is saved.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	installed := installedPlugins{a: a}
	installing := []*cobra.Command{a.pluginInstallCmd(&installed), a.pluginListCmd(&installed), a.pluginShowCmd(&installed),
		a.pluginEnableCmd(&installed, true), a.pluginEnableCmd(&installed, false), a.pluginRollbackCmd(&installed), a.pluginRemoveCmd(&installed)}
	for _, c := range installing[1:] { // installing takes several
		c.Flags().StringVar(&installed.tenant, "tenant", "", "only plugins that run for the tenant `name` alone (default: the whole store)")
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
