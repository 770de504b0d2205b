package redact

import "bytes"

// Terminal colors: ESC [ parameters letter, with the escape itself or written out. They are not
// part of the words on either side.

const maxColour = 24 // bytes of parameters

// colourEnds reports whether such a sequence ends, with a letter, before text[i].
func colourEnds(text []byte, i int) bool {
	if i < 3 || !isLetter(text[i-1]) {
		return false
	}
	at := i - 2
	for n := 0; at > 0 && n < maxColour && isParameter(text[at]); n++ {
		at--
	}
	return text[at] == '[' && escapeBefore(text, at)
}

// pastColours returns the position after any sequences that begin at text[at].
func pastColours(text []byte, at int) int {
	for range 4 {
		end := at
		if end < len(text) && text[end] == 0x1b {
			end++
		} else if end < len(text) && text[end] == '\\' {
			for n := 0; n < 6 && end < len(text) && text[end] != '['; n++ {
				end++
			}
		}
		if end >= len(text) || text[end] != '[' || !escapeBefore(text[at:], end-at) {
			return at
		}
		if end = colourEnd(text, end); end == 0 {
			return at
		}
		at = end
	}
	return at
}

// colourEnd returns the end of the sequence whose bracket is text[at], or 0 if it isn't one.
func colourEnd(text []byte, at int) int {
	end := at + 1
	for end < len(text) && end-at <= maxColour && isParameter(text[end]) {
		end++
	}
	if end < len(text) && isLetter(text[end]) && escapeBefore(text, at) {
		return end + 1
	}
	return 0
}

// afterColour returns the end of the sequence whose parameters are at text[at], or at if there is
// none.
func afterColour(text []byte, at int) int {
	open := at - 1
	for open > 0 && at-open < maxColour && isParameter(text[open]) {
		open--
	}
	if open <= 0 || text[open] != '[' {
		return at
	}
	return max(at, colourEnd(text, open))
}

func isParameter(b byte) bool { return isDigit(b) || b == ';' || b == ':' || b == '?' }

// escapeBefore reports whether the character ESC precedes text[at], itself or written out in one of
// the ways that programs use.
func escapeBefore(text []byte, at int) bool {
	if at == 0 {
		return false
	}
	switch text[at-1] {
	case 0x1b:
		return true
	case '3':
		return bytes.HasSuffix(text[:at], []byte(`\033`))
	case 'e':
		return bytes.HasSuffix(text[:at], []byte(`\e`))
	case 'b', 'B':
		for _, form := range []string{`\x1b`, `\u001b`, `%1b`} {
			if n := at - len(form); n >= 0 && bytes.EqualFold(text[n:at], []byte(form)) {
				return true
			}
		}
	}
	return false
}
