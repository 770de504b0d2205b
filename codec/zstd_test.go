package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestBlockRoundTrip(t *testing.T) {
	rng := newRand(40)
	random := make([]byte, 70_000)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	sizes := []int{0, 1, 16, 17, 63, 64, 127, 128, 255, 256, 257, 1023, 1024, 1025, 32 << 10, 32<<10 + 1,
		255 + 1<<16, 256 + 1<<16, 257 + 1<<16, 1 << 17, 1<<17 + 1}
	for _, n := range sizes {
		prose := []byte(words(rng, n/4+1))
		for name, raw := range map[string][]byte{
			"zeros": rep(0, n), "words": slices.Concat(prose, rep('z', n))[:n], "noise": slices.Repeat(random, 2)[:n],
		} {
			block := testZstd.AppendBlock([]byte("before"), raw)[len("before"):]
			if max := len(binary.AppendUvarint(nil, uint64(n)<<1)) + n; len(block) > max {
				t.Errorf("%d bytes of %s take %d", n, name, len(block))
			}
			got, err := testZstd.AppendRaw([]byte("before"), block, n)
			if err != nil || !bytes.Equal(got[len("before"):], raw) {
				t.Errorf("%d bytes of %s: %v, equal: %v", n, name, err, bytes.Equal(got, raw))
			}
			if n > 0 {
				if dst, err := testZstd.AppendRaw([]byte("before"), block, n-1); !errors.Is(err, ErrMalformed) || string(dst) != "before" {
					t.Errorf("%d bytes of %s where %d are allowed: %v", n, name, n-1, err)
				}
			}
		}
	}
}

// TestLargeBlock goes past the window of the encoder.
func TestLargeBlock(t *testing.T) {
	raw := bytes.Repeat([]byte(words(newRand(41), 1000)), 1500)
	if len(raw) < 9<<20 {
		t.Fatalf("only %d bytes", len(raw))
	}
	block := testZstd.AppendBlock(nil, raw)
	got, err := testZstd.AppendRaw(nil, block, MaxChannel)
	if err != nil || !bytes.Equal(got, raw) || len(block) > len(raw)/10 {
		t.Errorf("%d bytes in %d: %v", len(raw), len(block), err)
	}
}

// frameOf makes a block of coding zstd out of a frame header and blocks.
func frameOf(n int, header []byte, blocks ...[]byte) []byte {
	return slices.Concat(binary.AppendUvarint(nil, uint64(n)<<1|codingZstd), header, slices.Concat(blocks...))
}

// frameBlock makes a block of a frame: kind 0 raw, 1 repeated, 2 compressed.
func frameBlock(last bool, kind, size uint32, body ...byte) []byte {
	h := size<<3 | kind<<1
	if last {
		h |= 1
	}
	return append([]byte{byte(h), byte(h >> 8), byte(h >> 16)}, body...)
}

