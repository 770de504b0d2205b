package badger

import (
	"context"
	"fmt"
	"math"
	"time"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

// The driver's own key says up to which group the store goes (docs/format.md §20).
// It is not the one behind the keys of the backend, where reverse scans begin.
var positionName = []byte{0x03}

const positionVersion = 1

func appendPosition(to []byte, p commitlog.Position) []byte {
	return p.Append(append(to, positionVersion))
}

func parsePosition(stored []byte) (commitlog.Position, error) {
	if len(stored) == 0 || stored[0] != positionVersion {
		return commitlog.Position{}, fmt.Errorf("%w: the driver's key has %d bytes in an unknown form", backend.ErrCorrupt, len(stored))
	}
	p, err := commitlog.ParsePosition(stored[1:])
	if err != nil {
		return p, fmt.Errorf("%w: %v", backend.ErrCorrupt, err)
	}
	return p, nil
}

// positionOf reads the newest position that a table holds, if any, and Badger's timestamp of it.
func positionOf(t *table.Table) (p commitlog.Position, written uint64, err error) {
	it := t.NewIterator(table.NOCACHE)
	defer it.Close()
	key := y.KeyWithTs(positionName, math.MaxUint64)
	it.Seek(key)
	if !it.Valid() || !y.SameKey(it.Key(), key) {
		return p, 0, nil
	}
	p, err = parsePosition(it.Value().Value)
	return p, y.ParseTs(it.Key()), err
}

// Position implements backend.Positioner.
func (s *Store) Position(ctx context.Context) (backend.Position, error) {
	if err := s.enter(ctx); err != nil {
		return backend.Position{}, err
	}
	defer s.leave()
	txn, err := s.snapshot()
	if err != nil {
		return backend.Position{}, err
	}
	defer txn.Discard()
	p, err := positionIn(txn)
	return backend.Position{Store: s.claim.id, Incarnation: p.Incarnation, N: p.N, Time: time.UnixMilli(p.Time).UTC(), Hash: p.Hash}, err
}

// position reads the driver's key in Badger.
func (s *Store) position() (p commitlog.Position, err error) {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	return positionIn(txn)
}

func positionIn(txn *badgerdb.Txn) (p commitlog.Position, err error) {
	item, err := txn.Get(positionName)
	if err == badgerdb.ErrKeyNotFound {
		return p, nil
	}
	if err != nil {
		return p, readError(err)
	}
	err = item.Value(func(stored []byte) (err error) {
		p, err = parsePosition(stored)
		return err
	})
	return p, err
}
