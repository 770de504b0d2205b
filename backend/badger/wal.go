package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/durable"
)

// wal syncs the log that Badger writes transactions to before it puts them into memory, the newest *.mem file. Badger's
// SyncWrites would sync the value log as well, to which nothing is ever written here, and each sync is a flush of the
// device's cache: on ext4 that is 258 µs a transaction instead of 201. It would only log the error of that one, too, and
// leaves the directory entry of a new log to the file system.
//
// The zero wal syncs nothing, for systems where Badger does it. A wal is used by the leader of the committer alone, and by
// who starts and stops Badger while there is none.
type wal struct {
	dir    string
	number int
	file   *os.File
}

// open finds the log of a Badger that was just started in dir.
func (w *wal) open(dir string) error {
	w.close()
	newest, err := newestLog(dir)
	if err != nil {
		return err
	}
	if newest == 0 {
		return fmt.Errorf("%w: Badger has no log in %s, so nothing written could be made durable", backend.ErrUnavailable, dir)
	}
	*w = wal{dir: dir, number: newest}
	if w.file, err = os.Open(w.path(newest)); err != nil {
		return dirError(err)
	}
	adviseRandom(w.file)
	return durable.SyncDir(dir)
}

const walSuffix = ".mem"

func (w *wal) path(number int) string {
	return filepath.Join(w.dir, fmt.Sprintf("%05d%s", number, walSuffix))
}

// sync makes the transaction durable that Badger wrote last. Badger puts all of it into one log, and begins the next one
// before a transaction that does not fit.
func (w *wal) sync() error {
	if w.dir == "" {
		return nil
	}
	if err := w.follow(); err != nil {
		return err
	}
	return syncData(w.file)
}

// follow goes on to the newest log. It looks before it opens: a process without a free file handle still commits. Every
// transaction is synced, so at most one log began since follow looked last, and it is still there.
func (w *wal) follow() error {
	for first := w.number; ; {
		_, err := os.Lstat(w.path(w.number + 1))
		if errors.Is(err, fs.ErrNotExist) {
			if w.number != first {
				return durable.SyncDir(w.dir)
			}
			return nil
		}
		if err != nil {
			return dirError(err)
		}
		next, err := os.Open(w.path(w.number + 1))
		if err != nil {
			return dirError(err)
		}
		w.file.Close()
		w.file, w.number = next, w.number+1
		adviseRandom(next)
	}
}

func (w *wal) close() {
	if w.file != nil {
		w.file.Close()
	}
	*w = wal{}
}
