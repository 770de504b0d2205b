package codec

import (
	"encoding/binary"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// smallBlock is the size up to which blocks take the faster of two levels: small blocks are the hot saves', where the
// better level gains 2 % for twice the time; large ones are keyframes, written rarely.
const smallBlock = 32 << 10

// Zstd compresses and restores blocks (docs/format.md §6). Safe for concurrent use.
type Zstd struct {
	small, large *zstd.Encoder
	dec          *zstd.Decoder
	frames       sync.Pool // of *[]byte, frames with their magic number put back
}

// NewZstd returns a compressor that works on as many blocks at once as there are processors. It holds a few
// megabytes once used.
func NewZstd() *Zstd {
	n := runtime.GOMAXPROCS(0)
	encoder := func(level zstd.EncoderLevel) *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(n),
			zstd.WithEncoderCRC(false), zstd.WithAllLitEntropyCompression(true), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	}
	// WithDecodeAllCapLimit: a frame never restores to more than the room it was given.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(n), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(MaxChannel+1))
	if err != nil {
		panic(err)
	}
	return &Zstd{small: encoder(zstd.SpeedFastest), large: encoder(zstd.SpeedDefault), dec: dec}
}

const (
	codingRaw  = 0
	codingZstd = 1
)

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// AppendBlock appends raw as a block: compressed, or as it is when that is not smaller.
func (z *Zstd) AppendBlock(dst, raw []byte) []byte {
	head := uint64(len(raw)) << 1
	if len(raw) > 16 { // a frame cannot be smaller
		start := len(dst)
		dst = binary.AppendUvarint(dst, head|codingZstd)
		enc := z.small
		if len(raw) > smallBlock {
			enc = z.large
		}
		body := len(dst)
		dst = enc.EncodeAll(raw, dst)
		if frame := len(dst) - body - len(zstdMagic); frame < len(raw) {
			copy(dst[body:], dst[body+len(zstdMagic):])
			return dst[:body+frame]
		}
		dst = dst[:start]
	}
	return append(binary.AppendUvarint(dst, head|codingRaw), raw...)
}

// AppendRaw appends the raw bytes of block to dst. block must hold one block and no more, of at most most raw bytes.
func (z *Zstd) AppendRaw(dst, block []byte, most int) ([]byte, error) {
	r := reader{b: block}
	head := r.count("block length", uint64(most)<<1|1)
	if r.err != nil {
		return dst, r.err
	}
	n := int(head >> 1)
	if head&1 == codingRaw {
		if len(r.b) != n {
			return dst, malformed("raw block holds %d bytes, says %d", len(r.b), n)
		}
		return append(dst, r.b...), nil
	}
	if len(r.b)+len(zstdMagic) < 9 || len(r.b) >= n {
		return dst, malformed("compressed block of %d bytes for %d", len(r.b), n)
	}
	return z.appendFrame(dst, r.b, n)
}

// appendFrame restores a frame that lacks its magic number to exactly n bytes.
func (z *Zstd) appendFrame(dst, frame []byte, n int) ([]byte, error) {
	// Reserved bit, checksum and dictionary are never written (RFC 8878, 3.1.1.1.1).
	if frame[0]&0b0000_1111 != 0 {
		return dst, malformed("frame has flags %#x", frame[0])
	}
	start := len(dst)
	dst = grow(dst, n)
	whole, _ := z.frames.Get().(*[]byte)
	if whole == nil {
		whole = new([]byte)
	}
	*whole = append(append((*whole)[:0], zstdMagic...), frame...)
	out, err := z.dec.DecodeAll(*whole, dst[start:start:start+n])
	z.frames.Put(whole)
	if err != nil {
		return dst[:start], malformed("frame: %v", err)
	}
	if len(out) != n {
		return dst[:start], malformed("frame holds %d bytes, says %d", len(out), n)
	}
	return dst[:start+n], nil
}

// grow makes room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n), dst...)
}
