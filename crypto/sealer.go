package crypto

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
)

// The envelope (docs/format.md §4).
const (
	envelopeVersion = 2
	headerSize      = 8 // magic, version, type, key number
	nonceSize       = 12
	tagSize         = 16

	// Overhead is the difference in bytes between an envelope and its plaintext.
	Overhead = headerSize + nonceSize + tagSize
)

// maxSeals bounds the random nonces under one key (NIST SP 800-38D §8.3).
const maxSeals = 1 << 32

// domain is shared by all sealers of a keyring.
type domain struct {
	store  [16]byte
	closed atomic.Bool
	aad    sync.Pool // of *[]byte
}

// Sealer seals and opens the records of one purpose and scope, under one key for each data key. It
// is safe for concurrent use.
type Sealer struct {
	domain *domain
	keys   *dataKeys
	info   string // of HKDF

	newest cipher.AEAD
	seals  atomic.Uint64

	mu    sync.Mutex
	older map[uint32]cipher.AEAD // derived when first needed
}

// newSealer derives the key of the newest data key.
func newSealer(d *domain, keys *dataKeys, purpose string, scope ...[]byte) (*Sealer, error) {
	info := append([]byte("ckptd/seal/1"), d.store[:]...)
	info = appendPrefixed(info, purpose)
	for _, s := range scope {
		info = appendPrefixed(info, s)
	}
	s := &Sealer{domain: d, keys: keys, info: string(info)}
	var err error
	if s.newest, err = s.derive(keys.newest()); err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", purpose, err)
	}
	return s, nil
}

// derive returns the AEAD of a data key.
func (s *Sealer) derive(number uint32) (cipher.AEAD, error) {
	data, err := s.keys.find(number)
	if err != nil {
		return nil, err
	}
	var aead cipher.AEAD
	if useErr := data.use(func(udk []byte) { aead, err = deriveAEAD(udk, s.info) }); useErr != nil {
		return nil, useErr
	}
	return aead, err
}

// deriveAEAD makes AES-256-GCM with random nonces, which no code of ours can repeat.
func deriveAEAD(udk []byte, info string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, udk, nil, info, keySize)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// KeyNumber returns the number of the data key that Seal uses.
func (s *Sealer) KeyNumber() uint32 { return s.keys.newest() }

// Format hides the keys from every verb of fmt.
func (s *Sealer) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[sealer]") }

// Seal appends the envelope of plaintext, len(plaintext)+Overhead bytes, to dst and returns the
// result. It allocates nothing if the capacity of dst suffices. key is the whole backend key that
// the value will be stored at, typ its record type: the value opens only with both. It keeps none
// of the slices; the free capacity of dst must not overlap plaintext or key. Errors:
// ErrKeyExhausted after 2^32 seals, ErrClosed; the result is then nil.
func (s *Sealer) Seal(dst []byte, typ byte, key, plaintext []byte) ([]byte, error) {
	if s.domain.closed.Load() {
		return nil, ErrClosed
	}
	if s.seals.Add(1) > maxSeals {
		return nil, ErrKeyExhausted
	}
	number := s.keys.newest()
	dst = append(dst, 'c', 'K', envelopeVersion, typ)
	dst = binary.BigEndian.AppendUint32(dst, number)
	buf := s.domain.appendAAD(typ, number, key)
	dst = s.newest.Seal(dst, nil, plaintext, *buf)
	s.domain.aad.Put(buf)
	return dst, nil
}

// Open appends the plaintext of an envelope to dst and returns the result. It allocates nothing if
// the capacity of dst suffices and the data key was used before. typ and key are those the value
// was sealed with. It keeps none of the slices; the free capacity of dst must not overlap value or
// key. Errors, with a nil result: ErrEnvelope (also ErrNewerFormat or ErrOlderFormat for another
// version), ErrOpen, ErrKeyDestroyed for a data key that was destroyed, ErrUnknownKeyNumber for one
// that does not exist yet, ErrClosed. Until ErrOpen is ruled out the header is not authenticated:
// the other errors may be due to damage, too.
func (s *Sealer) Open(dst []byte, typ byte, key, value []byte) ([]byte, error) {
	if s.domain.closed.Load() {
		return nil, ErrClosed
	}
	number, err := parseHeader(typ, value)
	if err != nil {
		return nil, err
	}
	aead, err := s.aead(number)
	if err != nil {
		return nil, err
	}
	buf := s.domain.appendAAD(typ, number, key)
	dst, err = aead.Open(dst, nil, value[headerSize:], *buf)
	s.domain.aad.Put(buf)
	if err != nil {
		return nil, ErrOpen
	}
	return dst, nil
}

// parseHeader checks the parts of the envelope outside the AEAD.
func parseHeader(typ byte, value []byte) (number uint32, err error) {
	switch {
	case len(value) < Overhead:
		return 0, fmt.Errorf("%w: %d bytes, want at least %d", ErrEnvelope, len(value), Overhead)
	case value[0] != 'c' || value[1] != 'K':
		return 0, fmt.Errorf("%w: wrong magic bytes", ErrEnvelope)
	case value[2] > envelopeVersion:
		return 0, fmt.Errorf("%w: %w: envelope version %d", ErrEnvelope, ErrNewerFormat, value[2])
	case value[2] == 0:
		return 0, fmt.Errorf("%w: version %d", ErrEnvelope, value[2])
	case value[2] < envelopeVersion:
		return 0, fmt.Errorf("%w: %w: envelope version %d", ErrEnvelope, ErrOlderFormat, value[2])
	case value[3] != typ:
		return 0, fmt.Errorf("%w: record type %#02x, want %#02x", ErrEnvelope, value[3], typ)
	}
	number = binary.BigEndian.Uint32(value[4:])
	if number == 0 {
		return 0, fmt.Errorf("%w: key number 0", ErrEnvelope)
	}
	return number, nil
}

// aead returns the AEAD of a data key for Open.
func (s *Sealer) aead(number uint32) (cipher.AEAD, error) {
	if number == s.keys.newest() {
		return s.newest, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.older[number]; ok {
		return a, nil
	}
	a, err := s.derive(number)
	if err != nil {
		return nil, err
	}
	if s.older == nil {
		s.older = make(map[uint32]cipher.AEAD)
	}
	s.older[number] = a
	return a, nil
}

// appendAAD returns the additional authenticated data of an envelope, in a buffer of the pool: an
// AEAD is an interface, so a buffer on the stack would be moved to the heap.
func (d *domain) appendAAD(typ byte, number uint32, key []byte) *[]byte {
	buf, ok := d.aad.Get().(*[]byte)
	if !ok {
		b := make([]byte, 0, 256)
		buf = &b
	}
	b := append((*buf)[:0], "ckptd/2"...)
	b = append(b, envelopeVersion, typ)
	b = binary.BigEndian.AppendUint32(b, number)
	b = append(b, d.store[:]...)
	*buf = append(b, key...)
	return buf
}
