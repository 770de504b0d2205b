package badger

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// A device that cannot read some sectors costs what is in them, and not the file.

const readPiece = 4096 // bytes that are read at once where more cannot be

// readAround reads a file whole. Where it cannot be read there are zeros; unreadable is how many.
func readAround(path string) (b []byte, unreadable int64, err error) {
	f, err := durable.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	b = make([]byte, info.Size())
	n, unreadable, err := readAroundAt(f, b, 0)
	return b[:n], unreadable, err
}

// readAroundAt is ReadAt with zeros where nothing can be read.
func readAroundAt(f io.ReaderAt, b []byte, at int64) (n int, unreadable int64, err error) {
	n, err = f.ReadAt(b, at)
	if err == nil || errors.Is(err, io.EOF) {
		return n, 0, err
	}
	for n = 0; n < len(b); {
		piece := b[n:min(n+readPiece, len(b))]
		k, err := f.ReadAt(piece, at+int64(n))
		if errors.Is(err, io.EOF) {
			return n + k, unreadable, err
		}
		if err != nil {
			clear(piece)
			unreadable += int64(len(piece))
		}
		n += len(piece)
	}
	return n, unreadable, nil
}

// unread notes that a file, or so many bytes of it, cannot be read.
func (v *salvager) unread(path string, unreadable int64, err error) {
	name, relErr := filepath.Rel(v.s.dir, path)
	switch {
	case relErr != nil || errors.Is(err, fs.ErrNotExist):
	case err != nil:
		v.missing("%s: %s", name, text(err))
	default:
		v.missing("%s: %d bytes cannot be read", name, unreadable)
	}
}

// readable is a log of which some files, or parts of them, cannot be read. They are noted, and read
// as zeros.
type readable struct {
	commitlog.FS
	missing func(format string, args ...any)
}

// List implements commitlog.FS.
func (r readable) List() ([]string, error) {
	names, err := r.FS.List()
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return names, err
	}
	r.missing("%s: %s", logDir, text(err))
	return names, nil
}

// Open implements commitlog.FS.
func (r readable) Open(name string) (commitlog.File, error) {
	f, err := r.FS.Open(name)
	if err == nil {
		return readableFile{f, r, name}, nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	r.missing("%s/%s: %s", logDir, name, text(err))
	return unreadable{}, nil
}

type readableFile struct {
	commitlog.File
	of   readable
	name string
}

// ReadAt implements commitlog.File.
func (f readableFile) ReadAt(b []byte, at int64) (int, error) {
	n, lost, err := readAroundAt(f.File, b, at)
	if lost > 0 {
		f.of.missing("%s/%s: some of it cannot be read", logDir, f.name)
	}
	return n, err
}

// unreadable is a file that cannot be opened.
type unreadable struct{ commitlog.File }

// Close implements commitlog.File.
func (unreadable) Close() error { return nil }

// Size implements commitlog.File.
func (unreadable) Size() (int64, error) { return 0, nil }

// ReadAt implements commitlog.File.
func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }
