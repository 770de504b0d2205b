// Package space says where everything stands, and how it is stored: the tokens, epochs, keys and ranges of users, threads and
// lineages, and for each kind of values how it is encoded, sealed and opened. Backend keys are made here and nowhere else,
// and nothing is sealed or opened elsewhere.
//
// A key stands on what owns it. The Store has the keys of a store, a User adds the keys of one user, a Thread is one epoch of
// a thread, and a Lineage one namespace in it. They know nothing of what is in memory or under way, need no lock, and may be
// used concurrently.
package space

import (
	"encoding/binary"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
)

// Store is where what belongs to no user stands, or to a tenant.
type Store struct {
	ring   *crypto.Keyring
	sealed *crypto.Sealer
}

// NewStore returns the place of a store with its keys.
func NewStore(ring *crypto.Keyring) *Store { return &Store{ring, ring.StoreSealer()} }

func (s *Store) sealer(keys) *crypto.Sealer { return s.sealed }

// InfoKey is where the store record stands, before any key is known.
func InfoKey() []byte { return prefix(None, None, 0, KindStore) }

// RetentionKey is where the retention policy of a tenant stands.
func (s *Store) RetentionKey(tenant string) []byte {
	return prefix(s.ring.TenantToken(tenant), None, 0, KindRetention)
}

// OfTenant is the range of all that belongs to a tenant, the entries of its index among it, and to none of its users.
func (s *Store) OfTenant(tenant string) backend.Range {
	tok := s.ring.TenantToken(tenant)
	return Under(tok[:])
}

// OfUser is the range of all that belongs to a user, who may have no keys.
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

// User is where the values of one user stand.
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

// User returns the place of a user of a tenant.
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

// of is the range of all keys of a kind that are of the user and of no thread.
func (u *User) of(kind byte) backend.Range { return Under(prefix(u.Tok, None, 0, kind)) }

// All is the range of all that the user has, but for index entries.
func (u *User) All() backend.Range { return Under(u.Tok[:]) }

// InThreads is the part of All that is of threads.
func (u *User) InThreads() backend.Range {
	r := u.All()
	r.Start = Under(append(append([]byte{}, u.Tok[:]...), None[:]...)).End
	return r
}

// Threads, Parts, Blobs and Activity are the ranges of all that the user has of a kind.

func (u *User) Threads() backend.Range  { return u.of(KindThread) }
func (u *User) Parts() backend.Range    { return u.of(KindPart) }
func (u *User) Blobs() backend.Range    { return u.of(KindBlob) }
func (u *User) Activity() backend.Range { return u.of(KindActivity) }

// AfterThread is the part of a range of index entries of a term that comes after those of the user and thread of a key.
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

// ActivityKey stands in the order of time, in Unix milliseconds.
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

// Epoch is the range of all that an epoch of a thread has, but for index entries.
func (u *User) Epoch(thread crypto.Token, epoch uint32) backend.Range {
	return Under(prefix(u.Tok, thread, epoch, 0)[:kindAt:kindAt])
}

// Thread is where the values of one epoch of a thread stand.
type Thread struct {
	*User
	Tok    crypto.Token
	Epoch  uint32
	sealed *crypto.Sealer
}

// Thread returns the place of an epoch of a thread.
func (u *User) Thread(tok crypto.Token, epoch uint32) (*Thread, error) {
	sealer, err := u.Keys.Sealer("thread", tok[:])
	if err != nil {
		return nil, err
	}
	return &Thread{u, tok, epoch, sealer}, nil
}

// At returns the place of another epoch of the thread.
func (t *Thread) At(epoch uint32) *Thread { return &Thread{t.User, t.Tok, epoch, t.sealed} }

func (t *Thread) sealer(of keys) *crypto.Sealer {
	if of == thread {
		return t.sealed
	}
	return t.User.sealer(of)
}

// All is the range of all that the epoch has, but for index entries.
func (t *Thread) All() backend.Range { return t.User.Epoch(t.Tok, t.Epoch) }

// of is the range of all keys of a kind, in any namespace.
func (t *Thread) of(kind byte) backend.Range { return Under(prefix(t.User.Tok, t.Tok, t.Epoch, kind)) }

