// Package panics keeps a panic in one goroutine from ending the process. Code that serves callers
// starts only goroutines that recover, since an unrecovered panic ends the process for all callers;
// a test of internal/lint enforces this.
package panics

import (
	"fmt"
	"runtime/debug"
)

// Error is a panic that was recovered. Its text has no more of the value than its type: the value
// could quote a state.
type Error struct {
	Value any
	Stack string
}

func (e *Error) Error() string { return fmt.Sprintf("internal error: panic with a %T", e.Value) }

// To recovers a panic, and passes it to failed. It must be deferred itself:
//
//	go func() {
//		defer panics.To(func(err error) { ended <- err })
//		...
//	}()
func To(failed func(error)) {
	if v := recover(); v != nil {
		failed(&Error{v, string(debug.Stack())})
	}
}

// Try calls f. If that panics, the panic is its error.
func Try(f func() error) (err error) {
	defer To(func(e error) { err = e })
	return f()
}
