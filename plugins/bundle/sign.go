package bundle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Key is an Ed25519 public key.
type Key [ed25519.PublicKeySize]byte

// ID returns 16 hexadecimal digits that identify the key to people: the beginning of its SHA-256.
func (k Key) ID() string {
	sum := sha256.Sum256(k[:])
	return hex.EncodeToString(sum[:8])
}

// String returns the key in base64, in the form that ParseKeys reads.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// PublicKey returns the public key of a private key.
func PublicKey(private ed25519.PrivateKey) Key { return Key(private.Public().(ed25519.PublicKey)) }

// signedBytes returns the signed message: the digest with a prefix that separates it from any other
// use of the key.
func signedBytes(digest [sha256.Size]byte) []byte {
	return append([]byte("ckptd/plugin/1\n"), digest[:]...)
}

// Sign returns the bundle with a new signature, which replaces any existing one.
func (b *Bundle) Sign(private ed25519.PrivateKey) *Bundle {
	line := fmt.Sprintf("ed25519 %s %s\n", PublicKey(private).ID(),
		base64.StdEncoding.EncodeToString(ed25519.Sign(private, signedBytes(b.digest))))
	signed := *b
	signed.files = slices.DeleteFunc(slices.Clone(b.files), func(f File) bool { return f.Path == SignatureFile })
	signed.files = append(signed.files, File{SignatureFile, []byte(line)})
	slices.SortFunc(signed.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return &signed
}

// Signed reports whether there is a signature, and the key id that the signature claims.
func (b *Bundle) Signed() (id string, ok bool) {
	line, ok := b.File(SignatureFile)
	fields := strings.Fields(string(line))
	if len(fields) == 3 && len(fields[1]) == 16 && strings.Trim(fields[1], "0123456789abcdef") == "" {
		id = fields[1]
	}
	return id, ok
}

// Verify returns the trusted key that signed the bundle. Errors match hook.ErrInvalid.
func (b *Bundle) Verify(trusted []Key) (Key, error) {
	line, ok := b.File(SignatureFile)
	if !ok {
		return Key{}, invalidf("%s is not signed: sign it with ckptd plugin sign", b.Name())
	}
	id, _ := b.Signed()
	fields := strings.Fields(string(line))
	if id == "" || fields[0] != "ed25519" || string(line) != strings.Join(fields, " ")+"\n" {
		return Key{}, invalidf("%s: %s is not a signature: sign the plugin again with ckptd plugin sign", b.Name(), SignatureFile)
	}
	i := slices.IndexFunc(trusted, func(k Key) bool { return k.ID() == id })
	if i < 0 {
		return Key{}, invalidf("%s is signed with the key %s, which is not trusted: trust the key with ckptd plugin trust, or get the plugin from a trusted source",
			b.Name(), id)
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(fields[2])
	if err != nil || !ed25519.Verify(trusted[i][:], signedBytes(b.digest), signature) {
		return Key{}, invalidf("%s: the signature does not match: the plugin was changed after signing; get it again", b.Name())
	}
	return trusted[i], nil
}

// ParseKeys reads public keys: PEM blocks as written by openssl, or lines of base64. A # begins a
// comment. At least one key is required.
func ParseKeys(text []byte) ([]Key, error) {
	var keys []Key
	var err error
	if bytes.Contains(text, []byte("-----BEGIN ")) {
		keys, err = parsePEM(text)
	} else {
		keys, err = parseLines(text)
	}
	if err == nil && len(keys) == 0 {
		err = errors.New("no keys found")
	}
	if err != nil {
		return nil, fmt.Errorf("reading public keys: %w: want Ed25519 keys in PEM or a line of base64 each", err)
	}
	return keys, nil
}

func parsePEM(text []byte) ([]Key, error) {
	var keys []Key
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return keys, nil
		}
		if strings.Contains(block.Type, "PRIVATE") {
			return nil, errors.New("one of them is a private key")
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := parsed.(ed25519.PublicKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("the block %.40q is not an Ed25519 key", block.Type)
		}
		keys, text = append(keys, Key(public)), rest
	}
}

func parseLines(text []byte) ([]Key, error) {
	var keys []Key
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(raw) != len(Key{}) {
			return nil, fmt.Errorf("line %d is not an Ed25519 key", n)
		}
		keys = append(keys, Key(raw))
	}
	return keys, nil
}

// ParsePrivateKey reads an Ed25519 key in PEM, as written by openssl genpkey or MarshalPrivateKey.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	const want = "want an Ed25519 key in PEM, as ckptd plugin keygen or openssl genpkey -algorithm ed25519 makes it"
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("reading private key: it is none: " + want)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("reading private key: it is of another kind: " + want)
	}
	return private, nil
}

// MarshalPrivateKey encodes a key as PEM.
func MarshalPrivateKey(private ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("writing private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
