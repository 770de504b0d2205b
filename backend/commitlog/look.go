package commitlog

import (
	"errors"
	"fmt"
	"os"

	"github.com/ckptd/ckptd/internal/durable"
)

// ReadOnly is a directory of the operating system in which nothing is changed.
type ReadOnly string

// List implements FS.
func (d ReadOnly) List() ([]string, error) { return Dir(d).List() }

// Open implements FS. The file can only be read.
func (d ReadOnly) Open(name string) (File, error) {
	f, err := durable.Open(Dir(d).path(name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Create implements FS.
func (d ReadOnly) Create(name string) (File, error) { return nil, d.refuse(name) }

// Rename implements FS.
func (d ReadOnly) Rename(from, _ string) error { return d.refuse(from) }

// Remove implements FS.
func (d ReadOnly) Remove(name string) error { return d.refuse(name) }

// Sync implements FS.
func (d ReadOnly) Sync() error { return d.refuse(".") }

func (d ReadOnly) refuse(name string) error {
	return fmt.Errorf("%s is open read-only: %w", Dir(d).path(name), errors.ErrUnsupported)
}

// StoreOf is the directory that a log belongs to: the one that all of its whole slots and headers
// name.
func StoreOf(files FS) (id ID, ok bool) {
	names, err := files.List()
	if err != nil {
		return id, false
	}
	found := map[ID]bool{}
	for _, name := range names {
		if _, segment := segmentNumber(name); !segment && name != anchorName {
			continue
		}
		f, err := files.Open(name)
		if err != nil {
			continue
		}
		b := make([]byte, 2*slotSize)
		n, _ := f.ReadAt(b, 0)
		f.Close()
		if h, err := parseHeader(b[:n]); err == nil {
			found[h.store] = true
		}
		for ; n >= slotSize; n, b = n-slotSize, b[slotSize:] {
			if of, _, err := parseSlot(b[:slotSize]); err == nil {
				found[of] = true
			}
		}
	}
	for id = range found {
	}
	return id, len(found) == 1
}

// Segments is how many files the log has, without its anchor.
func (l *Log) Segments() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.old)
	for _, s := range []*segment{l.cur, l.spare} {
		if s != nil {
			n++
		}
	}
	return n
}
