package run

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Memory is the peak memory of a process over a period, including its server's memory at the end.
type Memory struct {
	RSS float64 // bytes
	// Anonymous is the part not backed by files. The system reclaims the memory of mapped files
	// when it needs it.
	Anonymous float64
}

// memory tracks the memory of this process. The system keeps the peak RSS; the anonymous part has
// to be sampled.
type memory struct{ anonymous atomic.Int64 }

// reset restarts the peaks.
func (m *memory) reset() {
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // best effort: otherwise the peak is too high
	m.anonymous.Store(anonymous())
}

// watch samples ten times a second until stop is called, which takes a final sample.
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

// taken returns the peak since reset plus the current memory of a server, counting shared pages
// once.
func (m *memory) taken(server int) Memory {
	sum := Memory{procField(os.Getpid(), "status", "VmHWM:") * 1024, float64(m.anonymous.Load())}
	for _, pid := range family(server) {
		sum.RSS += procField(pid, "smaps_rollup", "Pss:") * 1024
		sum.Anonymous += procField(pid, "smaps_rollup", "Pss_Anon:") * 1024
	}
	return sum
}

// anonymous returns the anonymous memory of this process, or 0 if the system doesn't report it. It
// hardly allocates, because that would count among the allocations of saves.
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
	var fields [3]int64 // in pages: size, resident, and shared, the part of resident that is backed by files
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
