package badger

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// Salvaged is the report on a salvage.
type Salvaged struct {
	Tables  int      // that were read
	Groups  int      // of commits that came from the log and from memory files
	Missing []string // the parts that could not be read
	Lost    *Loss    // the acknowledged commits that are missing at the end; nil if none are
}

// Salvage reads everything readable in a directory, in which it changes nothing, and writes it to a
// new store in a directory that must be missing or empty. Damage costs a block of a table, or a
// group of the log. If the newest version of a key was there, the new store has an older one or
// none, and a deleted key can be back. So the caller must verify the new store.
func Salvage(dir, to string, opts Options) (*Salvaged, error) {
	r, err := salvage(dir, to, opts)
	if err != nil {
		return nil, fmt.Errorf("salvaging %s: %w", dir, err)
	}
	return r, nil
}

func salvage(dir, to string, opts Options) (*Salvaged, error) {
	to, err := salvageTarget(dir, to)
	if err != nil {
		return nil, err
	}
	o, _, release, err := look(dir, opts)
	if err != nil {
		return nil, err
	}
	defer release()
	v := &salvager{opening: o, report: &Salvaged{Missing: []string{}}}
	o.s.opts.LogFiles = func(commitlog.FS) commitlog.FS { return readable{readOnlyLog(dir), v.missing} }
	o.dry, o.accept = true, true
	why := o.look()
	for _, cannot := range []error{backend.ErrNewerFormat, backend.ErrReadOnly} { // neither is damage
		if errors.Is(why, cannot) {
			return nil, why
		}
	}
	if o.logGone {
		v.report.Lost = o.lost
	}
	v.noManifest = why != nil && o.tail == nil && len(o.tables.names) == 0
	if err := v.into(to, opts); err != nil {
		return nil, err
	}
	return v.report, nil
}

// salvageTarget is where a new store goes, behind links. It must be missing or empty, and can be
// neither in the old one, nor a mount point, which the finished store could not replace.
func salvageTarget(dir, to string) (string, error) {
	if names, err := os.ReadDir(to); len(names) > 0 {
		return "", fmt.Errorf("%w: %s is not empty", backend.ErrInvalid, to)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: cannot tell whether %s is empty: %v", backend.ErrInvalid, to, err)
	}
	path, err := filepath.Abs(to)
	if err != nil {
		return "", dirError(err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%w: %s is a link that leads nowhere", backend.ErrInvalid, to)
	}
	old, err := os.Stat(dir)
	if err != nil {
		return "", dirError(err)
	}
	for p := path; ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && os.SameFile(info, old) {
			return "", fmt.Errorf("%w: %s is in %s", backend.ErrInvalid, to, dir)
		}
		if p == filepath.Dir(p) {
			break
		}
	}
	parent, err := os.Stat(filepath.Dir(path))
	if info, missing := os.Stat(path); err == nil && missing == nil && device(info) != device(parent) {
		return "", fmt.Errorf("%w: %s is a mount point: name a new directory in it", backend.ErrInvalid, to)
	}
	return path, nil
}

// into writes the new store under a name that nobody has, and gives it its own once it is whole.
func (v *salvager) into(to string, opts Options) error {
	parent := filepath.Dir(to)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return dirError(err)
	}
	temp, err := os.MkdirTemp(parent, filepath.Base(to)+".new-")
	if err != nil {
		return dirError(err)
	}
	if err = v.write(temp, opts); err == nil {
		if info, failed := os.Lstat(to); failed == nil && info.IsDir() {
			err = os.Remove(to) // which is empty: os.Rename replaces no directory
		}
	}
	if err == nil {
		err = errors.Join(os.Rename(temp, to), durable.SyncDir(parent))
	}
	err = dirError(err)
	if err != nil {
		os.RemoveAll(temp)
	}
	return err
}

