package scaffold

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write files/go/pdk.txtar")

// The archive contains every file of plugins/pdk except its tests.
func TestArchiveOfPDK(t *testing.T) {
	a := &txtar.Archive{}
	dir := filepath.Join("..", "pdk")
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(file, "_test.go") {
			if d.IsDir() && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		a.Files = append(a.Files, txtar.File{Name: filepath.ToSlash(name), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join("files", "go", "pdk.txtar")
	if *update {
		if err := os.WriteFile(archive, txtar.Format(a), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), string(txtar.Format(a))); diff != "" {
		t.Errorf("%s is not what plugins/pdk is: go generate ./plugins/scaffold\n%s", archive, diff)
	}
}

func TestNew(t *testing.T) {
	const name = "my-first"
	for language, want := range map[string][]string{
		"go":             {"go.mod", "main.go", "pdk/go.mod", "pdk/pdk.go", "pdk/host_wasip1.go", "pdk/scan/scan.go"},
		"assemblyscript": {"asconfig.json", "package.json", "assembly/index.ts", "assembly/ckptd.ts"},
		"c":              {"Makefile", "my-first.c", "ckptd.h"},
		"rust":           {"Cargo.toml", "src/lib.rs", "src/ckptd.rs"},
	} {
		dir := filepath.Join(t.TempDir(), "a", "b")
		names, err := New(dir, name, language)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range append(want, "plugin.toml", ".gitignore", "fixtures/messages.json") {
			if !slices.Contains(names, n) {
				t.Errorf("%s: no %s among %q", language, n, names)
			}
		}
		for _, n := range names {
			text, err := os.ReadFile(filepath.Join(dir, n))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "{{") || strings.Contains(n, "tmpl") || strings.HasSuffix(n, "_test.go") {
				t.Errorf("%s: %s is not for a project", language, n)
			}
		}
		if got, err := Language(dir); err != nil || got != language {
			t.Errorf("%s is taken for %q, %v", language, got, err)
		}
		if _, err := New(dir, name, language); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: once more: %v", language, err)
		}
		left, err := os.ReadDir(filepath.Dir(dir))
		if err != nil || len(left) != 1 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", "A", "1a", "a_b", "a--b", "a-", "-a", "../a", "a/b", "a b", "ä", strings.Repeat("a", 41)} {
		if _, err := New(filepath.Join(dir, "p"), name, "go"); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := New(filepath.Join(dir, "p"), "a", "cobol"); !errors.Is(err, ErrLanguage) {
		t.Errorf("cobol: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := New(dir, "a", "c"); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestBuildOfNothing(t *testing.T) {
	if err := Build(t.Context(), t.TempDir(), "a.wasm", t.Output()); !errors.Is(err, ErrNoProject) {
		t.Error(err)
	}
}

func TestToolchainMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, language := range Languages() {
		err := Toolchain(t.Context(), t.TempDir(), language)
		if !errors.Is(err, ErrToolchain) || !strings.Contains(err.Error(), "install") {
			t.Errorf("%s: %v", language, err)
		}
	}
}
