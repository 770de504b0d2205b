package spans

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// sizes are those at which a header takes another form.
var sizes = []int{0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 255, 256, 65535, 65536}

// reference reads a value as the table of the specification has it, calling itself for what is in
// it: its end, -1 if it has none.
func reference(data []byte, at int) (end int) {
	number := func(n int) int { // of n bytes, behind the first
		if at+1+n > len(data) {
			return math.MaxInt32
		}
		v := 0
		for _, c := range data[at+1 : at+1+n] {
			v = v*256 + int(c)
		}
		return v
	}
	bytes := func(n int) int {
		if at+n > len(data) {
			return -1
		}
		return at + n
	}
	values := func(header, n int) int {
		end := at + header
		for ; n > 0 && end >= 0; n-- {
			end = reference(data, end)
		}
		return end
	}
	if at >= len(data) {
		return -1
	}
	switch b := data[at]; b {
	case 0xc0, 0xc2, 0xc3:
		return bytes(1)
	case 0xc1:
		return -1
	case 0xcc, 0xd0:
		return bytes(2)
	case 0xcd, 0xd1, 0xd4:
		return bytes(3)
	case 0xd5:
		return bytes(4)
	case 0xca, 0xce, 0xd2:
		return bytes(5)
	case 0xd6:
		return bytes(6)
	case 0xcb, 0xcf, 0xd3:
		return bytes(9)
	case 0xd7:
		return bytes(10)
	case 0xd8:
		return bytes(18)
	case 0xc4, 0xd9:
		return bytes(2 + number(1))
	case 0xc5, 0xda:
		return bytes(3 + number(2))
	case 0xc6, 0xdb:
		return bytes(5 + number(4))
	case 0xc7:
		return bytes(3 + number(1))
	case 0xc8:
		return bytes(4 + number(2))
	case 0xc9:
		return bytes(6 + number(4))
	case 0xdc:
		return values(3, number(2))
	case 0xdd:
		return values(5, number(4))
	case 0xde:
		return values(3, 2*number(2))
	case 0xdf:
		return values(5, 2*number(4))
	default:
		switch b >> 4 {
		case 8:
			return values(1, 2*int(b%16))
		case 9:
			return values(1, int(b%16))
		case 10, 11:
			return bytes(1 + int(b%32))
		}
		return bytes(1)
	}
}

func checkMsgpack(t *testing.T, data []byte, at int) {
	t.Helper()
	end, err := MsgpackEnd(data, at)
	want := reference(data, at)
	if want < 0 != errors.Is(err, ErrNone) || err == nil && end != want {
		t.Fatalf("the value at byte %d of %x ends at %d, %v, want %d", at, data, end, err, want)
	}
}

// someMsgpack appends a value, nested at most so deep. Any byte may be its first.
func someMsgpack(dst []byte, rng *rand.Rand, deep int) []byte {
	kind := []Kind{None, String, Binary, Ext, Array, Map}[rng.IntN(6)]
	size := sizes[rng.IntN(12)]
	switch {
	case kind == Array || kind == Map:
		if deep == 0 {
			return append(dst, 0xc0)
		}
		size = min(size, 17)
		dst = AppendHead(dst, kind, size, 0)
		if kind == Map {
			size *= 2
		}
		for range size {
			dst = someMsgpack(dst, rng, deep-1)
		}
		return dst
	case kind != None:
		return append(AppendHead(dst, kind, size, 5), make([]byte, size)...)
	}
	b := byte(rng.Uint32())
	for b >= 0x80 && b < 0xe0 && (b < 0xca || b > 0xd3) { // a number
		b = byte(rng.Uint32())
	}
	dst = append(dst, b)
	if b >= 0xca && b <= 0xd3 {
		for range []int{4, 8, 1, 2, 4, 8, 1, 2, 4, 8}[b-0xca] {
			dst = append(dst, byte(rng.Uint32()))
		}
	}
	return dst
}

func TestMsgpack(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		data := someMsgpack(nil, rng, 3)
		if end, err := MsgpackEnd(data, 0); end != len(data) || err != nil {
			t.Fatalf("%x ends at %d, %v", data, end, err)
		}
		for range 30 {
			cut := data[:rng.IntN(len(data))]
			if _, err := MsgpackEnd(cut, 0); !errors.Is(err, ErrNone) {
				t.Fatalf("%x, cut off: %v", cut, err)
			}
			spoilt := bytes.Clone(data)
			spoilt[rng.IntN(len(data))] = byte(rng.Uint32())
			checkMsgpack(t, spoilt, rng.IntN(len(data)))
		}
	}
}