// salvager copies all that can be read of a store into Badger, with Badger's timestamps, so that
// the newest version of a key wins in whatever order they come.
type salvager struct {
	*opening
	report  *Salvaged
	to      *Store // of which the space is asked
	db      *badgerdb.DB
	batch   *badgerdb.WriteBatch
	waiting int // bytes in the batch for which there must be room

	pos     commitlog.Position // the newest that a table has
	at      uint64             // when that was written
	newest  uint64             // timestamp
	damaged bool               // a table could not be read in full

	noManifest bool // it could not be read
}

const admitAtOnce = 256 << 10 // bytes

func (v *salvager) write(to string, opts Options) (err error) {
	opts.LogFiles, opts.MustExist = nil, false
	if v.to, err = Open(to, opts); err != nil {
		return err
	}
	settings, incarnation := v.to.settings(), v.to.logs.Last().Incarnation
	if err := v.to.Close(); err != nil {
		return err
	}
	if err := v.fill(settings, incarnation); err != nil {
		return err
	}
	s, err := Open(to, opts) // which has the anchor say that there is a group
	if err != nil {
		return err
	}
	return s.Close()
}

func (v *salvager) fill(settings badgerdb.Options, incarnation commitlog.ID) (err error) {
	defer guard("salvaging", &err)()
	if v.db, err = badgerdb.OpenManaged(settings); err != nil {
		return openError(err)
	}
	v.batch = v.db.NewManagedWriteBatch()
	err = v.copyAll()
	if flushed := v.batch.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, text(flushed))
	}
	if err == nil {
		err = v.seal(incarnation)
	}
	if err = errors.Join(err, v.db.Close()); err == nil && v.to.flushes.trouble.Load() {
		err = fmt.Errorf("%w: Badger failed to write the salvaged data to tables", backend.ErrUnavailable)
	}
	return err
}

// seal makes all that was salvaged the first group of the new store. No log has that group, so the
// store never opens with a part of its tables: earlier sets of them have no position.
func (v *salvager) seal(incarnation commitlog.ID) error {
	p := commitlog.Position{Incarnation: incarnation, N: 1, Time: time.Now().UnixMilli()}
	rand.Read(p.Hash[:])
	txn := v.db.NewTransactionAt(math.MaxUint64, true)
	defer txn.Discard()
	err := txn.Set(positionName, appendPosition(nil, p))
	if err == nil {
		err = txn.CommitAt(v.newest+1, nil)
	}
	if err != nil {
		return fmt.Errorf("%w: writing: %s", backend.ErrUnavailable, text(err))
	}
	return nil
}

func (v *salvager) copyAll() error {
	if err := v.copyTables(); err != nil {
		return err
	}
	groups, err := v.collect()
	if err != nil {
		return err
	}
	if took, err := v.copyUnnamed(groups); err != nil {
		return err
	} else if took {
		if groups, err = v.collect(); err != nil {
			return err
		}
	}
	return v.apply(groups)
}

func (v *salvager) missing(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(v.report.Missing, line) {
		v.report.Missing = append(v.report.Missing, line)
	}
}

func (v *salvager) mutation(m commitlog.Mutation, ts uint64) error {
	if len(m.Key) == 0 || m.Key[0] != dataSpace {
		return nil
	}
	if v.waiting += entryOverhead + len(m.Key) + len(m.Value); v.waiting >= admitAtOnce {
		if err := v.to.commits.space.admit(v.db, v.waiting, false); err != nil {
			return err
		}
		v.waiting = 0
	}
	name := bytes.Clone(m.Key)
	var err error
	if m.User == 0 {
		err = v.batch.DeleteAt(name, ts)
	} else {
		err = v.batch.SetEntryAt(&badgerdb.Entry{Key: name, Value: bytes.Clone(m.Value), UserMeta: m.User}, ts)
	}
	if err != nil {
		return fmt.Errorf("%w: writing: %s", backend.ErrUnavailable, text(err))
	}
	return nil
}
