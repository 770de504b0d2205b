// Command email is a plugin that keeps email addresses out of stored data: bob@example.com becomes
// [EMAIL]. It scans the bytes of JSON or text once and needs no parser: the rest of the payload
// stays byte for byte the same.
package main

import (
	"bytes"

	"github.com/ckptd/ckptd/plugins/pdk"
)

const mask = "[EMAIL]"

//go:wasmexport on_pre_save
func onPreSave() int32 { return pdk.Run(redact) }

func main() {}

func redact(in *pdk.Input) ([]byte, error) {
	b := in.Payload
	signs := signs{text: b, plain: -1}
	var out []byte
	copied, found := 0, 0
	for i := 0; ; {
		at, end := signs.next(i)
		if at == len(b) {
			break
		}
		i = end
		start, stop := begin(b, copied, at), domain(b, end)
		if start == at || stop == 0 {
			continue
		}
		if out == nil {
			out = make([]byte, 0, len(b)+len(mask))
		}
		out = append(append(out, b[copied:start]...), mask...)
		copied, i = stop, stop
		found++
	}
	if found == 0 {
		return nil, nil
	}
	pdk.Finding("email", "", found)
	return append(out, b[copied:]...), nil
}

// signs finds every @ in a text. Most text has none, and IndexByte is much faster than a loop.
type signs struct {
	text  []byte
	plain int // the next @ that isn't escaped
}

// next returns the bounds of the first @ at or after i. Both are the length of the text if there is
// none.
func (s *signs) next(i int) (at, end int) {
	if s.plain < i {
		s.plain = len(s.text)
		if n := bytes.IndexByte(s.text[i:], '@'); n >= 0 {
			s.plain = i + n
		}
	}
	for i < s.plain {
		n := bytes.IndexByte(s.text[i:s.plain], '\\')
		if n < 0 {
			break
		}
		c, end := next(s.text, i+n)
		if c == '@' {
			return i + n, end
		}
		i = end
	}
	return s.plain, s.plain + 1
}

// begin returns the start of the local part that ends at i, not before low.
func begin(b []byte, low, i int) int {
	for {
		for i > low && local[b[i-1]] {
			i--
		}
		if i == low || b[i-1] != '\\' {
			return i
		}
		for i > low && b[i-1] == '\\' { // the run begins inside an escape sequence
			i--
		}
		if c, end := next(b, i); !local[c] {
			return end
		}
	}
}

// local is the set of characters allowed in a local part.
var local = func() (t [256]bool) {
	for c := range t {
		t[c] = isLetter(byte(c)) || isDigit(byte(c))
	}
	for _, c := range "._%+-" {
		t[c] = true
	}
	return t
}()

// domain returns the end of the domain name that begins at i, or 0 if there is none: labels
// separated by dots, the last of which has two letters or more.
func domain(b []byte, i int) int {
	end := 0
	for labels := 0; ; labels++ {
		size, letters := 0, true
		c, after := next(b, i)
		for ; isLetter(c) || isDigit(c) || c == '-'; c, after = next(b, i) {
			size, letters, i = size+1, letters && isLetter(c), after
		}
		if labels > 0 && size >= 2 && letters {
			end = i
		}
		if size == 0 || c != '.' {
			return end
		}
		i = after
	}
}

// next returns the character at i, or 0 for one that cannot be in an address, and the index of the
// next character. \u0040 is an @. Any number of backslashes counts as one escape, because JSON may
// be nested in a string of JSON.
func next(b []byte, i int) (c byte, end int) {
	if i >= len(b) {
		return 0, i
	}
	if b[i] != '\\' {
		return b[i], i + 1
	}
	for i < len(b) && b[i] == '\\' {
		i++
	}
	if i >= len(b) {
		return 0, i
	}
	switch b[i] {
	case '"', '/', 'b', 'f', 'n', 'r', 't':
		return 0, i + 1
	case 'u':
		if i+5 <= len(b) && isHex(b[i+1]) && isHex(b[i+2]) && isHex(b[i+3]) && isHex(b[i+4]) {
			if b[i+1] == '0' && b[i+2] == '0' && b[i+3] < '8' {
				c = hex(b[i+3])<<4 | hex(b[i+4])
			}
			return c, i + 5
		}
	}
	return 0, i
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isHex(c byte) bool    { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func hex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
