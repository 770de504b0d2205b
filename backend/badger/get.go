package badger

import (
	"bytes"
	"context"
	"slices"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
)

// Get implements backend.Backend. It waits for the commit in progress, if there is one.
func (s *Store) Get(ctx context.Context, keys ...[]byte) (entries []backend.Entry, err error) {
	if err := backend.ValidateKeys(keys...); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	defer guard("reading", &err)()

	txn, err := s.snapshot()
	if err != nil {
		return nil, err
	}
	defer txn.Discard()
	g := getter{txn: txn, entries: make([]backend.Entry, len(keys))}
	for i, key := range keys {
		g.entries[i].Key = key
	}
	if prefix, near := neighbours(keys); near {
		if err := g.walk(prefix); err != nil {
			return nil, err
		}
	}
	if err := g.each(); err != nil {
		return nil, err
	}
	return g.entries, nil
}

// getter fills in entries that have their keys.
type getter struct {
	txn     *badgerdb.Txn
	entries []backend.Entry
}

// each looks up one key after the other, but for those that were found.
func (g *getter) each() error {
	var name []byte
	for i := range g.entries {
		if g.entries[i].Version != "" {
			continue
		}
		name = appendName(name[:0], g.entries[i].Key)
		item, err := g.txn.Get(name)
		if err == badgerdb.ErrKeyNotFound {
			continue
		}
		if err != nil {
			return readError(err)
		}
		if err := fill(&g.entries[i], item); err != nil {
			return err
		}
	}
	return nil
}

func fill(e *backend.Entry, item *badgerdb.Item) error {
	stored, err := item.ValueCopy(nil)
	if err != nil {
		return readError(err)
	}
	version, value, err := split(item.UserMeta(), stored)
	e.Version, e.Value = string(version), value
	return err
}

// A look-up searches every level and unpacks a block; a step of an iterator costs a tenth of that.
// So many keys that are the same but for their last bytes, such as the records of a path, are
// walked to.
const (
	worthWalking = 8
	lastBytes    = 2
	nearBy       = 16 // steps to the next key that cost less than seeking it
)

// neighbours says whether keys are worth walking to, and how much they have in common.
func neighbours(keys [][]byte) (prefix []byte, near bool) {
	if len(keys) < worthWalking {
		return nil, false
	}
	n := len(keys[0])
	for _, key := range keys[1:] {
		if n = min(n, common(keys[0], key)); n+lastBytes < len(key) {
			return nil, false
		}
	}
	return keys[0][:n], n+lastBytes >= len(keys[0])
}

// walk finds keys in their order by one iterator. A key that it does not find may still exist: an
// iterator skips a block that it cannot read.
func (g *getter) walk(prefix []byte) error {
	order := make([]*backend.Entry, len(g.entries))
	for i := range g.entries {
		order[i] = &g.entries[i]
	}
	slices.SortFunc(order, func(a, b *backend.Entry) int { return bytes.Compare(a.Key, b.Key) })
	it := g.txn.NewIterator(badgerdb.IteratorOptions{Prefix: appendName(nil, prefix)})
	defer it.Close()
	var name []byte
	for i, e := range order {
		name = appendName(name[:0], e.Key)
		if i == 0 || !advance(it, name) {
			it.Seek(name)
		}
		if !it.Valid() {
			return nil // nor is there a later one
		}
		if item := it.Item(); bytes.Equal(item.Key(), name) {
			if err := fill(e, item); err != nil {
				return err
			}
		}
	}
	return nil
}

// advance moves to the first key that is not below name, if that is not far.
func advance(it *badgerdb.Iterator, name []byte) bool {
	for range nearBy {
		if !it.Valid() || bytes.Compare(it.Item().Key(), name) >= 0 {
			return true
		}
		it.Next()
	}
	return false
}
