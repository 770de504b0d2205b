package badger

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"

	"github.com/ckptd/ckptd/backend"
)

const (
	ownLock   = true
	locksDirs = false
)

// lock takes the file for this process, or says that another has it. Closing the file unlocks it.
// What is locked is a byte far behind its end, since nobody else could read one that is locked.
func lock(f *os.File) error { return lockFile(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// lockShared keeps others from lock while this process has the file open.
func lockShared(f *os.File) error { return lockFile(f, 0) }

func lockFile(f *os.File, how uint32) error {
	how |= windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return backend.ErrLocked
	}
	if err != nil {
		return fmt.Errorf("%w: locking %s: %v", backend.ErrUnavailable, f.Name(), err)
	}
	return nil
}
