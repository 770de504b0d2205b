package crypto

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"fmt"
)

// Entries of the keystore are sealed under the root key by a committing construction: a wrapped
// entry opens under one key only, whatever its creator intended (docs/format.md §16).

// entryKind is the kind of a wrapped entry.
type entryKind byte

const (
	kindStore     entryKind = 1
	kindUser      entryKind = 2
	kindDestroyed entryKind = 3
)

const (
	wrapMagic      = "cKks"
	wrapVersion    = 2
	wrapVersion1   = 1 // read only, never written
	wrapSaltSize   = 32
	commitmentSize = 32
	wrapHeaderSize = len(wrapMagic) + 2 + len(KeyID{})
	wrapOverhead1  = wrapHeaderSize + wrapSaltSize + commitmentSize + tagSize
	wrapOverhead   = wrapOverhead1 + nonceSize
)

// place is the position that a wrapped entry is bound to. The store's own entry, from which the
// store id is read, has a zero store id.
type place struct {
	store [16]byte
	name  string
}

// wrap seals plain under the root key.
func wrap(root RootKey, p place, kind entryKind, plain []byte) ([]byte, error) {
	if len(plain)+wrapOverhead > maxEntry {
		return nil, fmt.Errorf("wrapping %s: %d bytes are over the limit of %d", p.name, len(plain), maxEntry-wrapOverhead)
	}
	var salt [wrapSaltSize]byte
	rand.Read(salt[:])
	keys, err := wrapKeys(root, p, wrapVersion, kind, salt[:])
	if err != nil {
		return nil, fmt.Errorf("wrapping %s: %w", p.name, err)
	}
	b := make([]byte, 0, len(plain)+wrapOverhead)
	b = append(b, wrapMagic...)
	b = append(b, wrapVersion, byte(kind))
	b = append(b, root.id[:]...)
	b = append(b, salt[:]...)
	b = append(b, keys.commitment...)
	return keys.aead.Seal(b, nil, plain, nil), nil
}

// unwrap opens an entry. The caller clears the plaintext. Errors: ErrWrongKey, ErrNewerFormat,
// ErrKeystoreEntry.
func unwrap(root RootKey, p place, raw []byte) (entryKind, []byte, error) {
	if len(raw) < wrapOverhead1 || string(raw[:4]) != wrapMagic {
		return 0, nil, fmt.Errorf("opening %s: %w: not a wrapped entry", p.name, ErrKeystoreEntry)
	}
	version, kind := raw[4], entryKind(raw[5])
	switch {
	case version > wrapVersion:
		return 0, nil, fmt.Errorf("opening %s: %w: wrapping version %d", p.name, ErrNewerFormat, version)
	case version < wrapVersion1:
		return 0, nil, fmt.Errorf("opening %s: %w: wrapping version %d", p.name, ErrKeystoreEntry, version)
	}
	if !bytes.Equal(raw[6:wrapHeaderSize], root.id[:]) {
		return 0, nil, fmt.Errorf("opening %s: %w: it needs the key with id %x, but the given key has id %s",
			p.name, ErrWrongKey, raw[6:wrapHeaderSize], root.id)
	}
	rest := raw[wrapHeaderSize:]
	keys, err := wrapKeys(root, p, version, kind, rest[:wrapSaltSize])
	if err != nil {
		return 0, nil, fmt.Errorf("opening %s: %w", p.name, err)
	}
	rest = rest[wrapSaltSize:]
	if subtle.ConstantTimeCompare(keys.commitment, rest[:commitmentSize]) != 1 {
		return 0, nil, fmt.Errorf("opening %s: %w", p.name, ErrKeystoreEntry)
	}
	sealed := append(keys.nonce, rest[commitmentSize:]...) // in version 1, too, the nonce comes first
	plain, err := keys.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("opening %s: %w", p.name, ErrKeystoreEntry)
	}
	return kind, plain, nil
}

// wrapping is the key material of one entry.
type wrapping struct {
	aead       cipher.AEAD // it draws nonces, and puts them before the ciphertext
	nonce      []byte      // of version 1, none of version 2
	commitment []byte
}

// wrapKeys derives the key material of one entry. The salt makes the key unique.
func wrapKeys(root RootKey, p place, version byte, kind entryKind, salt []byte) (w wrapping, err error) {
	info := append([]byte("ckptd/wrap/1"), version, byte(kind))
	info = append(info, root.id[:]...)
	info = append(info, p.store[:]...)
	info = appendPrefixed(info, p.name)
	derived := 0
	if version == wrapVersion1 {
		derived = nonceSize
	}
	var okm []byte
	useErr := root.use(func(key []byte) {
		okm, err = hkdf.Key(sha512.New, key, salt, string(info), keySize+derived+commitmentSize)
	})
	if err = cmp.Or(useErr, err); err != nil {
		return w, err
	}
	defer clear(okm[:keySize])
	block, err := aes.NewCipher(okm[:keySize])
	if err != nil {
		return w, err
	}
	rest := okm[keySize:]
	w.nonce, w.commitment = rest[:derived:derived], rest[derived:]
	w.aead, err = cipher.NewGCMWithRandomNonce(block)
	return w, err
}
