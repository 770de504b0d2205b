package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/ckptd/ckptd/backend"
)

// errCrashed is the error of calls whose process has crashed.
var errCrashed = errors.New("sim: the process is dead")

// errInjected marks failures injected by the simulation.
var errInjected = errors.New("sim: injected")

// disk is one process's view of the backend: every call stops at a gate. It does not survive a
// crash; the next process gets another disk around the same data.
type disk struct {
	inner  backend.Backend
	s      *scheduler
	shared bool
	open   atomic.Bool // calls pass without a gate
	dead   atomic.Bool
}

func (d *disk) Caps() backend.Caps {
	c := d.inner.Caps()
	c.Name, c.Exclusive = "sim", !d.shared
	return c
}

// Close keeps the data.
func (d *disk) Close() error {
	d.dead.Store(true)
	return nil
}

// stop waits at the gate of a call.
func (d *disk) stop(ctx context.Context, kind byte, key []byte) (verdict, error) {
	if d.dead.Load() {
		return dead, fmt.Errorf("%w: %w", errCrashed, backend.ErrClosed)
	}
	if d.open.Load() {
		return pass, nil
	}
	v, err := d.s.park(ctx, d.name(ctx, kind, key), kind)
	switch {
	case err != nil:
		return v, err
	case v == dead || d.dead.Load():
		return dead, fmt.Errorf("%w: %w", errCrashed, backend.ErrClosed)
	case v == fails:
		return v, fmt.Errorf("%w: %w", errInjected, backend.ErrUnavailable)
	}
	return v, nil
}

// name names a call after its operation and the number of calls made for that so far. Work on
// behalf of many operations has the context of none; it is named after its goroutine or else its
// key.
func (d *disk) name(ctx context.Context, kind byte, key []byte) string {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		id := goroutine()
		d.s.mu.Lock()
		c = d.s.owners[id]
		d.s.mu.Unlock()
	}
	if c != nil {
		return fmt.Sprintf("%s#%d%c", c.name, atomic.AddInt64(&c.calls, 1), kind)
	}
	return fmt.Sprintf("key %x%c", hash(0, string(key)), kind)
}

// goroutine returns the id of the calling goroutine.
func goroutine() string {
	var buf [64]byte
	text := buf[len("goroutine "):runtime.Stack(buf[:], false)]
	if i := bytes.IndexByte(text, ' '); i >= 0 {
		text = text[:i]
	}
	return string(text)
}

func (d *disk) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	var key []byte
	if len(keys) > 0 {
		key = keys[0]
	}
	if _, err := d.stop(ctx, 'g', key); err != nil {
		return nil, err
	}
	return d.inner.Get(ctx, keys...)
}

func (d *disk) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if _, err := d.stop(ctx, 'r', r.Start); err != nil {
		return nil, nil, err
	}
	return d.inner.Scan(ctx, r)
}

func (d *disk) Commit(ctx context.Context, b backend.Batch) error {
	var key []byte
	if len(b.Muts) > 0 {
		key = b.Muts[0].Key
	}
	v, err := d.stop(ctx, 'w', key)
	if err != nil {
		return err
	}
	if v == lost {
		return fmt.Errorf("%w: %w", errInjected, backend.ErrAmbiguous)
	}
	if err := d.inner.Commit(context.WithoutCancel(ctx), b); err != nil {
		return err
	}
	if v == applied {
		return fmt.Errorf("%w: %w", errInjected, backend.ErrAmbiguous)
	}
	if _, err := d.stop(context.WithoutCancel(ctx), 'a', key); err != nil { // accepted: wait for the outcome
		return err
	}
	return nil
}
