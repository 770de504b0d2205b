package badger

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

const (
	logDir       = "log"
	segmentShare = 8       // of a memory table, that a segment of the log is
	leastSegment = 1 << 20 // bytes
)

// opening holds the findings about a directory, made before anything in it changes, and acts on
// them.
type opening struct {
	s      *Store
	find   place // of the files of Badger's
	tables tables
	tail   *commitlog.Tail
	fresh  bool // there is no log yet, nor anything else
	groups []group
	last   commitlog.Position // of the last group that counts
	bytes  int64              // of the groups, at most
	notes  []string           // the damage that will be repaired

	manifest []byte // that replaces the one that is there, if not nil

	dry     bool     // change nothing, whatever is found
	accept  bool     // continue without the lost commits
	lost    *Loss    // those
	refused error    // why the store is not opened without that
	logGone bool     // there is no log of this store, or none that fits its tables
	puts    []string // the faults that were mended from the folder kept, or would be
	keys    bool     // the KEYREGISTRY is damaged, which holds nothing
}

// group is one to apply: from a frame of the log or, where that is damaged, from a memory file.
type group struct {
	pos    commitlog.Position
	frame  commitlog.FrameRef
	memory *memoryGroup
}

// openFiles decides which groups count, and starts Badger with them.
func (s *Store) openFiles() error {
	o := opening{s: s}
	if err := o.look(); err != nil {
		return err
	}
	if err := s.commits.space.init(s.opts, o.tables.pending, o.bytes); err != nil {
		return err
	}
	if err := o.start(); err != nil {
		if stopped := s.stopBadger(); !errors.Is(err, stopped) {
			err = errors.Join(err, stopped)
		}
		return err
	}
	s.commits.space.startBallast()
	return nil
}

// look reads everything and changes nothing, but that it brings tables back which an opening lost
// that was cut short.
func (o *opening) look() (err error) {
	dir := o.s.dir
	if err := o.openLog(); err != nil {
		return err
	}
	o.find = inDir(dir)
	if err := o.lookAtTables(); err != nil {
		if err := o.bringBack(err); err != nil {
			return o.shorten(err)
		}
	}
	return o.settle()
}

// settle finds out which groups count, given the tables.
func (o *opening) settle() (err error) {
	if o.fresh {
		rand.Read(o.tables.pos.Incarnation[:])
		o.last = o.tables.pos
		return nil
	}
	if err := o.checkIncarnation(); err != nil {
		return err
	}
	if o.logGone {
		o.tail = &commitlog.Tail{}
	} else if o.tail, err = o.s.logs.Scan(o.tables.pos); err != nil {
		return dirError(err)
	}
	err = o.plan()
	if o.refused != nil {
		if unnamed := o.checkUnnamed(); unnamed != nil {
			o.lost = nil // or so it seems
			return unnamed
		}
	}
	if err != nil {
		return err
	}
	if o.keys {
		o.notes = append(o.notes, "the KEYREGISTRY is damaged (it holds no keys)")
	}
	return nil
}

func (o *opening) lookAtTables() (err error) {
	if err := checkFiles(o.s.dir, o.find); err != nil {
		return err
	}
	if o.keys, err = checkRegistry(o.find); err != nil {
		return err
	}
	o.tables, err = verifyTables(o.find, o.s.settings())
	return err
}

// bringBack restores tables that an opening lost which was cut short, after an error about those
// that are there.
func (o *opening) bringBack(why error) error {
	dir := o.s.dir
	if o.dry {
		if _, err := os.Lstat(filepath.Join(dir, keptDir)); err != nil {
			return why
		}
		o.puts, o.find = append(o.puts, text(why)), inKept(dir)
		return o.lookAtTables()
	}
	restored, failed := putBack(dir, o.s.commits.space.room)
	if failed != nil {
		return fmt.Errorf("%w; putting back the copies in %s failed: %w", why, keptDir, failed)
	}
	if !restored {
		return why
	}
	o.puts = append(o.puts, text(why))
	return o.lookAtTables()
}

// openLog opens the log, or finds that there is none because there is no store yet.
func (o *opening) openLog() (err error) {
	s := o.s
	o.s.logs, err = commitlog.Open(s.logFiles(), commitlog.Options{
		Store:   s.claim.id,
		Segment: max(s.opts.MemTableSize/segmentShare, leastSegment),
		Room:    s.commits.space.room,
		Safe:    s.flushes.inTables,
	})
	switch {
	case errors.Is(err, commitlog.ErrMissing):
		name, err := badgersFile(s.dir)
		if err != nil {
			return err
		}
		if name != "" {
			return o.withoutLog(backend.ErrNoLog, fmt.Sprintf("there is %s and no %s", name, logDir))
		}
		o.fresh = true
		return nil
	case errors.Is(err, commitlog.ErrNewer):
		return fmt.Errorf("%w: %v", backend.ErrNewerLog, err)
	case errors.Is(err, commitlog.ErrForeign):
		return o.withoutLog(backend.ErrForeignLog, strings.TrimSuffix(err.Error(), ": "+commitlog.ErrForeign.Error()))
	}
	return dirError(err)
}

