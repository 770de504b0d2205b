//go:build unix

package crypto

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipesInPlaceOfSecrets: opening a pipe waits for its other end. If one user's entry is a pipe,
// that must not block that user's calls, or those of others.
func TestPipesInPlaceOfSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	ks := openFiles(t, dir, true)
	mustPut(t, ks, "t/user", "", "x")
	pipe := ks.path("t/user")
	if err := errors.Join(os.Remove(pipe), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	if b, err := ks.Get(t.Context(), "t/user"); !errors.Is(err, ErrKeystoreEntry) {
		t.Errorf("get: %q, %v", b, err)
	}
	if err := ks.Put(t.Context(), "t/user", []byte("x"), []byte("y")); !errors.Is(err, ErrKeystoreEntry) {
		t.Errorf("put: %v", err)
	}
	mustPut(t, ks, "t/users", "", "z")
	if b, err := ks.Get(t.Context(), "t/users"); string(b) != "z" {
		t.Errorf("another user: %q, %v", b, err)
	}

	key := filepath.Join(dir, "root.key")
	if err := syscall.Mkfifo(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeyFile(key); !errors.Is(err, ErrKeyFileFormat) {
		t.Errorf("key file: %v", err)
	}
}
