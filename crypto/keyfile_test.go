package crypto

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const vectorLine = "ckptd-key-1:bcbce746455f1a79:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8:73615749"

func TestKeyFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	k, err := GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteKeyFile(path, k); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	got, err := ReadKeyFile(path)
	if err != nil || got.ID() != k.ID() || string(secretBytes(t, got.key)) != string(secretBytes(t, k.key)) {
		t.Errorf("%v, %v, want %v", got, err, k)
	}
	before, _ := os.ReadFile(path)
	if err := WriteKeyFile(path, testRoot(t, 1)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second write: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("a refused write changed the file")
	}
	other, _ := GenerateRootKey()
	if other.ID() == k.ID() {
		t.Error("two generated keys have the same id")
	}
}

func TestReadKeyFile(t *testing.T) {
	for name, c := range map[string]struct {
		text, says string
		want       error
	}{
		"comments and blanks": {"# a comment\r\n\n  " + vectorLine + "  \r\n\n# end", "", nil},
		"no line end":         {vectorLine, "", nil},
		"empty":               {"", "no key", ErrKeyFileFormat},
		"comments only":       {"# a\n# b\n", "no key", ErrKeyFileFormat},
		"two keys":            {vectorLine + "\n" + vectorLine + "\n", "line 2", ErrKeyFileFormat},
		"typo":                {"#\n\n" + strings.Replace(vectorLine, "AAEC", "AAEB", 1), "line 3", ErrKeyFileFormat},
		"something else":      {"hunter2-password\n", "line 1", ErrKeyFileFormat},
		"newer":               {"ckptd-key-7:abc\n", "version 7", ErrNewerFormat},
		"binary":              {"\x00\x01\x02\xff", "line 1", ErrKeyFileFormat},
		"far too long":        {strings.Repeat("#\n", maxKeyFile), "longer", ErrKeyFileFormat},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "root.key")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			k, err := ReadKeyFile(path)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err == nil {
				if k.ID().String() != "bcbce746455f1a79" {
					t.Errorf("id %s", k.ID())
				}
				return
			}
			if msg := err.Error(); !strings.Contains(msg, c.says) || !strings.Contains(msg, path) || strings.Contains(msg, "\n") ||
				strings.Contains(msg, "hunter2") || strings.Contains(msg, "AwQFBgcI") {
				t.Errorf("error %q", msg)
			}
		})
	}
}

// Every truncation of a key line, and every change of one character, is noticed as such.
func TestKeyLineSweep(t *testing.T) {
	for n := range vectorLine {
		if _, err := parseKeyLine(vectorLine[:n]); !errors.Is(err, ErrKeyFileFormat) && !errors.Is(err, ErrNewerFormat) {
			t.Errorf("cut to %d characters: %v", n, err)
		}
		for bit := range 7 {
			b := []byte(vectorLine)
			b[n] ^= 1 << bit
			if _, err := parseKeyLine(string(b)); !errors.Is(err, ErrKeyFileFormat) && !errors.Is(err, ErrNewerFormat) {
				t.Errorf("%s: %v", b, err)
			}
		}
	}
}

func TestReadKeyFileMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.key")
	_, err := ReadKeyFile(path)
	if !errors.Is(err, ErrKeyFileMissing) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := ReadKeyFile(t.TempDir()); !errors.Is(err, ErrKeyFileFormat) {
		t.Errorf("a directory: %v", err)
	}
	if err := WriteKeyFile(filepath.Join(path, "x"), testRoot(t, 1)); err == nil {
		t.Error("written where there is no directory")
	}
	if err := WriteKeyFile(path, RootKey{}); err == nil {
		t.Error("the zero key was written")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestReadKeyFileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits")
	}
	path := filepath.Join(t.TempDir(), "root.key")
	if err := WriteKeyFile(path, testRoot(t, 1)); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]error{0o600: nil, 0o400: nil, 0o700: nil, 0o640: ErrKeyFileMode, 0o604: ErrKeyFileMode, 0o620: ErrKeyFileMode} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeyFile(path); !errors.Is(err, want) {
			t.Errorf("mode %o: %v, want %v", mode, err, want)
		}
	}
}

func TestKeyFromEnv(t *testing.T) {
	const name = "CKPTD_TEST_KEY"
	t.Setenv(name, " "+vectorLine+"\n")
	if k, err := KeyFromEnv(name); err != nil || k.ID().String() != "bcbce746455f1a79" {
		t.Errorf("%v, %v", k, err)
	}
	for value, want := range map[string]error{"": ErrKeyUnset, "  ": ErrKeyUnset, "hunter2": ErrKeyFileFormat, vectorLine + "\n" + vectorLine: ErrKeyFileFormat, "ckptd-key-2:": ErrNewerFormat} {
		t.Setenv(name, value)
		_, err := KeyFromEnv(name)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %v", value, err, want)
		}
	}
	for _, n := range []int{0, 31, 33} {
		if _, err := NewRootKey(make([]byte, n)); err == nil {
			t.Errorf("a root key of %d bytes", n)
		}
	}
}

func FuzzKeyFile(f *testing.F) {
	for _, s := range []string{vectorLine, keyFileHead + vectorLine + "\n", vectorLine[:40], "ckptd-key-2:", "", "#"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parseKeyFile(text)
		if err != nil {
			return
		}
		line, err := appendKeyLine(nil, k)
		if err != nil || !strings.Contains(string(text), string(line)) {
			t.Errorf("%q gives the key of %q, %v", text, line, err)
		}
	})
}
