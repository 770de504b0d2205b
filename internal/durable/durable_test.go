package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path+".new", []byte("left by a crash"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "", "another"} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("got %q, %v, want %q", got, err, content)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

func TestWriteFileThatCannotBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(path, "in it"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, nil); err == nil {
		t.Error("a folder was replaced")
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if err := WriteFile(filepath.Join(path, "missing", "file"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("writing into a folder that is not there: %v", err)
	}
}

func TestSyncPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := SyncPath(dir); err != nil {
		t.Error(err)
	}
	t.Chdir(filepath.Dir(dir))
	for _, relative := range []string{"b", "../a/b", "."} {
		if err := SyncPath(relative); err != nil {
			t.Errorf("%s: %v", relative, err)
		}
	}
	if err := SyncPath(filepath.Join(dir, "missing", "c")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("below a folder that is not there: %v", err)
	}
}
