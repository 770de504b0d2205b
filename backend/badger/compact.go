package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/durable"
)

const (
	compactPasses = 5
	touchAtOnce   = 1000 // keys written again in one transaction, fewer if they are long
)

// Compact implements backend.Compactor: afterwards the files of the directory hold no deleted or
// overwritten value. It cannot erase the blocks of removed files on the device. It costs about as
// much as reading and writing the whole store once; other calls wait meanwhile. A failure of Badger
// in it stops the store. Once Badger has logged an error it is refused with ErrUnavailable, until
// the store is opened again.
//
// Badger has no call for this. Closing it writes memory to level 0 and removes the logs; opened
// again, with no reader in the past, it can compact level 0 away and drop superseded versions, in
// the tables that take part. The rest is found by reading every key with all its versions, and is
// made to take part by writing the key again.
func (s *Store) Compact(ctx context.Context) error {
	s.use.Lock()
	defer s.use.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.untroubled(); err != nil {
		return fmt.Errorf("compacting: %w", err)
	}
	if err := s.commits.space.admitCompaction(s.db); err != nil {
		return fmt.Errorf("compacting: %w", err)
	}
	if err := s.compact(ctx); err != nil {
		if !errors.Is(err, ctx.Err()) { // given up in peace, with Badger open
			s.stop(err)
		}
		return fmt.Errorf("compacting: %w", err)
	}
	return nil
}

func (s *Store) compact(ctx context.Context) error {
	for range compactPasses {
		if err := s.flatten(); err != nil {
			return err
		}
		left, err := s.touchSuperseded(ctx)
		if err != nil {
			return err
		}
		if !left {
			return s.eraseLog() // nothing was written since flatten
		}
	}
	return fmt.Errorf("%w: superseded values are left after %d passes", backend.ErrUnavailable, compactPasses)
}

// untroubled returns an error if Badger has logged one since it was opened. The MANIFEST can then
// name a table that Badger removed again, or lack one behind an entry that was written in part.
// Badger believes the MANIFEST when it opens, so only Open may start it, with the log at hand.
func (s *Store) untroubled() error {
	if s.flushes.trouble.Load() {
		return fmt.Errorf("%w: Badger logged an error, so the commit log was kept: open the store again", backend.ErrUnavailable)
	}
	return nil
}

// eraseLog removes every segment of the log. All groups must be in tables.
func (s *Store) eraseLog() error {
	if err := s.untroubled(); err != nil {
		return err
	}
	if err := durable.SyncDir(s.dir); err != nil {
		return dirError(err)
	}
	return dirError(s.logs.Reset(s.logs.Last()))
}

// flatten flushes memory and compacts level 0 and all that lies above the last level. The store is
// open again afterwards, unless it fails.
func (s *Store) flatten() error {
	for _, compactOnClose := range []bool{true, false} {
		if err := s.stopBadger(); err != nil {
			return err
		}
		if err := s.untroubled(); err != nil { // since the check before, or while Badger closed
			return err
		}
		o := s.settings()
		o.CompactL0OnClose = compactOnClose
		if err := s.start(o, s.logs.Last().N); err != nil {
			return err
		}
	}
	s.commits.space.unflushed = 0
	return s.flattenLevels()
}

func (s *Store) flattenLevels() (err error) {
	defer guard("compacting", &err)()
	if err := s.db.Flatten(1); err != nil {
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, text(err))
	}
	return nil
}

// touchSuperseded writes every key again that has a deleted or an older version in a table, and
// reports whether there was one. When the context ends it stops between two transactions.
func (s *Store) touchSuperseded(ctx context.Context) (found bool, err error) {
	defer guard("compacting", &err)()
	var after []byte
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		keys, err := s.superseded(after)
		if err != nil || len(keys) == 0 {
			return found, err
		}
		found = true
		if after, err = s.touchAgain(keys); err != nil {
			return false, fmt.Errorf("%w: %s", backend.ErrUnavailable, text(err))
		}
	}
}

// touchAgain writes keys again, past the log: it changes no value, and nothing is lost if a crash
// takes it back.
func (s *Store) touchAgain(keys [][]byte) (last []byte, err error) {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	if last, err = touch(txn, keys); err != nil {
		return nil, err
	}
	s.commits.space.unflushed = s.commits.space.most
	if err := s.commitAlone(txn); err != nil {
		return nil, err
	}
	return last, s.flushes.wrote(s.logs.Last().N)
}

// superseded lists the next stored names behind after that have more than a live version.
func (s *Store) superseded(after []byte) ([][]byte, error) {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	it := txn.NewIterator(badgerdb.IteratorOptions{AllVersions: true})
	defer it.Close()
	var keys [][]byte
	var last []byte
	for it.Seek(after); it.Valid() && len(keys) < touchAtOnce; it.Next() {
		item := it.Item()
		again := bytes.Equal(item.Key(), last)
		last = item.KeyCopy(last)
		if bytes.Equal(last, after) || !again && !item.IsDeletedOrExpired() {
			continue
		}
		if n := len(keys); n == 0 || !bytes.Equal(keys[n-1], last) {
			keys = append(keys, bytes.Clone(last))
		}
	}
	return keys, nil
}

// touch writes keys as they are, or deletes them once more, until the transaction is full. It
// returns the last one that it took.
func touch(txn *badgerdb.Txn, keys [][]byte) (last []byte, err error) {
	for _, key := range keys {
		item, err := txn.Get(key)
		switch err {
		case badgerdb.ErrKeyNotFound:
			err = txn.Delete(key)
		case nil:
			var stored []byte
			if stored, err = item.ValueCopy(nil); err == nil {
				err = txn.SetEntry(badgerdb.NewEntry(key, stored).WithMeta(item.UserMeta()))
			}
		}
		if err == badgerdb.ErrTxnTooBig && last != nil {
			return last, nil
		}
		if err != nil {
			return nil, err
		}
		last = key
	}
	return last, nil
}
