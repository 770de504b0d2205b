package badger

import (
	"bytes"
	"context"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
)

// The page of a range that names no limit of its own.
const (
	pageEntries = 256
	pageBytes   = 4 << 20
)

// Scan implements backend.Backend. It waits for the commit in progress, if there is one.
func (s *Store) Scan(ctx context.Context, r backend.Range) (entries []backend.Entry, next []byte, err error) {
	if err := r.Validate(); err != nil {
		return nil, nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer s.leave()
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) >= 0 {
		return nil, nil, nil
	}
	defer guard("reading", &err)()

	txn, err := s.snapshot()
	if err != nil {
		return nil, nil, err
	}
	defer txn.Discard()
	sc := newScanner(txn, r)
	defer sc.it.Close()
	for ; sc.inRange(); sc.it.Next() {
		if sc.full() {
			next = sc.next()
			break
		}
		if err := sc.take(); err != nil {
			return nil, nil, err
		}
	}
	return sc.entries, next, nil
}

// scanner collects one page.
type scanner struct {
	r       backend.Range
	it      *badgerdb.Iterator
	stop    []byte // stored name of the bound that the scan runs towards, nil for none
	entries []backend.Entry
	bytes   int
}

// newScanner puts an iterator on the first key of the range in the direction of the scan.
func newScanner(txn *badgerdb.Txn, r backend.Range) *scanner {
	start, end := appendName(nil, r.Start), []byte{dataSpace + 1}
	if len(r.End) > 0 {
		end = appendName(nil, r.End)
	}
	if r.Limit == 0 {
		r.Limit = pageEntries
		if r.Bytes == 0 {
			r.Bytes = pageBytes
		}
	}
	// Keys between two bounds share the prefix that the bounds share; it spares Badger the tables
	// that lack it. The data space always is part of it, so that no other records are seen.
	prefix := []byte{dataSpace}
	if n := common(start, end); n > 1 {
		prefix = start[:n]
	}
	// Values are in the tables: with prefetching they would only be handed through a goroutine.
	opt := badgerdb.IteratorOptions{Reverse: r.Reverse, Prefix: prefix}
	sc := &scanner{r: r, it: txn.NewIterator(opt), stop: end}
	if r.Reverse {
		sc.stop = start
		sc.it.Seek(end)
		if sc.it.Valid() && bytes.Equal(sc.it.Item().Key(), end) {
			sc.it.Next() // the end is not part of the range
		}
	} else {
		sc.it.Seek(start)
	}
	return sc
}

func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (sc *scanner) inRange() bool {
	if !sc.it.Valid() {
		return false
	}
	if c := bytes.Compare(sc.it.Item().Key(), sc.stop); sc.r.Reverse {
		return c >= 0
	} else {
		return c < 0
	}
}

func (sc *scanner) full() bool {
	return len(sc.entries) >= sc.r.Limit || sc.r.Bytes > 0 && sc.bytes >= sc.r.Bytes
}

// next is where the following page begins: at the key that did not fit, or, in reverse, below the
// last that did.
func (sc *scanner) next() []byte {
	if sc.r.Reverse {
		return bytes.Clone(sc.entries[len(sc.entries)-1].Key)
	}
	return bytes.Clone(sc.it.Item().Key()[1:])
}

func (sc *scanner) take() error {
	item := sc.it.Item()
	return item.Value(func(stored []byte) error {
		version, value, err := split(item.UserMeta(), stored)
		if err != nil {
			return err
		}
		key := item.Key()[1:]
		if sc.r.KeysOnly {
			value = nil
		}
		own := make([]byte, len(key)+len(value))
		n := copy(own, key)
		copy(own[n:], value)
		e := backend.Entry{Key: own[:n:n], Version: string(version)}
		if !sc.r.KeysOnly {
			e.Value = own[n:]
		}
		if sc.entries == nil {
			sc.entries = make([]backend.Entry, 0, min(sc.r.Limit, pageEntries))
		}
		sc.entries = append(sc.entries, e)
		sc.bytes += len(own)
		return nil
	})
}
