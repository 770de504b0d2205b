// Package badger is the backend on a local directory, built on the Badger key-value store. It is
// the only package that knows Badger: none of its types, errors or versions leave it.
//
// # Durability
//
// Commit returns after the batch was written to the driver's own log (package commitlog), the log
// was synced, and Badger has it in memory. Commits that arrive while another is being synced share
// the next frame, transaction and sync, so the rate grows with the number of writers. Nobody waits
// for company: a commit that finds the store idle starts at once.
//
// The log is the truth about commits that are not in Badger's tables yet. Open reads it before
// Badger opens, and decides which commits count: opening.go. docs/format.md §20 has the rules.
//
// After an error in writing or syncing the store fails stop: the commits of that group return an
// error that is both backend.ErrAmbiguous and backend.ErrUnavailable, and every later call returns
// backend.ErrUnavailable until the store is opened again. Reads stop as well, because they would
// see commits that were not synced. Close then leaves the directory as a crash does, and locked
// until the process ends.
//
// A process that is killed may leave a transaction that it had not synced. Open makes it durable
// before anybody sees it.
//
// A nearly full disk refuses commits with backend.ErrNoSpace, early, because Badger writes through
// memory maps and running out of space in one kills the process. The space that must stay free is
// computed from the data that has yet to be flushed and compacted. Deleting needs a commit too, so
// below that limit a file in the directory, the ballast, is given up for commits that make room
// (backend.MakingRoom) and for Compact; it takes Options.MinFree and a quarter of a memory table.
// Other commits resume when there is room again for it and for them, and then it comes back. One
// case remains: other programs fill the device, by more than Options.MinFree, in the seconds that a
// flush or compaction takes. Then nothing acknowledged is lost, but the process dies: a fault in a
// memory map leaves no time to free anything.
//
// # Directory
//
// The file CKPTD in the directory says whose it is and in which format. A directory without it is
// never written to unless it is empty. One process at a time has the directory open. Values up to
// the portable floor stay out of Badger's value log, whose sync errors it only logs.
package badger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	badgerdb "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/panics"
)

// Options adjust a store; the zero value is a good default.
type Options struct {
	// MustExist refuses to create a store where there is none; the error is fs.ErrNotExist.
	MustExist bool

	// MemTableSize is how many bytes of writes are gathered in memory before they become a table; 0
	// means 64 MiB, the least is 8 MiB. The store holds about 1.3 times as much of address space
	// for each of up to three of them; small hosts do well with 16 MiB.
	MemTableSize int64

	// MinFree is how many bytes must stay free on the device, in addition to those that the store
	// needs to flush and compact the commits it accepted: the margin for other writers on that
	// device. 0 means 16 MiB.
	MinFree int64

	// Log receives Badger's messages, nil drops them. They name files and sizes, never keys or
	// values.
	Log *slog.Logger

	// LogFiles, if not nil, wraps the file system of the commit log, so that tests can make it
	// fail.
	LogFiles func(commitlog.FS) commitlog.FS

	// Observe, if not nil, is told of every group that was committed, before its commits return.
	// One call follows the other, and every commit waits for them: it must not block.
	Observe func(backend.Group)
}

const (
	defaultMemTable = 64 << 20
	leastMemTable   = 8 << 20 // a transaction is at most 15 % of it, and must hold a batch of backend.MaxBatchBytes
	defaultMinFree  = 16 << 20
	memTables       = 2 // waiting to be flushed, in addition to the one being written
	blockCache      = 8 << 20

	// magic is written into Badger's MANIFEST, so that neither opens the other's store: ckptd,
	// format 1.
	magic = 0xCD01
)

// Store is a backend.Backend and backend.Compactor on a directory.
type Store struct {
	dir     string
	opts    Options
	log     logger
	claim   *claim
	logs    *commitlog.Log
	flushes flushes
	commits committer

	use    sync.RWMutex // held for reading by every call, for writing by Close and Compact
	db     *badgerdb.DB
	commit sync.RWMutex // held for writing while a transaction may be visible and is not durable
	closed bool
	failed atomic.Pointer[error] // why the store stopped, nil while it works
	ending <-chan error          // of a Badger that is being closed and that nobody waits for
}

