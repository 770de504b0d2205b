//go:build unix

package durable

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// notRegular makes what is no regular file, and whatever is read of which would wait.
func notRegular(t *testing.T) map[string]string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	pipe, socket, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "sock"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"pipe": pipe, "socket": socket, "link to a pipe": link, "folder": dir, "device": os.DevNull}
}

func TestReadFileRefusesWhatIsNoRegularFile(t *testing.T) {
	for name, path := range notRegular(t) {
		if _, err := ReadFile(path, 10); err == nil || name != "socket" && !errors.Is(err, ErrNotRegular) { // open refuses sockets
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWriteFileReplacesOnlyFiles: what a link leads to is replaced, the link is not.
func TestWriteFileReplacesOnlyFiles(t *testing.T) {
	for name, path := range notRegular(t) {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, []byte("x")); err == nil {
			t.Errorf("%s: it was written", name)
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: %v was replaced by %v, %v", name, before.Mode(), after.Mode(), err)
		}
	}
	dir := t.TempDir()
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link), os.Symlink("later", dangling)); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{link: file, dangling: filepath.Join(dir, "later")} {
		if err := WriteFile(path, []byte("new")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s is no link any more: %v, %v", path, info.Mode(), err)
		}
		if got, err := os.ReadFile(target); err != nil || string(got) != "new" {
			t.Errorf("%s: %q, %v", target, got, err)
		}
	}
}

func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(path, 10); err != nil || string(got) != "0123456789" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ReadFile(path, 9); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := ReadFile(path+"x", 9); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
