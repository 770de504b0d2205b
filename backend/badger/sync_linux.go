package badger

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ckptd/ckptd/backend"
)

// ownSync says that a wal makes transactions durable. Linux writes back what was changed through a memory map on any
// descriptor of the file; msync is defined by that.
const ownSync = true

// syncData makes the content of a file durable. Nothing in a file that was removed is.
func syncData(f *os.File) error {
	fd := int(f.Fd())
	err := unix.Fdatasync(fd)
	for err == unix.EINTR {
		err = unix.Fdatasync(fd)
	}
	var stat unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	if err == nil && stat.Nlink == 0 {
		err = errors.New("it was removed")
	}
	if err != nil {
		return fmt.Errorf("%w: syncing the log: %v", backend.ErrUnavailable, err)
	}
	return nil
}
