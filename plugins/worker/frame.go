package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// protocol is the version that both ends must use. They are normally the same program, but a daemon
// can outlive the executable that it was started from.
const protocol = "ckptd-plugin-worker-1"

// A frame is its kind (1 byte), the length of its body (4 bytes, little endian), and the body:
// fields in the order given in message.go, followed in some kinds by data up to the end of the
// body.
type kind byte

const (
	kindStart  kind = iota + 1 // to the worker: protocol and budget; sent once, first
	kindLoad                   // compile a plugin
	kindUnload                 // unload a plugin; no answer
	kindCall                   // run a hook
	kindCancel                 // cancel the operation with that number; no answer of its own
	kindAnswer                 // to putBlob and redact

	kindReady   // from the worker: answer to start
	kindLoaded  // answer to load
	kindDone    // answer to call
	kindFailed  // answer to load
	kindPutBlob // asks to store a blob, during a call
	kindRedact  // asks to redact data, during a call
)

const (
	headerSize = 1 + 4
	chunk      = 4 << 20  // allocated for a body before any of it has arrived
	inline     = 64 << 10 // data up to this size is copied, to be written in one piece with the fields
)

var errFrame = errors.New("malformed frame")

// readFrame reads a frame whose body has at most max(kind) bytes. A negative maximum means that the
// kind is unexpected.
func readFrame(r io.Reader, max func(kind) int64) (kind, []byte, error) {
	k, size, err := readHeader(r, max)
	if err != nil {
		return 0, nil, err
	}
	body, err := readBody(r, size, nil)
	return k, body, err
}

func readHeader(r io.Reader, max func(kind) int64) (kind, int, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, err
	}
	k, size := kind(head[0]), int64(binary.LittleEndian.Uint32(head[1:]))
	limit := max(k)
	if limit < 0 {
		return 0, 0, fmt.Errorf("%w: unexpected kind %d", errFrame, k)
	}
	if size > limit {
		return 0, 0, fmt.Errorf("%w: kind %d has %d bytes, the limit is %d", errFrame, k, size, limit)
	}
	return k, int(size), nil
}

// readBody reads size bytes, into room if it is large enough. Otherwise it allocates at most twice
// the size of the data that has actually arrived, plus a chunk.
func readBody(r io.Reader, size int, room []byte) ([]byte, error) {
	body := room[:0]
	if cap(room) < size {
		body = nil
	}
	for len(body) < size {
		have := len(body)
		body = slices.Grow(body, min(size-have, have+chunk))
		body = body[:min(size, cap(body))]
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return body, nil
}

// writeFrame writes a frame. Its body is the fields followed by data, which is not copied if it is
// large.
func writeFrame(w io.Writer, k kind, fields builder, data []byte) error {
	if uint64(len(fields))+uint64(len(data)) > 1<<32-1 {
		return fmt.Errorf("%w: kind %d is too large", errFrame, k)
	}
	frame := make([]byte, headerSize, headerSize+len(fields)+min(len(data), inline))
	frame[0] = byte(k)
	binary.LittleEndian.PutUint32(frame[1:], uint32(len(fields)+len(data)))
	frame = append(frame, fields...)
	if len(data) <= inline {
		frame, data = append(frame, data...), nil
	}
	if _, err := w.Write(frame); err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// builder holds the encoded fields of a body.
type builder []byte

func (b *builder) uint(v uint64) { *b = binary.AppendUvarint(*b, v) }
func (b *builder) int(v int64)   { *b = binary.AppendVarint(*b, v) }

func (b *builder) bool(v bool) {
	if v {
		b.uint(1)
	} else {
		b.uint(0)
	}
}

func (b *builder) bytes(v []byte) {
	b.uint(uint64(len(v)))
	*b = append(*b, v...)
}

func (b *builder) string(v string) {
	b.uint(uint64(len(v)))
	*b = append(*b, v...)
}

func (b *builder) array(v [32]byte) { *b = append(*b, v[:]...) }

// parser reads the fields of a body. Its results share the body's memory. After the first missing
// field, every field reads as zero.
type parser struct {
	left   []byte
	failed bool
}

func (p *parser) uint() uint64 {
	v, n := binary.Uvarint(p.left)
	if !p.skip(n) {
		return 0
	}
	return v
}

func (p *parser) int() int64 {
	v, n := binary.Varint(p.left)
	if !p.skip(n) {
		return 0
	}
	return v
}

// skip advances by n bytes, if there are that many.
func (p *parser) skip(n int) bool {
	if p.failed = p.failed || n <= 0 || n > len(p.left); p.failed {
		return false
	}
	p.left = p.left[n:]
	return true
}

// count reads a number of things that take at least one byte each.
func (p *parser) count(limit int) int {
	n := p.uint()
	if n > uint64(limit) || n > uint64(len(p.left)) {
		p.failed = true
		return 0
	}
	return int(n)
}

func (p *parser) bool() bool {
	v := p.uint()
	p.failed = p.failed || v > 1
	return v == 1
}

func (p *parser) bytes(limit int) []byte {
	n := p.count(limit)
	if p.failed {
		return nil
	}
	v := p.left[:n:n]
	p.left = p.left[n:]
	return v
}

func (p *parser) string(limit int) string { return string(p.bytes(limit)) }

func (p *parser) array() (v [32]byte) {
	if p.failed = p.failed || len(p.left) < len(v); !p.failed {
		p.left = p.left[copy(v[:], p.left):]
	}
	return v
}

// rest returns the data after the fields.
func (p *parser) rest() []byte {
	v := p.left
	p.left = nil
	return v
}

// end returns an error if a field was missing or if unread bytes remain.
func (p *parser) end() error {
	if p.failed || len(p.left) > 0 {
		return errFrame
	}
	return nil
}
