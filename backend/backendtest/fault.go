package backendtest

import (
	"context"
	"sync"

	"github.com/ckptd/ckptd/backend"
)

// Op names kinds of backend calls; combine them with |.
type Op uint8

// The calls that can be counted and failed.
const (
	OpGet Op = 1 << iota
	OpScan
	OpCommit
	OpCompact

	OpAny = OpGet | OpScan | OpCommit | OpCompact
)

// Plan says which calls of a Fault fail, and how.
type Plan struct {
	Ops   Op    // the kinds of calls that count; 0 means none fails
	After int   // how many of them succeed first
	Err   error // what the failing call returns
	Keep  bool  // every later one fails too, as with a driver that has stopped
	Apply bool  // the failing commit is applied nevertheless: with ErrAmbiguous, the lost acknowledgement
}

// Fault wraps a backend and fails its calls by plan. Its zero plan fails none. It may be used by
// many goroutines; with them, which call comes to be the k-th is up to the scheduler.
type Fault struct {
	inner backend.Backend

	mu    sync.Mutex
	plan  Plan
	seen  int // calls that the plan counts, since Arm
	fired int
	calls map[Op]int
}

// NewFault returns a Fault around inner.
func NewFault(inner backend.Backend) *Fault {
	return &Fault{inner: inner, calls: map[Op]int{}}
}

// Backend returns the backend to hand to the code under test. It is a Compactor if, and only if,
// the inner one is.
func (f *Fault) Backend() backend.Backend {
	if c, ok := f.inner.(backend.Compactor); ok {
		return faultyCompactor{faulty{f}, c}
	}
	return faulty{f}
}

// Arm sets the plan and starts counting anew.
func (f *Fault) Arm(p Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.seen, f.fired = p, 0, 0
	clear(f.calls)
}

// Disarm lets all calls through again and keeps the counts.
func (f *Fault) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = Plan{}
}

// Calls returns how many calls of these kinds came since Arm, failed ones included.
func (f *Fault) Calls(ops Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for op, c := range f.calls {
		if op&ops != 0 {
			n += c
		}
	}
	return n
}

// Fired returns how many calls were failed since Arm. A sweep over After ends when a run leaves it
// at 0.
func (f *Fault) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// step counts a call and returns the error it must fail with, and whether it is applied all the
// same.
func (f *Fault) step(op Op) (apply bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	if f.plan.Ops&op == 0 {
		return true, nil
	}
	k := f.seen
	f.seen++
	if k < f.plan.After || k > f.plan.After && !f.plan.Keep {
		return true, nil
	}
	f.fired++
	return f.plan.Apply && op == OpCommit && k == f.plan.After, f.plan.Err
}

type faulty struct{ *Fault }

type faultyCompactor struct {
	faulty
	inner backend.Compactor
}

func (f faulty) Caps() backend.Caps { return f.Fault.inner.Caps() }

func (f faulty) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	if _, err := f.step(OpGet); err != nil {
		return nil, err
	}
	return f.Fault.inner.Get(ctx, keys...)
}

func (f faulty) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if _, err := f.step(OpScan); err != nil {
		return nil, nil, err
	}
	return f.Fault.inner.Scan(ctx, r)
}

func (f faulty) Commit(ctx context.Context, b backend.Batch) error {
	apply, fault := f.step(OpCommit)
	if !apply {
		return fault
	}
	if err := f.Fault.inner.Commit(ctx, b); err != nil {
		return err
	}
	return fault
}

func (f faulty) Close() error { return f.Fault.inner.Close() }

func (f faultyCompactor) Compact(ctx context.Context) error {
	if _, err := f.step(OpCompact); err != nil {
		return err
	}
	return f.inner.Compact(ctx)
}
