package crypto

import "errors"

// Errors of root keys and key files.
var (
	// ErrKeyFileMissing means that there is no key file at the path. It also matches fs.ErrNotExist.
	ErrKeyFileMissing = errors.New("key file missing")
	// ErrKeyFileFormat means that a key file, or a key in the environment, cannot be read: not a key
	// at all, or mistyped (its checksum does not match). It never means a well-formed but wrong key.
	ErrKeyFileFormat = errors.New("malformed key")
	// ErrKeyFileMode means that others than its owner may read the key file.
	ErrKeyFileMode = errors.New("key file is readable by others")
	// ErrKeyUnset means that the environment variable that should hold the key is unset or empty.
	ErrKeyUnset = errors.New("key variable is not set")
	// ErrWrongKey means that the root key is well-formed but another than the entry is sealed under.
	ErrWrongKey = errors.New("wrong root key")
)

// Errors of keystores.
var (
	// ErrNotFound means that the keystore has no such entry, or the keyring no such user.
	ErrNotFound = errors.New("no such key")
	// ErrKeystoreConflict means that the entry is not what the caller of Put expected. Nothing changed.
	ErrKeystoreConflict = errors.New("keystore entry has changed")
	// ErrNoStore means that there is no keystore, or no store entry in it.
	ErrNoStore = errors.New("no keystore found")
	// ErrForeignKeystore means that the directory holds something that is not a ckptd keystore.
	ErrForeignKeystore = errors.New("not a ckptd keystore")
	// ErrKeystoreEntry means that an entry is damaged: it cannot be authenticated or decoded.
	ErrKeystoreEntry = errors.New("keystore entry is damaged")
	// ErrInvalidName means that a name is not a keystore entry name.
	ErrInvalidName = errors.New("invalid keystore entry name")
	// ErrInvalidID means that a tenant or user id is empty, over 256 bytes, or not UTF-8.
	ErrInvalidID = errors.New("invalid id")
)

// Errors of keyrings and sealers.
var (
	// ErrOlderFormat means that something was written in a format that this version no longer reads.
	ErrOlderFormat = errors.New("written in an older format, which this version no longer reads")
	// ErrNewerFormat means that something was written by a newer version of ckptd.
	ErrNewerFormat = errors.New("written in a newer format than this version knows")
	// ErrEnvelope means that a value is not an envelope of the type asked for.
	ErrEnvelope = errors.New("not a valid envelope")
	// ErrOpen means that an envelope does not open: its bytes, its place, or its key are not those it
	// was sealed with. It says no more on purpose.
	ErrOpen = errors.New("sealed record cannot be opened")
	// ErrKeyDestroyed means that the key was destroyed on purpose: what it sealed is gone for good.
	ErrKeyDestroyed = errors.New("key has been destroyed")
	// ErrUnknownGeneration means that a record names a generation that the keystore does not have yet:
	// the record is damaged, or the keystore older than the data.
	ErrUnknownGeneration = errors.New("unknown key generation")
	// ErrKeyExhausted means that a sealer has sealed 2^32 records, the limit of AES-GCM under one key.
	ErrKeyExhausted = errors.New("key has sealed its limit of 2^32 records")
	// ErrClosed means that the keyring has been closed.
	ErrClosed = errors.New("keyring is closed")
)
