//go:build amd64 || arm64

package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterSyscalls restricts all threads of this process to the system calls that Go's runtime needs
// once it is up: memory, threads, signals to itself, time, and I/O on open files. All others fail
// with EPERM, so nothing can be opened, connected to, started, traced or signalled. It returns
// false if the kernel has no seccomp.
func filterSyscalls() (bool, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("giving up future privileges: %w", err)
	}
	program := filter(uint32(os.Getpid()))
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// TSYNC applies the filter, and the loss of privileges, to the other threads, too.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	switch {
	case errno == unix.ENOSYS || errno == unix.EINVAL:
		return false, nil
	case errno != 0:
		return false, fmt.Errorf("filtering system calls: %w", errno)
	case thread != 0:
		return false, errors.New("filtering system calls: a thread could not be filtered")
	}
	return true, nil
}

// Offsets in struct seccomp_data of the fields that the filter reads; the lower half of an argument
// comes first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
)

func allowed() []uint32 {
	return []uint32{
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE, unix.SYS_FCNTL,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
		unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRUSAGE, unix.SYS_GETRANDOM,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
		unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}
}

// filter returns the BPF program. It checks the architecture, then looks up the call number in the
// list, then checks the calls whose arguments matter.
func filter(pid uint32) []unix.SockFilter {
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		set   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K

		allow   = unix.SECCOMP_RET_ALLOW
		deny    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		missing = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	f := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: arch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: dataNumber},
	}
	for _, number := range allowed() {
		f = append(f, unix.SockFilter{Code: equal, K: number, Jf: 1}, unix.SockFilter{Code: ret, K: allow})
	}
	return append(f,
		// A filter cannot inspect the arguments of clone3; if it fails, libraries fall back to
		// clone.
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		unix.SockFilter{Code: ret, K: missing},
		// A thread, not a process.
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		unix.SockFilter{Code: load, K: dataArg0},
		unix.SockFilter{Code: set, K: unix.CLONE_THREAD, Jf: 1},
		unix.SockFilter{Code: ret, K: allow},
		unix.SockFilter{Code: ret, K: deny},
		// A signal to itself.
		unix.SockFilter{Code: equal, K: unix.SYS_TGKILL, Jf: 3},
		unix.SockFilter{Code: load, K: dataArg0},
		unix.SockFilter{Code: equal, K: pid, Jf: 1},
		unix.SockFilter{Code: ret, K: allow},
		unix.SockFilter{Code: ret, K: deny},
	)
}
