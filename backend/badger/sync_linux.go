package badger

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ckptd/ckptd/backend"
)

// ownSync says that a wal makes transactions durable. Linux writes back what was changed through a memory map on any
// descriptor of the file; msync is defined by that.
const ownSync = true

// syncData makes the content of a file durable.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err == nil {
			return nil
		} else if err != unix.EINTR {
			return fmt.Errorf("%w: syncing the log: %v", backend.ErrUnavailable, err)
		}
	}
}
