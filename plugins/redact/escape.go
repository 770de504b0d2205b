package redact

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unit decodes the character or escape at raw[i:] of a JSON string: the next size bytes encode r.
// Each byte of invalid UTF-8 counts as a character.
func unit(raw []byte, i int) (r rune, size int, ok bool) {
	if raw[i] != '\\' {
		if raw[i] < utf8.RuneSelf {
			return rune(raw[i]), 1, true
		}
		r, size = utf8.DecodeRune(raw[i:])
		return r, size, true
	}
	if i+1 >= len(raw) {
		return 0, 0, false
	}
	switch b := raw[i+1]; b {
	case '"', '\\', '/':
		return rune(b), 2, true
	case 'b', 'f', 'n', 'r', 't':
		return rune("\b\f\n\r\t"[strings.IndexByte("bfnrt", b)]), 2, true
	case 'u':
		first, ok := hex4(raw, i+2)
		if !ok {
			return 0, 0, false
		}
		if utf16.IsSurrogate(first) {
			if i+7 < len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u' {
				if second, ok := hex4(raw, i+8); ok {
					if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
						return r, 12, true
					}
				}
			}
			return utf8.RuneError, 6, true
		}
		return first, 6, true
	}
	return 0, 0, false
}

func hex4(raw []byte, i int) (rune, bool) {
	if i+4 > len(raw) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(raw[i:i+4]), 16, 16)
	return rune(v), err == nil
}

// unescape appends the decoded form of a JSON string to buf. It is not ok if the string has an
// invalid escape.
func unescape(buf, raw []byte) (text []byte, ok bool) {
	for i := 0; i < len(raw); {
		from := i
		for near := min(len(raw), i+24); i < near && raw[i] != '\\'; {
			i++
		}
		if i == from+24 {
			if n := bytes.IndexByte(raw[i:], '\\'); n >= 0 {
				i += n
			} else {
				i = len(raw)
			}
		}
		buf = append(buf, raw[from:i]...)
		if i == len(raw) {
			break
		}
		r, size, ok := unit(raw, i)
		if !ok {
			return nil, false
		}
		buf = utf8.AppendRune(buf, r)
		i += size
	}
	return buf, true
}

// escapedEdits translates edits of a decoded string into edits of the encoded one. Characters
// outside the edits keep their encoding.
func escapedEdits(raw []byte, edits []edit) []edit {
	out := make([]edit, 0, len(edits))
	at, i := 0, 0 // positions in the decoded text and in raw
	step := func() {
		r, size, _ := unit(raw, i)
		if raw[i] != '\\' {
			at += size
		} else {
			at += utf8.RuneLen(r)
		}
		i += size
	}
	for _, e := range edits {
		for i < len(raw) && at < e.start {
			step()
		}
		start := i
		for i < len(raw) && at < e.end {
			step()
		}
		out = append(out, edit{start, i, appendEscaped(nil, e.text)})
	}
	return out
}

// appendEscaped appends text in the encoding of a JSON string.
func appendEscaped(buf, text []byte) []byte {
	const hex = "0123456789abcdef"
	for _, b := range text {
		switch {
		case b == '"' || b == '\\':
			buf = append(buf, '\\', b)
		case b == '\n':
			buf = append(buf, '\\', 'n')
		case b == '\r':
			buf = append(buf, '\\', 'r')
		case b == '\t':
			buf = append(buf, '\\', 't')
		case b < ' ':
			buf = append(buf, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			buf = append(buf, b)
		}
	}
	return buf
}

// numbered makes a mark distinct from others: [REDACTED:email] becomes [REDACTED:email#2].
func numbered(mark string, n int) string {
	if body, ok := strings.CutSuffix(mark, "]"); ok && strings.HasPrefix(mark, "[REDACTED:") && !strings.Contains(body, "#") {
		return body + "#" + strconv.Itoa(n) + "]"
	}
	return mark + "#" + strconv.Itoa(n)
}
