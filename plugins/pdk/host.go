package pdk

import "unsafe"

// Slots that the host lets a plugin read.
const (
	slotPayload = 0
	slotMeta    = 1
	slotConfig  = 2
)

// leastNeeded tells a needed length from an error: the host returns the length of an output
// negated, and no error code is that small.
const leastNeeded = 16

// Level is the severity of a log line.
type Level int32

// The levels of Log.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Log writes a line to the host's log, which keeps a limited number of lines per call. The line
// must not quote the payload.
func Log(level Level, line string) { hostLog(int32(level), start(line), int32(len(line))) }

// Finding reports that a rule of the plugin matched count times at path, which is a JSON pointer or
// "" for the whole payload. The rule must never quote the match, and the path must not contain user
// data.
func Finding(rule, path string, count int) {
	hostFinding(start(rule), int32(len(rule)), start(path), int32(len(path)), int32(count))
}

// RedactBuiltin passes JSON or text through the host's redactor, using the rules of the named set
// ("" is the default set). It needs the capability redact_builtin.
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

// Pseudonym returns a pseudonym for text. The same text, kind and user always give the same
// pseudonym. It depends on one of the user's keys and cannot be linked to the text once that key is
// destroyed. The plugin chooses its own kinds. It needs the capability pseudonym.
func Pseudonym(kind int32, text []byte) (p [32]byte, err error) {
	if hostPseudonym(kind, unsafe.Pointer(unsafe.SliceData(text)), int32(len(text)), unsafe.Pointer(&p)) < 0 {
		return [32]byte{}, ErrDenied
	}
	return p, nil
}

// BlobID identifies a blob of the user whose state is being processed.
type BlobID [32]byte

// String returns the id in the form that ckptd blob accepts.
func (id BlobID) String() string {
	const digits = "0123456789abcdef" // encoding/hex would pull in fmt
	s := make([]byte, 0, 2*len(id))
	for _, c := range id {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}

// PutBlob stores data as a blob of the user and returns its id. The blob is stored together with
// the item: if the operation fails, neither is stored. It needs the capability blob_put.
func PutBlob(data []byte) (id BlobID, err error) {
	if hostBlobPut(unsafe.Pointer(unsafe.SliceData(data)), int32(len(data)), unsafe.Pointer(&id)) < 0 {
		return BlobID{}, ErrDenied
	}
	return id, nil
}

// read returns the contents of a slot, or nil if it is empty.
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
