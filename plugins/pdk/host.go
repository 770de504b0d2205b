package pdk

import "unsafe"

// What the host gives to read.
const (
	slotPayload = 0
	slotMeta    = 1
	slotConfig  = 2
)

// leastNeeded tells the length that an output needs from an error: what the host returns is its negative, and no error is
// that small.
const leastNeeded = 16

// Level is how much a line of the log matters.
type Level int32

// The levels of Log.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Log writes a line to the log of the host, which keeps only so many a call. It must not quote the payload.
func Log(level Level, line string) { hostLog(int32(level), start(line), int32(len(line))) }

// Finding reports that a rule of the plugin matched count times at a path, a JSON pointer or "" for the whole payload.
// It must never quote what matched, and a path must not have what is data in it.
func Finding(rule, path string, count int) {
	hostFinding(start(rule), int32(len(rule)), start(path), int32(len(path)), int32(count))
}

// RedactBuiltin passes JSON or text through the redactor of the host, with the rules of a set, "" for its default. It takes
// the capability redact_builtin.
func RedactBuiltin(set string, data []byte) ([]byte, error) {
	out := make([]byte, len(data)+len(data)/4+256)
	for {
		n := hostRedact(start(set), int32(len(set)), unsafe.Pointer(unsafe.SliceData(data)), int32(len(data)),
			unsafe.Pointer(unsafe.SliceData(out)), int32(len(out)))
		switch {
		case n >= 0:
			return out[:n], nil
		case n > -leastNeeded:
			return nil, ErrDenied
		}
		out = make([]byte, -n)
	}
}

// Pseudonym returns what stands for text: the same for the same text, kind and user, and of no use without a key of the
// user's, so it is gone when that is. Kinds are the plugin's own. It takes the capability pseudonym.
func Pseudonym(kind int32, text []byte) (p [32]byte, err error) {
	if hostPseudonym(kind, unsafe.Pointer(unsafe.SliceData(text)), int32(len(text)), unsafe.Pointer(&p)) < 0 {
		return [32]byte{}, ErrDenied
	}
	return p, nil
}

// BlobID names a blob of the user whose state passes.
type BlobID [32]byte

// String returns the id as ckptd blob takes it.
func (id BlobID) String() string {
	const digits = "0123456789abcdef" // encoding/hex would bring fmt along
	s := make([]byte, 0, 2*len(id))
	for _, c := range id {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}

// PutBlob stores data as a blob of the user, together with the item, and returns what to find it by: nothing is stored
// if the operation fails. It takes the capability blob_put.
func PutBlob(data []byte) (id BlobID, err error) {
	if hostBlobPut(unsafe.Pointer(unsafe.SliceData(data)), int32(len(data)), unsafe.Pointer(&id)) < 0 {
		return BlobID{}, ErrDenied
	}
	return id, nil
}

// read returns what is in a slot, nil if nothing is.
func read(slot int32) ([]byte, error) {
	n := hostInputLen(slot)
	if n <= 0 {
		return nil, nil
	}
	b := make([]byte, n)
	if got := hostInputRead(slot, 0, unsafe.Pointer(unsafe.SliceData(b)), int32(n)); int64(got) != n {
		return nil, errInput
	}
	return b, nil
}

func write(out []byte) bool {
	return hostOutputWrite(unsafe.Pointer(unsafe.SliceData(out)), int32(len(out))) >= 0
}

func setError(code int32, reason string) { hostErrorSet(code, start(reason), int32(len(reason))) }

func start(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }
