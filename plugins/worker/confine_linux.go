package worker

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// attributes let a worker die with its parent, and not of the signals of the parent's terminal.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// pollable lets a goroutine wait for input without a thread: 10 µs less a call.
func pollable(f *os.File) *os.File {
	if unix.SetNonblock(int(f.Fd()), true) != nil {
		return f
	}
	return os.NewFile(f.Fd(), f.Name())
}

// widen makes a pipe larger, so that 100 kB are handed over in one piece. More was not quicker.
func widen(pipe *os.File) {
	if conn, err := pipe.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 256<<10) })
	}
}

// confine takes from this process what a worker has no use for, for good, and says with what. It may have so many bytes of
// memory that it can write. There is no limit of processor time: the kernel counts it over the life of a process, and the
// parent has a clock.
func confine(memory int64) (walls []string, err error) {
	limits := []struct {
		what  int
		limit uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_NOFILE, 32},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_DATA, uint64(memory)},
	}
	for _, l := range limits {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return nil, fmt.Errorf("setting resource limit %d: %w", l.what, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("forbidding dumps: %w", err)
	}
	walls = []string{"rlimits", "no dumps"}
	switch filtered, err := filterSyscalls(); {
	case err != nil:
		return nil, err
	case filtered:
		walls = append(walls, "seccomp")
	}
	return walls, nil
}
