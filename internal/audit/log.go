// Package audit keeps a log of denials, exports and administration that cannot be changed
// unnoticed.
//
// A log is a file of JSON lines, each with the hash of the one before it (docs/format.md §19).
// Verify finds a line that was changed, removed, inserted or moved. It cannot find by itself that
// the newest lines were cut off: for that, keep the last hash elsewhere and compare. Tenants, users
// and threads are in the log under pseudonyms.
package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ckptd/ckptd/internal/durable"
)

// Log is an open log. Methods are safe for concurrent use; one process at a time may have a log
// open.
type Log struct {
	path string

	mu     sync.Mutex // never taken before syncing
	file   *os.File
	number uint64            // of the last line, also if that is in an older file
	hash   [sha256.Size]byte // of the last line
	folds  folds
	failed error // the end of the file is in doubt: nothing may be appended until it is opened again

	syncing sync.Mutex
	synced  uint64 // number of the last line that is durable
}

// Open opens the log in a file, creating it if it is missing. A line that a crash tore off at the
// end is moved to PATH.torn, and replaced by a notice. A file that does not end like an audit log
// is refused.
func Open(path string) (*Log, error) {
	l := &Log{path: path}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("opening the audit log %s: %w", path, err)
	}
	return l, nil
}

// Reopen opens the file again. If the old file was moved away, the new one continues its chain and
// begins with a notice for the next opening. Call it after rotating the log.
func (l *Log) Reopen() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return os.ErrClosed
	}
	flushed := l.flush()
	if err := errors.Join(flushed, l.file.Sync()); err != nil && l.failed == nil {
		l.failed = err
	}
	old := l.file
	err := l.open()
	if err != nil {
		err = fmt.Errorf("opening the audit log %s: %w", l.path, err)
	}
	if l.file == old {
		return err
	}
	return errors.Join(err, old.Close())
}

// open opens the file at path and finds its end. A new file continues the chain of the lines
// before.
func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	torn, begun, err := l.resume(f)
	if err == nil {
		err = durable.SyncDir(filepath.Dir(l.path))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.failed = f, nil
	switch {
	case torn:
		return l.notice(codeTorn)
	case begun && l.number > 0: // without a line in it, the next opening would start a new chain
		return l.notice("rotated")
	}
	return nil
}

// codeTorn is the code of a notice that a crash cut off the end of a line.
const codeTorn = "torn"

// notice writes a line about the log itself, durably.
func (l *Log) notice(code string) error {
	err := l.write(Entry{Kind: Notice, Method: "open", Caller: "ckptd", Code: code})
	return errors.Join(err, l.file.Sync())
}

// resume finds the last line of the file, unless the file is new, and moves aside any bytes after
// it.
func (l *Log) resume(f *os.File) (torn, begun bool, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, true, err
	}
	last, end, err := lastLine(f, info.Size())
	if err != nil {
		return false, false, err
	}
	if end > 0 {
		l.number, l.hash = last.Number, last.hash
	}
	if end == info.Size() {
		return false, false, nil
	}
	if err := moveAside(f, end, info.Size(), l.path+".torn"); err != nil {
		return false, false, err
	}
	return true, false, f.Truncate(end)
}

// moveAside appends a part of a file to another, durably.
func moveAside(f *os.File, from, to int64, path string) error {
	aside, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(f, from, to-from))
	if err == nil {
		err = aside.Sync()
	}
	return errors.Join(err, aside.Close())
}

// Append adds an entry, whose Number, Time and Count it sets. One of administration or export is
// durable when it returns; a denial is written, but one that comes again within a second is only
// counted, and written with its count when the second is over. Texts that are not plain are made
// so; a name in place of a pseudonym is an error.
func (l *Log) Append(e Entry) error {
	e.Method, e.Caller, e.Code, e.Count = tame(e.Method), tame(e.Caller), tame(e.Code), 1
	number, err := l.append(e)
	if err == nil && (e.Kind == Admin || e.Kind == Export) {
		err = l.sync(number)
	}
	if err != nil {
		return fmt.Errorf("appending to the audit log: %w", err)
	}
	return nil
}

func (l *Log) append(e Entry) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == Denied && l.folds.repeats(&e, l.flushLater) {
		return l.number, nil
	}
	err := l.write(e)
	return l.number, err
}

// write writes a line. mu is held.
func (l *Log) write(e Entry) error {
	switch {
	case l.file == nil:
		return os.ErrClosed
	case l.failed != nil:
		return l.failed
	}
	e.Number, e.Time, e.Count = l.number+1, time.Now(), max(e.Count, 1)
	b, hash, err := encode(e, l.hash)
	if err != nil {
		return err
	}
	if n, err := l.file.Write(b); err != nil {
		return l.undo(n, err)
	}
	l.number, l.hash = e.Number, hash
	return nil
}

// undo takes back the n bytes that were written of a line before it failed.
func (l *Log) undo(n int, why error) error {
	info, err := l.file.Stat()
	if err == nil {
		err = l.file.Truncate(info.Size() - int64(n))
	}
	if err != nil {
		l.failed = fmt.Errorf("a line was partly written: %w", why)
	}
	return why
}

// sync makes the line with this number durable, together with lines that others wait for.
func (l *Log) sync(number uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.synced >= number {
		return nil
	}
	l.mu.Lock()
	file, upTo, failed := l.file, l.number, l.failed
	l.mu.Unlock()
	if failed != nil {
		return failed
	}
	if file == nil { // closed, and synced by that
		return nil
	}
	if err := file.Sync(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = fmt.Errorf("a sync failed, so it is unknown which lines are durable: %w", err)
		return l.failed
	}
	l.synced = upTo
	return nil
}

// Close writes the pending counts and closes the file, durably.
func (l *Log) Close() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return os.ErrClosed
	}
	err := errors.Join(l.flush(), l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}

// Last returns the number and the hash of the last line, for a later Verify to expect.
func (l *Log) Last() (number uint64, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number, fmt.Sprintf("%x", l.hash)
}
