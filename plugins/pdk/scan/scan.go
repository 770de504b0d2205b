// Package scan finds the parts of JSON text without decoding it, so that a plugin can change one
// part and leave every other byte unchanged. It copies nothing: the functions return slices of
// their argument. On invalid JSON they find less but never panic.
package scan

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// Value returns the first value in b, without surrounding white space, and the rest of b after it.
// Value is nil if b has none.
func Value(b []byte) (value, rest []byte) {
	b = space(b)
	if len(b) == 0 {
		return nil, nil
	}
	n := 0
	switch b[0] {
	case '"':
		n = text(b)
	case '{', '[':
		n = nested(b)
	default:
		for n < len(b) && !isEnd(b[n]) {
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return b[:n], b[n:]
}

// Members yields the members of an object: the key, quoted as in the text, and the value.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		b, ok := after(object, '{')
		for ok {
			var key, value []byte
			if key, b = Value(b); key == nil || key[0] != '"' {
				return
			}
			if b, ok = after(b, ':'); !ok {
				return
			}
			if value, b = Value(b); value == nil || !yield(key, value) {
				return
			}
			b, ok = after(b, ',')
		}
	}
}

// Elements yields the elements of an array.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		b, ok := after(array, '[')
		for ok {
			var value []byte
			if value, b = Value(b); value == nil || !yield(value) {
				return
			}
			b, ok = after(b, ',')
		}
	}
}

// Member returns the value of the first member with the key, or nil if there is none.
func Member(object []byte, key string) []byte {
	for k, v := range Members(object) {
		if s, ok := Unquote(k); ok && string(s) == key {
			return v
		}
	}
	return nil
}

// Offset returns the offset of part in whole. Part must be a slice of whole.
func Offset(whole, part []byte) int { return cap(whole) - cap(part) }

// Unquote returns the text of a quoted string. It copies only strings that contain escapes.
func Unquote(quoted []byte) ([]byte, bool) {
	n := len(quoted)
	if n < 2 || quoted[0] != '"' || quoted[n-1] != '"' {
		return nil, false
	}
	s := quoted[1 : n-1]
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s, true
	}
	out := append(make([]byte, 0, len(s)), s[:i]...)
	for i < len(s) {
		if s[i] != '\\' {
			out = append(out, s[i])
			i++
			continue
		}
		r, size := escape(s[i:])
		if size == 0 {
			return nil, false
		}
		out = utf8.AppendRune(out, r)
		i += size
	}
	return out, true
}

// escape decodes the escape sequence at the start of b. It returns a rune and the length of the
// sequence, or length 0 if there is none.
func escape(b []byte) (rune, int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return 0, 0
	}
	r := hex4(b)
	if r < 0 {
		return 0, 0
	}
	if r >= 0xd800 && r < 0xdc00 && len(b) > 6 { // the first half of a surrogate pair
		if low := hex4(b[6:]); low >= 0xdc00 && low < 0xe000 {
			return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12
		}
	}
	return r, 6 // utf8.AppendRune replaces an unpaired half
}

// hex4 decodes \uXXXX. It returns -1 if b does not begin with one.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// AppendQuote appends text as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendQuote(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(text) > 0 {
		c := text[0]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text)
			dst = utf8.AppendRune(dst, r)
			text = text[size:]
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
		text = text[1:]
	}
	return append(dst, '"')
}

// text returns the length of the string at the start of b, or 0 if it is unterminated.
func text(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// nested returns the length of the object or array at the start of b, or 0 if it is unterminated.
// It does not recurse, so deep nesting costs nothing extra.
func nested(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := text(b[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// after returns the part of b after c, which must be the first byte that isn't white space.
func after(b []byte, c byte) ([]byte, bool) {
	b = space(b)
	if len(b) == 0 || b[0] != c {
		return nil, false
	}
	return b[1:], true
}

func space(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func isEnd(c byte) bool {
	return isSpace(c) || c == ',' || c == ':' || c == '}' || c == ']' || c == '{' || c == '[' || c == '"'
}
