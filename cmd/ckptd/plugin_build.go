package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/scaffold"
)

// Errors for authors of plugins.
var (
	errTried         = errors.New("the plugin does not work")
	errTriedRejected = errors.New("rejected")
)

// triedError is an error of a plugin that is tried on its own: there is nothing to disable or roll
// back.
type triedError struct{ err error }

func (e triedError) Error() string { return e.err.Error() }

func (e triedError) Is(target error) bool {
	if errors.Is(e.err, hook.ErrRejected) {
		return target == errTriedRejected
	}
	return target == errTried
}

// tried wraps an error of a plugin in a triedError. It returns other errors unchanged: an invalid
// plugin is malformed input.
func tried(err error) error {
	if e, ok := errors.AsType[*hook.Error](err); ok && e.Kind != hook.ErrInvalid && !errors.Is(err, context.Canceled) {
		return triedError{err}
	}
	return err
}

// withPluginLoader calls f with a plugin runtime in this process.
func withPluginLoader(f func(pipeline.Loader) error) error {
	h, err := plugins.New(plugins.Options{})
	if err != nil {
		return err
	}
	load := func(ctx context.Context, s plugins.Spec) (pipeline.Plugin, error) { return h.Load(ctx, s) }
	return errors.Join(f(pipeline.LoaderFunc(load)), h.Close())
}

func (a *app) pluginBuildCmd() *cobra.Command {
	var archive string
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a plugin with its language's toolchain and check it",
		Long: `Build runs go, npm, make or cargo, depending on the project in DIR, loads the module as a store would,
and writes its SHA-256 into plugin.toml. With --archive it also packs the plugin into one file.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pluginBuild(cmd.Context(), pathOf(args), archive)
		},
	}
	cmd.Flags().StringVar(&archive, "archive", "", "also pack the plugin into `file`, such as mail-1.0.0"+bundle.Extension)
	return cmd
}

// pathOf is the plugin that a command line names, by default the one in the working directory.
func pathOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// builtView is the result of a build in JSON.
type builtView struct {
	Name    string  `json:"name"`
	Version string  `json:"version"`
	Module  string  `json:"module"`
	Size    int64   `json:"size"`
	SHA256  string  `json:"sha256"`
	Digest  string  `json:"digest"`
	Seconds float64 `json:"seconds"`
}

func (a *app) pluginBuild(ctx context.Context, dir, archive string) error {
	start := time.Now()
	manifest := filepath.Join(dir, bundle.ManifestFile)
	text, err := os.ReadFile(manifest)
	if err != nil {
		return fmt.Errorf("reading the manifest: %w", err)
	}
	var named struct{ Wasm string }
	if err := toml.Unmarshal(text, &named); err != nil || !filepath.IsLocal(named.Wasm) {
		return usagef(`%s: it must be valid TOML with wasm = "FILE", the module to build`, manifest)
	}
	bar := newProgress(-1, "building", false)
	var said bytes.Buffer
	err = scaffold.Build(ctx, dir, named.Wasm, &said)
	bar.end()
	if said.Len() > 0 {
		fmt.Fprint(a.errOut, printableText(said.String()))
	}
	if err != nil {
		return err
	}
	b, err := pinned(dir, text, named.Wasm)
	if err == nil {
		err = checked(ctx, b)
	}
	if err != nil {
		return errors.Join(err, os.WriteFile(manifest, text, 0o666)) // it says nothing of a module that is none
	}
	if archive != "" {
		if err := os.WriteFile(archive, b.Archive(), 0o666); err != nil {
			return fmt.Errorf("writing the archive: %w", err)
		}
	}
	if _, ok := b.Signed(); ok {
		a.note("%s has an outdated signature: sign it again with ckptd plugin sign", dir)
	}
	m := &b.Manifest
	v := builtView{m.Name, m.Version, m.Wasm, int64(len(b.Binary())), m.SHA256, fmt.Sprintf("%x", b.Digest()), time.Since(start).Seconds()}
	if a.json {
		return a.emit(v)
	}
	return a.printf("built %s  %s, %s  %s\n", a.paint.bold(m.Name+" "+m.Version), m.Wasm, size(v.Size), a.paint.dim("digest "+v.Digest))
}

// pinned writes the SHA-256 of the module into the manifest and returns the bundle.
func pinned(dir string, text []byte, module string) (*bundle.Bundle, error) {
	binary, err := os.ReadFile(filepath.Join(dir, module))
	if err != nil {
		return nil, err
	}
	text = withSum(text, fmt.Sprintf("%x", sha256.Sum256(binary)))
	if err := os.WriteFile(filepath.Join(dir, bundle.ManifestFile), text, 0o666); err != nil {
		return nil, fmt.Errorf("writing the manifest: %w", err)
	}
	return bundle.Open(dir)
}

// withSum sets sha256 in a manifest and leaves the rest as its author wrote it: where it is
// already, or after wasm.
func withSum(manifest []byte, sum string) []byte {
	line := []byte(fmt.Sprintf("sha256 = %q\n", sum))
	top := manifest
	if at := regexp.MustCompile(`(?m)^\s*\[`).FindIndex(manifest); at != nil {
		top = manifest[:at[0]]
	}
	if at := regexp.MustCompile(`(?m)^sha256[ \t]*=.*\n?`).FindIndex(top); at != nil {
		return slices.Concat(manifest[:at[0]], line, manifest[at[1]:])
	}
	at := regexp.MustCompile(`(?m)^wasm[ \t]*=.*\n`).FindIndex(top)
	if at == nil {
		return append(line, manifest...)
	}
	return slices.Concat(manifest[:at[1]], line, manifest[at[1]:])
}

// checked loads the plugin as a store would, and wants a hook for every stage of the manifest.
func checked(ctx context.Context, b *bundle.Bundle) error {
	config, err := b.Config(nil)
	if err != nil {
		return err
	}
	return withPluginLoader(func(l pipeline.Loader) error {
		p, err := pipeline.Load(ctx, l, b, config)
		if err != nil {
			return tried(err)
		}
		return p.Close()
	})
}
