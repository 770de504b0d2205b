//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package crypto

import (
	"os"
	"syscall"
)

// lockFile waits for the exclusive lock of an open file. Closing the file releases it.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			return err
		}
	}
}
