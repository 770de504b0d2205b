package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

func (a *app) pluginListCmd(p *installedPlugins) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List installed plugins",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				all, err := k.Plugins(cmd.Context(), p.tenant)
				if err != nil {
					return err
				}
				return a.pluginList(all)
			})
		},
	}
}

func (a *app) pluginShowCmd(p *installedPlugins) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show an installed plugin, its configuration and its versions",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), false, func(k pluginKeeper) error {
				one, err := k.Plugin(cmd.Context(), p.tenant, args[0])
				if err != nil {
					return noPlugin(err, args[0])
				}
				return a.pluginShow(one)
			})
		},
		ValidArgsFunction: p.complete,
	}
}

// pluginView is a plugin as --json prints it.
type pluginView struct {
	Tenant       string              `json:"tenant,omitempty"`
	Name         string              `json:"name"`
	Version      string              `json:"version"`
	Digest       string              `json:"digest"`
	Description  string              `json:"description,omitempty"`
	Stages       []string            `json:"stages"`
	Capabilities []string            `json:"capabilities,omitempty"`
	Bindings     []bindingView       `json:"bindings"`
	State        string              `json:"state"`
	Problem      string              `json:"problem,omitempty"`
	Versions     []pluginVersionView `json:"versions,omitempty"`
	Calls        uint64              `json:"calls"`
	Errors       uint64              `json:"errors"`
}

type bindingView struct {
	Tenants        []string        `json:"tenants,omitempty"`
	ThreadPrefixes []string        `json:"thread_prefixes,omitempty"`
	Order          *int32          `json:"order,omitempty"`
	Config         json.RawMessage `json:"config,omitempty"`
}

type pluginVersionView struct {
	Version   string    `json:"version"`
	Digest    string    `json:"digest"`
	Installed time.Time `json:"installed"`
	Signer    string    `json:"signer,omitempty"`
	Active    bool      `json:"active"`
}

func viewPlugin(p *ckptdv1.Plugin) pluginView {
	v := pluginView{Tenant: p.GetTenant(), Problem: p.GetProblem(), Name: p.GetName(), Version: p.GetVersion(), Digest: fmt.Sprintf("%x", p.GetDigest()), Description: p.GetDescription(), Stages: p.GetStages(),
		Capabilities: p.GetCapabilities(), Bindings: []bindingView{}, State: stateOf(p), Calls: p.GetCalls(), Errors: p.GetErrors()}
	for _, b := range p.GetBindings() {
		v.Bindings = append(v.Bindings, bindingView{b.GetTenants(), b.GetThreadPrefixes(), b.Order, json.RawMessage(b.GetConfig())})
	}
	for _, k := range p.GetVersions() {
		v.Versions = append(v.Versions, pluginVersionView{k.GetVersion(), fmt.Sprintf("%x", k.GetDigest()), k.GetInstalled().AsTime(), k.GetSigner(), k.GetActive()})
	}
	return v
}

// stateOf says whether a plugin runs.
func stateOf(p *ckptdv1.Plugin) string {
	switch {
	case !p.GetEnabled():
		return "disabled"
	case p.GetProblem() != "":
		return "missing"
	case p.GetSuspended():
		return "suspended"
	}
	return "enabled"
}

// whereOf says where a plugin runs.
func whereOf(bindings []*ckptdv1.PluginBinding) string {
	var all []string
	for _, b := range bindings {
		text := "every tenant"
		if names := b.GetTenants(); len(names) == 1 {
			text = "tenant " + printable(names[0])
		} else if len(names) > 1 {
			text = "tenants " + printable(strings.Join(names, ", "))
		}
		if prefixes := b.GetThreadPrefixes(); len(prefixes) > 0 {
			text += ", threads " + printable(strings.Join(prefixes, "*, ")) + "*"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// shortDigest is enough of a digest for people to compare.
func shortDigest(d []byte) string { return fmt.Sprintf("%x", d[:min(6, len(d))]) }

func (a *app) pluginList(all []*ckptdv1.Plugin) error {
	if a.json {
		for _, p := range all {
			if err := a.emit(viewPlugin(p)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		a.note("no plugins are installed")
		return nil
	}
	table := [][]string{{"NAME", "VERSION", "DIGEST", "STAGES", "STATE", "CALLS", "ERRORS", "WHERE"}}
	for _, p := range all {
		table = append(table, []string{printable(p.GetName()), printable(p.GetVersion()), shortDigest(p.GetDigest()), strings.Join(p.GetStages(), ","), stateOf(p),
			humanize.Comma(int64(p.GetCalls())), humanize.Comma(int64(p.GetErrors())), whereOf(p.GetBindings())})
	}
	return a.table(table)
}

// table prints rows in columns; the first row is their heading.
func (a *app) table(rows [][]string) error {
	wide := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	for n, r := range rows {
		line := ""
		for i, cell := range r {
			line += pad(cell, wide[i]) + "  "
		}
		if line = strings.TrimRight(line, " "); n == 0 {
			line = a.paint.dim(line)
		}
		if err := a.printf("%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) pluginShow(p *ckptdv1.Plugin) error {
	if a.json {
		return a.emit(viewPlugin(p))
	}
	line := func(name, value string) {
		if value != "" {
			a.printf("%s %s\n", a.paint.dim(fmt.Sprintf("%-12s", name)), value)
		}
	}
	a.printf("%s  %s\n", a.paint.bold(printable(p.GetName())+" "+printable(p.GetVersion())), stateOf(p))
	line("problem", printable(p.GetProblem()))
	line("about", printable(p.GetDescription()))
	line("digest", fmt.Sprintf("%x", p.GetDigest()))
	line("stages", strings.Join(p.GetStages(), ", "))
	line("capabilities", printable(strings.Join(p.GetCapabilities(), ", ")))
	for _, b := range p.GetBindings() {
		line("runs for", whereOf([]*ckptdv1.PluginBinding{b}))
		if b.Order != nil {
			line("  order", fmt.Sprint(b.GetOrder()))
		}
		line("  config", printable(b.GetConfig()))
	}
	if p.GetCalls() > 0 {
		line("calls", humanize.Comma(int64(p.GetCalls()))+", "+count(int(p.GetErrors()), "error"))
	}
	for _, v := range p.GetVersions() {
		text := fmt.Sprintf("%s %s, installed %s", printable(v.GetVersion()), shortDigest(v.GetDigest()), v.GetInstalled().AsTime().Local().Format("2006-01-02 15:04:05"))
		if v.GetSigner() != "" {
			text += ", signed with " + printable(v.GetSigner())
		}
		if v.GetActive() {
			text += ", runs"
		}
		line("version", text)
	}
	return nil
}

// complete completes a first argument that is the name of a plugin.
func (p *installedPlugins) complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || p.a.choose(cmd.Flags()) != nil || p.a.prepare() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	err := p.with(cmd.Context(), false, func(k pluginKeeper) error {
		all, err := k.Plugins(context.WithoutCancel(cmd.Context()), p.tenant)
		for _, one := range all {
			names = append(names, one.GetName())
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) }), cobra.ShellCompDirectiveNoFileComp
}
