// Package faultfs is a directory for a commit log that can be made to fail, and that knows the
// remains after a power loss. It is for tests.
package faultfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ckptd/ckptd/backend/commitlog"
)

const page = 4096

// FS is a directory in memory.
type FS struct {
	failing sync.Mutex
	fail    func(op, name string) error

	mu      sync.Mutex
	names   map[string]*inode
	durable map[string]*inode // the names when they were last synced
	pending []func(map[string]*inode)
}

// inode is the content of a file, now and on the device.
type inode struct {
	now, synced []byte
	dirty       map[int]bool // pages
}

// New is an empty directory.
func New() *FS { return &FS{names: map[string]*inode{}, durable: map[string]*inode{}} }

// Load is a copy of a directory on disk, all of it durable.
func Load(dir string) (*FS, error) {
	f := New()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		f.names[e.Name()] = &inode{now: b, synced: slices.Clone(b), dirty: map[int]bool{}}
	}
	f.durable = maps.Clone(f.names)
	return f, err
}

// Killed is the directory that the next process finds when this one is killed now: everything,
// synced or not.
func (f *FS) Killed() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	copies := map[*inode]*inode{}
	clone := func(names map[string]*inode) map[string]*inode {
		out := map[string]*inode{}
		for name, i := range names {
			if copies[i] == nil {
				copies[i] = &inode{slices.Clone(i.now), slices.Clone(i.synced), maps.Clone(i.dirty)}
			}
			out[name] = copies[i]
		}
		return out
	}
	out := New()
	out.names, out.durable = clone(f.names), clone(f.durable)
	if len(f.pending) > 0 { // all or nothing from here on
		now := out.names
		out.pending = append(out.pending, func(names map[string]*inode) {
			clear(names)
			maps.Copy(names, now)
		})
		out.names = maps.Clone(now)
	}
	return out
}

// PowerLoss is a directory that a power loss now can leave: of the names that are not synced the
// first ones, and of each page that is not synced the old one, the new one, or a part of each.
func (f *FS) PowerLoss(rnd *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := maps.Clone(f.durable)
	for _, apply := range f.pending[:rnd.IntN(len(f.pending)+1)] {
		apply(names)
	}
	out := New()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b := names[name].left(rnd)
		out.names[name] = &inode{now: b, synced: slices.Clone(b), dirty: map[int]bool{}}
	}
	out.durable = maps.Clone(out.names)
	return out
}

func (i *inode) left(rnd *rand.Rand) []byte {
	b := slices.Clone(i.synced)
	all := rnd.IntN(4) == 0
	for _, n := range slices.Sorted(maps.Keys(i.dirty)) {
		from, to := n*page, min((n+1)*page, len(i.now))
		if len(b) < to {
			b = append(b, make([]byte, to-len(b))...)
		}
		switch k := rnd.IntN(3); {
		case k == 0 || all:
			copy(b[from:to], i.now[from:to])
		case k == 1:
			cut := from + rnd.IntN(page/512+1)*512
			copy(b[from:min(cut, to)], i.now[from:min(cut, to)])
		}
	}
	return b
}

// Save writes the directory to disk, and replaces the one that is there.
func (f *FS) Save(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, i := range f.names {
		if err := os.WriteFile(filepath.Join(dir, name), i.now, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Bytes is the content of a file, for a test to change.
func (f *FS) Bytes(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.names[name]; i != nil {
		return i.now
	}
	return nil
}

// Cut shortens a file.
func (f *FS) Cut(name string, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[name].now = f.names[name].now[:size]
}

// FailWith has fail asked before everything that changes something, one call at a time: "create",
// "write", "sync", "preallocate", "rename", "remove", "sync names", and of which file. If it
// returns an error the caller gets that, and nothing happens.
func (f *FS) FailWith(fail func(op, name string) error) {
	f.failing.Lock()
	defer f.failing.Unlock()
	f.fail = fail
}

func (f *FS) fails(op, name string) error {
	f.failing.Lock()
	defer f.failing.Unlock()
	if f.fail == nil {
		return nil
	}
	if err := f.fail(op, name); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// List implements commitlog.FS.
func (f *FS) List() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.names)), nil
}

// Open implements commitlog.FS.
func (f *FS) Open(name string) (commitlog.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.names[name]
	if i == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{f, name, i}, nil
}

// Create implements commitlog.FS.
func (f *FS) Create(name string) (commitlog.File, error) {
	if err := f.fails("create", name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	i := &inode{dirty: map[int]bool{}}
	f.change(func(names map[string]*inode) { names[name] = i })
	return &file{f, name, i}, nil
}

func (f *FS) change(apply func(map[string]*inode)) {
	apply(f.names)
	f.pending = append(f.pending, apply)
}

// Rename implements commitlog.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.fails("rename", from); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.names[from]
	if i == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	f.change(func(names map[string]*inode) {
		delete(names, from)
		names[to] = i
	})
	return nil
}

// Remove implements commitlog.FS.
func (f *FS) Remove(name string) error {
	if err := f.fails("remove", name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	f.change(func(names map[string]*inode) { delete(names, name) })
	return nil
}

// Sync implements commitlog.FS.
func (f *FS) Sync() error {
	if err := f.fails("sync names", ""); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.durable, f.pending = maps.Clone(f.names), nil
	return nil
}

type file struct {
	fs   *FS
	name string
	*inode
}

func (f *file) Close() error { return nil }
func (f *file) Forget()      {}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.now)), nil
}

func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if at > int64(len(f.now)) {
		return 0, fmt.Errorf("reading %s at %d of %d", f.name, at, len(f.now))
	}
	n := copy(b, f.now[at:])
	if n < len(b) {
		return n, fmt.Errorf("reading %s: it ends early", f.name)
	}
	return n, nil
}

func (f *file) WriteAt(b []byte, at int64) (int, error) {
	if err := f.fs.fails("write", f.name); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if end := int(at) + len(b); end > len(f.now) {
		f.now = append(f.now, make([]byte, end-len(f.now))...)
	}
	copy(f.now[at:], b)
	for n := int(at) / page; n*page < int(at)+len(b); n++ {
		f.dirty[n] = true
	}
	return len(b), nil
}

func (f *file) Preallocate(size int64, _ bool) error {
	if err := f.fs.fails("preallocate", f.name); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.now, f.synced, f.dirty = make([]byte, size), make([]byte, size), map[int]bool{}
	return nil
}

// Sync implements commitlog.File. After one that fails the pages count as written, as Linux has it.
func (f *file) Sync() error {
	err := f.fs.fails("sync", f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err != nil {
		f.dirty = map[int]bool{}
		return err
	}
	if f.fs.names[f.name] != f.inode {
		return &fs.PathError{Op: "sync", Path: f.name, Err: fs.ErrNotExist}
	}
	if len(f.synced) < len(f.now) {
		f.synced = append(f.synced, make([]byte, len(f.now)-len(f.synced))...)
	}
	for n := range f.dirty {
		copy(f.synced[n*page:], f.now[n*page:min((n+1)*page, len(f.now))])
	}
	f.dirty = map[int]bool{}
	return nil
}
