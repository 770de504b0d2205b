package redact

import (
	"bytes"
	"encoding/base64"
	"unicode"
	"unicode/utf8"
)

const leastEncoded = 16 // characters of base64: twelve bytes

// encoded finds base64 text and redacts its contents.
func (s *scan) encoded(text []byte) {
	for i := 0; i+leastEncoded <= len(text); {
		k := i + leastEncoded - 1
		for k >= i && isBase64(text[k]) {
			k--
		}
		if k >= i {
			i = k + 1
			continue
		}
		end := i + leastEncoded
		for end < len(text) && isBase64(text[end]) {
			end++
		}
		full := end
		for full < len(text) && text[full] == '=' && full-end < 2 {
			full++
		}
		s.decoded(text, i, end, full)
		i = full
	}
}

func isBase64(b byte) bool { return isToken(b) || b == '+' || b == '/' }

// decoded redacts text[start:end], which is followed by padding up to full, if it is base64 of
// text.
func (s *scan) decoded(text []byte, start, end, full int) {
	encoded := text[start:end]
	if len(encoded)%4 == 1 {
		return
	}
	enc := base64.RawStdEncoding
	if bytes.ContainsAny(encoded, "-_") {
		enc = base64.RawURLEncoding
	}
	var head [leastEncoded / 4 * 3]byte
	if _, err := enc.Decode(head[:], encoded[:leastEncoded]); err != nil || !textual(head[:], false) {
		return
	}
	value := make([]byte, enc.DecodedLen(len(encoded)))
	n, err := enc.Decode(value, encoded)
	if err != nil || !textual(value[:n], true) {
		return
	}
	value = value[:n]
	found := s.found
	s.found = nil
	key, until := s.key, s.until
	s.layers++
	edits, drop, err := s.inner(value, key)
	s.layers--
	s.found, s.key, s.until = found, key, until
	if err != nil || len(edits) == 0 {
		return
	}
	if full > end {
		enc = enc.WithPadding(base64.StdPadding)
	}
	_ = drop // the surrounding text stays, so only the match is removed
	redacted := apply(value, edits)
	out := make([]byte, enc.EncodedLen(len(redacted)))
	enc.Encode(out, redacted)
	s.found = append(s.found, match{start, full, nil, out})
}

// textual reports whether decoded bytes are text. If they are only the start of a text, they may
// end in the middle of a character.
func textual(v []byte, whole bool) bool {
	for i := 0; i < len(v); {
		if v[i] < utf8.RuneSelf {
			if v[i] < ' ' && !isSpace(v[i]) || v[i] == 0x7f {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(v[i:])
		if r == utf8.RuneError && size == 1 {
			return !whole && !utf8.FullRune(v[i:])
		}
		if !unicode.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
}
