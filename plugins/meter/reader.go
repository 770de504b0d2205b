package meter

import (
	"fmt"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
)

// reader reads from a part of the binary. The first error sticks: from then on every read returns
// zero, so callers check err in their loops and before they rely on a value.
type reader struct {
	bin     []byte
	pos     int // next byte
	end     int // of the part
	section string
	err     error
}

// fail records the first error.
func (r *reader) fail(kind error, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Kind: kind, Section: r.section, Offset: r.pos, Reason: fmt.Sprintf(format, args...)}
	}
}

func (r *reader) invalid(format string, args ...any) { r.fail(hook.ErrInvalid, format, args...) }
func (r *reader) limit(format string, args ...any)   { r.fail(hook.ErrLimit, format, args...) }

func (r *reader) left() int {
	if r.err != nil {
		return 0
	}
	return r.end - r.pos
}

func (r *reader) byte() byte {
	if r.left() < 1 {
		r.invalid("it ends too early")
		return 0
	}
	b := r.bin[r.pos]
	r.pos++
	return b
}

// bytes returns the next n bytes. They share the binary's memory.
func (r *reader) bytes(n int) []byte {
	if n < 0 || r.left() < n {
		r.invalid("it ends too early")
		return nil
	}
	b := r.bin[r.pos : r.pos+n]
	r.pos += n
	return b
}

// u32 reads an unsigned LEB128 of at most five bytes. No bit beyond the 32nd may be set.
func (r *reader) u32() uint32 {
	var v uint32
	for shift := 0; ; shift += 7 {
		b := r.byte()
		if shift == 28 && b > 0x0f {
			r.invalid("a number is longer than its type")
			return 0
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 || r.err != nil {
			return v
		}
	}
}

// signed reads a signed LEB128 with the given number of bits. Any excess bits must repeat the sign.
func (r *reader) signed(bits int) int64 {
	var v int64
	for shift := 0; ; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		v |= int64(b&0x7f) << shift
		if shift+7 >= bits { // the last byte allowed
			rest := int8(b<<1) >> (bits - shift) // its sign bit and the excess bits
			if b >= 0x80 || rest != 0 && rest != -1 {
				r.invalid("a number is longer than its type")
				return 0
			}
			return v << (64 - bits) >> (64 - bits)
		}
		if b < 0x80 {
			return v << (57 - shift) >> (57 - shift)
		}
	}
}

// count reads the number of entries of a list. Each entry takes at least size bytes.
func (r *reader) count(size, most int, what string) int {
	n := int(r.u32())
	if n > r.left()/size {
		r.invalid("%d %s announced, and bytes left for %d at most", n, what, r.left()/size)
	} else if n > most {
		r.limit("%d %s, more than %d", n, what, most)
	}
	if r.err != nil {
		return 0
	}
	return n
}

// name reads the name of an import or export.
func (r *reader) name() string {
	n := r.count(1, maxName, "bytes of a name")
	b := r.bytes(n)
	if !utf8.Valid(b) {
		r.invalid("a name is not UTF-8")
	}
	return string(b)
}

// index reads an index into a list of n entries.
func (r *reader) index(n int, what string) uint32 {
	at := r.pos
	i := r.u32()
	if r.err == nil && int64(i) >= int64(n) {
		r.pos = at
		r.invalid("%s %d of %d", what, i, n)
		return 0
	}
	return i
}

// zero reads a byte that must be zero, such as the index of the only memory.
func (r *reader) zero(what string) {
	if r.byte() != 0 {
		r.invalid("%s", what)
	}
}

// valueType reads a value type.
func (r *reader) valueType() byte {
	t := r.byte()
	if r.err == nil && valueNames[t] == "" {
		r.invalid("unknown value type 0x%02x: build without GC, exceptions or typed references", t)
	}
	return t
}

// refType reads a reference type.
func (r *reader) refType() byte {
	t := r.byte()
	if r.err == nil && t != FuncRef && t != ExternRef {
		r.invalid("unknown reference type 0x%02x", t)
	}
	return t
}
