package crypto

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"
)

// keySize is the size in bytes of every secret key.
const keySize = 32

// secret is a key that can be wiped while others use it. If it is part of an unexported field, fmt
// calls no Format method and prints the memory, following one pointer (for a verb that does not fit
// pointers) but never two. So types hold secrets by pointer, and a secret its bytes.
type secret struct {
	mu   sync.RWMutex
	gone bool
	b    *[keySize]byte
}

// newSecret copies key, which the caller can then clear. The key must be of the right size.
func newSecret(key []byte) *secret {
	b := [keySize]byte(key)
	return &secret{b: &b}
}

func randomSecret() *secret {
	s := &secret{b: new([keySize]byte)}
	rand.Read(s.b[:]) // it never fails; crypto/rand ends the process instead
	return s
}

// use calls f with the key, which f must not keep. After wipe it returns ErrClosed instead.
func (s *secret) use(f func(key []byte)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.gone {
		return ErrClosed
	}
	f(s.b[:])
	return nil
}

func (s *secret) clone() (c *secret, err error) {
	err = s.use(func(key []byte) { c = newSecret(key) })
	return c, err
}

// wipe overwrites the key, after uses under way have ended.
func (s *secret) wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.b[:])
	s.gone = true
}

// Format hides the key from every verb of fmt.
func (s *secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[secret]") }

// Token replaces an id on disk: 16 bytes of an HMAC-SHA256 of it (docs/format.md §2). Without the
// key it reveals nothing about the id, except that equal ids have equal tokens.
type Token [16]byte

// String returns the token in hexadecimal.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// Labels that separate the two uses of prf (docs/format.md §16).
const (
	labelToken  = "ckptd/token/1"
	labelDerive = "ckptd/derive/1"
)

// prf is HMAC-SHA256(key, LP(label) ‖ LP(purpose) ‖ LP(part)…). The prefixes make it injective in
// its parts and in their number.
func prf[P string | []byte](key []byte, label, purpose string, parts ...P) (out [32]byte) {
	h := hmac.New(sha256.New, key)
	writePrefixed(h, label)
	writePrefixed(h, purpose)
	for _, p := range parts {
		writePrefixed(h, p)
	}
	h.Sum(out[:0])
	return out
}

// token is prf for tokens. It is zero after the secret was wiped.
func (s *secret) token(purpose string, parts ...string) (t Token) {
	_ = s.use(func(key []byte) {
		sum := prf(key, labelToken, purpose, parts...)
		copy(t[:], sum[:])
	})
	return t
}

// derive is prf for subkeys. It is zero after the secret was wiped.
func (s *secret) derive(purpose string, parts ...[]byte) (k [32]byte) {
	_ = s.use(func(key []byte) { k = prf(key, labelDerive, purpose, parts...) })
	return k
}

// writePrefixed writes LP(p).
func writePrefixed[P string | []byte](h hash.Hash, p P) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(p)))
	h.Write(n[:])
	h.Write([]byte(p))
}

// appendPrefixed appends LP(p).
func appendPrefixed[P string | []byte](dst []byte, p P) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(p)))
	return append(dst, p...)
}
