package audit

import (
	"time"

	"github.com/ckptd/ckptd/internal/panics"
)

const (
	// foldFor is the time during which a repeated denial is only counted.
	foldFor = time.Second
	// maxFolds is the number of different denials that are counted separately in that time: further
	// ones are counted without their subjects, and any beyond that in one line. It limits the lines
	// that a flood can write.
	maxFolds = 64
	several  = "several"
)

// folds counts denials that come again. The Log's mutex guards it.
type folds struct {
	counts map[Entry]int // repetitions of the written ones
	timer  *time.Timer
}

// repeats reports whether a denial has been written a moment ago, and counts it then. Else it may
// make *e the denial that it is to be counted as from now on, and sees that later is called when
// the time is over.
func (f *folds) repeats(e *Entry, later func()) bool {
	for _, limit := range []int{maxFolds, 2 * maxFolds, 2*maxFolds + 1} {
		if _, ok := f.counts[*e]; ok {
			f.counts[*e]++
			return true
		}
		if len(f.counts) < limit {
			break
		}
		if limit == maxFolds {
			e.Tenant, e.User, e.Thread = "", "", ""
		} else {
			e.Method, e.Caller, e.Code = several, several, several
		}
	}
	if f.counts == nil {
		f.counts = map[Entry]int{}
	}
	if len(f.counts) == 0 {
		f.timer = time.AfterFunc(foldFor, func() {
			defer panics.To(func(error) {}) // the next denial is written
			later()
		})
	}
	f.counts[*e] = 0
	return false
}

// take returns the repeated denials with their counts, and resets them.
func (f *folds) take() []Entry {
	if f.timer != nil {
		f.timer.Stop()
	}
	var again []Entry
	for e, n := range f.counts {
		if n > 0 {
			e.Count = n
			again = append(again, e)
		}
	}
	clear(f.counts)
	return again
}

// flushLater is flush when the time of a fold is over.
func (l *Log) flushLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.flush() // an error is that of the next Append, too
	}
}

// flush writes the denials that were only counted. mu is held.
func (l *Log) flush() error {
	var first error
	for _, e := range l.folds.take() {
		if err := l.write(e); err != nil && first == nil {
			first = err
		}
	}
	return first
}
