package crypto

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"fmt"
)

// Entries of the keystore are sealed under the root key by a committing construction: a wrapped
// entry opens under one key only, whatever its maker intended (docs/format.md §16).

// entryKind says what a wrapped entry holds.
type entryKind byte

const (
	kindStore     entryKind = 1
	kindUser      entryKind = 2
	kindDestroyed entryKind = 3
)

const (
	wrapMagic      = "cKks"
	wrapVersion    = 1
	wrapSaltSize   = 32
	commitmentSize = 32
	wrapHeaderSize = len(wrapMagic) + 2 + len(KeyID{})
	wrapOverhead   = wrapHeaderSize + wrapSaltSize + commitmentSize + tagSize
)

// place is where a wrapped entry stands, and what it is bound to. The store's own entry, which the
// store id is read from, has a zero store id.
type place struct {
	store [16]byte
	name  string
}

// wrap seals plain under the root key.
func wrap(root RootKey, p place, kind entryKind, plain []byte) ([]byte, error) {
	var salt [wrapSaltSize]byte
	rand.Read(salt[:])
	return wrapWithSalt(root, p, kind, plain, salt)
}

func wrapWithSalt(root RootKey, p place, kind entryKind, plain []byte, salt [wrapSaltSize]byte) ([]byte, error) {
	if len(plain)+wrapOverhead > maxEntry {
		return nil, fmt.Errorf("wrapping %s: %d bytes are over the limit of %d", p.name, len(plain), maxEntry-wrapOverhead)
	}
	aead, nonce, commitment, err := wrapKeys(root, p, kind, salt[:])
	if err != nil {
		return nil, fmt.Errorf("wrapping %s: %w", p.name, err)
	}
	b := make([]byte, 0, len(plain)+wrapOverhead)
	b = append(b, wrapMagic...)
	b = append(b, wrapVersion, byte(kind))
	b = append(b, root.id[:]...)
	b = append(b, salt[:]...)
	b = append(b, commitment...)
	return aead.Seal(b, nonce, plain, nil), nil
}

// unwrap opens an entry. The caller clears the plaintext. Errors: ErrWrongKey, ErrNewerFormat,
// ErrKeystoreEntry.
func unwrap(root RootKey, p place, raw []byte) (entryKind, []byte, error) {
	if len(raw) < wrapOverhead || string(raw[:4]) != wrapMagic {
		return 0, nil, fmt.Errorf("opening %s: %w: not a wrapped entry", p.name, ErrKeystoreEntry)
	}
	if v := raw[4]; v > wrapVersion {
		return 0, nil, fmt.Errorf("opening %s: %w: wrapping version %d", p.name, ErrNewerFormat, v)
	} else if v != wrapVersion {
		return 0, nil, fmt.Errorf("opening %s: %w: wrapping version %d", p.name, ErrKeystoreEntry, v)
	}
	kind := entryKind(raw[5])
	if !bytes.Equal(raw[6:wrapHeaderSize], root.id[:]) {
		return 0, nil, fmt.Errorf("opening %s: %w: it needs the key with id %x, the key given has id %s",
			p.name, ErrWrongKey, raw[6:wrapHeaderSize], root.id)
	}
	rest := raw[wrapHeaderSize:]
	aead, nonce, commitment, err := wrapKeys(root, p, kind, rest[:wrapSaltSize])
	if err != nil {
		return 0, nil, fmt.Errorf("opening %s: %w", p.name, err)
	}
	rest = rest[wrapSaltSize:]
	if subtle.ConstantTimeCompare(commitment, rest[:commitmentSize]) != 1 {
		return 0, nil, fmt.Errorf("opening %s: %w", p.name, ErrKeystoreEntry)
	}
	plain, err := aead.Open(nil, nonce, rest[commitmentSize:], nil)
	if err != nil {
		return 0, nil, fmt.Errorf("opening %s: %w", p.name, ErrKeystoreEntry)
	}
	return kind, plain, nil
}

// wrapKeys derives what one entry is sealed with. The salt makes key and nonce unique.
func wrapKeys(root RootKey, p place, kind entryKind, salt []byte) (aead cipher.AEAD, nonce, commitment []byte, err error) {
	info := append([]byte("ckptd/wrap/1"), wrapVersion, byte(kind))
	info = append(info, root.id[:]...)
	info = append(info, p.store[:]...)
	info = appendPrefixed(info, p.name)
	var okm []byte
	useErr := root.use(func(key []byte) {
		okm, err = hkdf.Key(sha512.New, key, salt, string(info), keySize+nonceSize+commitmentSize)
	})
	if useErr != nil {
		return nil, nil, nil, useErr
	}
	if err != nil {
		return nil, nil, nil, err
	}
	defer clear(okm[:keySize])
	block, err := aes.NewCipher(okm[:keySize])
	if err != nil {
		return nil, nil, nil, err
	}
	aead, err = cipher.NewGCM(block)
	return aead, okm[keySize : keySize+nonceSize], okm[keySize+nonceSize:], err
}
