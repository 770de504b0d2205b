package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/meter"
)

func (a *app) pluginInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect [PATH]",
		Short: "Show a plugin's manifest, capabilities and digest without running it",
		Long: `Inspect reads a plugin's directory or archive, or a bare module, without running it. Pass the digest
to ckptd plugin install --digest. To check the signature, use ckptd plugin verify; installing the
plugin checks it, too.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			v, err := inspect(pathOf(args))
			switch {
			case err != nil:
				return err
			case a.json:
				return a.emit(v)
			}
			return a.inspected(v)
		},
	}
}

// inspectView is the description of a plugin in JSON.
type inspectView struct {
	Name         string     `json:"name,omitempty"`
	Version      string     `json:"version,omitempty"`
	Description  string     `json:"description,omitempty"`
	Digest       string     `json:"digest,omitempty"`
	Signer       string     `json:"signed_with,omitempty"`
	Capabilities []string   `json:"capabilities"`
	Idempotent   bool       `json:"idempotent"`
	Hooks        []string   `json:"hooks"`
	Migrations   []string   `json:"migrations,omitempty"`
	Limits       []string   `json:"limits,omitempty"`
	Config       []byte     `json:"-"`
	Fixtures     int        `json:"fixtures"`
	Module       moduleView `json:"module"`
}

// moduleView is the description of a module.
type moduleView struct {
	File    string   `json:"file"`
	Size    int64    `json:"size"`
	SHA256  string   `json:"sha256"`
	Imports []string `json:"imports"`
	Exports []string `json:"exports"`
	Memory  int64    `json:"memory"` // bytes at the start
}

func inspect(path string) (*inspectView, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() && strings.HasSuffix(path, ".wasm") {
		if info.Size() > bundle.MaxSize {
			return nil, fmt.Errorf("%w: %s has %s", hook.ErrLimit, path, size(info.Size()))
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := moduleOf(path, binary)
		return &inspectView{Module: m, Capabilities: []string{}, Hooks: []string{}}, err
	}
	b, err := bundle.Open(path)
	if err != nil {
		return nil, err
	}
	m := &b.Manifest
	v := &inspectView{Name: m.Name, Version: m.Version, Description: m.Description, Digest: fmt.Sprintf("%x", b.Digest()),
		Capabilities: append([]string{}, m.Capabilities...), Idempotent: m.Idempotent, Hooks: []string{}, Limits: limitTexts(b), Fixtures: len(m.Fixtures)}
	v.Signer, _ = b.Signed()
	for i := range m.Hooks {
		v.Hooks = append(v.Hooks, hookText(&m.Hooks[i]))
	}
	for _, step := range m.Migrations {
		v.Migrations = append(v.Migrations, fmt.Sprintf("%s from %d to %d", step.Kind, step.From, step.To))
	}
	if v.Config, err = b.Config(nil); err != nil {
		return nil, err
	}
	v.Module, err = moduleOf(m.Wasm, b.Binary())
	return v, err
}

// moduleOf reads a module as a host would before it compiles it.
func moduleOf(file string, binary []byte) (moduleView, error) {
	v := moduleView{File: file, Size: int64(len(binary)), SHA256: fmt.Sprintf("%x", sha256.Sum256(binary)), Imports: []string{}, Exports: []string{}}
	m, err := meter.Rewrite(binary, meter.Limits{})
	if err != nil {
		return v, fmt.Errorf("%s: %w", file, err)
	}
	v.Memory = int64(m.MinPages) << 16
	for _, i := range m.Imports {
		v.Imports = append(v.Imports, i.Module+"."+i.Name)
	}
	for _, e := range m.Exports {
		v.Exports = append(v.Exports, e.Name)
	}
	slices.Sort(v.Imports)
	slices.Sort(v.Exports)
	return v, nil
}

// hookText says in a line when a hook runs.
func hookText(h *bundle.Hook) string {
	var kinds []string
	for _, k := range h.Kinds {
		kinds = append(kinds, k.String())
	}
	text := h.Stage.String() + ": " + strings.Join(kinds, ", ")
	if len(h.Channels) > 0 {
		text += "; channels " + strings.Join(h.Channels, ", ")
	}
	if len(h.Types) > 0 {
		text += "; types " + strings.Join(h.Types, ", ")
	}
	if h.Elements {
		text += "; by element"
	}
	if h.FailOpen {
		text += "; fails open"
	}
	if h.Order != 0 {
		text += fmt.Sprintf("; order %d", h.Order)
	}
	return text
}

// limitTexts lists the limits that the manifest sets.
func limitTexts(b *bundle.Bundle) (texts []string) {
	l := b.Manifest.Limits
	for _, s := range []struct {
		name  string
		bytes int64
	}{{"binary", l.Binary}, {"memory", l.Memory}, {"input", l.Input}, {"output", l.Output}, {"log line", int64(l.LogLine)}} {
		if s.bytes != 0 {
			texts = append(texts, s.name+" "+size(s.bytes))
		}
	}
	if l.Fuel != 0 {
		texts = append(texts, fmt.Sprintf("fuel %d", l.Fuel))
	}
	if l.Call != 0 {
		texts = append(texts, "call "+l.Call.String())
	}
	if l.Init != 0 {
		texts = append(texts, "init "+l.Init.String())
	}
	if l.Compile != 0 {
		texts = append(texts, "compile "+l.Compile.String())
	}
	if l.LogLines != 0 {
		texts = append(texts, fmt.Sprintf("log lines %d", l.LogLines))
	}
	return texts
}

func (a *app) inspected(v *inspectView) error {
	line := func(name string, values ...string) {
		for _, text := range values {
			if text != "" {
				a.printf("%s %s\n", a.paint.dim(fmt.Sprintf("%-12s", name)), printable(text))
				name = ""
			}
		}
	}
	if v.Name != "" {
		a.printf("%s\n", a.paint.bold(v.Name+" "+v.Version))
		line("about", v.Description)
		line("digest", v.Digest)
		signed := "no"
		if v.Signer != "" {
			signed = "with " + v.Signer + " (not checked)"
		}
		line("signed", signed)
		may := "only read its input and write its output"
		if len(v.Capabilities) > 0 {
			may = strings.Join(v.Capabilities, ", ")
		}
		line("may use", may)
		line("hooks", v.Hooks...)
		line("migrations", v.Migrations...)
		line("limits", strings.Join(v.Limits, ", "))
		line("config", string(bytes.TrimSpace(v.Config)))
		line("fixtures", fmt.Sprint(v.Fixtures))
	}
	m := &v.Module
	line("module", fmt.Sprintf("%s, %s", m.File, size(m.Size)))
	line("sha256", m.SHA256)
	line("memory", size(m.Memory)+" at the start")
	line("exports", strings.Join(m.Exports, ", "))
	line("imports", byModule(m.Imports)...)
	return nil
}

// byModule puts the imports from one module into one line.
func byModule(imports []string) (lines []string) {
	last := ""
	for _, i := range imports {
		module, name, _ := strings.Cut(i, ".")
		if module != last || lines == nil {
			lines, last = append(lines, module+": "+name), module
			continue
		}
		lines[len(lines)-1] += ", " + name
	}
	return lines
}
