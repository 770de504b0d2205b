// Package examples builds the example plugins in its directories, LANGUAGE/NAME, for tests. The
// projects are built with the toolchains of their languages, which plugins/toolchains.sh installs.
// They are not shipped.
package examples

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/plugins/scaffold"
)

// All lists the examples.
func All() []string {
	return slices.Concat(Redactors(), []string{"go/summary", "go/channels", "assemblyscript/channels"})
}

// Redactors lists the examples that implement the same redactor in four languages.
func Redactors() []string {
	return []string{"go/email", "assemblyscript/email", "c/email", "rust/email"}
}

// Builder builds every example at most once. The zero value works, and it is safe for concurrent
// use.
type Builder struct {
	mu      sync.Mutex
	modules map[string][]byte
}

// Module returns the module of an example. It skips the test if the toolchain is not installed.
func (b *Builder) Module(t testing.TB, name string) []byte {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if m, ok := b.modules[name]; ok {
		return m
	}
	dir := sources(t, name)
	m := Build(t, dir, filepath.Base(name)+".wasm")
	if b.modules == nil {
		b.modules = map[string][]byte{}
	}
	b.modules[name] = m
	return m
}

// Bundle returns a directory with the plugin of an example as its author would distribute it: the
// source, the manifest and its files, and the module.
func (b *Builder) Bundle(t testing.TB, name string) string {
	t.Helper()
	m := b.Module(t, name)
	dir, from := t.TempDir(), filepath.Join(root(t), "plugins", "examples", filepath.FromSlash(name))
	copyTree(t, from, dir)
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)+".wasm"), m, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Build builds the project in dir and returns the module. It skips the test if the toolchain is not
// installed.
func Build(t testing.TB, dir, module string) []byte {
	t.Helper()
	err := scaffold.Build(t.Context(), dir, module, t.Output())
	if errors.Is(err, scaffold.ErrToolchain) {
		t.Skipf("SKIPPED: %v; or plugins/toolchains.sh", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := os.ReadFile(filepath.Join(dir, module))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// LinkCompiler lets an AssemblyScript project use the compiler of the examples, if that is
// installed.
func LinkCompiler(t testing.TB, dir string) {
	t.Helper()
	installed := filepath.Join(root(t), "plugins", "examples", "assemblyscript", "node_modules")
	if _, err := os.Stat(installed); err != nil {
		return
	}
	if err := os.Symlink(installed, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
}

// sources copies the project of an example with all build inputs and returns its directory.
func sources(t testing.TB, name string) string {
	t.Helper()
	from, to := filepath.Join(root(t), "plugins"), t.TempDir()
	language, _, _ := strings.Cut(name, "/")
	for _, dir := range []string{"pdk", "scaffold/files", "examples/" + language} {
		copyTree(t, filepath.Join(from, filepath.FromSlash(dir)), filepath.Join(to, filepath.FromSlash(dir)))
	}
	if language == "assemblyscript" {
		LinkCompiler(t, filepath.Join(to, "examples", language))
	}
	return filepath.Join(to, "examples", filepath.FromSlash(name))
}

// copyTree copies all files except build products.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); name == "node_modules" || name == "target" {
			return filepath.SkipDir
		} else if d.IsDir() || strings.HasSuffix(name, ".wasm") {
			return nil
		}
		rel, err := filepath.Rel(from, path)
		if err == nil {
			copyFile(t, path, filepath.Join(to, rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o777)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// root returns the root directory of the repository, which contains the test's directory.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "plugins", "examples", "examples.go")); err == nil {
			return dir
		}
	}
	t.Fatal("the test does not run in the repository")
	return ""
}
