package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
)

// Kinds of backend keys and types of records, docs/format.md §3.
const (
	kindStore     = 0x01
	kindRetention = 0x02
	kindIndex     = 0x03
	kindThread    = 0x10
	kindPart      = 0x11
	kindBlob      = 0x12
	kindActivity  = 0x13
	kindRecord    = 0x20
	kindID        = 0x21
	kindBranch    = 0x22
	kindWrites    = 0x23
	kindNamespace = 0x24
	typeLedger    = 0x2e
	typeStub      = 0x2f
	kindBeside    = 0x30
)

const (
	prefixLen  = 16 + 16 + 4 + 1
	recordLen  = prefixLen + 16 + 8
	formUUID   = 1
	formToken  = 2
	versionOne = "1" // of keys that are written once, or whose writers are serialized by the engine
)

var zeroToken crypto.Token

func appendKey(dst []byte, scope, slot crypto.Token, epoch uint32, kind byte) []byte {
	dst = append(append(dst, scope[:]...), slot[:]...)
	return append(binary.BigEndian.AppendUint32(dst, epoch), kind)
}

// keyPrefix is a key without its tail.
func keyPrefix(scope, slot crypto.Token, epoch uint32, kind byte) []byte {
	return appendKey(make([]byte, 0, prefixLen+72), scope, slot, epoch, kind)
}

// prefixRange is the range of all keys that begin with p, which must not be all ones.
func prefixRange(p []byte) backend.Range {
	end := append([]byte(nil), p...)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return backend.Range{Start: p, End: end[:i+1]}
		}
	}
}

func keySeq(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// place describes a key in errors and reports: by kind and tokens, never by ids.
func place(key []byte) string {
	if len(key) < prefixLen {
		return fmt.Sprintf("key %x", key)
	}
	names := map[byte]string{kindStore: "store record", kindRetention: "retention policy", kindIndex: "index entry",
		kindThread: "thread record", kindPart: "part", kindBlob: "blob", kindRecord: "checkpoint", kindID: "id entry",
		kindBranch: "branch", kindWrites: "pending writes", kindNamespace: "namespace", kindActivity: "activity entry"}
	kind := key[prefixLen-1]
	if kind == kindRecord && len(key) == recordLen {
		return fmt.Sprintf("checkpoint seq %d of thread %x…, namespace %x…", keySeq(key), key[16:20], key[prefixLen:prefixLen+4])
	}
	return fmt.Sprintf("%s %x…", names[kind], key[prefixLen:min(len(key), prefixLen+4)])
}

// key builders of a user.

func (u *user) threadKey(tok crypto.Token) []byte {
	return append(keyPrefix(u.tok, zeroToken, 0, kindThread), tok[:]...)
}

func (u *user) partKey(id [16]byte) []byte {
	return append(keyPrefix(u.tok, zeroToken, 0, kindPart), id[:]...)
}

func (u *user) blobKey(id BlobID) []byte {
	return append(keyPrefix(u.tok, zeroToken, 0, kindBlob), id[:]...)
}

// key builders of a thread.

func (t *thread) keyPrefix(kind byte) []byte {
	return keyPrefix(t.u.tok, t.tok, t.epoch, kind)
}

func (t *thread) nsKey(kind byte, ns crypto.Token) []byte {
	return append(t.keyPrefix(kind), ns[:]...)
}

// key builders of a lineage.

func (l *lineage) recordKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(l.th.nsKey(kindRecord, l.ns), seq)
}

// records is the range of the lineage's records with from <= seq < to.
func (l *lineage) records(from, to uint64) backend.Range {
	return backend.Range{Start: l.recordKey(from), End: l.recordKey(to)}
}

func (l *lineage) idKey(id string) []byte {
	key := l.th.nsKey(kindID, l.ns)
	if uuid, ok := parseUUID(id); ok {
		return append(append(key, formUUID), uuid[:]...)
	}
	tok := l.th.u.keys.BlindToken("id", id)
	return append(append(key, formToken), tok[:]...)
}

// ownIDKey is where an id of the engine's own stands that a replacement took over: always by token, so that it is not
// found among the ids that callers chose.
func (l *lineage) ownIDKey(id string) []byte {
	tok := l.th.u.keys.BlindToken("id", id)
	return append(append(l.th.nsKey(kindID, l.ns), formToken), tok[:]...)
}

func (l *lineage) branchKey(name string) []byte {
	tok := l.th.u.keys.BlindToken("branch", name)
	return append(l.th.nsKey(kindBranch, l.ns), tok[:]...)
}

func (l *lineage) writesPrefix(checkpoint string) []byte {
	tok := l.th.u.keys.BlindToken("id", checkpoint)
	return append(l.th.nsKey(kindWrites, l.ns), tok[:]...)
}
