package commitlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

const (
	block      = 512 // frames begin at multiples of it
	page       = 4096
	headerSize = block
	frameHead  = 88
	slotSize   = page
	anchorBody = 88 // bytes of a slot that its hash covers

	positionSize = 64
	idSize       = 16
	hashSize     = sha256.Size

	version = 1

	// MaxFrame is how many bytes the mutations of a frame may take.
	MaxFrame = 256 << 20
)

var (
	segmentMagic = []byte("cKsg")
	frameMagic   = []byte("cKfr")
	anchorMagic  = []byte("cKan")
)

var (
	// ErrNewer: a file was written by a newer version.
	ErrNewer = errors.New("the log was written by a newer version")
	// ErrForeign: a file belongs to another directory.
	ErrForeign = errors.New("the log is that of another store")
	// ErrMissing: there is no log.
	ErrMissing = errors.New("the log is missing")
	// ErrMalformed: bytes do not have the format.
	ErrMalformed = errors.New("malformed")
)

// ID names a directory or an incarnation.
type ID [idSize]byte

// Position says up to which group something goes.
type Position struct {
	Incarnation ID
	N           uint64
	Time        int64 // when the frame of N was made, Unix milliseconds
	Hash        [hashSize]byte
}

// Append encodes p.
func (p Position) Append(to []byte) []byte {
	to = append(to, p.Incarnation[:]...)
	to = binary.BigEndian.AppendUint64(to, p.N)
	to = binary.BigEndian.AppendUint64(to, uint64(p.Time))
	return append(to, p.Hash[:]...)
}

// ParsePosition decodes the output of Append.
func ParsePosition(b []byte) (p Position, err error) {
	if len(b) != positionSize {
		return p, fmt.Errorf("%w: a position of %d bytes", ErrMalformed, len(b))
	}
	copy(p.Incarnation[:], b)
	p.N = binary.BigEndian.Uint64(b[16:])
	p.Time = int64(binary.BigEndian.Uint64(b[24:]))
	copy(p.Hash[:], b[32:])
	return p, nil
}

// header is the beginning of a segment.
type header struct {
	store, incarnation ID
	number             uint64
	size               int64
	first              uint64 // n of the first frame
	before             [hashSize]byte
}

// append encodes h to a block.
func (h header) append(to []byte) []byte {
	start := len(to)
	to = append(to, segmentMagic...)
	to = binary.BigEndian.AppendUint32(to, version)
	to = append(to, h.store[:]...)
	to = append(to, h.incarnation[:]...)
	to = binary.BigEndian.AppendUint64(to, h.number)
	to = binary.BigEndian.AppendUint64(to, uint64(h.size))
	to = binary.BigEndian.AppendUint64(to, h.first)
	to = append(to, h.before[:]...)
	sum := digest("ckptd/segment/", to[start:])
	return pad(append(to, sum[:]...), start)
}

// parseHeader reads a block: ErrNewer, or else ErrMalformed.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerSize || !bytes.HasPrefix(b, segmentMagic) {
		return h, fmt.Errorf("%w: no header", ErrMalformed)
	}
	if err := whole("ckptd/segment/", b[:96], b[96:128]); err != nil {
		return h, err
	}
	copy(h.store[:], b[8:])
	copy(h.incarnation[:], b[24:])
	h.number = binary.BigEndian.Uint64(b[40:])
	h.size = int64(binary.BigEndian.Uint64(b[48:]))
	h.first = binary.BigEndian.Uint64(b[56:])
	copy(h.before[:], b[64:])
	return h, nil
}

// appendSlot encodes a slot of the anchor.
func appendSlot(to []byte, store ID, p Position) []byte {
	start := len(to)
	to = append(to, anchorMagic...)
	to = binary.BigEndian.AppendUint32(to, version)
	to = append(to, store[:]...)
	to = p.Append(to)
	sum := digest("ckptd/anchor/", to[start:])
	to = append(to, sum[:]...)
	return append(to, make([]byte, start+slotSize-len(to))...)
}

func parseSlot(b []byte) (store ID, p Position, err error) {
	if len(b) < slotSize || !bytes.HasPrefix(b, anchorMagic) {
		return store, p, fmt.Errorf("%w: no anchor", ErrMalformed)
	}
	if err := whole("ckptd/anchor/", b[:anchorBody], b[anchorBody:anchorBody+hashSize]); err != nil {
		return store, p, err
	}
	copy(store[:], b[8:])
	p, err = ParsePosition(b[24 : 24+positionSize])
	return store, p, err
}

// digest hashes bytes that begin with a magic and a version, under a label that ends with the
// version.
func digest(label string, b []byte) (sum [hashSize]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%s%d", label, binary.BigEndian.Uint32(b[4:]))
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

// whole checks the digest, and then the version: one flipped bit is damage, and not a newer
// version.
func whole(label string, b, sum []byte) error {
	if want := digest(label, b); !bytes.Equal(want[:], sum) {
		return fmt.Errorf("%w: wrong digest", ErrMalformed)
	}
	if v := binary.BigEndian.Uint32(b[4:]); v > version {
		return fmt.Errorf("%w: version %d, this version reads up to %d", ErrNewer, v, version)
	} else if v < version {
		return fmt.Errorf("%w: version %d", ErrMalformed, v)
	}
	return nil
}

// pad fills up with zeros to the next block, counted from start.
func pad(b []byte, start int) []byte {
	if rest := (len(b) - start) % block; rest > 0 {
		b = append(b, zeros[:block-rest]...)
	}
	return b
}

var zeros [page]byte

// blocks is how much of a segment a frame with length bytes of mutations takes.
func blocks(length int) int64 {
	return (int64(frameHead) + int64(length) + block - 1) / block * block
}

// chain hashes frames of one incarnation.
type chain struct {
	store, incarnation ID
	hash               hash.Hash
}

func newChain(store, incarnation ID) *chain {
	return &chain{store, incarnation, sha256.New()}
}

// sum is the hash of the frame that begins with head, without the hash itself.
func (c *chain) sum(head, mutations []byte) (sum [hashSize]byte) {
	c.hash.Reset()
	c.hash.Write(frameLabel)
	c.hash.Write(c.store[:])
	c.hash.Write(c.incarnation[:])
	c.hash.Write(head[:frameHead-hashSize])
	c.hash.Write(mutations)
	c.hash.Sum(sum[:0])
	return sum
}

var frameLabel = []byte("ckptd/frame/1")

// parse reads the frame at the start of b. It returns its mutations, which are part of b.
func (c *chain) parse(b []byte) (p Position, before [hashSize]byte, mutations []byte, err error) {
	if len(b) < frameHead || !bytes.HasPrefix(b, frameMagic) {
		return p, before, nil, fmt.Errorf("%w: no frame", ErrMalformed)
	}
	length := int64(binary.BigEndian.Uint32(b[4:]))
	if length > MaxFrame || length > int64(len(b)-frameHead) {
		return p, before, nil, fmt.Errorf("%w: a frame of %d bytes in %d", ErrMalformed, length, len(b))
	}
	mutations = b[frameHead : frameHead+length : frameHead+length]
	if sum := c.sum(b, mutations); !bytes.Equal(sum[:], b[frameHead-hashSize:frameHead]) {
		return p, before, nil, fmt.Errorf("%w: a damaged frame", ErrMalformed)
	}
	p = Position{Incarnation: c.incarnation, N: binary.BigEndian.Uint64(b[8:]), Time: int64(binary.BigEndian.Uint64(b[16:]))}
	copy(before[:], b[24:])
	copy(p.Hash[:], b[56:])
	return p, before, mutations, nil
}
