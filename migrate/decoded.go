package migrate

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/ckptd/ckptd/internal/weight"
)

// Memory of a value in addition to its text, including its position, and of an object in addition
// to its members.
const (
	bytesPerValue  = 140
	bytesPerObject = 320
)

// Decoded estimates the bytes of memory that a state takes while steps work on it. For small values
// that is a hundred times their size as text, so a server with many users should ask before it
// migrates.
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
	// decodedShare bounds the memory of a step's input, as a multiple of the memory limit of the
	// step.
	decodedShare = 2
	// maxDecoded bounds all states of the process that are decoded at the same time. Others wait.
	maxDecoded = 1 << 30
)

var decoding = semaphore.NewWeighted(maxDecoded)

// enter waits until there is memory for a decoded state of the given size. The returned leave gives
// it back.
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

// counter counts the results of decoding. For data that can be decoded it never counts too low.
type counter struct{ bytes, values, objects int64 }

func (c *counter) memory() int64 { return c.bytes + bytesPerValue*c.values + bytesPerObject*c.objects }

func (c *counter) json(text []byte) {
	values, objects := weight.JSON(text)
	c.bytes, c.values, c.objects = c.bytes+int64(len(text)), c.values+int64(values), c.objects+int64(objects)
}

// msgpack counts the values in sequence. Extensions may be nested up to within levels.
func (c *counter) msgpack(data []byte, within int) {
	const deepest = 100
	c.bytes += int64(len(data))
	for len(data) > 0 {
		kind, head, payload := msgpackHead(data)
		c.values++
		end := head + payload
		if end > uint64(len(data)) {
			return // truncated, which decoding will report
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

// msgpackHead returns the kind of a value, the size of its head, and the size of its payload that
// isn't values.
func msgpackHead(data []byte) (kind int, head, payload uint64) {
	// size reads a length of 1, 2 or 4 bytes. If it is truncated, so is the value.
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
		if len(data) > 1 && data[1]&0x7f == 0x7f { // it may not be a number
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
	return msgpackPlain, 1, 0 // 0xc1 is unassigned
}
