package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/durable"
)

// flushes knows which groups are only in Badger's memory, and so which segments of the log must
// stay. It holds for one opening of Badger, since the numbers of memory files begin again in the
// next.
type flushes struct {
	dir     string
	trouble atomic.Bool // Badger has logged an error: its tables since then cannot be relied on

	failures chan string // the errors of flushes and compactions that failed, as far as there is room
	gaveUp   error       // why nobody waits for Badger any more; used by one caller of await at a time

	mu         sync.Mutex
	compaction time.Time      // when the last compaction failed that counted
	newest     int            // number of the file that Badger writes to
	ends       []memoryExtent // the oldest first
	safe       uint64         // n up to which all groups are in tables whose names are durable
}

// giveUpAfter is how many flushes or compactions must fail while somebody waits for Badger before
// the wait ends. Badger repeats a flush that failed after a second, for ever.
const giveUpAfter = 5

// compactionsApart is the least time between two failed compactions that count. Badger repeats one
// up to forty times a second, and a fault that passes sooner must not stop the store.
const compactionsApart = time.Second

// compactionFailed notes that a compaction failed, unless one did just before.
func (f *flushes) compactionFailed(message string) {
	f.mu.Lock()
	now := time.Now()
	counts := now.Sub(f.compaction) >= compactionsApart
	if counts {
		f.compaction = now
	}
	f.mu.Unlock()
	if counts {
		f.failedOnce(message)
	}
}

// failedOnce notes that a flush or a compaction failed.
func (f *flushes) failedOnce(message string) {
	select {
	case f.failures <- message:
	default:
	}
}

// await waits until Badger is done, which requires Badger to write its memory to tables, or until
// that has failed too often. It counts attempts, not time, since a loaded machine can be slow.
func (f *flushes) await(done <-chan error) (err error, ended bool) {
	for len(f.failures) > 0 {
		<-f.failures // it failed before
	}
	for failed := 0; f.gaveUp == nil; {
		select {
		case err := <-done:
			return err, true
		case message := <-f.failures:
			if failed++; failed == giveUpAfter {
				f.gaveUp = flushError(message)
			}
		}
	}
	return f.gaveUp, false
}

// flushError turns Badger's log message about a failed flush into an error.
func flushError(message string) error {
	err := fmt.Errorf("cannot write to Badger's tables: %s", firstLine(message))
	if class := dirError(err); errors.Is(class, backend.ErrNoSpace) {
		return class
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// memoryExtent is a memory file, with the last group that it holds.
type memoryExtent struct {
	number int
	last   uint64
}

// begin resets f for a Badger that was just opened and holds no group in memory.
func (f *flushes) begin(dir string, safe uint64) error {
	newest := 0
	if err := eachMemory(dir, func(number int) { newest = max(newest, number) }); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir, f.newest, f.ends, f.safe = dir, newest, nil, safe
	return nil
}

// eachMemory calls f with the number of each memory file in a directory.
func eachMemory(dir string, f func(number int)) error {
	paths, err := filesIn(dir, memorySuffix)
	if err != nil {
		return err
	}
	for _, path := range paths {
		var number int
		if _, err := fmt.Sscanf(filepath.Base(path), "%d"+memorySuffix, &number); err == nil {
			f(number)
		}
	}
	return nil
}

// wrote notes the group that Badger took last. Badger puts all of a transaction into one file, and
// begins the next one before a transaction that does not fit.
func (f *flushes) wrote(n uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		_, err := os.Lstat(filepath.Join(f.dir, fmt.Sprintf("%05d%s", f.newest+1, memorySuffix)))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return dirError(err)
		}
		f.newest++
	}
	if k := len(f.ends); k > 0 && f.ends[k-1].number == f.newest {
		f.ends[k-1].last = n
	} else {
		f.ends = append(f.ends, memoryExtent{f.newest, n})
	}
	return nil
}

// inTables says up to which n all groups are in tables, and makes the names of these durable, which
// Badger does not.
func (f *flushes) inTables() (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble.Load() {
		return f.safe, nil
	}
	oldest := math.MaxInt
	if err := eachMemory(f.dir, func(number int) { oldest = min(oldest, number) }); err != nil {
		return 0, err
	}
	gone := 0
	for gone < len(f.ends) && f.ends[gone].number < oldest {
		gone++
	}
	if gone == 0 {
		return f.safe, nil
	}
	if err := durable.SyncDir(f.dir); err != nil {
		return 0, err
	}
	if f.trouble.Load() { // the file may have gone for another reason
		return f.safe, nil
	}
	f.safe, f.ends = f.ends[gone-1].last, f.ends[gone:]
	return f.safe, nil
}

// waiting is how many memory files there are.
func (f *flushes) waiting() (n int, err error) {
	err = eachMemory(f.dir, func(int) { n++ })
	return n, err
}