func (s *Store) logFiles() commitlog.FS {
	files := commitlog.FS(commitlog.Dir(filepath.Join(s.dir, logDir)))
	if s.opts.LogFiles != nil {
		files = s.opts.LogFiles(files)
	}
	return files
}

// badgersFile is the name of a file that only a store has that was opened before.
func badgersFile(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", dirError(err)
	}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".sst", memorySuffix, ".vlog":
			return e.Name(), nil
		}
		if e.Name() == badgerdb.ManifestFilename || e.Name() == asideDir {
			return e.Name(), nil
		}
	}
	return "", nil
}

// checkIncarnation makes sure that log and tables are of one life. The tables say of which, then
// the anchor, then a segment.
func (o *opening) checkIncarnation() error {
	anchor, whole := o.anchor()
	switch {
	case o.tables.written > 0:
		of := anchor.Incarnation
		if !whole && !o.logGone {
			of, whole = o.s.logs.Incarnation()
		}
		if whole && of != o.tables.pos.Incarnation {
			return o.withoutLog(backend.ErrLostCommits, "its log and its tables are from different copies of it")
		}
	case o.logGone:
		return o.incarnationOfMemory()
	case whole:
		o.tables.pos.Incarnation = anchor.Incarnation
	default:
		id, ok := o.s.logs.Incarnation()
		if !ok {
			rand.Read(id[:])
		}
		o.tables.pos.Incarnation = id
	}
	return nil
}

// anchor is the position in the log's anchor, if there is a log.
func (o *opening) anchor() (p commitlog.Position, whole bool) {
	if o.logGone {
		return p, false
	}
	return o.s.logs.Anchor()
}

// start sets memory files aside, starts Badger, and applies the groups, which are in tables when it
// returns.
func (o *opening) start() error {
	s := o.s
	if o.fresh {
		if err := o.create(); err != nil {
			return err
		}
	}
	if o.keys {
		if err := errors.Join(os.Remove(filepath.Join(s.dir, badgerdb.KeyRegistryFileName)), durable.SyncDir(s.dir)); err != nil {
			return dirError(err)
		}
	}
	if ownLock {
		if err := settleManifest(s.dir); err != nil {
			return err
		}
	}
	if err := o.writeShortened(); err != nil {
		return err
	}
	if err := errors.Join(setAside(s.dir, len(o.groups) > 0 || o.accept), keepTables(s.dir, s.commits.space.room)); err != nil {
		return err
	}
	if len(o.groups) > 0 || o.accept {
		if err := o.replay(); err != nil {
			return err
		}
	}
	if err := s.start(s.settings(), o.last.N); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := errors.Join(dropKept(s.dir), dropAside(s.dir)); err != nil {
		return err
	}
	if o.accept {
		if err := o.replaceLog(); err != nil {
			return err
		}
	}
	return o.beginLog()
}

// create makes the log of a new store.
func (o *opening) create() error {
	err := os.Mkdir(filepath.Join(o.s.dir, logDir), 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = commitlog.Create(o.s.logFiles(), o.s.claim.id, o.last.Incarnation)
	}
	if err == nil {
		err = durable.SyncDir(o.s.dir)
	}
	if err == nil {
		err = o.openLog()
	}
	return dirError(err)
}

// replay has Badger apply the groups and write them to tables, which it does when it is closed. So
// the groups are durable before anybody sees them. The log itself may not be: its process can have
// been killed before a sync, or a sync can have failed.
func (o *opening) replay() error {
	s := o.s
	settings := s.settings()
	settings.NumCompactors = 0 // or closing waits for a compaction
	settings.NumLevelZeroTablesStall = math.MaxInt32
	if err := s.start(settings, o.tables.pos.N); err != nil {
		return err
	}
	if err := s.apply(o.groups, o.last); err != nil {
		return err
	}
	if err := s.stopBadger(); err != nil {
		return err
	}
	s.commits.space.unflushed = 0
	if s.flushes.trouble.Load() {
		return fmt.Errorf("%w: Badger failed to write the replayed groups to tables", backend.ErrUnavailable)
	}
	return durable.SyncDir(s.dir)
}

// check makes sure that Badger ends with the last group.
func (o *opening) check() (err error) {
	defer guard("opening", &err)()
	have, err := o.s.position()
	if err == nil && have != o.last && (o.last.N > 0 || have.N > 0) {
		err = fmt.Errorf("%w: Badger's tables go up to group %d, and the log up to %d", backend.ErrCorrupt, have.N, o.last.N)
	}
	return err
}

// beginLog continues the log after the last group, which is in tables by now.
func (o *opening) beginLog() error {
	if len(o.notes) > 0 {
		o.s.log.log(slog.LevelWarn, "repaired the store: %s", []any{strings.Join(o.notes, "; ")})
	}
	return dirError(o.s.logs.Begin(o.last))
}
