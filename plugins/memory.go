package plugins

import (
	"sync"

	"github.com/tetratelabs/wazero/experimental"
)

// budget is the memory that all guests of the process share.
type budget struct {
	mu        sync.Mutex
	used, max int64
	evict     func() bool // frees the memory of an idle instance; reports whether there was one
}

// take reserves n bytes, evicting idle instances if it must.
func (b *budget) take(n int64) bool {
	for !b.tryTake(n) {
		if !b.evict() {
			return false
		}
	}
	return true
}

func (b *budget) tryTake(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.max-b.used {
		return false
	}
	b.used += n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

const commitStep = 4 << 20

// linear is the memory of one guest. It reserves address space up to the limit, and commits only as
// much as the guest has grown to; the budget counts the committed part. It never moves, so growing
// costs nothing but the new pages.
type linear struct {
	budget *budget
	space  space
	limit  uint64 // bytes the guest may have

	size      uint64 // the guest's current memory, in bytes
	committed uint64
	check     func() // ends the call if its deadline has passed; nil before the guest runs
	shrinkTo  uint64 // if not 0, the next Reallocate returns this size, whatever its argument

	refused   bool // the guest asked for more than its limit
	exhausted bool // the guest asked for more than the budget had
}

// newLinear reserves address space.
func newLinear(b *budget, limit uint64) (*linear, error) {
	s, err := reserve(limit)
	if err != nil {
		return nil, err
	}
	return &linear{budget: b, space: s, limit: limit}, nil
}

// Allocate hands the memory to the single instance that is about to be created with it.
func (l *linear) Allocate(_, _ uint64) experimental.LinearMemory { return l }

// Reallocate grows the memory. A guest that asks for more than its limit gets a failure it can
// handle, because that outcome is deterministic. A guest that the budget cannot serve is stopped,
// because its further behavior would depend on other guests.
func (l *linear) Reallocate(size uint64) []byte {
	if l.shrinkTo > 0 {
		size, l.shrinkTo = l.shrinkTo, 0
		l.size = size
		return l.space.bytes(size)
	}
	if size > l.limit {
		l.refused = true
		return nil
	}
	if size > l.committed && !l.commit(size) {
		l.exhausted = true
		panic(errStopped)
	}
	l.size = size
	return l.space.bytes(size)
}

// commit makes memory usable and present, which takes the kernel 0.2 ms or more per MiB. So it
// proceeds in steps and checks the clock after each.
func (l *linear) commit(size uint64) bool {
	for l.committed < size {
		step := min(size-l.committed, commitStep)
		if !l.budget.take(int64(step)) {
			return false
		}
		if err := l.space.commit(l.committed, l.committed+step); err != nil {
			l.budget.give(int64(step))
			return false
		}
		l.committed += step
		if l.check != nil {
			l.check()
		}
	}
	return true
}

// Free releases all of it.
func (l *linear) Free() {
	l.space.release()
	l.budget.give(int64(l.committed))
	l.committed = 0
}
