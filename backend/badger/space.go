package badger

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
)

// space keeps writes from starting that could not be finished. Badger writes logs and tables
// through memory maps, in the background too, and a map that finds no block kills the process. So
// before each group the device must have room for the group and for everything that Badger may do
// by itself afterwards:
//
//   - flush memory to tables, at most as much as was written since the store was opened;
//   - compact level 0, with those tables, into the level below, which rewrites all of both before it removes them;
//   - compact single tables of lower levels with those they overlap.
//
// A memory file is removed when its table is written, so the flush needs no room on top of the
// compaction's. A segment of the commit log has its blocks before anything is written to it.
//
// Before that is so, the ballast is given up: a file in the directory that only takes room. It is
// given up for commits that make room, and comes back when there is room for it again. Until then
// ordinary commits are refused, or they would take the room of the ballast.
//
// It is used by the leader of the committer alone, and by Open and Compact while there is none.
type space struct {
	dir     string
	minFree int64
	most    int64 // that can be in memory, unflushed

	unflushed int64
	tables    int64 // bytes that a compaction of the tables may need
	counted   time.Time

	need atomic.Int64 // of both, for room

	ballast ballast
}

const (
	recount    = 100 * time.Millisecond // how old the count of tables may be
	lowerShare = 256 << 20              // of the tables below level 0 and its target, at most, in one compaction
)

// init refuses a device too full to replay that much of the log, or for the pending compaction.
func (sp *space) init(o Options, pending, replay int64) error {
	sp.most = (memTables + 1) * (o.MemTableSize + o.MemTableSize*15/100)
	sp.unflushed = min(replay, sp.most)
	sp.need.Store(replay + pending)
	sp.ballast.init(sp.dir, o.MinFree+o.MemTableSize/ballastShare)
	return sp.requireWithBallast(replay + pending)
}

// admit accepts a group of size bytes, or refuses it for lack of room. One that makes room can take
// that of the ballast.
func (sp *space) admit(db *badgerdb.DB, size int, makesRoom bool) error {
	if now := time.Now(); now.Sub(sp.counted) > recount {
		tables, err := compactionNeed(db)
		if err != nil {
			return err
		}
		sp.counted, sp.tables = now, tables
	}
	unflushed := min(sp.unflushed+int64(size), sp.most)
	need := int64(size) + unflushed + sp.tables
	if makesRoom {
		if err := sp.requireWithBallast(need); err != nil {
			return err
		}
	} else if err := sp.require(need + sp.ballast.missing()); err != nil {
		return err
	} else {
		sp.ballast.restore()
	}
	sp.unflushed = unflushed
	sp.need.Store(unflushed + sp.tables)
	return nil
}

// room accepts that a segment of the log is allocated. Other than the rest it may be called by any
// goroutine.
func (sp *space) room(bytes int64) error { return sp.require(bytes + sp.need.Load()) }

// require checks that this many bytes can be written with the margin left over.
func (sp *space) require(bytes int64) error {
	free, err := freeBytes(sp.dir)
	if err != nil {
		return err
	}
	if bytes += sp.minFree; free < bytes {
		return fmt.Errorf("%w: %d MiB free, %d MiB needed to continue safely", backend.ErrNoSpace, free>>20, (bytes+1<<20-1)>>20)
	}
	return nil
}

// requireWithBallast is require for operations that can take the room of the ballast, if that is
// enough.
func (sp *space) requireWithBallast(bytes int64) error {
	err := sp.require(bytes)
	if err == nil || !errors.Is(err, backend.ErrNoSpace) {
		return err
	}
	if sp.require(bytes-sp.ballast.held()) != nil {
		return err
	}
	if err := sp.ballast.release(); err != nil {
		return err
	}
	return sp.require(bytes)
}

// startBallast makes the ballast of a store that has none, if there is room.
func (sp *space) startBallast() {
	if missing := sp.ballast.missing(); missing > 0 && sp.require(sp.need.Load()+missing) == nil {
		sp.ballast.make()
	}
}

// admitCompaction accepts that every table and everything in memory is written once more, or
// refuses it for lack of room.
func (sp *space) admitCompaction(db *badgerdb.DB) (err error) {
	defer guard("sizing the tables", &err)()
	need := sp.unflushed
	for _, l := range db.Levels() {
		need += l.Size
	}
	return sp.requireWithBallast(need)
}

// compactionNeed is how many bytes compactions of the tables may write before they remove any.
func compactionNeed(db *badgerdb.DB) (need int64, err error) {
	defer guard("sizing the tables", &err)()
	var lower int64
	for _, l := range db.Levels() {
		if l.Level == 0 || l.IsBaseLevel {
			need += l.Size
		} else {
			lower += l.Size
		}
	}
	return need + min(lower, lowerShare), nil
}
