package engine

import "context"

// A Room is asked before a call makes room for values that it restores or hands out, however little was asked of it: a program
// that serves many callers bounds with it what they hold together. Methods must be safe for concurrent use.
type Room interface {
	// Take is asked for so many bytes more. Its error ends the call.
	Take(bytes int64) error
	// Give says that so many of them are not held any more. What is not given back when a call returns its values is
	// held by its caller.
	Give(bytes int64)
}

// smallValues is what a call restores without asking: it takes more than that by itself.
const smallValues = 4 << 10

type roomKey struct{}

// WithRoom returns a context whose calls ask room. Without one they take what they need.
func WithRoom(ctx context.Context, room Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// taken is what a call took of its room, so far as it gives that back before it ends.
type taken struct {
	room  Room
	bytes int64
}

// take asks the room of ctx for more.
func (t *taken) take(ctx context.Context, bytes int64) error {
	if err := takeRoom(ctx, bytes); err != nil {
		return err
	}
	t.room, _ = ctx.Value(roomKey{}).(Room)
	t.bytes += bytes
	return nil
}

// give gives back all that was taken.
func (t *taken) give() {
	if t.room != nil {
		t.room.Give(t.bytes)
	}
	t.bytes = 0
}

func takeRoom(ctx context.Context, bytes int64) error {
	if room, _ := ctx.Value(roomKey{}).(Room); room != nil && bytes > 0 {
		return room.Take(bytes)
	}
	return nil
}

// takeRoom is asked for a copy of the values of t that wants names.
func (t *tip) takeRoom(ctx context.Context, wants wanting) error {
	if room, _ := ctx.Value(roomKey{}).(Room); room == nil || wants == nil {
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
	return takeRoom(ctx, size)
}

// bytesOfHeader is about what a checkpoint takes in memory without its channels' values.
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
