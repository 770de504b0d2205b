package badger

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/internal/durable"
)

// While a store is being opened its tables are kept under second names, with copies of the MANIFEST
// and the KEYREGISTRY, since Badger removes tables that its MANIFEST does not name.
const (
	keptDir = "kept"
	keptNew = "kept.new" // the same, while it is being filled
)

// place says where a file of Badger's is to be read, by its name.
type place func(name string) string

func inDir(dir string) place {
	return func(name string) string { return filepath.Join(dir, name) }
}

// inKept is where files are once putBack has restored them.
func inKept(dir string) place {
	return func(name string) string {
		kept, path := filepath.Join(dir, keptDir, name), filepath.Join(dir, name)
		if filepath.Ext(name) == ".sst" {
			if !betterKept(kept, path) {
				return path
			}
		}
		if _, err := os.Lstat(kept); err == nil {
			return kept
		}
		return path
	}
}

// keepTables fills the folder kept. It stays until dropKept, however the opening ends. Where links
// are not supported, room is asked before a table is copied.
func keepTables(dir string, room func(int64) error) error {
	if err := errors.Join(removeDir(dir, keptNew), removeDir(dir, keptDir)); err != nil {
		return err
	}
	to := filepath.Join(dir, keptNew)
	paths, err := filesIn(dir, ".sst")
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return dirError(err)
	}
	for _, path := range paths {
		if err := link(path, filepath.Join(to, filepath.Base(path)), room); err != nil {
			return dirError(err)
		}
	}
	for _, name := range []string{badgerdb.ManifestFilename, badgerdb.KeyRegistryFileName} {
		err := copyFile(filepath.Join(dir, name), filepath.Join(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return dirError(err)
		}
	}
	if err := durable.SyncDir(to); err != nil {
		return dirError(err)
	}
	if err := os.Rename(to, filepath.Join(dir, keptDir)); err != nil {
		return dirError(err)
	}
	return durable.SyncDir(dir)
}

// putBack restores from the folder kept: tables that are missing, and the two files as they were.
// It reports whether the folder exists.
func putBack(dir string, room func(int64) error) (bool, error) {
	from := filepath.Join(dir, keptDir)
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, dirError(err)
	}
	for _, e := range entries {
		kept, path := filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())
		if filepath.Ext(path) == ".sst" {
			if err := putTableBack(kept, path, room); err != nil {
				return false, dirError(err)
			}
			continue
		}
		content, err := os.ReadFile(kept)
		if err == nil {
			err = durable.WriteFile(path, content)
		}
		if err != nil {
			return false, dirError(err)
		}
	}
	return true, durable.SyncDir(dir)
}

// putTableBack restores a table that is gone, or damaged where the one that is kept is not.
func putTableBack(kept, path string, room func(int64) error) error {
	if !betterKept(kept, path) {
		return nil
	}
	dir := filepath.Join(filepath.Dir(path), keptNew) // of which nothing stays
	temp := filepath.Join(dir, filepath.Base(path))
	if err := errors.Join(os.MkdirAll(dir, 0o700), gone(os.Remove(temp))); err != nil {
		return err
	}
	if err := link(kept, temp, room); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// betterKept says that the one of two files that is kept is to be used: the other is gone, or
// damaged and this one is not. They most often are one file under two names.
func betterKept(kept, path string) bool {
	have, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	info, err2 := os.Stat(kept)
	return err == nil && err2 == nil && have.Mode().IsRegular() && !os.SameFile(have, info) && !wholeTable(path) && wholeTable(kept)
}

// wholeTable says that every block of a table can be read.
func wholeTable(path string) bool {
	bad, _, err := eachEntryOf(path, func([]byte, y.ValueStruct) error { return nil })
	return bad == 0 && err == nil
}

func dropKept(dir string) error {
	return errors.Join(removeDir(dir, keptNew), removeDir(dir, keptDir))
}

// link gives a file a second name, or copies it where there are no links.
func link(from, to string, room func(int64) error) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := room(info.Size()); err != nil {
		return err
	}
	return copyFile(from, to)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
