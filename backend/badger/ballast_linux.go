package badger

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate takes the blocks of a new file, without writing to them where the file system can do
// that.
func preallocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return zeroFill(f, size)
	}
	return err
}