// Open opens the store in dir, creating it in a directory that is missing or empty unless
// Options.MustExist is set.
//
// Errors: backend.ErrForeign (dir holds something else; nothing in it was touched), ErrNewerFormat,
// ErrLocked, ErrReadOnly, ErrNoSpace, ErrCorrupt, ErrUnavailable (out of file handles or memory, a
// failing device), and fs.ErrNotExist with MustExist.
func Open(dir string, opts Options) (*Store, error) {
	s, err := newStore(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("opening store: %w", err)
	}
	if s.claim, err = claimDir(dir, !opts.MustExist); err != nil {
		return nil, fmt.Errorf("opening store in %s: %w", dir, err)
	}
	if err := s.openFiles(); err != nil {
		return nil, fmt.Errorf("opening store in %s: %w", dir, errors.Join(err, s.abandon()))
	}
	return s, nil
}

// newStore is a store that has nothing open.
func newStore(dir string, opts Options) (*Store, error) {
	if opts.MemTableSize == 0 {
		opts.MemTableSize = defaultMemTable
	}
	if opts.MinFree == 0 {
		opts.MinFree = defaultMinFree
	}
	if opts.MemTableSize < leastMemTable || opts.MinFree < 0 {
		return nil, fmt.Errorf("%w: MemTableSize %d (at least %d), MinFree %d (at least 0)",
			backend.ErrInvalid, opts.MemTableSize, leastMemTable, opts.MinFree)
	}
	s := &Store{dir: dir, opts: opts}
	s.flushes.failures = make(chan string, giveUpAfter)
	s.log = logger{opts.Log, &s.flushes}
	s.commits.init(s)
	return s, nil
}

// abandon gives up a store whose opening failed.
func (s *Store) abandon() error {
	defer s.release()
	if s.logs == nil {
		return nil
	}
	return s.logs.Close()
}

// release gives the directory up once Badger has ended, which may be never.
func (s *Store) release() {
	if s.ending == nil {
		s.claim.release()
		return
	}
	go func() {
		defer panics.To(func(error) {})
		<-s.ending
		s.claim.release()
	}()
}

// settings are the options of Badger, see docs/design.md for the reasons that are not in this file.
func (s *Store) settings() badgerdb.Options {
	o := badgerdb.DefaultOptions(s.dir)
	o.SyncWrites = false      // the log is synced
	o.DetectConflicts = false // the committer is the only writer
	o.NumVersionsToKeep = 1
	o.ChecksumVerificationMode = options.NoVerification // verifyTables does it, and survives damage
	o.ExternalMagicVersion = magic
	o.BypassLockGuard = locksDirs // the claim has the lock that Badger would take
	o.Logger = s.log
	o.MetricsEnabled = false

	o.MemTableSize = s.opts.MemTableSize
	o.NumMemtables = memTables
	o.NumCompactors = 2

	// Values are ciphertext, but half of a small record's overhead is its key, which Badger
	// shortens only against the first of a block. 5,000 records of 300 bytes under keys of 63: 66
	// bytes of overhead without compression, 22 with Snappy, 16 with zstd, which costs more time
	// and memory than those 6 bytes are worth. A read then unpacks a block, and the cache keeps
	// those in use.
	o.Compression = options.Snappy
	o.BlockSize = 16 << 10
	o.BlockCacheSize = blockCache
	o.IndexCacheSize = 0 // indexes are read from the mapped tables

	// No value is as long as this, so none goes to the value log, which then only has to be as
	// small as it can.
	o.ValueThreshold = backend.MaxBatchBytes
	o.ValueLogFileSize = 2 * backend.MaxBatchBytes
	return o
}

// start opens Badger, which has all groups up to safe in tables.
func (s *Store) start(o badgerdb.Options, safe uint64) (err error) {
	defer guard("opening", &err)()
	s.flushes.trouble.Store(false) // before Badger's compactions can fail
	db, err := badgerdb.Open(o)
	if err != nil {
		return openError(err)
	}
	s.db = db
	return s.flushes.begin(s.dir, safe)
}

