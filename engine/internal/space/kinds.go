package space

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// Kinds of backend keys and types of values, docs/format.md §3.
const (
	KindStore     = 0x01
	KindRetention = 0x02
	KindIndex     = 0x03
	KindThread    = 0x10
	KindPart      = 0x11
	KindBlob      = 0x12
	KindActivity  = 0x13
	KindRecord    = 0x20
	KindID        = 0x21
	KindBranch    = 0x22
	KindWrites    = 0x23
	KindNamespace = 0x24
	TypeLedger    = 0x2e
	TypeStub      = 0x2f
	KindSidecar   = 0x30
)

// How each kind is stored (docs/format.md §4 to §13, §19). A new kind needs a line above, a line
// here, and its keys in owners.go.
var (
	StoreInfo = ofStore("store record", KindStore, codec.AppendStoreInfo, codec.ParseStoreInfo, same)
	Retention = ofStore("retention policy", KindRetention, codec.AppendRetention, codec.ParseRetention, same)
	Sidecar   = ofStore("sidecar value", KindSidecar, func(dst, v []byte) []byte { return append(dst, v...) },
		func(plain []byte) ([]byte, error) { return plain, nil }, bytes.Equal)

	Threads  = ofUser("thread record", KindThread, directory, codec.AppendThread, codec.ParseThread, same)
	Activity = ofUser("activity entry", KindActivity, directory, codec.AppendName, codec.ParseName, equal)
	Index    = ofUser("index entry", KindIndex, index, codec.AppendIndexEntry, codec.ParseIndexEntry, equal)
	Blobs    = ofUser("blob", KindBlob, parts, codec.AppendBlob, codec.ParseBlob, func(a, b *codec.Blob) bool {
		return a.Hour == b.Hour && a.Size == b.Size && slices.Equal(a.Parts, b.Parts)
	})
	Parts = ofUser("part", KindPart, parts, func(dst []byte, p Part) []byte { return codec.AppendPart(dst, p.Hour, p.Data) },
		func(plain []byte) (p Part, err error) { p.Hour, p.Data, err = codec.ParsePart(plain); return p, err },
		func(a, b Part) bool { return a.Hour == b.Hour && bytes.Equal(a.Data, b.Data) })

	IDs        = ofThread("id entry", KindID, codec.AppendIDEntry, codec.ParseIDEntry, same)
	Branches   = ofThread("branch", KindBranch, codec.AppendBranch, codec.ParseBranch, same)
	Namespaces = ofThread("namespace", KindNamespace, codec.AppendName, codec.ParseNamespace, equal)
	Writes     = ofThread("pending writes", KindWrites, codec.AppendWrites, codec.ParseWrites, (*codec.Writes).Equal)
	Ledgers    = ofThread("pending writes", TypeLedger, codec.AppendWritesLedger, codec.ParseWritesLedger, same)

	// The encoding of a record depends on its seq, which is in its key.
	Records = named("checkpoint", &Kind[*codec.Record]{typ: KindRecord, sealed: thread,
		encode: func(dst, key []byte, rec *codec.Record) []byte { return codec.AppendRecord(dst, SeqOf(key), rec) },
		decode: func(plain, key []byte) (*codec.Record, error) { return codec.ParseRecord(plain, SeqOf(key)) },
		check:  func(plain, key []byte, rec *codec.Record) error { return codec.CheckRecord(plain, SeqOf(key), rec) }})
	Stubs = named("stub", &Kind[*codec.Stub]{typ: TypeStub, sealed: thread,
		encode: func(dst, _ []byte, stub *codec.Stub) []byte { return codec.AppendStub(dst, stub) },
		decode: parseStub, check: checkBy(parseStub, same)})
)

// kindNames are the names of the kinds in errors.
var kindNames = map[byte]string{}

// Part is a piece of a payload and the hour of its creation.
type Part struct {
	Hour uint64
	Data []byte
}

// keys selects the keys of the owner that seal a kind.
type keys uint8

const (
	store keys = iota
	directory
	parts
	index
	thread
)

// Owner has the keys that seal a value: the store, a user or a thread. A thread has the keys of its
// user as well.
type Owner interface {
	sealer(of keys) *crypto.Sealer
}

// Kind is how one kind of values is stored. Readers and writers share it. Open turns stored bytes
// into a value. AppendSealed is the only way to make stored bytes, and it first opens them as Open
// will.
type Kind[T any] struct {
	typ    byte
	sealed keys
	encode func(dst, key []byte, v T) []byte
	decode func(plain, key []byte) (T, error) // may alias plain
	check  func(plain, key []byte, v T) error // that decode makes v of plain
}