func TestHead(t *testing.T) {
	for first := range 256 {
		kind := None
		switch {
		case first < 0x80, first >= 0xe0, first >= 0xd0 && first <= 0xd3:
			kind = Int
		case first < 0x90, first == 0xde, first == 0xdf:
			kind = Map
		case first < 0xa0, first == 0xdc, first == 0xdd:
			kind = Array
		case first < 0xc0, first >= 0xd9 && first <= 0xdb:
			kind = String
		case first == 0xc0:
			kind = Nil
		case first == 0xc2, first == 0xc3:
			kind = Bool
		case first >= 0xc4 && first <= 0xc6:
			kind = Binary
		case first >= 0xc7 && first <= 0xc9, first >= 0xd4 && first <= 0xd8:
			kind = Ext
		case first == 0xca, first == 0xcb:
			kind = Float
		case first >= 0xcc && first <= 0xcf:
			kind = Uint
		}
		data := append([]byte{byte(first)}, make([]byte, 64)...)
		if h, ok := Msgpack(data, 0); h.Kind != kind || ok != (kind != None) {
			t.Errorf("%#x begins %v, %t, want %v", first, h.Kind, ok, kind)
		}
	}
	for _, kind := range []Kind{String, Binary, Ext, Array, Map} {
		for _, n := range sizes {
			data := AppendHead([]byte("before"), kind, n, 7)
			start := len(data)
			data = append(data, make([]byte, n)...)
			want := Head{Kind: kind, Start: start, Size: n}
			if kind == Ext {
				want.Code = 7
			}
			if h, ok := Msgpack(data, 6); h != want || !ok {
				t.Errorf("%+v, %t, want %+v", h, ok, want)
			}
			if h, ok := Msgpack(data[:len(data)-1], 6); n > 0 && ok != (kind == Array || kind == Map) {
				t.Errorf("%+v, cut off: %t", h, ok)
			}
		}
	}
	for _, tt := range []struct {
		data []byte
		bits uint64
	}{{[]byte{5}, 5}, {[]byte{0xff}, 0xff}, {[]byte{0xcd, 1, 2}, 0x102}, {[]byte{0xd3, 255, 1, 1, 1, 1, 1, 1, 1}, 0xff01010101010101},
		{[]byte{0xca, 0x3f, 0x80, 0, 0}, uint64(math.Float32bits(1))}} {
		if h, ok := Msgpack(tt.data, 0); !ok || h.Bits(tt.data) != tt.bits {
			t.Errorf("%x: %x", tt.data, h.Bits(tt.data))
		}
	}
	for _, tt := range []struct {
		data []byte
		n    int64
	}{{[]byte{0x7f}, 127}, {[]byte{0xe0}, -32}, {[]byte{0xd0, 0x80}, -128}, {[]byte{0xd1, 1, 2}, 258},
		{[]byte{0xd2, 255, 255, 255, 254}, -2}, {[]byte{0xd3, 128, 0, 0, 0, 0, 0, 0, 0}, math.MinInt64}} {
		if h, ok := Msgpack(tt.data, 0); !ok || h.Kind != Int || h.Int(tt.data) != tt.n {
			t.Errorf("%x: %d, want %d", tt.data, h.Int(tt.data), tt.n)
		}
	}
}

// Depth and lengths that are not there cost nothing.
func TestHugeMsgpack(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 1_000_000)
	if _, err := MsgpackEnd(deep, 0); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if end, err := MsgpackEnd(append(deep, 0xc0), 0); end != len(deep)+1 || err != nil {
		t.Error(end, err)
	}
	for first := 0xc4; first <= 0xdf; first++ {
		data := append([]byte{byte(first)}, bytes.Repeat([]byte{0xff}, 5)...)
		if h, _ := Msgpack(data, 0); h.Kind == String || h.Kind == Binary {
			t.Errorf("%x: %+v", data, h)
		}
		checkMsgpack(t, data, 0)
	}
	if _, err := MsgpackEnd(bytes.Repeat([]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, 1000), 0); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

func FuzzMsgpack(f *testing.F) {
	f.Add([]byte("\x82\xa1a\xafbob@example.org\xa1b\x93\x01\xc0\xcf\x00\x0e\x9a\x35\x7f\x2b\x41\xc7"))
	f.Add([]byte("\x91\xc7\x12\x05\x91\xafbob@example.org\xc4\x0fbob@example.org"))
	f.Add([]byte("\xdd\xff\xff\xff\xff\xc1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return // the reference calls itself
		}
		for at := range data {
			checkMsgpack(t, data, at)
		}
	})
}
