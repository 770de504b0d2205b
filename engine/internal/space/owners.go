// Package space defines the keys and the encodings of all stored values: the tokens, epochs, keys
// and ranges of users, threads and lineages, and how values of each kind are encoded, sealed and
// opened. No other package makes backend keys, or seals or opens values.
//
// Keys belong to an owner. The Store has the keys of a store, a User adds those of one user, a
// Thread is one epoch of a thread, and a Lineage one namespace in it. Owners know nothing of the
// state in memory or of operations under way, need no lock, and are safe for concurrent use.
package space

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
)

// Store owns the values of the store itself and of tenants.
type Store struct {
	ring   *crypto.Keyring
	sealed *crypto.Sealer
}

// NewStore returns the owner for a store with its keys.
func NewStore(ring *crypto.Keyring) *Store { return &Store{ring, ring.StoreSealer()} }

func (s *Store) sealer(keys) *crypto.Sealer { return s.sealed }

// InfoKey is the key of the store record, which needs no secret.
func InfoKey() []byte { return prefix(None, None, 0, KindStore) }

// RetentionKey is the key of a tenant's retention policy.
func (s *Store) RetentionKey(tenant string) []byte {
	return prefix(s.ring.TenantToken(tenant), None, 0, KindRetention)
}

// OfTenant is the range of the keys of a tenant, including its index entries, but not those of its
// users.
func (s *Store) OfTenant(tenant string) backend.Range {
	tok := s.ring.TenantToken(tenant)
	return Under(tok[:])
}

// OfUser is the range of the keys of a user, who need not exist.
func (s *Store) OfUser(tenant, name string) backend.Range {
	tok := s.ring.UserToken(tenant, name)
	return Under(tok[:])
}

// Term is the token of a term in the index of a tenant.
func (s *Store) Term(tenant, field, value string) crypto.Token {
	return s.ring.IndexToken(tenant, field, value)
}

// TermOf is the range of the index entries of a term.
func (s *Store) TermOf(tenant, field, value string) backend.Range {
	return Under(prefix(s.ring.TenantToken(tenant), s.Term(tenant, field, value), 0, KindIndex))
}

// User owns the values of one user.
type User struct {
	*Store
	Tok  crypto.Token
	Keys *crypto.UserKeys

	CommitKey [32]byte // of commitments to values
	IDKey     [32]byte // of the engine's own ids
	PartMAC   [32]byte // of the digests that name parts
	BlobMAC   [32]byte // of the digests that name blobs

	tenant                  string
	tenantTok               crypto.Token
	directory, parts, index *crypto.Sealer
}

