package redact

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// UTF-16 text, as written by some Windows programs, is decoded before it is examined. Everything
// that isn't replaced stays unchanged, including unpaired surrogates.

// utf16Order returns the byte order of UTF-16 text, or nil if data isn't UTF-16, and the length of
// the byte order mark. Data without that mark counts as UTF-16 if isText is set, which means that
// it is known to be text, and half of the bytes at even positions, or at odd ones, are NUL while
// few others are.
func utf16Order(data []byte, isText bool) (order binary.ByteOrder, bom int) {
	switch {
	case len(data) < 4 || len(data)%2 != 0:
		return nil, 0
	case data[0] == 0xff && data[1] == 0xfe && (data[2] != 0 || data[3] != 0):
		return binary.LittleEndian, 2
	case data[0] == 0xfe && data[1] == 0xff:
		return binary.BigEndian, 2
	case !isText || bytes.IndexByte(data, 0) < 0:
		return nil, 0
	}
	var zeros [2]int
	for i, b := range data {
		if b == 0 {
			zeros[i%2]++
		}
	}
	switch {
	case zeros[1]*4 >= len(data) && zeros[0]*4 < zeros[1]:
		return binary.LittleEndian, 0
	case zeros[0]*4 >= len(data) && zeros[1]*4 < zeros[0]:
		return binary.BigEndian, 0
	}
	return nil, 0
}

// utf16Unit decodes the character at data[i:]. An unpaired surrogate decodes to U+FFFD.
func utf16Unit(data []byte, i int, order binary.ByteOrder) (r rune, size int) {
	r = rune(order.Uint16(data[i:]))
	if !utf16.IsSurrogate(r) {
		return r, 2
	}
	if i+4 <= len(data) {
		if r = utf16.DecodeRune(r, rune(order.Uint16(data[i+2:]))); r != utf8.RuneError {
			return r, 4
		}
	}
	return utf8.RuneError, 2
}

// fromUTF16 decodes data.
func fromUTF16(data []byte, order binary.ByteOrder) []byte {
	text := make([]byte, 0, len(data)/2)
	for i := 0; i < len(data); {
		r, size := utf16Unit(data, i, order)
		text = utf8.AppendRune(text, r)
		i += size
	}
	return text
}

// utf16Edits translates edits of the decoded text into edits of data.
func utf16Edits(data []byte, order binary.ByteOrder, edits []edit) []edit {
	out := make([]edit, 0, len(edits))
	at, i := 0, 0 // positions in the text and in data
	to := func(end int) int {
		for i < len(data) && at < end {
			r, size := utf16Unit(data, i, order)
			at, i = at+utf8.RuneLen(r), i+size
		}
		return i
	}
	for _, e := range edits {
		made := edit{start: to(e.start), end: to(e.end)}
		for _, r := range utf16.Encode([]rune(string(e.text))) {
			var unit [2]byte
			order.PutUint16(unit[:], r)
			made.text = append(made.text, unit[:]...)
		}
		out = append(out, made)
	}
	return out
}
