package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// builtinRedactor is installed in place of the files of a plugin.
const builtinRedactor = "redact"

// installOptions are the flags for the plugin to install.
type installOptions struct {
	tenants, prefixes []string
	config, digest    string
	order             int32
	disabled          bool
}

func (a *app) pluginInstallCmd(p *installedPlugins) *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install PATH|redact",
		Short: "Install or upgrade a plugin, or install the built-in redactor",
		Long: `Install installs and enables the plugin in PATH, a directory or an archive, or the built-in redactor,
redact. The plugin runs for the given --tenant and --thread-prefix, by default everywhere. Its
fixtures must pass first.

A plugin sees its input in plaintext. To install only a plugin that you know, pass its --digest, as
printed by ckptd plugin inspect, or trust its signing key with ckptd plugin trust. Previous versions
are kept for ckptd plugin rollback.`,
		Example: `  ckptd plugin install redact
  ckptd plugin install ./mail --tenant acme --thread-prefix support- --config mail.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := o.install(args[0], cmd.Flags().Changed("order"))
			if err != nil {
				return err
			}
			return p.with(cmd.Context(), true, func(k pluginKeeper) error {
				one, err := k.InstallPlugin(cmd.Context(), in)
				if err != nil {
					return err
				}
				return a.pluginNow(one)
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.tenants, "tenant", nil, "run for the tenant `name` (repeatable; default: every tenant)")
	f.StringArrayVar(&o.prefixes, "thread-prefix", nil, "only for threads whose names begin with `TEXT` (repeatable)")
	f.StringVar(&o.config, "config", "", "plugin configuration `file` (JSON)")
	f.Int32Var(&o.order, "order", 0, "position `N` in the plugin order, lowest first (default: from its manifest)")
	f.StringVar(&o.digest, "digest", "", "require this plugin `digest`, 64 hexadecimal digits")
	f.BoolVar(&o.disabled, "disabled", false, "install without enabling")
	return cmd
}

// install reads the plugin to install. A plugin for exactly one tenant belongs to that tenant, so
// that its admin may install it.
func (o *installOptions) install(path string, ordered bool) (*ckptdv1.InstallPluginRequest, error) {
	where := &ckptdv1.PluginBinding{Tenants: o.tenants, ThreadPrefixes: o.prefixes}
	in := &ckptdv1.InstallPluginRequest{Disabled: o.disabled, Bindings: []*ckptdv1.PluginBinding{where}}
	for _, text := range slices.Concat(o.tenants, o.prefixes) {
		if text == "" {
			return nil, usagef("--tenant and --thread-prefix cannot be empty: omit them to match all")
		}
	}
	if len(o.tenants) == 1 {
		in.Tenant = o.tenants[0]
	}
	if ordered {
		where.Order = &o.order
	}
	if o.digest != "" {
		var err error
		if in.Digest, err = hex.DecodeString(strings.TrimPrefix(o.digest, "sha256:")); err != nil || len(in.Digest) != sha256.Size {
			return nil, usagef("--digest %q is not a digest: want 64 hexadecimal digits", o.digest)
		}
	}
	if o.config != "" {
		text, err := os.ReadFile(o.config)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration of the plugin: %w", err)
		}
		if !json.Valid(text) {
			return nil, usagef("--config %s is not JSON", o.config)
		}
		where.Config = string(text)
	}
	if path == builtinRedactor {
		in.Builtin = path
		return in, nil
	}
	b, err := bundle.Open(path)
	if err != nil {
		return nil, err
	}
	in.Archive = b.Archive()
	return in, nil
}

func (a *app) pluginTrustCmd(p *installedPlugins) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "trust KEYFILE",
		Short: "Trust a signing key",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("reading the public key: %w", err)
			}
			keys, err := bundle.ParseKeys(text)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return p.with(cmd.Context(), true, func(k pluginKeeper) error {
				for _, public := range keys {
					key, err := k.TrustKey(cmd.Context(), public[:], note)
					if err == nil {
						err = a.pluginKey(key)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "`text` shown with the key, such as its owner")
	return cmd
}

func (a *app) pluginUntrustCmd(p *installedPlugins) *cobra.Command {
	return &cobra.Command{
		Use:   "untrust ID",
		Short: "Stop trusting a signing key, without removing plugins",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				err := k.UntrustKey(cmd.Context(), args[0])
				switch {
				case errors.Is(err, engine.ErrNotFound):
					return fmt.Errorf("%w %q", errNoKey, args[0])
				case err != nil:
					return err
				case a.json:
					return a.emit(map[string]string{"untrusted": args[0]})
				}
				return a.printf("untrusted %s\n", printable(args[0]))
			})
		},
	}
}

func (a *app) pluginKeysCmd(p *installedPlugins) *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "List trusted signing keys",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				all, err := k.TrustedKeys(cmd.Context())
				if err != nil {
					return err
				}
				for _, key := range all {
					if err := a.pluginKey(key); err != nil {
						return err
					}
				}
				if len(all) == 0 && !a.json {
					a.note("no keys are trusted")
				}
				return nil
			})
		},
	}
}

func (a *app) pluginKey(k *ckptdv1.PluginKey) error {
	public := base64.StdEncoding.EncodeToString(k.GetPublicKey())
	if a.json {
		return a.emit(map[string]any{"id": k.GetId(), "public_key": public, "note": k.GetNote(), "trusted": k.GetTrusted().AsTime()})
	}
	line := a.paint.bold(printable(k.GetId())) + "  " + public
	if k.GetNote() != "" {
		line += "  " + a.paint.dim(printable(k.GetNote()))
	}
	return a.printf("%s\n", line)
}
