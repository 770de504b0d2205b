// Package mem is a backend in memory: for tests, and as the reading of the contract that other
// drivers are compared with. It keeps nothing after Close and is never durable.
package mem

import (
	"bytes"
	"context"
	"sync"

	"github.com/google/btree"

	"github.com/ckptd/ckptd/backend"
)

const (
	degree   = 32
	pageSize = 256 // entries in a page when the range names no limit
)

// Store is a backend.Backend in memory. Its zero value is not usable; call Open.
type Store struct {
	mu   sync.RWMutex
	tree *btree.BTreeG[backend.Entry] // nil once closed
}

// Open returns an empty store.
func Open() *Store {
	less := func(a, b backend.Entry) bool { return bytes.Compare(a.Key, b.Key) < 0 }
	return &Store{tree: btree.NewG(degree, less)}
}

// Caps implements backend.Backend.
func (s *Store) Caps() backend.Caps {
	return backend.Caps{Name: "mem", Exclusive: true}
}

// Get implements backend.Backend.
func (s *Store) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	if err := backend.ValidateKeys(keys...); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.tree == nil {
		return nil, backend.ErrClosed
	}
	entries := make([]backend.Entry, len(keys))
	for i, k := range keys {
		e, _ := s.tree.Get(backend.Entry{Key: k})
		entries[i] = backend.Entry{Key: k, Value: bytes.Clone(e.Value), Version: e.Version}
	}
	return entries, nil
}

// Scan implements backend.Backend.
func (s *Store) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if err := r.Validate(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.tree == nil {
		return nil, nil, backend.ErrClosed
	}
	p := page{r: r}
	if r.Reverse {
		p.descend(s.tree)
	} else {
		s.tree.AscendGreaterOrEqual(backend.Entry{Key: r.Start}, p.add)
	}
	return p.entries, p.next, nil
}

// page collects the entries of one Scan.
type page struct {
	r       backend.Range
	entries []backend.Entry
	bytes   int
	next    []byte
}

func (p *page) descend(tree *btree.BTreeG[backend.Entry]) {
	if len(p.r.End) == 0 {
		tree.Descend(p.add)
		return
	}
	tree.DescendLessOrEqual(backend.Entry{Key: p.r.End}, func(e backend.Entry) bool {
		return bytes.Equal(e.Key, p.r.End) || p.add(e) // the end is not part of the range
	})
}

// add takes the next entry in the direction of the scan and reports whether it wants another.
func (p *page) add(e backend.Entry) bool {
	if p.r.Reverse && bytes.Compare(e.Key, p.r.Start) < 0 {
		return false
	}
	if !p.r.Reverse && len(p.r.End) > 0 && bytes.Compare(e.Key, p.r.End) >= 0 {
		return false
	}
	if p.full() {
		p.next = bytes.Clone(e.Key)
		if p.r.Reverse {
			p.next = bytes.Clone(p.entries[len(p.entries)-1].Key)
		}
		return false
	}
	out := backend.Entry{Key: bytes.Clone(e.Key), Version: e.Version}
	if !p.r.KeysOnly {
		out.Value = bytes.Clone(e.Value)
	}
	p.entries = append(p.entries, out)
	p.bytes += len(out.Key) + len(out.Value)
	return true
}

func (p *page) full() bool {
	limit := p.r.Limit
	if limit == 0 {
		limit = pageSize
	}
	return len(p.entries) >= limit || p.r.Bytes > 0 && p.bytes >= p.r.Bytes
}

// Commit implements backend.Backend.
func (s *Store) Commit(ctx context.Context, b backend.Batch) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree == nil {
		return backend.ErrClosed
	}
	for _, c := range b.Conds {
		e, _ := s.tree.Get(backend.Entry{Key: c.Key})
		if e.Version != c.Version {
			return backend.ErrConflict
		}
	}
	for _, m := range b.Muts {
		if m.Delete {
			s.tree.Delete(backend.Entry{Key: m.Key})
			continue
		}
		s.tree.ReplaceOrInsert(backend.Entry{
			Key:     bytes.Clone(m.Key),
			Value:   append([]byte{}, m.Value...),
			Version: m.Version,
		})
	}
	return nil
}

// Close implements backend.Backend and drops the data.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree == nil {
		return backend.ErrClosed
	}
	s.tree = nil
	return nil
}
