package spans

import (
	"encoding/binary"
	"slices"
)

// Kind is the kind of a msgpack value.
type Kind uint8

const (
	None Kind = iota
	Nil
	Bool
	Int // signed, or one of the first byte alone
	Uint
	Float
	String
	Binary
	Ext
	Array
	Map
)

// Head is how a value in msgpack begins.
type Head struct {
	Kind Kind
	Code byte // of an extension

	// Start is where the content begins: the bytes of a string, binary value, extension or number,
	// the byte that a bool or a small number is, and the first element or key.
	Start int

	// Size is of the content in bytes, all of which are there. Of an array it is how many elements
	// follow, of a map how many pairs, whether they are there or not.
	Size int
}

// End is the end of a value that is not an array or a map.
func (h Head) End() int { return h.Start + h.Size }

// Bits are the bytes of a number, as the least ones of an integer.
func (h Head) Bits(data []byte) (bits uint64) {
	for _, c := range data[h.Start:h.End()] {
		bits = bits<<8 | uint64(c)
	}
	return bits
}

// Int is the value of an Int.
func (h Head) Int(data []byte) int64 {
	shift := 64 - 8*h.Size
	return int64(h.Bits(data)<<shift) >> shift
}

// forms describe the first bytes from 0xc0 to 0xdf: the kind, the number of length bytes, and
// without those the length itself.
var forms = [32]struct {
	kind         Kind
	told, length uint8
}{
	{Nil, 0, 0}, {}, {Bool, 0, 1}, {Bool, 0, 1},
	{Binary, 1, 0}, {Binary, 2, 0}, {Binary, 4, 0},
	{Ext, 1, 0}, {Ext, 2, 0}, {Ext, 4, 0},
	{Float, 0, 4}, {Float, 0, 8},
	{Uint, 0, 1}, {Uint, 0, 2}, {Uint, 0, 4}, {Uint, 0, 8},
	{Int, 0, 1}, {Int, 0, 2}, {Int, 0, 4}, {Int, 0, 8},
	{Ext, 0, 1}, {Ext, 0, 2}, {Ext, 0, 4}, {Ext, 0, 8}, {Ext, 0, 16},
	{String, 1, 0}, {String, 2, 0}, {String, 4, 0},
	{Array, 2, 0}, {Array, 4, 0},
	{Map, 2, 0}, {Map, 4, 0},
}

// Msgpack reads how the value at data[at] begins. Not ok: it is cut off, or begins with 0xc1, which
// begins none.
func Msgpack(data []byte, at int) (h Head, ok bool) {
	if at >= len(data) {
		return Head{}, false
	}
	switch b := data[at]; {
	case b <= 0x7f || b >= 0xe0:
		return Head{Kind: Int, Start: at, Size: 1}, true
	case b <= 0x8f:
		return Head{Kind: Map, Start: at + 1, Size: int(b & 15)}, true
	case b <= 0x9f:
		return Head{Kind: Array, Start: at + 1, Size: int(b & 15)}, true
	case b <= 0xbf:
		h = Head{Kind: String, Start: at + 1, Size: int(b & 31)}
	case b == 0xc2 || b == 0xc3:
		return Head{Kind: Bool, Start: at, Size: 1}, true
	default:
		f := &forms[b-0xc0]
		h = Head{Kind: f.kind, Start: at + 1 + int(f.told), Size: int(f.length)}
		if f.kind == None || h.Start > len(data) {
			return Head{}, false
		}
		for _, c := range data[at+1 : h.Start] {
			h.Size = h.Size<<8 | int(c)
		}
	}
	if h.Kind == Ext {
		if h.Start == len(data) {
			return Head{}, false
		}
		h.Code = data[h.Start]
		h.Start++
	}
	// Where an int has 32 bits, a size may be negative: so much is not there.
	if h.Size < 0 || h.Size > len(data)-h.Start && h.Kind != Array && h.Kind != Map {
		return Head{}, false
	}
	return h, true
}

// MsgpackEnd returns where the value ends that begins at data[at].
func MsgpackEnd(data []byte, at int) (end int, err error) {
	for left := 1; left > 0; left-- {
		h, ok := Msgpack(data, at)
		if !ok {
			return 0, ErrNone
		}
		switch at = h.Start; h.Kind {
		case Array:
			left += h.Size
		case Map:
			left += 2 * h.Size
		default:
			at = h.End()
		}
		if left-1 > len(data)-at { // each takes a byte at least
			return 0, ErrNone
		}
	}
	return at, nil
}

// AppendHead appends the shortest header of a string, binary value, extension, array or map of size
// n.
func AppendHead(dst []byte, kind Kind, n int, code byte) []byte {
	sized := func(b8, b16, b32 byte) []byte {
		switch {
		case n < 1<<8 && b8 != 0:
			return append(dst, b8, byte(n))
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(append(dst, b16), uint16(n))
		}
		return binary.BigEndian.AppendUint32(append(dst, b32), uint32(n))
	}
	switch {
	case kind == String && n < 32:
		return append(dst, 0xa0|byte(n))
	case kind == String:
		return sized(0xd9, 0xda, 0xdb)
	case kind == Binary:
		return sized(0xc4, 0xc5, 0xc6)
	case kind == Array && n < 16:
		return append(dst, 0x90|byte(n))
	case kind == Array:
		return sized(0, 0xdc, 0xdd)
	case kind == Map && n < 16:
		return append(dst, 0x80|byte(n))
	case kind == Map:
		return sized(0, 0xde, 0xdf)
	}
	if i := slices.Index([]int{1, 2, 4, 8, 16}, n); i >= 0 {
		return append(dst, 0xd4+byte(i), code)
	}
	return append(sized(0xc7, 0xc8, 0xc9), code)
}
