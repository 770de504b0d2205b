package engine

import (
	"context"
	"math"

	"golang.org/x/sync/semaphore"
)

// These are the locks to hold across calls of the backend or anything else that can take long: a
// waiter stops when its context ends. Use a sync.Mutex only to guard memory; internal/lint checks
// that.

// lock is a mutual exclusion lock.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

// lock returns the error of ctx if that ends first.
func (l lock) lock(ctx context.Context) error {
	if l.tryLock() {
		return nil
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lock) unlock() { <-l }

// rwLock is held by one writer or any number of readers, first come, first served: a stream of
// readers does not keep a writer out. A reader must not lock it again.
type rwLock struct{ free *semaphore.Weighted }

const everyone = math.MaxInt64

func newRWLock() rwLock { return rwLock{semaphore.NewWeighted(everyone)} }

func (l rwLock) rLock(ctx context.Context) error { return l.free.Acquire(ctx, 1) }
func (l rwLock) rUnlock()                        { l.free.Release(1) }
func (l rwLock) lock(ctx context.Context) error  { return l.free.Acquire(ctx, everyone) }
func (l rwLock) unlock()                         { l.free.Release(everyone) }
