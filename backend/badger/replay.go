package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/internal/durable"
)

// settle makes durable what is about to be seen. A process that was killed may leave a transaction in
// its log that it had not synced. The next one would replay it and acknowledge commits that stand on
// it, in a log of its own; a power loss could then take the transaction and leave those commits.
//
// Syncing the old logs is not enough: if a sync failed before, the kernel takes their pages for written.
// So Badger writes what it replays to tables, which it does when it is closed. There are no logs to
// replay, and none of this is done, after a store was closed in order.
func (s *Store) settle() error {
	if ownLock {
		if err := settleManifest(s.dir); err != nil {
			return err
		}
	}
	log, err := newestLog(s.dir)
	if err != nil || log == 0 {
		return err
	}
	o := s.settings()
	o.NumCompactors = 0 // or closing waits for a compaction
	o.NumLevelZeroTablesStall = math.MaxInt32
	if err := s.start(o); err != nil {
		return err
	}
	if err := s.stopBadger(); err != nil {
		return err
	}
	s.commits.space.unflushed = 0
	return nil
}

// settleManifest writes the MANIFEST anew. Its end may not be durable either, and when Badger opens it
// removes the tables that are no longer in it: after a power loss an older end would name them.
func settleManifest(dir string) error {
	path := filepath.Join(dir, badgerdb.ManifestFilename)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	if err == nil {
		err = durable.WriteFile(path, content)
	}
	if err != nil {
		return dirError(err)
	}
	return nil
}

// newestLog is the number of the log in dir that Badger began last, 0 if there is none.
func newestLog(dir string) (int, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, dirError(err)
	}
	newest := 0 // Badger counts from 1
	for _, f := range files {
		var n int
		if _, err := fmt.Sscanf(f.Name(), "%d"+walSuffix, &n); err == nil {
			newest = max(newest, n)
		}
	}
	return newest, nil
}
