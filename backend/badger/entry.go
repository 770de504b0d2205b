package badger

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/ckptd/ckptd/backend"
)

// The keys of the backend are stored behind one byte. It keeps them clear of the prefix that Badger
// has for itself, leaves room for the driver's own (position.go), and is free in tables, where
// neighbours share their prefix.
const dataSpace = 0x01

func appendName(to, key []byte) []byte {
	to = append(to, dataSpace)
	return append(to, key...)
}

// fillName writes the name of a key into where it is kept.
func fillName(name, key []byte) {
	name[0] = dataSpace
	copy(name[1:], key)
}

// split takes a stored value apart: the version comes first, and its length is the entry's user
// byte. Both results share memory with stored.
func split(versionLen byte, stored []byte) (version, value []byte, err error) {
	n := int(versionLen)
	if n == 0 || n > backend.MaxVersion || n > len(stored) {
		return nil, nil, fmt.Errorf("%w: an entry of %d bytes with a version of %d", backend.ErrCorrupt, len(stored), n)
	}
	return stored[:n], stored[n:], nil
}

// guard turns a panic of Badger, which is how it reports much of the damage that it finds, into
// ErrCorrupt; and so it does with a fault in reading a mapped file that is shorter than it was or
// that the device cannot read. Use it as defer guard(…)().
func guard(doing string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = fmt.Errorf("%w: %s: %s", backend.ErrCorrupt, doing, firstLine(fmt.Sprint(p)))
		}
	}
}

// Badger wraps errors by formatting them, so that the text is all there is to go by.
var (
	openCauses = []struct {
		text string
		is   error
	}{
		{"Cannot acquire directory lock", backend.ErrLocked},
		{"external magic number", backend.ErrForeign},
		{"unsupported version", backend.ErrNewerFormat},
	}
	systemCauses = []struct {
		text string
		is   error
	}{
		{"no space left on device", backend.ErrNoSpace},
		{"disk quota exceeded", backend.ErrNoSpace},
		{"read-only file system", backend.ErrReadOnly},
		{"permission denied", backend.ErrReadOnly},
		{"operation not permitted", backend.ErrReadOnly},
		{"too many open files", backend.ErrUnavailable},
		{"cannot allocate memory", backend.ErrUnavailable},
		{"input/output error", backend.ErrUnavailable},
	}
)

func openError(err error) error {
	msg := err.Error()
	for _, c := range append(openCauses[:len(openCauses):len(openCauses)], systemCauses...) {
		if strings.Contains(msg, c.text) {
			return fmt.Errorf("%w: %s", c.is, text(err))
		}
	}
	return fmt.Errorf("%w: %s", backend.ErrCorrupt, text(err))
}

func readError(err error) error {
	for _, c := range systemCauses {
		if c.is == backend.ErrUnavailable && strings.Contains(err.Error(), c.text) {
			return fmt.Errorf("%w: reading: %s", c.is, text(err))
		}
	}
	return fmt.Errorf("%w: reading: %s", backend.ErrCorrupt, text(err))
}

// text is the first line of an error without its type.
func text(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "a file ends early"
	}
	return firstLine(err.Error())
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}
