package redact

import "bytes"

// Rows of numbers: tables and dumps, in which number-like text is not what it seems.

const (
	maxRow  = 7  // groups per row; a row with more is a table
	markRow = 4  // groups that a mark in a row counts as: the maximum of any number that is recognized by its form alone
	maxGap  = 16 // bytes between the columns of a table
	lookRow = 64 // maximum number of groups to examine before a number: no line of a dump has many more
	maxMark = 82 // bytes of a mark
)

// row is the kind of row that contains a number.
type row uint8

const (
	unknownRow row = iota
	shortRow
	tableRow // more groups than a telephone number and its neighbors have
	dumpRow  // such a row of hexadecimal digits
)

// row returns the kind of row that contains a number.
func (s *scan) row(text []byte, n *number) row {
	if n.stands == unknownRow {
		from, to := n.findRow(text)
		s.pass(to - from)
	}
	return n.stands
}

// findRow determines the row around a number and returns the part of the text that it examined.
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

// rowAfter returns the next item of a row after text[:at], hexadecimal digits or a mark. If there
// is none, end is -1.
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

// rowBefore is rowAfter in the other direction: if there is none, start is -1.
func rowBefore(text []byte, at int) (start, end int) {
	end = at
	if at > 2 && text[at-1] == '|' && text[at-2] == ' ' && text[at-3] == ' ' { // the text column of a dump
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
