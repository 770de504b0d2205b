package engine

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/wI2L/jsondiff"

	"github.com/ckptd/ckptd/internal/weight"
)

const (
	// maxPatchDepth bounds the nesting of values for a patch: finding one compares the bytes below
	// each level again.
	maxPatchDepth = 100
	// maxPatchCells bounds the work of matching the elements of arrays, the product of their
	// lengths. Beyond it they are compared index by index, which finds no insertions.
	maxPatchCells = 1 << 22
	// maxPatchValues bounds the number of values on both sides: each takes some hundred bytes of
	// memory, and may become an operation.
	maxPatchValues = 1 << 18
	// bytesPerValue and bytesPerCell are the memory that finding a patch takes.
	bytesPerValue, bytesPerCell = 256, 8
)

// jsonPatch makes an RFC 6902 patch from one JSON value to another. Without a patch it returns the
// reason.
func jsonPatch(ctx context.Context, old, now []byte) (patch []byte, why string, err error) {
	if len(old) > MaxPatchInput || len(now) > MaxPatchInput {
		return nil, fmt.Sprintf("larger than %d MiB", MaxPatchInput>>20), nil
	}
	before, _ := weight.JSON(old)
	after, _ := weight.JSON(now)
	if before+after > maxPatchValues {
		return nil, fmt.Sprintf("more than %d values", maxPatchValues), nil
	}
	var work reservation
	defer work.release()
	if err := work.reserve(ctx, int64(len(old)+len(now)+bytesPerValue*(before+after))); err != nil {
		return nil, "", err
	}
	from, a, why := parseJSON("the old value", old)
	if why != "" {
		return nil, why, nil
	}
	to, b, why := parseJSON("the new value", now)
	if why != "" {
		return nil, why, nil
	}
	var opts []jsondiff.Option
	if cells := max(a.longest, b.longest) * (a.elements + b.elements); cells <= maxPatchCells {
		if err := work.reserve(ctx, int64(bytesPerCell*cells)); err != nil {
			return nil, "", err
		}
		opts = append(opts, jsondiff.LCS())
	}
	patch, why = comparison(from, to, opts)
	return patch, why, nil
}

func comparison(from, to any, opts []jsondiff.Option) (patch []byte, why string) {
	ops, err := jsondiff.CompareWithoutMarshal(from, to, opts...)
	if err == nil && len(ops) == 0 {
		return []byte("[]"), ""
	}
	if err == nil {
		patch, err = json.Marshal(ops)
	}
	if err != nil {
		return nil, fmt.Sprintf("cannot make a patch: %v", err)
	}
	return patch, ""
}

// parseJSON decodes a value, keeping the spelling of its numbers. For a value that would not
// survive decoding and encoding, it returns the reason why it cannot be patched.
func parseJSON(what string, b []byte) (v any, s shape, why string) {
	if !json.Valid(b) {
		return nil, s, what + " is not JSON"
	}
	if !utf8.Valid(b) || loneSurrogate(b) {
		return nil, s, what + " has strings that are not Unicode"
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, s, what + " is not JSON"
	}
	if s.measure(v, 1); s.depth > maxPatchDepth {
		return nil, s, fmt.Sprintf("%s is nested deeper than %d levels", what, maxPatchDepth)
	}
	return v, s, ""
}

// shape is the size of the arrays in a value.
type shape struct{ depth, longest, elements int }

func (s *shape) measure(v any, depth int) {
	s.depth = max(s.depth, depth)
	switch v := v.(type) {
	case []any:
		s.longest, s.elements = max(s.longest, len(v)), s.elements+len(v)
		for _, e := range v {
			s.measure(e, depth+1)
		}
	case map[string]any:
		for _, e := range v {
			s.measure(e, depth+1)
		}
	}
}

// loneSurrogate reports whether valid JSON has an escaped half of a surrogate pair, which a Go
// string cannot hold.
func loneSurrogate(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return false
		}
		b = b[i+1:]
		if b[0] != 'u' {
			b = b[1:] // it may escape a backslash
			continue
		}
		first := codeUnit(b[1:])
		b = b[5:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' || utf16.DecodeRune(first, codeUnit(b[2:])) == utf8.RuneError {
			return true
		}
		b = b[6:]
	}
}

// codeUnit reads four hexadecimal digits.
func codeUnit(b []byte) rune {
	var u [2]byte
	hex.Decode(u[:], b[:4])
	return rune(u[0])<<8 | rune(u[1])
}
