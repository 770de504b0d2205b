package badger

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// adviseRandom tells the kernel that this process does not read ahead in a file that it has mapped. A log is only ever written
// forwards, so that reading ahead finds nothing but holes; but it fills the page cache with large folios, and of those each
// sync writes all: 450 µs once they are there, where a page takes 150. Badger gives no access to its maps, so they are looked
// for among those of the process. If that fails, commits are slower and nothing else.
//
// What was read ahead before, when Badger began the log, is dropped.
func adviseRandom(file *os.File) {
	path, err := filepath.EvalSymlinks(file.Name())
	if err != nil {
		return
	}
	if path, err = filepath.Abs(path); err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if from, to, ok := mapOf(lines.Text(), path); ok {
			unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_RANDOM)
		}
	}
	unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// mapOf is where a line of /proc/self/maps says that path is mapped, if it does:
//
//	7f0000000000-7f0008000000 rw-s 00000000 fe:00 1234    /the/path
func mapOf(line, path string) (from, to uintptr, ok bool) {
	place, rest, _ := strings.Cut(line, " ")
	if !strings.HasSuffix(rest, " "+path) {
		return 0, 0, false
	}
	low, high, _ := strings.Cut(place, "-")
	a, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	b, err := strconv.ParseUint(high, 16, 64)
	return uintptr(a), uintptr(b), err == nil && a < b
}
