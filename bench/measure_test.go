package bench

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// timed returns the duration of f.
func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	err := f()
	took := time.Since(start)
	check(b, err)
	return took
}

// p50 returns the median, or 0 for an empty list.
func p50[T int64 | float64 | time.Duration](list []T) T {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// allocated returns the disk blocks, in bytes, of the files below the paths. A file with several
// names counts once.
func allocated(b *testing.B, paths ...string) int64 {
	b.Helper()
	var sum int64
	seen := map[uint64]bool{}
	for _, path := range paths {
		check(b, filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			stat, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return errors.New("no allocated blocks known on this system")
			}
			if !seen[stat.Ino] {
				seen[stat.Ino] = true
				sum += stat.Blocks * 512
			}
			return nil
		}))
	}
	return sum
}

// rate lets writers call op for the given time and returns the calls per second. op gets the number
// of its writer and the count of its calls.
func rate(b *testing.B, writers int, length time.Duration, op func(writer, call int) error) float64 {
	b.Helper()
	var (
		wg     sync.WaitGroup
		ops    atomic.Int64
		failed atomic.Pointer[error]
	)
	start := time.Now()
	for w := range writers {
		wg.Go(func() {
			for call := 0; time.Since(start) < length; call++ {
				if err := op(w, call); err != nil {
					failed.Store(&err)
					return
				}
				ops.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	return float64(ops.Load()) / took.Seconds()
}

// report sets metrics and hides the time of a round, which is meaningless when contenders take
// turns.
func report(b *testing.B, metrics map[string]float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	for unit, value := range metrics {
		b.ReportMetric(value, unit)
	}
}
