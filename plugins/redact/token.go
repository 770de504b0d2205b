package redact

import (
	"bytes"
	"errors"
)

// Where the tokens of JSON end.

var errDeep = errors.New("nested too deep")

// valueEnd returns the end of the value at data[pos], which is depth deep, and -1 if it has none. Within arrays and
// objects it looks for brackets and strings only.
func valueEnd(data []byte, pos, depth int) (end int, err error) {
	depth, open := 0, depth
	for pos < len(data) {
		switch b := data[pos]; {
		case b == '"':
			end, _ := stringEnd(data, pos+1)
			if end < 0 {
				return -1, nil
			}
			pos = end
		case b == '{' || b == '[':
			if depth++; depth+open > maxDepth {
				return -1, errDeep
			}
		case b == '}' || b == ']':
			depth--
		case depth == 0:
			if end = literalEnd(data, pos); end == pos {
				return -1, nil
			}
			return end, nil
		}
		pos++
		if depth == 0 {
			return pos, nil
		}
	}
	return -1, nil
}

// stringEnd returns where the string ends whose first byte is data[pos], at its quote, and whether it has escapes.
func stringEnd(data []byte, pos int) (end int, escaped bool) {
	for i := pos; ; {
		if i += plainBytes(data[i:]); i >= len(data) {
			return -1, false
		}
		if data[i] == '"' {
			return i, escaped
		}
		escaped = true
		if i += 2; i > len(data) {
			return -1, false
		}
	}
}

// plainBytes returns how many bytes come before the first quote or backslash. The first ones, which are all there are
// in most strings, are looked at one by one.
func plainBytes(data []byte) int {
	near := min(len(data), 24)
	for i, b := range data[:near] {
		if b == '"' || b == '\\' {
			return i
		}
	}
	rest := data[near:]
	n := bytes.IndexByte(rest, '"')
	if n < 0 {
		n = len(rest)
	}
	if k := bytes.IndexByte(rest[:n], '\\'); k >= 0 {
		n = k
	}
	return near + n
}

// literalEnd returns where a number or a word such as true ends.
func literalEnd(data []byte, pos int) int {
	for pos < len(data) && (isToken(data[pos]) || data[pos] == '.' || data[pos] == '+') {
		pos++
	}
	return pos
}