// User returns the owner for a user of a tenant.
func (s *Store) User(tenant string, keys *crypto.UserKeys) (*User, error) {
	u := &User{Store: s, Tok: keys.Token(), Keys: keys, tenant: tenant, tenantTok: s.ring.TenantToken(tenant),
		CommitKey: keys.Derive("commit"), IDKey: keys.Derive("id"), PartMAC: keys.Derive("part"), BlobMAC: keys.Derive("blob")}
	for _, d := range []struct {
		sealer  **crypto.Sealer
		purpose string
	}{{&u.directory, "directory"}, {&u.parts, "parts"}, {&u.index, "index"}} {
		var err error
		if *d.sealer, err = keys.Sealer(d.purpose); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func (u *User) sealer(of keys) *crypto.Sealer {
	switch of {
	case directory:
		return u.directory
	case parts:
		return u.parts
	case index:
		return u.index
	}
	panic(fmt.Sprintf("space: a user seals nothing under keys %d", of))
}

// of is the range of the user's keys of a kind outside threads.
func (u *User) of(kind byte) backend.Range { return Under(prefix(u.Tok, None, 0, kind)) }

// All is the range of all keys of the user except index entries.
func (u *User) All() backend.Range { return Under(u.Tok[:]) }

// InThreads is the part of All in threads.
func (u *User) InThreads() backend.Range {
	r := u.All()
	r.Start = Under(append(append([]byte{}, u.Tok[:]...), None[:]...)).End
	return r
}

// Threads, Parts, Blobs and Activity are the ranges of the user's keys of a kind.

func (u *User) Threads() backend.Range  { return u.of(KindThread) }
func (u *User) Parts() backend.Range    { return u.of(KindPart) }
func (u *User) Blobs() backend.Range    { return u.of(KindBlob) }
func (u *User) Activity() backend.Range { return u.of(KindActivity) }

// AfterThread is the rest of a range of index entries of a term, after those of the user and thread
// in a key.
func AfterThread(r backend.Range, key []byte) backend.Range {
	r.Start = Under(key[:PrefixLen+32]).End
	return r
}

// TermOf is the range of the user's index entries of a term.
func (u *User) TermOf(field, value string) backend.Range {
	key := prefix(u.tenantTok, u.Term(u.tenant, field, value), 0, KindIndex)
	return Under(append(key, u.Tok[:]...))
}

func (u *User) ThreadKey(thread crypto.Token) []byte {
	return append(prefix(u.Tok, None, 0, KindThread), thread[:]...)
}

func (u *User) PartKey(id [16]byte) []byte {
	return append(prefix(u.Tok, None, 0, KindPart), id[:]...)
}

func (u *User) BlobKey(digest [32]byte) []byte {
	return append(prefix(u.Tok, None, 0, KindBlob), digest[:]...)
}

// ActivityKey is the key of an activity entry; keys are in the order of since, in Unix
// milliseconds.
func (u *User) ActivityKey(since int64, thread crypto.Token) []byte {
	key := prefix(u.Tok, None, 0, KindActivity)
	key = append(key, binary.BigEndian.AppendUint64(nil, uint64(since))[2:]...)
	return append(key, thread[:]...)
}

// ThreadToken is the token of a thread by its id.
func (u *User) ThreadToken(id string) crypto.Token { return u.Keys.ThreadToken(id) }

// Epochs is the range of all epochs of a thread.
func (u *User) Epochs(thread crypto.Token) backend.Range {
	return Under(append(append(make([]byte, 0, 32), u.Tok[:]...), thread[:]...))
}

// Epoch is the range of all keys of an epoch of a thread except index entries.
func (u *User) Epoch(thread crypto.Token, epoch uint32) backend.Range {
	return Under(prefix(u.Tok, thread, epoch, 0)[:kindAt:kindAt])
}

// Thread owns the values of one epoch of a thread.
type Thread struct {
	*User
	Tok    crypto.Token
	Epoch  uint32
	sealed *crypto.Sealer
}

// Thread returns the owner for an epoch of a thread.
func (u *User) Thread(tok crypto.Token, epoch uint32) (*Thread, error) {
	sealer, err := u.Keys.Sealer("thread", tok[:])
	if err != nil {
		return nil, err
	}
	return &Thread{u, tok, epoch, sealer}, nil
}

// At returns the owner for another epoch of the thread.
func (t *Thread) At(epoch uint32) *Thread { return &Thread{t.User, t.Tok, epoch, t.sealed} }

func (t *Thread) sealer(of keys) *crypto.Sealer {
	if of == thread {
		return t.sealed
	}
	return t.User.sealer(of)
}

// All is the range of all keys of the epoch except index entries.
func (t *Thread) All() backend.Range { return t.User.Epoch(t.Tok, t.Epoch) }

// of is the range of the keys of a kind, in all namespaces.
func (t *Thread) of(kind byte) backend.Range { return Under(prefix(t.User.Tok, t.Tok, t.Epoch, kind)) }

// Records, Writes and Namespaces are the ranges of the epoch's keys of a kind.

func (t *Thread) Records() backend.Range    { return t.of(KindRecord) }
func (t *Thread) Writes() backend.Range     { return t.of(KindWrites) }
func (t *Thread) Namespaces() backend.Range { return t.of(KindNamespace) }

// NamespaceKey is the key of the name of a namespace.
func (t *Thread) NamespaceKey(ns crypto.Token) []byte {
	return append(prefix(t.User.Tok, t.Tok, t.Epoch, KindNamespace), ns[:]...)
}

// NamespaceOf returns the namespace in a key of the epoch; not ok means that the key is too short.
func NamespaceOf(key []byte) (ns crypto.Token, ok bool) {
	if len(key) < PrefixLen+len(ns) {
		return ns, false
	}
	return crypto.Token(Tail(key)), true
}

// Namespace returns the owner for a namespace by name; "" is the unnamed one.
func (t *Thread) Namespace(name string) Lineage {
	if name == "" {
		return Lineage{t, None}
	}
	return Lineage{t, t.Keys.BlindToken("namespace", name)}
}

// Lineage owns the values of one namespace of a Thread.
type Lineage struct {
	*Thread
	NS crypto.Token
}

// prefix begins all keys of a kind.
func (l *Lineage) prefix(kind byte) []byte {
	return append(prefix(l.User.Tok, l.Tok, l.Epoch, kind), l.NS[:]...)
}

// Records is the range of all records and stubs.
func (l *Lineage) Records() backend.Range { return Under(l.prefix(KindRecord)) }

// RecordsFrom is the range of the records with from <= seq < to.
func (l *Lineage) RecordsFrom(from, to uint64) backend.Range {
	return backend.Range{Start: l.RecordKey(from), End: l.RecordKey(to)}
}

func (l *Lineage) RecordKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(l.prefix(KindRecord), seq)
}

// IDs is the range of all id entries, ChosenIDs of those for UUIDs chosen by callers, in their
// order.
func (l *Lineage) IDs() backend.Range { return Under(l.prefix(KindID)) }

func (l *Lineage) ChosenIDs() backend.Range { return Under(append(l.prefix(KindID), formUUID)) }

// ChosenIDsBelow is the range of ChosenIDs with smaller ids, bytewise, than any text.
func (l *Lineage) ChosenIDsBelow(text string) backend.Range {
	r := l.ChosenIDs()
	if least, ok := leastUUID(text); ok {
		r.End = append(bytes.Clone(r.Start), least[:]...)
	}
	return r
}

// NamedIDs is the range of the id entries that are not in ChosenIDs. They are in no order.
func (l *Lineage) NamedIDs() backend.Range { return Under(append(l.prefix(KindID), formToken)) }

// ChosenID is the UUID in a key of ChosenIDs.
func ChosenID(key []byte) [16]byte { return [16]byte(key[len(key)-16:]) }

func (l *Lineage) IDKey(id string) []byte {
	if uuid, ok := ParseUUID(id); ok {
		return append(append(l.prefix(KindID), formUUID), uuid[:]...)
	}
	return l.OwnIDKey(id)
}

// OwnIDKey is the key for an id made by the engine that a replacement took over: always a token, so
// that it is not among the ids chosen by callers.
func (l *Lineage) OwnIDKey(id string) []byte {
	tok := l.Keys.BlindToken("id", id)
	return append(append(l.prefix(KindID), formToken), tok[:]...)
}

// Branches is the range of all branches.
func (l *Lineage) Branches() backend.Range { return Under(l.prefix(KindBranch)) }

func (l *Lineage) BranchKey(name string) []byte {
	tok := l.Keys.BlindToken("branch", name)
	return append(l.prefix(KindBranch), tok[:]...)
}

// Writes is the range of all pending writes and their ledgers, WritesOf of those of one checkpoint.
func (l *Lineage) Writes() backend.Range { return Under(l.prefix(KindWrites)) }

func (l *Lineage) WritesOf(checkpoint string) backend.Range { return Under(l.writesOf(checkpoint)) }

func (l *Lineage) writesOf(checkpoint string) []byte {
	tok := l.Keys.BlindToken("id", checkpoint)
	return append(l.prefix(KindWrites), tok[:]...)
}

// WritesPrefix begins the keys of the pending writes of a checkpoint and of their ledger.
func (l *Lineage) WritesPrefix(checkpoint string) []byte { return l.writesOf(checkpoint) }

// Held is the name under which an ancestor at seq keeps its pending writes, in place of its id. No id
// is like it, since it is not UTF-8.
func Held(seq uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{0xff}, seq))
}

