package crypto

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ckptd/ckptd/internal/durable"
)

// maxKeyFile is the maximum size in bytes of a key file.
const maxKeyFile = 16 << 10

const keyFileHead = `# ckptd root key. With it and the keystore, such as data.keys, anyone can read the data; without
# both, nobody can. Back up both, apart from the data, and the keystore again after every new user.
`

// ReadKeyFile reads the root key from a file that WriteKeyFile wrote. Blank lines and lines that
// begin with # are skipped. Errors: ErrKeyFileMissing (also fs.ErrNotExist), ErrKeyFileMode,
// ErrKeyFileFormat with the line, ErrNewerFormat.
func ReadKeyFile(path string) (RootKey, error) {
	text, err := readKeyText(path)
	defer clear(text)
	if err != nil {
		return RootKey{}, fmt.Errorf("reading key file: %w", err)
	}
	k, err := parseKeyFile(text)
	if err != nil {
		return RootKey{}, fmt.Errorf("reading key file %s: %w", path, err)
	}
	return k, nil
}

func readKeyText(path string) ([]byte, error) {
	f, err := durable.Open(path, os.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrKeyFileMissing, err)
	case errors.Is(err, durable.ErrNotRegular):
		return nil, fmt.Errorf("%w: %w", ErrKeyFileFormat, err)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Windows has no such bits: Go derives them from the read-only attribute.
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%w: %s has mode %#o: run chmod 600 on it", ErrKeyFileMode, path, mode)
	}
	text := make([]byte, maxKeyFile+1) // read in one buffer, so that no copy of the key is left behind
	n, err := io.ReadFull(f, text)
	if err == nil {
		return text, fmt.Errorf("%w: %s is longer than %d bytes", ErrKeyFileFormat, path, maxKeyFile)
	}
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return text, err
	}
	return text[:n], nil
}

// parseKeyFile finds the one key line.
func parseKeyFile(text []byte) (RootKey, error) {
	var found RootKey
	line := 0
	for raw := range bytes.Lines(text) {
		line++
		s := bytes.TrimSpace(raw)
		if len(s) == 0 || s[0] == '#' {
			continue
		}
		if found.key != nil {
			found.Wipe()
			return RootKey{}, fmt.Errorf("line %d: %w: a second key", line, ErrKeyFileFormat)
		}
		k, err := parseKeyLine(string(s))
		if err != nil {
			return RootKey{}, fmt.Errorf("line %d: %w", line, err)
		}
		found = k
	}
	if found.key == nil {
		return RootKey{}, fmt.Errorf("%w: no key in its %d lines", ErrKeyFileFormat, line)
	}
	return found, nil
}

// WriteKeyFile writes the key to a new file that only its owner can read. When it returns nil, file
// and name are on stable storage. It does not overwrite an existing file (fs.ErrExist).
func WriteKeyFile(path string, k RootKey) error {
	text, err := appendKeyLine([]byte(keyFileHead), k)
	defer clear(text)
	if err != nil {
		return fmt.Errorf("writing key file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing key file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		os.Remove(path) // it is ours and incomplete, and would make the next attempt fail
		return fmt.Errorf("writing key file: %w", err)
	}
	return nil
}
