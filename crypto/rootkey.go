package crypto

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// KeyID names a root key without revealing it: it is derived from the key.
type KeyID [8]byte

// String returns the id in hexadecimal.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

// RootKey is the key encryption key of a store: it seals the entries of the keystore and nothing
// else. Copies share the key. The zero value has none and opens nothing.
type RootKey struct {
	id  KeyID
	key *secret
}

// GenerateRootKey returns a new random key.
func GenerateRootKey() (RootKey, error) {
	return rootKeyOf(randomSecret()), nil
}

// NewRootKey returns the key with the given 32 bytes, for callers that keep it elsewhere. It copies
// them. They must come from a random generator or a key derivation function, not from a person.
func NewRootKey(key []byte) (RootKey, error) {
	if len(key) != keySize {
		return RootKey{}, fmt.Errorf("%w: %d bytes, want %d", ErrKeyFileFormat, len(key), keySize)
	}
	return rootKeyOf(newSecret(key)), nil
}

func rootKeyOf(s *secret) RootKey {
	k := RootKey{key: s}
	sum := s.derive("key id")
	copy(k.id[:], sum[:])
	return k
}

// ID returns the id of the key for people and for the keystore.
func (k RootKey) ID() KeyID { return k.id }

// String returns the id, never the key.
func (k RootKey) String() string { return "root key " + k.id.String() }

// Format prints String for every verb, so that no verb shows the key.
func (k RootKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

// Wipe overwrites the key in memory. The key, and all copies of it, stop working. A keyring opened
// with it has its own copy and continues to work.
func (k RootKey) Wipe() {
	if k.key != nil {
		k.key.wipe()
	}
}

// use calls f with the key, which f must not keep.
func (k RootKey) use(f func(key []byte)) error {
	if k.key == nil {
		return fmt.Errorf("%w: no root key given", ErrWrongKey)
	}
	return k.key.use(f)
}

// KeyFromEnv returns the key in the environment variable, in the one-line form of the key file
// (docs/format.md §16). Errors: ErrKeyUnset, ErrKeyFileFormat, ErrNewerFormat.
func KeyFromEnv(name string) (RootKey, error) {
	line := strings.TrimSpace(os.Getenv(name))
	if line == "" {
		return RootKey{}, fmt.Errorf("reading the key from the environment: %w: %s", ErrKeyUnset, name)
	}
	k, err := parseKeyLine(line)
	if err != nil {
		return RootKey{}, fmt.Errorf("reading the key from %s: %w", name, err)
	}
	return k, nil
}

// The one-line form of a key: word ":" id ":" key ":" checksum (docs/format.md §16).
const (
	keyWordStem = "ckptd-key-"
	keyWord     = keyWordStem + "1"
)

var keyBase64 = base64.RawURLEncoding.Strict()

// appendKeyLine appends the one-line form, without a line end.
func appendKeyLine(dst []byte, k RootKey) ([]byte, error) {
	start := len(dst)
	dst = fmt.Appendf(dst, "%s:%s:", keyWord, k.id.String())
	if err := k.use(func(key []byte) { dst = keyBase64.AppendEncode(dst, key) }); err != nil {
		return nil, err
	}
	sum := keyChecksum(dst[start:])
	return fmt.Appendf(dst, ":%x", sum), nil
}

// parseKeyLine is the inverse. Its errors never quote the line, which may be a key with a typo.
func parseKeyLine(line string) (RootKey, error) {
	fields := strings.Split(line, ":")
	if word := fields[0]; word != keyWord {
		if v, ok := strings.CutPrefix(word, keyWordStem); ok && isNumber(v) {
			return RootKey{}, fmt.Errorf("%w: key version %s", ErrNewerFormat, v)
		}
		return RootKey{}, fmt.Errorf("%w: does not begin with %q", ErrKeyFileFormat, keyWord+":")
	}
	if len(fields) != 4 {
		return RootKey{}, fmt.Errorf("%w: %d fields, want 4", ErrKeyFileFormat, len(fields))
	}
	body := line[:strings.LastIndexByte(line, ':')]
	sum := keyChecksum([]byte(body))
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(fields[3])) != 1 {
		return RootKey{}, fmt.Errorf("%w: the checksum does not match: a character is missing or mistyped", ErrKeyFileFormat)
	}
	key, err := keyBase64.DecodeString(fields[2])
	defer clear(key)
	if err != nil || len(key) != keySize {
		return RootKey{}, fmt.Errorf("%w: the key is not %d bytes of base64", ErrKeyFileFormat, keySize)
	}
	k := rootKeyOf(newSecret(key))
	if k.id.String() != fields[1] {
		k.Wipe()
		return RootKey{}, fmt.Errorf("%w: the key id does not match the key", ErrKeyFileFormat)
	}
	return k, nil
}

// keyChecksum distinguishes a mistyped key from a wrong one. It has no other purpose.
func keyChecksum(body []byte) (sum [4]byte) {
	h := sha256.New()
	h.Write([]byte("ckptd/keyline/1"))
	h.Write(body)
	copy(sum[:], h.Sum(nil))
	return sum
}

func isNumber(s string) bool {
	return s != "" && len(s) <= 9 && strings.Trim(s, "0123456789") == ""
}
