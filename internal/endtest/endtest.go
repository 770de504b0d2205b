// Package endtest finds calls in tests that never end.
package endtest

import (
	"testing"
	"time"
)

// Must fails if f, which is over in no time, does not end: far later than any machine needs for it.
func Must(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}
