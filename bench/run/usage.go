package run

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the resource usage of a process and its server, so far or between two points in time.
type Usage struct {
	CPU                float64 // seconds
	Allocs, AllocBytes float64 // of this process
	Written            float64 // bytes written to disk, as Linux accounts them to processes
}

func (u Usage) minus(v Usage) Usage {
	return Usage{u.CPU - v.CPU, u.Allocs - v.Allocs, u.AllocBytes - v.AllocBytes, u.Written - v.Written}
}

func (u Usage) times(f float64) Usage {
	return Usage{u.CPU * f, u.Allocs * f, u.AllocBytes * f, u.Written * f}
}

// meter measures usage between two points in time. Values that the system does not report are 0.
type meter struct {
	server int // its process, 0 if there is none
	begin  Usage
}

// meterOf starts measuring this process and a server. It excludes the cost of measuring.
func meterOf(server int) meter {
	m := meter{server: server}
	m.begin = ofServer(server)
	m.begin.addSelf()
	return m
}

// taken returns the usage since then.
func (m meter) taken() Usage {
	var u Usage
	u.addSelf()
	s := ofServer(m.server)
	u.CPU += s.CPU
	u.Written += s.Written
	return u.minus(m.begin)
}

// addSelf adds the usage of this process so far.
func (u *Usage) addSelf() {
	var self syscall.Rusage
	var memory runtime.MemStats // exact, unlike runtime/metrics, which doesn't stop the world
	runtime.ReadMemStats(&memory)
	u.Allocs, u.AllocBytes = float64(memory.Mallocs), float64(memory.TotalAlloc)
	u.Written += procField(os.Getpid(), "io", "write_bytes:")
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		u.CPU += seconds(self.Utime) + seconds(self.Stime)
	}
}

// ofServer returns the usage so far of a server and its children.
func ofServer(server int) (u Usage) {
	for _, pid := range family(server) {
		u.CPU += cpu(pid, pid == server)
		u.Written += procField(pid, "io", "write_bytes:")
	}
	return u
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// procField returns the number after a name at the start of a line in a file of /proc/PID, or 0 if
// there is none.
func procField(pid int, file, name string) float64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, _ := strconv.ParseFloat(value, 64)
			return n
		}
	}
	return 0
}

// stat returns the fields of /proc/PID/stat after the name of the program: the first is the state,
// the second the parent.
func stat(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// cpu returns the CPU seconds of a process and, if it is the server itself, of its children that
// have ended.
func cpu(pid int, server bool) float64 {
	fields := stat(pid)
	if len(fields) < 15 {
		return 0
	}
	n := 2
	if server {
		n = 4
	}
	sum := 0.0
	for _, field := range fields[11 : 11+n] {
		ticks, _ := strconv.ParseFloat(field, 64)
		sum += ticks / 100 // USER_HZ is 100 on all of Go's platforms
	}
	return sum
}

// family returns a server and its children.
func family(server int) []int {
	if server == 0 {
		return nil
	}
	pids := []int{server}
	list, err := os.ReadDir("/proc")
	if err != nil {
		return pids
	}
	for _, entry := range list {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if fields := stat(pid); len(fields) > 1 && fields[1] == strconv.Itoa(server) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// diskBytes returns the allocated bytes of a folder. It excludes PostgreSQL's log, which is reused
// and does not grow.
func diskBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // servers remove files in the meantime
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "pg_wal" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += stat.Blocks * 512
		}
		return nil
	})
	return sum, err
}

// dropCache asks the system to evict the files below dir from the page cache.
func dropCache(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := file.Sync(); err != nil { // dirty pages cannot be evicted
			return err
		}
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// cpuModel and the functions below read facts about the machine where Linux reports them.
func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// since returns the seconds since a time.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
