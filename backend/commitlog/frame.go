package commitlog

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Frame gathers the mutations of a group. The zero Frame is empty. Its memory is used again after
// Reset.
type Frame struct {
	buf []byte // a segment's header, the frame's, the mutations
	pos Position
}

const mutationsAt = headerSize + frameHead

// Reset empties the frame. It makes room for room bytes, and frees memory beyond keep.
func (f *Frame) Reset(room, keep int) {
	room += mutationsAt + page
	if cap(f.buf) < room || cap(f.buf) > max(room, keep) {
		f.buf = make([]byte, mutationsAt, room+room/2)
	}
	f.buf = f.buf[:mutationsAt]
	clear(f.buf)
}

// Len is how many bytes the mutations take.
func (f *Frame) Len() int { return max(0, len(f.buf)-mutationsAt) }

// Put adds a key that is written, under a user byte that is not 0. It returns where the caller puts
// key and value, of the lengths given, before the next call.
func (f *Frame) Put(user byte, key, value int) (k, v []byte) {
	f.grow(1 + 2*binary.MaxVarintLen32 + key + value)
	f.buf = append(f.buf, user)
	k = f.take(key)
	return k, f.take(value)
}

// Delete adds a key that is deleted.
func (f *Frame) Delete(key int) []byte {
	f.grow(1 + binary.MaxVarintLen32 + key)
	f.buf = append(f.buf, 0)
	return f.take(key)
}

// grow makes room for n bytes, and for the zeros behind them.
func (f *Frame) grow(n int) {
	used := max(len(f.buf), mutationsAt)
	if need := used + n + page; cap(f.buf) < need {
		grown := make([]byte, used, 2*need)
		copy(grown, f.buf)
		f.buf = grown
	}
}

// take appends a length and room for that many bytes, which it returns.
func (f *Frame) take(length int) []byte {
	f.buf = binary.AppendUvarint(f.buf, uint64(length))
	start := len(f.buf)
	f.buf = f.buf[:start+length]
	return f.buf[start : start+length : start+length]
}

// pad appends zeros up to the end of the page of a segment, for a frame that is written at a place
// in it. A page that is written whole need not be read before.
func (f *Frame) pad(at, size int64) {
	end := min((at+blocks(f.Len())+page-1)/page*page, size)
	f.buf = append(f.buf, zeros[:end-at-frameHead-int64(f.Len())]...)
}

// seal fills in the head of the frame, as the one that follows last.
func (f *Frame) seal(c *chain, last Position, time int64) Position {
	head := f.buf[headerSize:mutationsAt]
	copy(head, frameMagic)
	binary.BigEndian.PutUint32(head[4:], uint32(f.Len()))
	binary.BigEndian.PutUint64(head[8:], last.N+1)
	binary.BigEndian.PutUint64(head[16:], uint64(time))
	copy(head[24:], last.Hash[:])
	sum := c.sum(head, f.buf[mutationsAt:])
	copy(head[56:], sum[:])
	f.pos = Position{Incarnation: c.incarnation, N: last.N + 1, Time: time, Hash: sum}
	return f.pos
}

// Mutation is a key of the driver's that is written or deleted.
type Mutation struct {
	User       byte // 0: deleted
	Key, Value []byte
}

// ParseMutations calls f for each mutation of a frame. Key and Value are part of b.
func ParseMutations(b []byte, f func(Mutation) error) error {
	for len(b) > 0 {
		m := Mutation{User: b[0]}
		var err error
		if m.Key, b, err = cut(b[1:]); err != nil {
			return err
		}
		if m.User != 0 {
			if m.Value, b, err = cut(b); err != nil {
				return err
			}
		}
		if err := f(m); err != nil {
			return err
		}
	}
	return nil
}

// cut takes off bytes behind their length.
func cut(b []byte) (value, rest []byte, err error) {
	length, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || length > math.MaxInt32 || int(length) > len(b)-n {
		return nil, nil, fmt.Errorf("%w: a length in a mutation", ErrMalformed)
	}
	end := n + int(length)
	return b[n:end:end], b[end:], nil
}
