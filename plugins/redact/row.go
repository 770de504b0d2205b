package redact

import "bytes"

// Rows of numbers: tables and dumps, in which what looks like some number is none.

const (
	maxRow  = 7  // groups in a row, more of which are a table
	markRow = 4  // groups that a mask in a row stands for: as many as any number has that goes by its form alone
	maxGap  = 16 // bytes between the columns of a table
	lookRow = 64 // groups at most that are looked at before a number: no line of a dump has many more
	maxMark = 82 // bytes of a mask
)

// row is what a number stands in.
type row uint8

const (
	unknownRow row = iota
	shortRow
	tableRow // of more groups than a telephone number and what is beside it have
	dumpRow  // such a one of hexadecimal digits
)

// row tells in what a number stands.
func (s *scan) row(text []byte, n *number) row {
	if n.stands == unknownRow {
		from, to := n.findRow(text)
		s.pass(to - from)
	}
	return n.stands
}

// findRow finds out in what a number stands, and returns which part of the text it looked at.
func (n *number) findRow(text []byte) (from, to int) {
	count, hex := n.n, false
	note := func(start, end int) {
		if text[start] == '[' {
			count += markRow
			return
		}
		if count++; bytes.ContainsFunc(text[start:end], func(r rune) bool { return !isDigit(byte(r)) }) {
			count++
			hex = true
		}
	}
	for to = n.groups[n.n-1].end; count <= maxRow; {
		start, end := rowAfter(text, to)
		if end < 0 {
			break
		}
		note(start, end)
		to = end
	}
	at := n.groups[0].start
	for looked := 0; looked < lookRow && (count <= maxRow || !hex); looked++ {
		start, end := rowBefore(text, at)
		if start < 0 {
			break
		}
		note(start, end)
		at = start
	}
	switch {
	case count <= maxRow:
		n.stands = shortRow
	case hex || bytes.HasSuffix(text[:at], []byte(": ")) && at > 2 && isHex(text[at-3]): // 00000010: 3132 3334
		n.stands = dumpRow
	default:
		n.stands = tableRow
	}
	return at, to
}

// rowAfter returns where the next of a row is behind text[:at], hexadecimal digits or a mask: an end of -1 if there is
// none.
func rowAfter(text []byte, at int) (start, end int) {
	start = at
	for start < len(text) && start-at < maxGap && isGap(text[start]) {
		start++
	}
	if start == at || start == len(text) {
		return 0, -1
	}
	if end = start; text[start] == '[' {
		end = markAt(text, start)
	}
	for end < len(text) && end-start <= maxWord && isHex(text[end]) {
		end++
	}
	if end <= start || end < len(text) && isWord(text[end]) {
		return 0, -1
	}
	return start, end
}

// rowBefore is rowAfter in the other direction: a start of -1 if there is none.
func rowBefore(text []byte, at int) (start, end int) {
	end = at
	if at > 2 && text[at-1] == '|' && text[at-2] == ' ' && text[at-3] == ' ' { // the characters of a dump
		end--
	}
	for end > 0 && at-end < maxGap && isGap(text[end-1]) {
		end--
	}
	if end == at || end == 0 {
		return -1, 0
	}
	if text[end-1] == ']' {
		from := max(0, end-maxMark)
		start = bytes.LastIndexByte(text[from:end], '[')
		if start < 0 || markAt(text, from+start) != end {
			return -1, 0
		}
		return from + start, end
	}
	for start = end; start > 0 && end-start <= maxWord && isHex(text[start-1]); {
		start--
	}
	if end == start || start > 0 && isWord(text[start-1]) {
		return -1, 0
	}
	return start, end
}

func isGap(b byte) bool { return b == ' ' || b == '\t' || b == '-' || b == '.' || b == '/' }
