package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

// place is a directory with a store in it: the data, the keystore, and the key file.
type place string

func (p place) path(names ...string) string { return filepath.Join(string(p), filepath.Join(names...)) }
func (p place) data() string                { return p.path("data") }

// openBackend opens the backend, as small as it can be.
func (p place) openBackend() (*badger.Store, error) {
	return badger.Open(p.data(), badger.Options{MemTableSize: 8 << 20, MinFree: 4 << 20})
}

// open opens the store, and makes it the first time.
func (p place) open() (*engine.Store, *badger.Store, error) {
	b, err := p.openBackend()
	if err != nil {
		return nil, nil, err
	}
	s, err := p.openOn(b, true)
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return s, b, nil
}

func (p place) openOn(b backend.Backend, create bool) (*engine.Store, error) {
	root, err := crypto.ReadKeyFile(p.path("key"))
	if create && errors.Is(err, crypto.ErrKeyFileMissing) {
		if root, err = crypto.GenerateRootKey(); err == nil {
			err = crypto.WriteKeyFile(p.path("key"), root)
		}
	}
	if err != nil {
		return nil, err
	}
	keys, err := crypto.OpenFileKeystore(p.path("keys"), create)
	if err != nil {
		return nil, err
	}
	return engine.Open(context.Background(), b, engine.Options{Root: root, Keystore: keys, Create: create, CacheBytes: 4 << 20})
}

// files are the paths of all files, in order.
func (p place) files() (paths []string, err error) {
	err = filepath.WalkDir(string(p), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

// kindOf is the kind of file of a path in a place.
func (p place) kindOf(path string) string {
	rel := strings.TrimPrefix(path, string(p)+"/")
	name := filepath.Base(rel)
	switch {
	case strings.HasPrefix(rel, "keys/"), rel == "key":
		return "keystore"
	case rel == "data/log/anchor":
		return "anchor"
	case strings.HasPrefix(rel, "data/log/"):
		return "log"
	case strings.HasPrefix(rel, "data/aside/"), strings.HasSuffix(name, ".mem"):
		return ".mem"
	case strings.HasSuffix(name, ".sst"):
		return "table"
	case strings.HasSuffix(name, ".vlog"):
		return "value log"
	}
	return name // CKPTD, MANIFEST, KEYREGISTRY
}

// hasLog says that there is a commit log in front of Badger: the driver before it cannot repair
// anything.
func (p place) hasLog() bool {
	b, err := os.ReadFile(p.path("data", "CKPTD"))
	return err == nil && strings.HasPrefix(string(b), "ckptd badger 2")
}

// copyTo copies all of a place, with the holes of its files.
func (p place) copyTo(to place) error {
	return filepath.WalkDir(string(p), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(string(p), path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(to.path(rel), 0o700)
		}
		return copyFile(to.path(rel), path)
	})
}

// copyAtWork copies a place in which Badger may be writing tables. As long as its MANIFEST stays
// the same, so do the tables that it names.
func (p place) copyAtWork(to place) (err error) {
	for range 100 {
		if err = os.RemoveAll(string(to)); err != nil {
			return err
		}
		before, _ := os.ReadFile(p.path("data", "MANIFEST"))
		err = p.copyTo(to)
		after, _ := os.ReadFile(p.path("data", "MANIFEST"))
		if err == nil && bytes.Equal(before, after) {
			return nil
		}
	}
	return fmt.Errorf("copying a store at work: it never stood still: %w", err)
}

const page = 4096

var zeroPage [page]byte

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = out.Truncate(info.Size())
	for at := int64(0); err == nil && at < info.Size(); {
		var data int64
		if data, err = nextData(in, at, info.Size()); err != nil || data < 0 {
			break
		}
		at = data / page * page
		buf := make([]byte, min(64<<10, info.Size()-at))
		if _, err = in.ReadAt(buf, at); err == nil {
			err = writePages(out, buf, at)
		}
		at += int64(len(buf))
	}
	return errors.Join(err, out.Close())
}

// writePages writes those pages that are not all zero.
func writePages(f *os.File, b []byte, at int64) error {
	for i := 0; i < len(b); i += page {
		part := b[i:min(i+page, len(b))]
		if bytes.Equal(part, zeroPage[:len(part)]) {
			continue
		}
		if _, err := f.WriteAt(part, at+int64(i)); err != nil {
			return err
		}
	}
	return nil
}
