package space

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
)

// A key is a scope (a user, a tenant, or the store), a slot in it (a thread, a term of the index,
// or nothing), an epoch, a kind, and a tail that depends on the kind.
const (
	scopeLen  = 16
	slotAt    = scopeLen
	epochAt   = slotAt + 16
	kindAt    = epochAt + 4
	PrefixLen = kindAt + 1
	seqLen    = 8

	recordLen   = PrefixLen + 16 + seqLen
	indexLen    = PrefixLen + 16 + 16 + 4 + 16 + seqLen
	activityLen = PrefixLen + 6 + 16
	threadLen   = PrefixLen + 16
)

// The two forms of an id in the key of its entry: the UUID itself, or a token.
const (
	formUUID  = 1
	formToken = 2
)

// Once is the version of keys that are written once, or whose writers are serialized by the engine.
const Once = "1"

// None is the empty token: the slot of keys outside threads, and the unnamed namespace.
var None crypto.Token

func prefix(scope, slot crypto.Token, epoch uint32, kind byte) []byte {
	key := append(append(make([]byte, 0, PrefixLen+72), scope[:]...), slot[:]...)
	return append(binary.BigEndian.AppendUint32(key, epoch), kind)
}

// Under is the range of all keys that begin with p, which must not be all ones.
func Under(p []byte) backend.Range {
	end := append([]byte(nil), p...)
	for i := len(end) - 1; ; i-- {
		if end[i]++; end[i] != 0 {
			return backend.Range{Start: p, End: end[:i+1]}
		}
	}
}

// These functions read the parts of a key, which must be long enough to have them.

func KindOf(key []byte) byte           { return key[kindAt] }
func ThreadOf(key []byte) crypto.Token { return crypto.Token(key[slotAt:]) }
func EpochOf(key []byte) uint32        { return binary.BigEndian.Uint32(key[epochAt:]) }
func SeqOf(key []byte) uint64          { return binary.BigEndian.Uint64(key[len(key)-seqLen:]) }

// Tail is the part of the key after the kind.
func Tail(key []byte) []byte { return key[PrefixLen:] }

// IsRecord reports whether a key is of a record or a stub.
func IsRecord(key []byte) bool { return len(key) == recordLen && KindOf(key) == KindRecord }

// IsIndex reports whether a key is of an index entry, whole or not.
func IsIndex(key []byte) bool { return len(key) >= PrefixLen && KindOf(key) == KindIndex }

// UserOf returns the user whose scope a key is in; not ok means that it is in the scope of a tenant
// or of the store, or too short to be a key.
func UserOf(key []byte) (user crypto.Token, ok bool) {
	if len(key) < PrefixLen || KindOf(key) < KindThread {
		return user, false
	}
	return crypto.Token(key), true
}

