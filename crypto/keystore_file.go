package crypto

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ckptd/ckptd/internal/durable"
)

// The directory of a file keystore (docs/format.md §16).
const (
	markerName  = "KEYSTORE"
	markerText  = "ckptd keystore 1\n"
	markerStem  = "ckptd keystore "
	entrySuffix = ".key"
	tempPrefix  = ".tmp-"
	maxMarker   = 64 // bytes
)

// FileKeystore is a Keystore in a directory, with one file per entry. Several processes can share
// it: they take turns writing by a lock on the marker file, if the system has flock.
//
// After a failed sync the state of the medium is unknown, so the keystore then refuses all further
// use.
type FileKeystore struct {
	dir string

	writing  sync.Mutex               // held by Put and Delete
	mu       sync.Mutex               // guards the following fields; held only briefly
	changing map[string]chan struct{} // files being changed, closed when that is durable: Get must not see a change before

	synced sync.Map              // directories whose names are known to be durable
	failed atomic.Pointer[error] // why the keystore is disabled

	// fault, if set by a test, is called before each step that changes the medium or makes it
	// durable.
	fault func(step, path string) error
}

// OpenFileKeystore opens the keystore in a directory and removes leftovers of interrupted writes.
// With create, a missing or empty directory becomes a keystore, durably when it returns. There is
// nothing to close. Errors: ErrNoStore (nothing there, and not create), ErrForeignKeystore,
// ErrNewerFormat.
func OpenFileKeystore(dir string, create bool) (*FileKeystore, error) {
	s := &FileKeystore{dir: filepath.Clean(dir), changing: map[string]chan struct{}{}}
	if err := s.open(create); err != nil {
		return nil, fmt.Errorf("opening keystore %s: %w", dir, err)
	}
	return s, nil
}

func (s *FileKeystore) open(create bool) error {
	found, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return fmt.Errorf("%w: %w", ErrNoStore, err)
		}
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err != nil {
		return err
	}
	text, err := readLimited(filepath.Join(s.dir, markerName), maxMarker)
	marked := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch version, isMarker := strings.CutPrefix(string(text), markerStem); {
	case string(text) == markerText:
		return s.clearUp(found)
	case isMarker && isNumber(strings.TrimSuffix(version, "\n")) && strings.HasSuffix(version, "\n"):
		return fmt.Errorf("%w: keystore version %s", ErrNewerFormat, strings.TrimSpace(version))
	case len(found) == 0, len(found) == 1 && marked && strings.HasPrefix(markerText, string(text)):
		// Nothing yet, or a marker truncated by a crash during creation.
		if !create {
			return ErrNoStore
		}
		return s.writeMarker()
	}
	return ErrForeignKeystore
}

// writeMarker makes the directory a keystore, after making its name durable. Concurrent creators
// write the same bytes.
func (s *FileKeystore) writeMarker() error {
	if err := durable.SyncPath(s.dir); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, markerName), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(markerText)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return s.syncNames(s.dir)
}

// clearUp removes the temporary files among those found.
func (s *FileKeystore) clearUp(found []fs.DirEntry) error {
	for _, e := range found {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		err := s.removeTemp(filepath.Join(s.dir, e.Name()))
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return nil // a read-only keystore can still be read
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeTemp takes the lock for each file: under it, nobody uses a temporary file.
func (s *FileKeystore) removeTemp(path string) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.shred(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.syncNames(s.dir)
}

// Get implements Keystore.
func (s *FileKeystore) Get(ctx context.Context, name string) ([]byte, error) {
	if err := s.usable(ctx, name); err != nil {
		return nil, err
	}
	path := s.path(name)
	raw, err := s.get(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading keystore entry %s: %w", name, err)
	}
	// A killed process may have left a name that is not durable.
	if err := s.syncPath(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("reading keystore entry %s: %w", name, err)
	}
	return raw, nil
}

// get reads a file that is not being changed. It holds no lock: one unreadable file must not block
// others.
func (s *FileKeystore) get(ctx context.Context, path string) ([]byte, error) {
	for {
		raw, err := readLimited(path, maxEntry)
		changed := s.change(path)
		if changed == nil {
			if failed := s.failed.Load(); failed != nil { // perhaps in syncing the entry just read
				return nil, *failed
			}
			return raw, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// change is the channel that a change of a file under way will close; nil if there is none.
func (s *FileKeystore) change(path string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changing[path]
}

// begin waits for its turn to change a file, until end is called.
func (s *FileKeystore) begin(path string) (end func()) {
	s.writing.Lock()
	done := make(chan struct{})
	s.mu.Lock()
	s.changing[path] = done
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		delete(s.changing, path)
		s.mu.Unlock()
		close(done)
		s.writing.Unlock()
	}
}

// usable makes the checks common to operations on one entry.
func (s *FileKeystore) usable(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := s.failed.Load(); err != nil {
		return fmt.Errorf("keystore is disabled after an error: %w", *err)
	}
	return ctx.Err()
}

// path returns the file of an entry. Names of one segment are files in the directory itself; all
// others are in a folder named after the first two characters of the last segment, so that no
// folder gets large.
func (s *FileKeystore) path(name string) string {
	parent, last, nested := cutLast(name)
	if !nested {
		return filepath.Join(s.dir, name+entrySuffix)
	}
	return filepath.Join(s.dir, filepath.FromSlash(parent), last[:min(2, len(last))], last+entrySuffix)
}

func cutLast(name string) (parent, last string, nested bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// List implements Keystore. It reads only the folders under the first segment of the prefix, and
// skips files that are not entries.
func (s *FileKeystore) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.failed.Load(); err != nil {
			yield("", *err)
			return
		}
		w := walk{s: s, ctx: ctx, prefix: prefix, yield: yield}
		first, _, nested := strings.Cut(prefix, "/")
		switch {
		case !nested:
			w.dir(nil)
		case validSegment(first):
			w.dir([]string{first})
		}
	}
}

// walk is one listing.
type walk struct {
	s      *FileKeystore
	ctx    context.Context
	prefix string
	yield  func(string, error) bool
}

// dir lists a folder and its subfolders. It returns false to end the walk.
func (w *walk) dir(segments []string) bool {
	dir := filepath.Join(append([]string{w.s.dir}, segments...)...)
	found, err := os.ReadDir(dir)
	if err == nil {
		err = w.ctx.Err()
	} else if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		w.yield("", fmt.Errorf("listing keystore: %w", err))
		return false
	}
	for _, e := range found {
		if e.IsDir() {
			if validSegment(e.Name()) && len(segments) < maxSegments && !w.dir(append(segments, e.Name())) {
				return false
			}
			continue
		}
		name, ok := w.name(segments, e.Name())
		if ok && strings.HasPrefix(name, w.prefix) && !w.yield(name, nil) {
			return false
		}
	}
	return true
}

// name returns the entry name of a file, if the file is where path puts it.
func (w *walk) name(segments []string, file string) (string, bool) {
	name, ok := strings.CutSuffix(file, entrySuffix)
	if !ok {
		return "", false
	}
	if n := len(segments); n > 0 {
		name = strings.Join(append(segments[:n-1:n-1], name), "/")
	}
	here := filepath.Join(append(append([]string{w.s.dir}, segments...), file)...)
	return name, checkName(name) == nil && w.s.path(name) == here
}

// readLimited reads a file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	b, err := durable.ReadFile(path, limit)
	if errors.Is(err, durable.ErrTooLarge) || errors.Is(err, durable.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", ErrKeystoreEntry, err)
	}
	return b, err
}
