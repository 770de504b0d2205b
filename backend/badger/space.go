package badger

import (
	"fmt"
	"os"
	"strings"
	"time"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
)

// space keeps writes from starting that could not be finished. Badger writes logs and tables through memory maps, in
// the background too, and a map that finds no block kills the process. So before each group the device must have
// room for the group and for everything that Badger may do by itself afterwards:
//
//   - flush what is in memory to tables, at most as much as was written since the store was opened;
//   - compact level 0, with those tables, into the level below, which writes all of both anew before it removes them;
//   - compact single tables of lower levels with those they overlap.
//
// A log is removed when its table is written, so the flush needs no room on top of the compaction's.
//
// It is used by the leader of the committer alone, and by Open and Compact while there is none.
type space struct {
	dir     string
	minFree int64
	most    int64 // that can be in memory, unflushed

	unflushed int64
	tables    int64 // bytes that a compaction of the tables may need
	counted   time.Time
}

const (
	recount    = 100 * time.Millisecond // how old the count of tables may be
	lowerShare = 256 << 20              // of the tables below level 0 and its target, at most, in one compaction
)

// init counts the logs in the directory before Badger opens it, and refuses a device too full to replay them and for
// the compaction that is pending.
func (sp *space) init(dir string, o Options, pending int64) error {
	*sp = space{dir: dir, minFree: o.MinFree}
	sp.most = (memTables + 1) * (o.MemTableSize + o.MemTableSize*15/100)
	files, err := os.ReadDir(dir)
	if err != nil {
		return dirError(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), walSuffix) {
			continue
		}
		info, err := f.Info()
		if err != nil {
			return dirError(err)
		}
		sp.unflushed += allocated(info)
	}
	return sp.require(sp.unflushed + pending)
}

// admit accepts a group of so many bytes, or says that there is no room for it.
func (sp *space) admit(db *badgerdb.DB, size int) error {
	if now := time.Now(); now.Sub(sp.counted) > recount {
		tables, err := compactionNeed(db)
		if err != nil {
			return err
		}
		sp.counted, sp.tables = now, tables
	}
	unflushed := min(sp.unflushed+int64(size), sp.most)
	if err := sp.require(int64(size) + unflushed + sp.tables); err != nil {
		return err
	}
	sp.unflushed = unflushed
	return nil
}

// require checks that so many bytes can be written with the margin left over.
func (sp *space) require(bytes int64) error {
	free, err := freeBytes(sp.dir)
	if err != nil {
		return err
	}
	if bytes += sp.minFree; free < bytes {
		return fmt.Errorf("%w: %d MiB free, %d MiB needed to go on safely", backend.ErrNoSpace, free>>20, (bytes+1<<20-1)>>20)
	}
	return nil
}

// admitCompaction accepts that every table and everything in memory is written once more, or says that there is no room.
func (sp *space) admitCompaction(db *badgerdb.DB) (err error) {
	defer guard("sizing the tables", &err)()
	need := sp.unflushed
	for _, l := range db.Levels() {
		need += l.Size
	}
	return sp.require(need)
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
