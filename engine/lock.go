package engine

import (
	"context"
	"math"

	"golang.org/x/sync/semaphore"
)

// A lock that is held across calls of the backend, or across anything else that may take long, is one of these: who waits
// for it stops with the context of the call. A sync.Mutex is for memory alone; internal/lint sees to it.

// lock is a mutual exclusion lock, taken by who comes first.
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

// rwLock is held by one writer or any number of readers, taken by who comes first: a stream of readers keeps no writer
// out. Who holds it for reading must not ask for it again.
type rwLock struct{ free *semaphore.Weighted }

const everyone = math.MaxInt64

func newRWLock() rwLock { return rwLock{semaphore.NewWeighted(everyone)} }

func (l rwLock) rLock(ctx context.Context) error { return l.free.Acquire(ctx, 1) }
func (l rwLock) rUnlock()                        { l.free.Release(1) }
func (l rwLock) lock(ctx context.Context) error  { return l.free.Acquire(ctx, everyone) }
func (l rwLock) unlock()                         { l.free.Release(everyone) }