// AfterScope returns the first key that can follow the scope of a key, or the key itself if it is
// too short to be one; nil if none can.
func AfterScope(key []byte) []byte {
	if len(key) < PrefixLen {
		return append(bytes.Clone(key), 0)
	}
	end := bytes.Clone(key[:scopeLen])
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// PartOf and BlobOf return the digest in the key of a part or a blob; not ok means that it is
// another kind of key.

func PartOf(key []byte) (id [16]byte, ok bool) {
	if len(key) != PrefixLen+len(id) {
		return id, false
	}
	return [16]byte(Tail(key)), true
}

func BlobOf(key []byte) (digest [32]byte, ok bool) {
	if len(key) != PrefixLen+len(digest) {
		return digest, false
	}
	return [32]byte(Tail(key)), true
}

// ListedThread returns the thread of the key of a thread record; not ok means that it is another
// kind of key.
func ListedThread(key []byte) (thread crypto.Token, ok bool) {
	if len(key) != threadLen {
		return thread, false
	}
	return crypto.Token(Tail(key)), true
}

// ActiveThread parses the key of an activity entry; not ok means that it is another kind of key.
func ActiveThread(key []byte) (since int64, thread crypto.Token, ok bool) {
	if len(key) != activityLen {
		return 0, thread, false
	}
	tail := Tail(key)
	return int64(binary.BigEndian.Uint64(append(make([]byte, 2, 8), tail[:6]...))), crypto.Token(tail[6:]), true
}

// Indexed is the key of an index entry, parsed.
type Indexed struct {
	Term         crypto.Token
	User, Thread crypto.Token
	Epoch        uint32
	NS           crypto.Token
	Seq          uint64
}

// ParseIndex parses the key of an index entry; not ok means that it is another kind of key.
func ParseIndex(key []byte) (x Indexed, ok bool) {
	if len(key) != indexLen || KindOf(key) != KindIndex {
		return x, false
	}
	tail := Tail(key)
	return Indexed{Term: crypto.Token(key[slotAt:]), User: crypto.Token(tail), Thread: crypto.Token(tail[16:]),
		Epoch: binary.BigEndian.Uint32(tail[32:]), NS: crypto.Token(tail[36:]), Seq: SeqOf(key)}, true
}

// SameLineage reports whether both keys point into one lineage.
func (x *Indexed) SameLineage(y *Indexed) bool {
	return x.User == y.User && x.Thread == y.Thread && x.Epoch == y.Epoch && x.NS == y.NS
}

// RecordKey is the key of the record that an index entry points to.
func (x *Indexed) RecordKey() []byte {
	key := append(prefix(x.User, x.Thread, x.Epoch, KindRecord), x.NS[:]...)
	return binary.BigEndian.AppendUint64(key, x.Seq)
}

// Describe describes a key in errors and reports: by kind and tokens, never by ids.
func Describe(key []byte) string {
	if len(key) < PrefixLen {
		return fmt.Sprintf("key %x", key)
	}
	kind := key[kindAt]
	if IsRecord(key) {
		return fmt.Sprintf("checkpoint seq %d of thread %x…, namespace %x…", SeqOf(key), key[slotAt:slotAt+4], key[PrefixLen:PrefixLen+4])
	}
	return fmt.Sprintf("%s %x…", kindNames[kind], key[PrefixLen:min(len(key), PrefixLen+4)])
}

// ParseUUID accepts only the canonical form: other spellings of a UUID are different ids.
func ParseUUID(s string) (id [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || strings.ToLower(s) != s {
		return id, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != 16 {
		return id, false
	}
	return [16]byte(b), true
}

// leastUUID is the smallest UUID whose canonical form is not smaller, bytewise, than a text; not ok
// means that all are smaller.
func leastUUID(text string) (id [16]byte, ok bool) {
	const form = "00000000-0000-0000-0000-000000000000"
	digits := make([]byte, 0, 32)
	for i := 0; i < len(text); i++ {
		if i == len(form) { // the id that text begins with is smaller
			return leastAbove(digits)
		}
		switch c := text[i]; {
		case form[i] == '-' && c == '-':
		case form[i] == '-' && c > '-', form[i] == '0' && c > 'f':
			return leastAbove(digits)
		case form[i] == '-', c < '0':
			return padded(digits), true
		case c > '9' && c < 'a':
			return padded(append(digits, 10)), true
		case c <= '9':
			digits = append(digits, c-'0')
		default:
			digits = append(digits, c-'a'+10)
		}
	}
	return padded(digits), true
}

// leastAbove is the smallest UUID above all that begin with some digits.
func leastAbove(digits []byte) (id [16]byte, ok bool) {
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] < 15 {
			digits[i]++
			return padded(digits[:i+1]), true
		}
	}
	return id, false
}

// padded is the smallest UUID that begins with some digits.
func padded(digits []byte) (id [16]byte) {
	for i, d := range digits {
		id[i/2] |= d << (4 * (1 - i%2))
	}
	return id
}
