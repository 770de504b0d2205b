package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// cached returns the files of a cache.
func cached(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.native"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func useCache(t *testing.T, dir string, key byte, bin []byte) {
	t.Helper()
	h, err := plugins.New(plugins.Options{CacheDir: dir, CacheKey: [32]byte{key}})
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, h, plugins.Spec{Binary: bin})
	r, err := p.Call(context.Background(), preSave("abc"))
	if err != nil || string(r.Output) != "ABC" {
		t.Errorf("got %q, %v", r.Output, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if !strings.HasSuffix(f.Name(), ".native") {
			t.Errorf("%s was left behind", f.Name())
		}
	}
}

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	useCache(t, dir, 1, Upper())
	files := cached(t, dir)
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	first := read(t, files[0])
	useCache(t, dir, 1, Upper())
	if !bytes.Equal(read(t, files[0]), first) {
		t.Error("it was written again")
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, files[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}

	// A damaged file is never used and gets replaced, and so does a file of another key or another
	// module.
	spoilt := map[string]func() []byte{
		"empty": func() []byte { return nil },
		"short": func() []byte { return first[:len(first)-1] },
		"long":  func() []byte { return append(bytes.Clone(first), 0) },
		"other key": func() []byte {
			other := filepath.Join(t.TempDir(), "other")
			useCache(t, other, 2, Upper())
			return read(t, cached(t, other)[0])
		},
		"other module": func() []byte {
			other := filepath.Join(t.TempDir(), "other")
			h := newHost(t, plugins.Options{CacheDir: other, CacheKey: [32]byte{1}})
			load(t, h, plugins.Spec{Binary: Trap()})
			return read(t, cached(t, other)[0])
		},
	}
	for i := 0; i < len(first); i += 1 + len(first)/15 {
		spoilt[fmt.Sprintf("bit at %d", i)] = func() []byte {
			b := bytes.Clone(first)
			b[i] ^= 1
			return b
		}
	}
	for name, spoil := range spoilt {
		if err := os.WriteFile(files[0], spoil(), 0o600); err != nil {
			t.Fatal(err)
		}
		useCache(t, dir, 1, Upper())
		if !bytes.Equal(read(t, files[0]), first) {
			t.Errorf("%s: the file was not replaced", name)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCacheIsRefused(t *testing.T) {
	if _, err := plugins.New(plugins.Options{CacheDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "CacheKey") {
		t.Errorf("without a key: %v", err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := plugins.New(plugins.Options{CacheDir: open, CacheKey: [32]byte{1}}); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("open to others: %v", err)
	}
}

// The version in the cache key is the one that is built in.
func TestCacheKnowsTheRuntime(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Skip("no build information")
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/tetratelabs/wazero" && dep.Version != plugins.WazeroVersion {
			t.Errorf("built with %s, the key says %s", dep.Version, plugins.WazeroVersion)
		}
	}
}
