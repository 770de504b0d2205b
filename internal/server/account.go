package server

import (
	"context"
	"sync"
	"sync/atomic"
)

// A request pays for the memory that it uses before the memory is allocated: for its message as
// that is read, for every value that the engine restores for it, and for its answer before that is
// encoded. It pays where every request passes, in front, in the guard and, through engine.Budget,
// in the engine, so that no method can skip it.

const (
	// requestShare is the most that one request pays of the budget, in eighths. So one request can
	// be as large as it needs, along with small ones, but never two: otherwise a small budget would
	// lock out a large state for good.
	requestShare = 5
	// callerShare is the share of the budget and of the request slots that one caller can have, in
	// eighths. The rest is for others.
	callerShare = 6
)

// share counts the requests in flight of one caller.
type share struct {
	requests, streams int // guarded by gate.mu
	bytes             atomic.Int64
}

// account is the share of the byte budget that one request holds.
type account struct {
	gate   *gate
	limits *Limits
	share  *share
	copies int64 // of values that the engine restores, until they are sent

	mu       sync.Mutex
	held     int64
	paid     int64 // the part of held that counts
	restored int64 // the part of held that the engine restored, with its copies
	closed   bool
}

// newAccount is for a request that was admitted.
func (g *gate) newAccount(l *Limits, of *share, copies int64) *account {
	return &account{gate: g, limits: l, share: of, copies: copies}
}

// answerCopies is the number of copies of a state in memory while it is answered: restored, handed
// out, encoded.
const answerCopies = 3

// another is an account for a part of the request.
func (a *account) another() *account { return a.gate.newAccount(a.limits, a.share, a.copies) }

// take takes bytes from the budget.
func (a *account) take(bytes int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.add(bytes)
}

// add is take with mu held.
func (a *account) add(bytes int64) error {
	if a.closed {
		return context.Canceled
	}
	more := min(a.held+bytes, eighths(a.limits.InFlightBytes, requestShare)) - a.paid
	if more > 0 {
		if a.share.bytes.Add(more) > eighths(a.limits.InFlightBytes, callerShare) {
			a.share.bytes.Add(-more)
			return overloaded("bytes of requests under way for the caller", retryAfter)
		}
		if a.gate.bytes.Add(more) > a.limits.InFlightBytes {
			a.gate.bytes.Add(-more)
			a.share.bytes.Add(-more)
			return overloaded("bytes of requests under way", retryAfter)
		}
		a.paid += more
	}
	a.held += bytes
	return nil
}

// give gives bytes back.
func (a *account) give(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(bytes)
}

// drop is give with mu held.
func (a *account) drop(bytes int64) {
	a.held -= bytes
	if less := a.paid - max(a.held, 0); less > 0 {
		a.share.bytes.Add(-less)
		a.gate.bytes.Add(-less)
		a.paid -= less
	}
}

// close gives back everything. Nothing is taken after that.
func (a *account) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(a.held)
	a.closed = true
}

// Reserve implements engine.Budget.
func (a *account) Reserve(bytes int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.add(bytes * a.copies)
	if err == nil {
		a.restored += bytes * a.copies
	}
	return err
}

// Release implements engine.Budget.
func (a *account) Release(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restored -= bytes * a.copies
	a.drop(bytes * a.copies)
}

// answer pays for a message of the given size that is about to be encoded, and so exists twice,
// except for the parts that the engine restored and that are paid for already.
func (a *account) answer(bytes int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.add(max(0, 2*bytes-a.restored/answerCopies*(answerCopies-1)))
}

// eighths is the given number of eighths of n, and at least 1 for small n.
func eighths(n, many int64) int64 { return n - n*(8-many)/8 }
