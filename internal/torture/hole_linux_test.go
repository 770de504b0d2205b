package torture

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nextData is where a file has data at or behind a place, or −1.
func nextData(f *os.File, at, _ int64) (int64, error) {
	n, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return -1, nil
	case errors.Is(err, unix.EINVAL): // the file system does not know
		return at, nil
	}
	return n, err
}