// WritesKey is the key of the pending writes of a task.
func (l *Lineage) WritesKey(checkpoint, task string) []byte {
	tok := l.Keys.BlindToken("task", task)
	return append(l.writesOf(checkpoint), tok[:]...)
}

// LedgerKey is the key of the ledger of a checkpoint's pending writes, before those.
func (l *Lineage) LedgerKey(checkpoint string) []byte {
	return append(l.writesOf(checkpoint), None[:]...)
}

// SameWrites is the common prefix of the keys of a checkpoint's pending writes and their ledger.
func SameWrites(key []byte) []byte { return key[:len(key)-len(None)] }

// IndexKey is the key of the index entry of a term for a checkpoint.
func (l *Lineage) IndexKey(field, value string, seq uint64) []byte {
	u := l.User
	key := append(prefix(u.tenantTok, u.Term(u.tenant, field, value), 0, KindIndex), u.Tok[:]...)
	key = binary.BigEndian.AppendUint32(append(key, l.Tok[:]...), l.Epoch)
	return binary.BigEndian.AppendUint64(append(key, l.NS[:]...), seq)
}

// Moved is the key with the same tail in another lineage: the tokens of pending writes and ids are
// the same in all lineages of a user.
func (l *Lineage) Moved(key []byte) []byte {
	p := l.prefix(KindOf(key))
	return append(p, key[len(p):]...)
}
