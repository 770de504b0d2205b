package spans

import "bytes"

// Blank reports whether JSON may have c between its tokens.
func Blank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// JSON returns the end of the value that begins at data[at], with at most most arrays and objects
// nested within each other.
func JSON(data []byte, at, most int) (end int, err error) {
	for depth := 0; at < len(data); {
		switch b := data[at]; {
		case b == '"':
			if at, _ = StringEnd(data, at+1); at < 0 {
				return 0, ErrNone
			}
		case b == '{' || b == '[':
			if depth++; depth > most {
				return 0, ErrDeep
			}
		case depth == 0:
			if end = LiteralEnd(data, at); end == at {
				return 0, ErrNone
			}
			return end, nil
		case b == '}' || b == ']':
			depth--
		}
		if at++; depth == 0 {
			return at, nil
		}
	}
	return 0, ErrNone
}

// StringEnd returns the place of the quote that ends the string whose text begins at data[at], and
// whether the text has escapes; -1 if nothing ends it.
func StringEnd(data []byte, at int) (quote int, escaped bool) {
	for at < len(data) {
		if at += plain(data[at:]); at >= len(data) {
			break
		}
		if data[at] == '"' {
			return at, escaped
		}
		escaped = true
		at += 2
	}
	return -1, false
}

// plain returns how many bytes come before the first quote or backslash. The first ones, which are
// all there are in most strings, are looked at one by one. The rest is looked at in windows:
// looking for a quote to the end of the string at each escape would take the square of its length.
func plain(data []byte) int {
	const near, window = 24, 512
	for i, b := range data[:min(len(data), near)] {
		if b == '"' || b == '\\' {
			return i
		}
	}
	for at := near; at < len(data); at += window {
		text := data[at:min(len(data), at+window)]
		quote := bytes.IndexByte(text, '"')
		if quote >= 0 {
			text = text[:quote]
		}
		if escape := bytes.IndexByte(text, '\\'); escape >= 0 {
			return at + escape
		}
		if quote >= 0 {
			return at + quote
		}
	}
	return len(data)
}

// LiteralEnd returns where the number or word ends that begins at data[at], which is at if there is
// none.
func LiteralEnd(data []byte, at int) int {
	for at < len(data) && literal(data[at]) {
		at++
	}
	return at
}

func literal(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '+' || b == '.' || b == '_'
}
