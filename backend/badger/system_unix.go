//go:build linux || darwin

package badger

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ckptd/ckptd/backend"
)

// checkWritable asks the kernel, whose answer holds for root too on a read-only mount or an
// immutable directory.
func checkWritable(dir string) error {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return &os.PathError{Op: "writing to", Path: dir, Err: err}
	}
	return nil
}

// ownLock says that lock keeps other processes out before Badger does.
const ownLock = true

// locksDirs says that lock and lockShared also work on a directory.
const locksDirs = true

// lock takes the file for this process, or says that another has it. Closing the file unlocks it.
func lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// lockShared keeps others from lock while this process has the file open.
func lockShared(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return backend.ErrLocked
	}
	if err != nil {
		return fmt.Errorf("%w: locking %s: %v", backend.ErrUnavailable, f.Name(), err)
	}
	return nil
}

// freeBytes is how much an ordinary user can still write to the device of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("%w: reading the free space: %v", backend.ErrUnavailable, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// device is that of a file.
func device(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev)
	}
	return 0
}

// allocated is how much of the device a file takes, which is less than its size where it has holes.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
