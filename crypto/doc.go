// Package crypto turns plaintext records into envelopes and back, and keeps the keys for it.
//
// The hierarchy: a [RootKey] that people keep opens the entries of a [Keystore]; the store's entry
// holds the keys of the [Keyring], a user's entry the keys of [UserKeys]; from a user's newest data
// key each [Sealer] derives the one key it seals records with. docs/format.md §4 (envelopes) and
// §16 (key file and keystore) specify every byte, and what it is bound to.
//
// The keystore is kept outside the data it protects and outside that data's backups, so that a key
// destroyed in it is not brought back by an old copy of the data.
//
// Records sealed by version 1 stay readable. Unknown versions are refused with [ErrNewerFormat].
// Keys are in memory that is overwritten when they are not needed any more, as far as Go allows:
// the expanded keys inside the standard library's ciphers are out of reach. No key is ever part of
// an error, or of the output of fmt or encoding/json for a value of this package.
package crypto
