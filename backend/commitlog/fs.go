package commitlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ckptd/ckptd/internal/durable"
)

// FS is the directory of the log. Tests put layers of their own below it.
type FS interface {
	// List returns the names in the directory.
	List() ([]string, error)
	// Open opens a file that is there, to read and write.
	Open(name string) (File, error)
	// Create makes a file that is not there yet.
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes the names durable.
	Sync() error
}

// File is a file of the log.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	// Preallocate gives a new file a size, reads as zeros, and has its blocks, durably. Where
	// written is set they are written, so that writing over them changes no metadata: that is
	// quicker to sync, and costs the writing.
	Preallocate(size int64, written bool) error
	// Sync makes the content durable. It fails for a file that was removed.
	Sync() error
	// Forget drops a synced file from the page cache.
	Forget()
}

// Dir is a directory of the operating system.
type Dir string

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// List implements FS.
func (d Dir) List() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Open implements FS.
func (d Dir) Open(name string) (File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Create implements FS.
func (d Dir) Create(name string) (File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename implements FS.
func (d Dir) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

// Remove implements FS.
func (d Dir) Remove(name string) error { return os.Remove(d.path(name)) }

// Sync implements FS.
func (d Dir) Sync() error { return durable.SyncDir(string(d)) }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Preallocate(size int64, written bool) error {
	if !written {
		err := allocate(f.File, size)
		if err == nil {
			return f.File.Sync()
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return &fs.PathError{Op: "allocate", Path: f.Name(), Err: err}
		}
	}
	chunk := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; at += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk[:min(size-at, int64(len(chunk)))], at); err != nil {
			return err
		}
	}
	return f.File.Sync()
}

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Forget() { forget(f.File) }

// readAll reads a file whole into buf, which it returns, grown if need be.
func readAll(f File, buf []byte) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	n, err := f.ReadAt(buf[:size], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf[:n], err
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
