// Package codec encodes and decodes the parts of a checkpoint: record headers, deltas, bounded
// zstd, and the small records around them (docs/format.md). It has no access to disk, clock, log or
// keys.
//
// Decoders are strict: they refuse anything that an encoder would not have written, with an error
// that matches ErrMalformed, and check every length against its limit and the bytes at hand before
// trusting it. Byte slices of decoded structures alias the input, unless a method says otherwise.
// Functions that append to dst allocate only if its capacity does not suffice. The layouts of
// docs/format.md never change; new versions are added to the old ones.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrMalformed is matched by every error of a decoder.
var ErrMalformed = errors.New("malformed encoding")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Limits of docs/format.md §15.
const (
	MaxName     = 256
	MaxLongName = 1 << 10 // of a namespace and the path of a task
	MaxMeta     = 1 << 20
	MaxLabels   = 256
	MaxBlobs    = 256
	MaxChannels = 4096
	MaxHooks    = 64
	MaxChannel  = 256 << 20
	MaxPart     = 256 << 10
	MaxInline   = 64 << 10
	MaxPath     = 256
	MaxSeq      = 1<<31 - 1
	MaxTime     = 1<<48 - 1 // milliseconds, the maximum of 6 bytes: the year 10889

	maxHour  = MaxTime / (60 * 60 * 1000)
	maxParts = MaxChannel/MaxPart + 1
)

// reader reads fields from b. The first failure sticks, and all later reads return zero values.
type reader struct {
	b      []byte
	err    error
	inline int // bytes of the payloads read so far
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = malformed(format, args...)
	}
	r.b = nil
}

// uvarint reads a number in its shortest form.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) svarint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count reads a number that must not exceed most.
func (r *reader) count(what string, most uint64) uint64 {
	v := r.uvarint()
	if v > most {
		r.fail("%s is %d, at most %d are allowed", what, v, most)
		return 0
	}
	return v
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("ends early")
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) bytes(what string, most uint64) []byte {
	return r.take(r.count(what, most))
}

// str reads a string that CheckName accepts.
func (r *reader) str(what string) string { return r.strLike(what, "") }

// strLike is str, but allocates no string if it reads have.
func (r *reader) strLike(what, have string) string {
	p, s := r.bytes(what, MaxName), have
	if string(p) != have {
		s = string(p)
	}
	if err := CheckName(s); err != nil {
		r.fail("%s %v", what, err)
		return ""
	}
	return s
}

// longStr reads a string that CheckLongName accepts.
func (r *reader) longStr(what string) string {
	s := string(r.bytes(what, MaxLongName))
	if err := CheckLongName(s); err != nil {
		r.fail("%s %v", what, err)
		return ""
	}
	return s
}

// CheckName returns an error if a record cannot hold a string: an id, a name, a label or its value,
// a status, a type.
func CheckName(s string) error { return checkString(s, MaxName) }

// CheckLongName is CheckName for a namespace and the path of a task.
func CheckLongName(s string) error { return checkString(s, MaxLongName) }

func checkString(s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("is %d bytes, at most %d are allowed", len(s), most)
	}
	if !utf8.ValidString(s) {
		return errors.New("is not UTF-8")
	}
	return nil
}

// CheckTime returns an error if a record cannot hold a time or a duration in milliseconds.
func CheckTime(ms int64) error {
	if ms < 0 {
		return fmt.Errorf("is %d, at least 0 is needed", ms)
	}
	if ms > MaxTime {
		return fmt.Errorf("is %d, at most %d are allowed", ms, int64(MaxTime))
	}
	return nil
}

func (r *reader) hash() (h [32]byte) {
	copy(h[:], r.take(32))
	return h
}

// version reads the version byte of a small record.
func (r *reader) version() { r.versions(recordVersion, recordVersion) }

// versions reads a version byte from first to last.
func (r *reader) versions(first, last byte) byte {
	v := r.byte()
	if v < first || v > last {
		r.fail("unknown version %d", v)
	}
	return v
}

// done returns the first failure, or an error if bytes are left over.
func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes left over", len(r.b))
	}
	return r.err
}

// finish returns v if nothing failed and nothing is left over.
func finish[T any](r *reader, v T) (T, error) {
	if err := r.done(); err != nil {
		var none T
		return none, err
	}
	return v, nil
}

const (
	recordVersion   = 1
	extendedVersion = 2 // of attributes with hooks or a kind, and of id entries with a fingerprint
	deltaVersion    = 3 // of attributes with delta channels
)

func appendBytes(dst, p []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(p))), p...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendTime(dst []byte, ms int64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(ms))
	return append(dst, b[2:]...)
}

// millis reads a time or a duration in milliseconds.
func (r *reader) millis(what string) int64 {
	ms := int64(r.uvarint())
	if err := CheckTime(ms); err != nil {
		r.fail("%s %v", what, err)
		return 0
	}
	return ms
}

// seq reads the seq of a record; the first is 1.
func (r *reader) seq() uint64 {
	v := r.count("seq", MaxSeq)
	if v == 0 {
		r.fail("seq is 0")
	}
	return v
}

func (r *reader) time() int64 {
	var b [8]byte
	copy(b[2:], r.take(6))
	return int64(binary.BigEndian.Uint64(b[:]))
}
