package crypto

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Keystore holds small sealed entries by name, outside the data backend and its backups.
// Implementations are safe for concurrent use.
//
// A name is one to four segments of a–z, 0–9, _ and -, 1 to 64 characters each, separated by /;
// other names are ErrInvalidName. An entry has at most 64 KiB.
type Keystore interface {
	// Get returns the entry, which then belongs to the caller. A returned entry is durable. Errors:
	// ErrNotFound.
	Get(ctx context.Context, name string) ([]byte, error)
	// Put replaces the entry old by new, or creates it if old is nil. If the entry is not old (or,
	// for nil, exists), it fails with ErrKeystoreConflict and changes nothing. When it returns nil,
	// the change is durable and the old entry unrecoverable as far as the medium allows. After any
	// other error the entry can be either. It keeps neither slice.
	Put(ctx context.Context, name string, old, new []byte) error
	// Delete removes the entry; a missing one is not an error. When it returns nil, that is durable
	// and the entry unrecoverable as far as the medium allows.
	Delete(ctx context.Context, name string) error
	// List yields the names with the prefix, in no particular order. Entries put or deleted in the
	// meantime may be missing or not. After an error it ends.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// maxSegments is the maximum number of segments in a name.
const maxSegments = 4

// checkName returns ErrInvalidName unless name is an entry name.
func checkName(name string) error {
	segments := strings.Split(name, "/")
	if len(segments) > maxSegments {
		return fmt.Errorf("%w: more than %d segments", ErrInvalidName, maxSegments)
	}
	for _, s := range segments {
		if !validSegment(s) {
			return fmt.Errorf("%w: %.80q", ErrInvalidName, name)
		}
	}
	return nil
}

func validSegment(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	})
}

// checkEntry refuses entries that no keystore accepts.
func checkEntry(name string, entry []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(entry) == 0 || len(entry) > maxEntry {
		return fmt.Errorf("entry of %d bytes, want 1 to %d", len(entry), maxEntry)
	}
	return nil
}

// matches reports whether the current entry, nil if missing, is the one that the caller of Put
// expects.
func matches(current, old []byte) bool {
	return (current == nil) == (old == nil) && bytes.Equal(current, old)
}

// MemKeystore is a Keystore in memory, for stores that do not outlive the process.
type MemKeystore struct {
	mu      sync.RWMutex
	entries map[string][]byte
}

// NewMemKeystore returns an empty keystore.
func NewMemKeystore() *MemKeystore {
	return &MemKeystore{entries: make(map[string][]byte)}
}

// Get implements Keystore.
func (m *MemKeystore) Get(ctx context.Context, name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e, ok := m.entries[name]; ok {
		return bytes.Clone(e), ctx.Err()
	}
	return nil, ErrNotFound
}

// Put implements Keystore.
func (m *MemKeystore) Put(ctx context.Context, name string, old, new []byte) error {
	if err := checkEntry(name, new); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.entries[name]
	if !matches(current, old) {
		return ErrKeystoreConflict
	}
	m.entries[name] = bytes.Clone(new)
	clear(current)
	return nil
}

// Delete implements Keystore.
func (m *MemKeystore) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries[name])
	delete(m.entries, name)
	return nil
}

// List implements Keystore.
func (m *MemKeystore) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.mu.RLock()
		names := slices.Collect(maps.Keys(m.entries))
		m.mu.RUnlock()
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if strings.HasPrefix(name, prefix) && !yield(name, nil) {
				return
			}
		}
	}
}