// Records, Writes and Namespaces are the ranges of all that the epoch has of a kind.

func (t *Thread) Records() backend.Range    { return t.of(KindRecord) }
func (t *Thread) Writes() backend.Range     { return t.of(KindWrites) }
func (t *Thread) Namespaces() backend.Range { return t.of(KindNamespace) }

// NamespaceKey is where the name of a namespace stands.
func (t *Thread) NamespaceKey(ns crypto.Token) []byte {
	return append(prefix(t.User.Tok, t.Tok, t.Epoch, KindNamespace), ns[:]...)
}

// NamespaceOf is the namespace that a key of the epoch is of; not ok means that the key is too short.
func NamespaceOf(key []byte) (ns crypto.Token, ok bool) {
	if len(key) < PrefixLen+len(ns) {
		return ns, false
	}
	return crypto.Token(Tail(key)), true
}

// Namespace returns the place of a namespace by its name; that of "" is unnamed.
func (t *Thread) Namespace(name string) Lineage {
	if name == "" {
		return Lineage{t, None}
	}
	return Lineage{t, t.Keys.BlindToken("namespace", name)}
}

// Lineage is where the values of one namespace of a Thread stand.
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

// IDs is the range of all id entries, ChosenIDs of those for UUIDs that callers chose, in the order of these.
func (l *Lineage) IDs() backend.Range { return Under(l.prefix(KindID)) }

func (l *Lineage) ChosenIDs() backend.Range { return Under(append(l.prefix(KindID), formUUID)) }

// ChosenID is the UUID in a key of ChosenIDs.
func ChosenID(key []byte) [16]byte { return [16]byte(key[len(key)-16:]) }

func (l *Lineage) IDKey(id string) []byte {
	if uuid, ok := ParseUUID(id); ok {
		return append(append(l.prefix(KindID), formUUID), uuid[:]...)
	}
	return l.OwnIDKey(id)
}

// OwnIDKey is where an id of the engine's own stands that a replacement took over: always by token, so that it is not
// found among the ids that callers chose.
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

// Writes is the range of all pending writes and their ledgers, WritesOf of those of a checkpoint.
func (l *Lineage) Writes() backend.Range { return Under(l.prefix(KindWrites)) }

func (l *Lineage) WritesOf(checkpoint string) backend.Range { return Under(l.writesOf(checkpoint)) }

func (l *Lineage) writesOf(checkpoint string) []byte {
	tok := l.Keys.BlindToken("id", checkpoint)
	return append(l.prefix(KindWrites), tok[:]...)
}

// WritesKey is where the pending writes of a task stand.
func (l *Lineage) WritesKey(checkpoint, task string) []byte {
	tok := l.Keys.BlindToken("task", task)
	return append(l.writesOf(checkpoint), tok[:]...)
}

// LedgerKey is where the ledger of the pending writes of a checkpoint stands: before them.
func (l *Lineage) LedgerKey(checkpoint string) []byte {
	return append(l.writesOf(checkpoint), None[:]...)
}

// WritesTail tells a key of pending writes of the lineage from others of it, in any epoch.
func WritesTail(key []byte) []byte { return key[PrefixLen+len(None):] }

// SameWrites is the part of a key of pending writes, or of their ledger, that those of a checkpoint have in common.
func SameWrites(key []byte) []byte { return key[:len(key)-len(None)] }

// IndexKey is where the index entry of a term stands at a checkpoint.
func (l *Lineage) IndexKey(field, value string, seq uint64) []byte {
	u := l.User
	key := append(prefix(u.tenantTok, u.Term(u.tenant, field, value), 0, KindIndex), u.Tok[:]...)
	key = binary.BigEndian.AppendUint32(append(key, l.Tok[:]...), l.Epoch)
	return binary.BigEndian.AppendUint64(append(key, l.NS[:]...), seq)
}

// Moved is the key of the same tail in another lineage: pending writes and ids are named by tokens that lineages of a user
// share.
func (l *Lineage) Moved(key []byte) []byte {
	p := l.prefix(KindOf(key))
	return append(p, key[len(p):]...)
}