func TestFrames(t *testing.T) {
	x100 := frameBlock(true, 1, 100, 'x')
	x1000 := frameBlock(true, 1, 1000, 'x')
	// 12 literals and no sequences, the simplest compressed block.
	literals := append([]byte{12 << 3}, "abcdefghijkl"...)
	for _, c := range []struct {
		name  string
		block []byte
		why   string // "" for a good one
	}{
		{"one block", frameOf(100, []byte{0x20, 100}, x100), ""},
		{"two blocks", frameOf(100, []byte{0x20, 100}, frameBlock(false, 1, 60, 'x'), frameBlock(true, 1, 40, 'x')), ""},
		{"an empty last block", frameOf(100, []byte{0x20, 100}, frameBlock(false, 1, 100, 'x'), frameBlock(true, 0, 0)), ""},
		{"raw and compressed", frameOf(112, []byte{0x20, 112}, frameBlock(false, 1, 100, 'x'), frameBlock(true, 2, 14, append(literals, 0)...)), ""},
		{"two bytes of size", frameOf(1000, []byte{0x60, 0xe8, 0x02}, x1000), ""},
		{"four bytes of size", frameOf(70_000, []byte{0xa0, 0x70, 0x11, 1, 0}, frameBlock(true, 1, 70_000, 'x')), ""},

		{"raw length below the content", frameOf(99, []byte{0x20, 100}, x100), "header"},
		{"raw length above the content", frameOf(101, []byte{0x20, 100}, x100), "header"},
		{"size in more bytes than it needs", frameOf(100, []byte{0xa0, 100, 0, 0, 0}, x100), "header"},
		{"size in eight bytes", frameOf(1000, []byte{0xe0, 0xe8, 3, 0, 0, 0, 0, 0, 0}, x1000), "header"},
		{"a window and no size", frameOf(100, []byte{0x00, 0x00}, x100), "header"},
		{"a window and a size", frameOf(1000, []byte{0x40, 0x00, 0xe8, 0x02}, x1000), "header"},
		{"the largest window", frameOf(1000, []byte{0x40, 0xff, 0xe8, 0x02}, x1000), "header"},
		{"checksum", frameOf(100, []byte{0x24, 100}, x100, []byte{0, 0, 0, 0}), "header"},
		{"reserved bit", frameOf(100, []byte{0x28, 100}, x100), "header"},
		{"unused bit", frameOf(100, []byte{0x30, 100}, x100), "header"},
		{"dictionary", frameOf(100, []byte{0x21, 1, 100}, x100), "header"},
		{"dictionary number 0", frameOf(100, []byte{0x21, 0, 100}, x100), "header"},
		{"magic number", frameOf(100, append(bytes.Clone(zstdMagic), 0x20, 100), x100), "header"},

		{"no block", frameOf(100, []byte{0x20, 100}), "ends early"},
		{"no last block", frameOf(100, []byte{0x20, 100}, frameBlock(false, 1, 100, 'x')), "ends early"},
		{"a block cut short", frameOf(100, []byte{0x20, 100}, frameBlock(true, 0, 100, 'x')), "ends early"},
		{"reserved block", frameOf(100, []byte{0x20, 100}, frameBlock(true, 3, 100, 'x')), "type 3"},
		{"a second frame", frameOf(100, []byte{0x20, 100}, frameBlock(true, 1, 90, 'x'), zstdMagic, []byte{0x20, 10}, frameBlock(true, 1, 10, 'x')), "room for 90"},
		{"an empty second frame", frameOf(100, []byte{0x20, 100}, x100, zstdMagic, []byte{0x20, 0}, frameBlock(true, 0, 0)), "left over"},
		{"a skippable frame", frameOf(100, []byte{0x20, 100}, x100, []byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'}), "left over"},
		{"a byte behind", frameOf(100, []byte{0x20, 100}, x100, []byte{0}), "left over"},
		{"more than it says", frameOf(100, []byte{0x20, 100}, frameBlock(true, 1, 101, 'x')), "frame: "},
		{"less than it says", frameOf(100, []byte{0x20, 100}, frameBlock(true, 1, 99, 'x')), "room for 99"},
		{"compressed to less than it says", frameOf(100, []byte{0x20, 100}, frameBlock(true, 2, 14, append(literals, 0)...)), "frame: "},
		{"a block of more than 128 KiB", frameOf(200_000, []byte{0xa0, 0x40, 0x0d, 3, 0}, frameBlock(true, 1, 200_000, 'x')), "block of 200000"},
		{"a bomb", frameOf(100, []byte{0x20, 100}, slices.Repeat(frameBlock(false, 1, 1<<17, 'x'), 20), x100), "frame: "},
		{"no smaller than raw", frameOf(6, []byte{0x20, 6}, frameBlock(true, 1, 6, 'x')), "compressed block of 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := testZstd.AppendRaw([]byte("before"), c.block, MaxChannel)
			switch {
			case c.why == "" && err != nil:
				t.Error(err)
			case c.why != "" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.why)):
				t.Errorf("error %v, want %q", err, c.why)
			case c.why != "" && string(got) != "before":
				t.Errorf("bytes %q came with the error", got)
			}
		})
	}
}

func TestBlockIsNeverOverTheLimit(t *testing.T) {
	for _, most := range []int{MaxChannel, MaxChannel + 1, 1 << 40, -1} {
		block := binary.AppendUvarint(nil, (MaxChannel+1)<<1)
		if _, err := testZstd.AppendRaw(nil, block, most); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "at most") {
			t.Errorf("most %d: %v", most, err)
		}
	}
}

func TestZstdServesManyAtOnce(t *testing.T) {
	z := NewZstd()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rng := newRand(uint64(g))
			d := NewDiffer(z)
			var idx Index
			state := []byte(words(rng, 200))
			for i := range 30 {
				insert := []byte(fmt.Sprint(g, i, words(rng, 100+1000*(i%3))))
				idx.Extend(state)
				payload := d.AppendDelta(nil, state, between(state, len(state), 0, insert), &idx, nil)
				delta, err := z.ParseDelta(payload, len(state)+len(insert), len(state), nil, nil)
				if err != nil || !delta.Builds(state, between(state, len(state), 0, insert)) {
					t.Errorf("goroutine %d, step %d: %v", g, i, err)
					return
				}
				state = Compose(nil, []Delta{delta}, state)
				if raw, err := z.AppendRaw(nil, z.AppendBlock(nil, state), len(state)); err != nil || !bytes.Equal(raw, state) {
					t.Errorf("goroutine %d, step %d: block: %v", g, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