// Type is the record type of values of k.
func (k *Kind[T]) Type() byte { return k.typ }

// Is reports whether a stored value claims to be of k. Only Open proves it.
func (k *Kind[T]) Is(stored []byte) bool { return len(stored) > 3 && stored[3] == k.typ }

// OpenError says why a stored value cannot be read. Err is the error of crypto or codec.
type OpenError struct {
	Key    []byte
	Parsed bool // it opened, but did not parse
	Err    error
}

func (e *OpenError) Error() string { return fmt.Sprintf("opening %s: %v", Describe(e.Key), e.Err) }
func (e *OpenError) Unwrap() error { return e.Err }

// Open returns the value that is stored at key; errors are of type *OpenError.
func (k *Kind[T]) Open(of Owner, key, stored []byte) (v T, err error) {
	plain, err := of.sealer(k.sealed).Open(nil, k.typ, key, stored)
	if err != nil {
		return v, &OpenError{Key: key, Err: err}
	}
	if v, err = k.decode(plain, key); err != nil {
		return v, &OpenError{Key: key, Parsed: true, Err: err}
	}
	return v, nil
}

// Put returns the mutation that stores v at key. If a reader would refuse the value, or read
// another one, that is an error.
func (k *Kind[T]) Put(of Owner, key []byte, v T, version string) (backend.Mut, error) {
	value, err := k.AppendSealed(nil, &Scratch{}, of, key, v)
	if err != nil {
		return backend.Mut{}, err
	}
	return backend.Mut{Key: key, Value: value, Version: version}, nil
}

// Scratch is the working memory of AppendSealed.
type Scratch struct{ plain, check []byte }

// Cap is the size of its buffers.
func (m *Scratch) Cap() int { return cap(m.plain) + cap(m.check) }

// AppendSealed appends the bytes that Put stores to dst.
func (k *Kind[T]) AppendSealed(dst []byte, m *Scratch, of Owner, key []byte, v T) ([]byte, error) {
	s, from := of.sealer(k.sealed), len(dst)
	m.plain = k.encode(m.plain[:0], key, v)
	dst, err := s.Seal(dst, k.typ, key, m.plain)
	if err != nil {
		return nil, fmt.Errorf("sealing %s: %w", Describe(key), err)
	}
	if m.check, err = s.Open(m.check[:0], k.typ, key, dst[from:]); err == nil {
		if err = k.check(m.check, key, v); err == nil && !bytes.Equal(m.check, m.plain) {
			err = errors.New("it opens to different bytes")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("checking %s before commit: it would be unreadable: %w", Describe(key), err)
	}
	return dst, nil
}

func ofStore[T any](name string, typ byte, encode func([]byte, T) []byte, decode func([]byte) (T, error), same func(a, b T) bool) *Kind[T] {
	return ofUser(name, typ, store, encode, decode, same)
}

func ofThread[T any](name string, typ byte, encode func([]byte, T) []byte, decode func([]byte) (T, error), same func(a, b T) bool) *Kind[T] {
	return ofUser(name, typ, thread, encode, decode, same)
}

// ofUser makes a kind whose encoding does not depend on the key.
func ofUser[T any](name string, typ byte, sealed keys, encode func([]byte, T) []byte, decode func([]byte) (T, error), same func(a, b T) bool) *Kind[T] {
	at := func(plain, _ []byte) (T, error) { return decode(plain) }
	return named(name, &Kind[T]{typ, sealed, func(dst, _ []byte, v T) []byte { return encode(dst, v) }, at, checkBy(at, same)})
}

func named[T any](name string, k *Kind[T]) *Kind[T] {
	kindNames[k.typ] = name
	return k
}

func parseStub(plain, key []byte) (*codec.Stub, error) { return codec.ParseStub(plain, SeqOf(key)) }

// checkBy makes a check that decodes and compares.
func checkBy[T any](decode func(plain, key []byte) (T, error), same func(a, b T) bool) func(plain, key []byte, v T) error {
	return func(plain, key []byte, v T) error {
		got, err := decode(plain, key)
		if err == nil && !same(got, v) {
			err = errors.New("it decodes to a different value")
		}
		return err
	}
}

func same[T comparable](a, b *T) bool { return *a == *b }

func equal[T comparable](a, b T) bool { return a == b }
