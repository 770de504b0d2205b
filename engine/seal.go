package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ckptd/ckptd/codec"
	"github.com/ckptd/ckptd/crypto"
)

// layout is how the values of one record type are stored. Readers and writers share it: unseal makes a value of stored
// bytes, and seal, by which alone a value becomes stored bytes, first does with it what unseal will do.
type layout[T any] struct {
	typ    byte
	encode func(dst, key []byte, v T) []byte
	decode func(plain, key []byte) (T, error) // may alias plain
	check  func(plain, key []byte, v T) error // that decode makes v of plain
}

// unseal returns the value that is stored at key.
func unseal[T any](s *crypto.Sealer, f *layout[T], key, stored []byte) (v T, err error) {
	plain, err := s.Open(nil, f.typ, key, stored)
	if err != nil {
		return v, openError(key, err)
	}
	if v, err = f.decode(plain, key); err != nil {
		return v, corrupt(place(key), "does not parse", err)
	}
	return v, nil
}

// seal returns v as it is to be stored at key. What a reader would refuse, or take for something else, is an error.
func seal[T any](s *crypto.Sealer, f *layout[T], key []byte, v T) ([]byte, error) {
	return sealInto(nil, &sealing{}, s, f, key, v)
}

// sealing is the working memory of sealInto.
type sealing struct{ plain, check []byte }

// sealInto is seal that appends to dst.
func sealInto[T any](dst []byte, m *sealing, s *crypto.Sealer, f *layout[T], key []byte, v T) ([]byte, error) {
	m.plain = f.encode(m.plain[:0], key, v)
	from := len(dst)
	dst, err := s.Seal(dst, f.typ, key, m.plain)
	if err != nil {
		return nil, fmt.Errorf("sealing %s: %w", place(key), ofKeys(err))
	}
	if m.check, err = s.Open(m.check[:0], f.typ, key, dst[from:]); err == nil {
		if err = f.check(m.check, key, v); err == nil && !bytes.Equal(m.check, m.plain) {
			err = errors.New("it opens as other bytes")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("checking %s before commit: nobody could read it: %w", place(key), ofKeys(err))
	}
	return dst, nil
}

// The layouts of all that is stored (docs/format.md §4 to §13, §19).
var (
	storeLayout     = layoutOf(kindStore, codec.AppendStoreInfo, codec.ParseStoreInfo, same)
	retentionLayout = layoutOf(kindRetention, codec.AppendRetention, codec.ParseRetention, same)
	threadLayout    = layoutOf(kindThread, codec.AppendThread, codec.ParseThread, same)
	blobLayout      = layoutOf(kindBlob, codec.AppendBlob, codec.ParseBlob, func(a, b *codec.Blob) bool {
		return a.Hour == b.Hour && a.Size == b.Size && slices.Equal(a.Parts, b.Parts)
	})
	idLayout     = layoutOf(kindID, codec.AppendIDEntry, codec.ParseIDEntry, same)
	branchLayout = layoutOf(kindBranch, codec.AppendBranch, codec.ParseBranch, same)
	writesLayout = layoutOf(kindWrites, codec.AppendWrites, codec.ParseWrites, (*codec.Writes).Equal)
	ledgerLayout = layoutOf(typeLedger, codec.AppendWritesLedger, codec.ParseWritesLedger, same)

	indexLayout     = layoutOf(kindIndex, codec.AppendIndexEntry, codec.ParseIndexEntry, equal)
	activityLayout  = layoutOf(kindActivity, codec.AppendName, codec.ParseName, equal)
	namespaceLayout = layoutOf(kindNamespace, codec.AppendName, codec.ParseName, equal)

	partLayout = layoutOf(kindPart, func(dst []byte, p part) []byte { return codec.AppendPart(dst, p.hour, p.data) },
		func(plain []byte) (p part, err error) { p.hour, p.data, err = codec.ParsePart(plain); return p, err },
		func(a, b part) bool { return a.hour == b.hour && bytes.Equal(a.data, b.data) })
	besideLayout = layoutOf(kindBeside, func(dst, v []byte) []byte { return append(dst, v...) },
		func(plain []byte) ([]byte, error) { return plain, nil }, bytes.Equal)

	recordLayout = &layout[*codec.Record]{kindRecord,
		func(dst, key []byte, rec *codec.Record) []byte { return codec.AppendRecord(dst, keySeq(key), rec) },
		func(plain, key []byte) (*codec.Record, error) { return codec.ParseRecord(plain, keySeq(key)) },
		func(plain, key []byte, rec *codec.Record) error { return codec.CheckRecord(plain, keySeq(key), rec) }}
	stubLayout = &layout[*codec.Stub]{typeStub,
		func(dst, _ []byte, stub *codec.Stub) []byte { return codec.AppendStub(dst, stub) }, parseStub, checkBy(parseStub, same)}
)

// part is a piece of a payload and the hour of its creation.
type part struct {
	hour uint64
	data []byte
}

func parseStub(plain, key []byte) (*codec.Stub, error) { return codec.ParseStub(plain, keySeq(key)) }

// layoutOf is the layout of what does not depend on where it stands.
func layoutOf[T any](typ byte, encode func([]byte, T) []byte, decode func([]byte) (T, error), same func(a, b T) bool) *layout[T] {
	at := func(plain, _ []byte) (T, error) { return decode(plain) }
	return &layout[T]{typ, func(dst, _ []byte, v T) []byte { return encode(dst, v) }, at, checkBy(at, same)}
}

// checkBy is the check of a layout by its decode.
func checkBy[T any](decode func(plain, key []byte) (T, error), same func(a, b T) bool) func(plain, key []byte, v T) error {
	return func(plain, key []byte, v T) error {
		got, err := decode(plain, key)
		if err == nil && !same(got, v) {
			err = errors.New("it reads as something else")
		}
		return err
	}
}

func same[T comparable](a, b *T) bool { return *a == *b }

func equal[T comparable](a, b T) bool { return a == b }