// Caps implements backend.Backend.
func (s *Store) Caps() backend.Caps {
	return backend.Caps{Name: "badger", Durable: true, Exclusive: true}
}

// enter admits a call until leave; it fails when the store was closed or has stopped, or the
// context has ended. While Compact runs it waits.
func (s *Store) enter(ctx context.Context) error {
	s.use.RLock()
	err := s.usable()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.use.RUnlock()
	}
	return err
}

func (s *Store) leave() { s.use.RUnlock() }

// snapshot begins to read durable data. It waits for the commit in progress, if there is one.
func (s *Store) snapshot() (*badgerdb.Txn, error) {
	s.commit.RLock()
	defer s.commit.RUnlock()
	if err := s.usable(); err != nil { // that commit failed
		return nil, err
	}
	return s.db.NewTransaction(false), nil
}

func (s *Store) usable() error {
	if s.closed {
		return backend.ErrClosed
	}
	if why := s.failed.Load(); why != nil {
		return *why
	}
	return nil
}

// stop makes every later call fail.
func (s *Store) stop(why error) {
	err := fmt.Errorf("%w: the store stopped after a failed write and must be reopened: %s", backend.ErrUnavailable, text(why))
	s.failed.CompareAndSwap(nil, &err)
}

// Commit implements backend.Backend.
func (s *Store) Commit(ctx context.Context, b backend.Batch) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.commits.commit(b, backend.MakesRoom(ctx))
}

// Close implements backend.Backend. It writes memory to tables, so that the next Open has nothing
// to replay.
//
// Where the device has no room for that, it returns backend.ErrNoSpace and leaves the directory as
// a crash would: nothing acknowledged is lost, and the next Open in another process replays it. In
// this one the directory stays locked. After a write that failed it returns backend.ErrUnavailable
// and does the same, so that a group whose outcome is unknown gets no further. It also does so if
// Badger repeatedly fails to write a table: Badger's goroutines keep trying, and the directory
// stays locked until they succeed or the process ends.
func (s *Store) Close() error {
	s.use.Lock()
	defer s.use.Unlock()
	if s.closed {
		return backend.ErrClosed
	}
	s.closed = true
	s.commits.space.ballast.close()
	if s.db != nil {
		if why := s.failed.Load(); why != nil {
			return errors.Join(fmt.Errorf("closing the store without flushing it: %w", *why), s.logs.Close())
		}
		if err := s.commits.space.require(s.commits.space.unflushed); err != nil {
			return errors.Join(fmt.Errorf("closing the store without flushing it: %w", err), s.logs.Close())
		}
	}
	defer s.release()
	err := s.stopBadger()
	if s.ending != nil {
		if why := s.failed.Load(); err == nil && why != nil { // a compaction gave up on Badger
			err = *why
		}
		err = fmt.Errorf("closing the store without flushing it: %w", err)
	} else if err == nil && s.failed.Load() == nil && !s.flushes.trouble.Load() { // all of the log is in tables
		err = s.eraseLog()
	}
	return errors.Join(err, s.logs.Close())
}

// stopBadger closes Badger, or gives up on it where it cannot write its memory to tables. Badger
// then keeps trying, in goroutines that nothing can end.
func (s *Store) stopBadger() error {
	if s.db == nil {
		return nil
	}
	done := make(chan error, 1)
	db := s.db
	go func() {
		defer panics.To(func(err error) { done <- err })
		done <- closeBadger(db)
	}()
	s.db = nil
	err, ended := s.flushes.await(done)
	if !ended {
		s.ending = done
	}
	return err
}

func closeBadger(db *badgerdb.DB) (err error) {
	defer guard("closing", &err)()
	if err := db.Close(); err != nil {
		return fmt.Errorf("%w: closing the store: %s", backend.ErrUnavailable, text(err))
	}
	return nil
}

// commitAlone commits a transaction of the driver's own, past the log.
func (s *Store) commitAlone(txn *badgerdb.Txn) error {
	done := make(chan error, 1)
	txn.CommitWith(func(err error) { done <- err })
	err, _ := s.flushes.await(done)
	return err
}
