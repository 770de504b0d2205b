//go:build unix && !linux

package worker

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// attributes let a worker not die of the signals of the parent's terminal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pollable lets a goroutine wait for input without a thread: 10 µs less a call.
func pollable(f *os.File) *os.File {
	if unix.SetNonblock(int(f.Fd()), true) != nil {
		return f
	}
	return os.NewFile(f.Fd(), f.Name())
}

func widen(*os.File) {}

// confine takes from this process some of what a worker has no use for. Its memory has no bound but that of its guests.
func confine(int64) (walls []string, err error) {
	for _, what := range []int{unix.RLIMIT_CORE, unix.RLIMIT_FSIZE} {
		if err := unix.Setrlimit(what, &unix.Rlimit{}); err != nil {
			return nil, fmt.Errorf("setting resource limit %d: %w", what, err)
		}
	}
	return []string{"rlimits"}, nil
}
