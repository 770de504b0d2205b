package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOutputStaysWhatItIs: of what is no regular file, a command that writes there makes none. As
// root, one made /dev/null a file.
func TestOutputStaysWhatItIs(t *testing.T) {
	dir := t.TempDir()
	file, link, dangling, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("what was there before"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, to := range map[string]string{link: file, dangling: filepath.Join(dir, "later")} {
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{"link": link, "dangling link": dangling, "pipe": pipe}
	null := filepath.Join(dir, "null")
	if err := syscall.Mknod(null, syscall.S_IFCHR|0o600, 1<<8|3); err == nil { // as root, on Linux
		outputs["device"] = null
	}
	for name, path := range outputs {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		read := func() []byte {
			b, _ := os.ReadFile(path)
			return b
		}
		got := make(chan []byte, 1)
		if name == "pipe" { // which is opened when both ends are
			go func() { got <- read() }()
		}
		a := &app{}
		err = a.to(path, func(w io.Writer) error {
			_, err := io.WriteString(w, "output")
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: %v became %v, %v", name, before.Mode(), after.Mode(), err)
			continue
		}
		if name != "pipe" {
			got <- read()
		}
		if b := <-got; name != "device" && string(b) != "output" {
			t.Errorf("%s: %q was written", name, b)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".ckptd-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
