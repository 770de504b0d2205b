package engine

import (
	"context"
	"sync/atomic"
)

// A Budget bounds the memory that the calls of many callers take together: a call reserves memory
// for the values that it restores or returns before it allocates them. Methods must be safe for
// concurrent use.
type Budget interface {
	// Reserve asks for more bytes. Its error ends the call.
	Reserve(bytes int64) error
	// Release returns bytes. Those reserved for a call's result are its caller's to release.
	Release(bytes int64)
}

// smallValues is the size up to which values are restored without a reservation: a call takes more
// memory than that anyway.
const smallValues = 4 << 10

type budgetKey struct{}

// WithBudget returns a context whose calls reserve memory from the budget. Without one they are not
// bounded.
func WithBudget(ctx context.Context, b Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// reservation is the part of its budget that a call releases before it ends.
type reservation struct {
	budget Budget
	bytes  int64
}

// reserve reserves more from the budget of ctx.
func (t *reservation) reserve(ctx context.Context, bytes int64) error {
	if err := reserve(ctx, bytes); err != nil {
		return err
	}
	t.budget, _ = ctx.Value(budgetKey{}).(Budget)
	t.bytes += bytes
	return nil
}

// release releases all of it.
func (t *reservation) release() {
	if t.budget != nil {
		t.budget.Release(t.bytes)
	}
	t.bytes = 0
}

func reserve(ctx context.Context, bytes int64) error {
	if room, _ := ctx.Value(budgetKey{}).(Budget); room != nil && bytes > 0 {
		return room.Reserve(bytes)
	}
	return nil
}

// tab is the part of a budget that a part of a call reserves.
type tab struct {
	Budget
	bytes atomic.Int64
}

// withTab returns a context with a tab on its budget, if it has one.
func withTab(ctx context.Context) (*tab, context.Context) {
	budget, _ := ctx.Value(budgetKey{}).(Budget)
	if budget == nil {
		return &tab{}, ctx
	}
	t := &tab{Budget: budget}
	return t, WithBudget(ctx, t)
}

// Reserve implements Budget.
func (t *tab) Reserve(bytes int64) error {
	err := t.Budget.Reserve(bytes)
	if err == nil {
		t.bytes.Add(bytes)
	}
	return err
}

// Release implements Budget.
func (t *tab) Release(bytes int64) {
	t.bytes.Add(-bytes)
	t.Budget.Release(bytes)
}

// close releases the rest.
func (t *tab) close() {
	if t.Budget != nil {
		t.Budget.Release(t.bytes.Swap(0))
	}
}

// reserve reserves memory for a copy of the values of t that wants names.
func (t *checkpointState) reserve(ctx context.Context, wants wanting) error {
	if room, _ := ctx.Value(budgetKey{}).(Budget); room == nil || wants == nil {
		return nil
	}
	want := wants(t.checkpoint(nil))
	if want == nil {
		return nil
	}
	size := int64(0)
	for i := range t.chans {
		if want(t.meta.Channels[i].Name) {
			size += int64(len(t.chans[i].value))
		}
	}
	return reserve(ctx, size)
}

// bytesOfHeader estimates the memory of a checkpoint without its channels' values.
func (c *Checkpoint) bytesOfHeader() int64 {
	const struc, label, channel = 512, 64, 128
	n := struc + len(c.Meta) + label*len(c.Labels) + channel*len(c.Channels)
	for k, v := range c.Labels {
		n += len(k) + len(v)
	}
	return int64(n)
}

func (c *Checkpoint) bytesOfData() (n int64) {
	for i := range c.Channels {
		n += int64(len(c.Channels[i].Data))
	}
	return n
}
