package server

import (
	"context"
	"sync"
	"time"

	"github.com/ckptd/ckptd/internal/panics"
)

// unused notices that no connection has been open for a while.
type unused struct {
	mu          sync.Mutex
	connections int
	since       time.Time // there has been no connection
	after       time.Duration
	timer       *time.Timer // nil if nobody waits, or the time is over
}

func (u *unused) opened() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.connections++
	if u.timer != nil {
		u.timer.Stop()
	}
}

func (u *unused) closed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.connections--; u.connections == 0 {
		u.wait()
	}
}

// wait starts the time without a connection again. The caller holds u.mu.
func (u *unused) wait() {
	u.since = time.Now()
	if u.timer != nil {
		u.timer.Reset(u.after)
	}
}

// expired reports whether the time is over, once.
func (u *unused) expired(busy bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.timer == nil || u.connections > 0 { // a connection can come just as the timer fires
		return false
	}
	if busy { // an HTTP/2 connection can end before the handlers of its requests
		u.wait()
		return false
	}
	if left := u.after - time.Since(u.since); left > 0 {
		u.timer.Reset(left)
		return false
	}
	u.timer = nil
	return true
}

// Unused returns a channel that is closed once no connection has been open, and no request in
// flight, for the given time, counted from now on. It must be called once at most.
func (s *Server) Unused(after time.Duration) <-chan struct{} {
	done := make(chan struct{})
	u := &s.unused
	u.mu.Lock()
	defer u.mu.Unlock()
	u.after, u.since = after, time.Now()
	u.timer = time.AfterFunc(after, func() {
		defer panics.To(func(err error) { s.logPanic(context.Background(), "", err) })
		if u.expired(s.gate.inFlight.Load()+s.gate.streams.Load() > 0) {
			close(done)
		}
	})
	if u.connections > 0 {
		u.timer.Stop()
	}
	return done
}
