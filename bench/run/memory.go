package run

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Memory is the most that a process took for a while, and what its server has at the end of it.
type Memory struct {
	RSS float64 // bytes
	// Anonymous are the bytes of it that are of no file. Those of mapped files the system takes back when it needs them.
	Anonymous float64
}

// memory watches what this process takes. The system remembers the most RSS; what of it is anonymous must be looked at.
type memory struct{ anonymous atomic.Int64 }

// reset lets the most count from now on.
func (m *memory) reset() {
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // best effort: the peak is too high without
	m.anonymous.Store(anonymous())
}

// watch looks ten times a second until stop is called, which looks a last time.
func (m *memory) watch() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second / 10)
		defer tick.Stop()
		for {
			m.anonymous.Store(max(m.anonymous.Load(), anonymous()))
			select {
			case <-tick.C:
			case <-end:
				m.anonymous.Store(max(m.anonymous.Load(), anonymous()))
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// taken returns the most since reset, with what a server has now, of which shared pages count once.
func (m *memory) taken(server int) Memory {
	sum := Memory{procField(os.Getpid(), "status", "VmHWM:") * 1024, float64(m.anonymous.Load())}
	for _, pid := range family(server) {
		sum.RSS += procField(pid, "smaps_rollup", "Pss:") * 1024
		sum.Anonymous += procField(pid, "smaps_rollup", "Pss_Anon:") * 1024
	}
	return sum
}

// anonymous returns the bytes that this process has now of no file, 0 if the system does not tell. It hardly allocates, or
// it would count among the allocations of saves.
func anonymous() int64 {
	fd, err := syscall.Open("/proc/self/statm", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	var text [128]byte
	n, err := syscall.Read(fd, text[:])
	if err != nil {
		return 0
	}
	var fields [3]int64 // pages: size, resident, and of these shared, which are those of files
	at := 0
	for _, c := range text[:n] {
		switch {
		case c >= '0' && c <= '9':
			fields[at] = fields[at]*10 + int64(c-'0')
		case at == len(fields)-1:
			return max(0, fields[1]-fields[2]) * int64(os.Getpagesize())
		default:
			at++
		}
	}
	return 0
}
