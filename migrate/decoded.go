package migrate

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/ckptd/ckptd/internal/weight"
)

// What a value takes in memory beside its text, with where it stands, and what an object does beside its members.
const (
	bytesPerValue  = 140
	bytesPerObject = 320
)

// Decoded is about how many bytes of memory a state takes while steps work on it. Of small values it is a hundred times what
// they have as text, so who serves many asks before they migrate.
func (s State) Decoded() int64 {
	var c counter
	for i := range s.Channels {
		switch ch := &s.Channels[i]; ch.Type {
		case "json":
			c.json(ch.Data)
		case "msgpack":
			c.msgpack(ch.Data, 0)
		}
	}
	c.json(s.Meta)
	return c.memory()
}

const (
	// decodedShare is how many times the memory of a step the state that it gets may take.
	decodedShare = 2
	// maxDecoded bounds all states of the process that are decoded at a time. Others wait.
	maxDecoded = 1 << 30
)

var decoding = semaphore.NewWeighted(maxDecoded)

// enter waits for the memory that a state takes once it is decoded, so many bytes, which leave gives back.
func (s *Set) enter(ctx context.Context, size int64) (leave func(), err error) {
	if most := decodedShare * s.limits.Memory; size > most {
		return nil, fmt.Errorf("the state has too many values: it would take %d MiB of memory, more than the limit of %d", size>>20, most>>20)
	}
	size = min(size, maxDecoded)
	if err := decoding.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return func() { decoding.Release(size) }, nil
}

// counter counts what decoding makes. It counts no less than there is, of what can be decoded.
type counter struct{ bytes, values, objects int64 }

func (c *counter) memory() int64 { return c.bytes + bytesPerValue*c.values + bytesPerObject*c.objects }

func (c *counter) json(text []byte) {
	values, objects := weight.JSON(text)
	c.bytes, c.values, c.objects = c.bytes+int64(len(text)), c.values+int64(values), c.objects+int64(objects)
}

// msgpack goes from value to value. What is in an extension it counts within so many others.
func (c *counter) msgpack(data []byte, within int) {
	const deepest = 100
	c.bytes += int64(len(data))
	for len(data) > 0 {
		kind, head, payload := msgpackHead(data)
		c.values++
		end := head + payload
		if end > uint64(len(data)) {
			return // it is cut off, which decoding finds
		}
		switch kind {
		case msgpackObject:
			c.objects++
		case msgpackExt:
			if c.objects++; within == deepest {
				c.values += int64(payload)
			} else {
				c.msgpack(data[head:end], within+1)
			}
		}
		data = data[end:]
	}
}

const (
	msgpackPlain  = iota
	msgpackObject // decoded to an object
	msgpackExt
)

// msgpackHead tells what a value is, and how many bytes its head has and what belongs to it and is no value.
func msgpackHead(data []byte) (kind int, head, payload uint64) {
	// size reads how many bytes follow, in 1, 2 or 4 bytes; a text that ends within it has no end either.
	size := func(shift byte) (uint64, uint64) {
		var b [8]byte
		n := 1 << shift
		copy(b[8-n:], data[1:])
		return 1 + uint64(n), binary.BigEndian.Uint64(b[:])
	}
	switch c := data[0]; {
	case c <= 0x7f, c >= 0xe0, c >= 0x90 && c <= 0x9f, c == 0xc0, c == 0xc2, c == 0xc3:
		return msgpackPlain, 1, 0
	case c <= 0x8f:
		return msgpackObject, 1, 0
	case c <= 0xbf:
		return msgpackPlain, 1, uint64(c & 31)
	case c >= 0xc4 && c <= 0xc6:
		head, payload = size(c - 0xc4)
		return msgpackObject, head, payload
	case c >= 0xc7 && c <= 0xc9:
		head, payload = size(c - 0xc7)
		return msgpackExt, head + 1, payload
	case c == 0xca, c == 0xcb:
		if len(data) > 1 && data[1]&0x7f == 0x7f { // it may be no number
			kind = msgpackObject
		}
		return kind, 1, 4 << (c - 0xca)
	case c >= 0xcc && c <= 0xcf:
		return msgpackPlain, 1, 1 << (c - 0xcc)
	case c >= 0xd0 && c <= 0xd3:
		return msgpackPlain, 1, 1 << (c - 0xd0)
	case c >= 0xd4 && c <= 0xd8:
		return msgpackExt, 2, 1 << (c - 0xd4)
	case c >= 0xd9 && c <= 0xdb:
		head, payload = size(c - 0xd9)
		return msgpackPlain, head, payload
	case c == 0xdc, c == 0xdd:
		return msgpackPlain, 3 + 2*uint64(c-0xdc), 0
	case c == 0xde, c == 0xdf:
		return msgpackObject, 3 + 2*uint64(c-0xde), 0
	}
	return msgpackPlain, 1, 0 // 0xc1 is nothing
}
