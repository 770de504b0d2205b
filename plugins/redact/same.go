package redact

import "bytes"

// side is where a string is: in what is the same at the beginning of the data and of what they were, in what changed,
// or in what is the same at the end.
type side uint8

const (
	changedSide side = iota
	prefixSide
	suffixSide
)

// region is what of some JSON is known from an earlier version of it, which was redacted. Names, arrays and objects
// around a string or number in it are the same ones, so that it means the same; but for the numbers of elements.
type region struct {
	prev   []byte
	prefix int // data[:prefix] is the same
	suffix int // data[suffix:] is the same, once it is known
	known  bool
}

// regionOf compares data with an earlier version, nil if there is none.
func regionOf(data, prev []byte, r *Redactor) region {
	if prev == nil {
		return region{suffix: len(data) + 1, known: true}
	}
	return region{prev: prev, prefix: commonPrefix(data, prev), suffix: len(data) + 1,
		known: r.allowPaths.indexed() || r.blockPaths.indexed()}
}

// sideOf tells the side of the token data[start:end], its quotes included. Tokens must be asked for in order.
func (g *region) sideOf(data []byte, start, end int) side {
	if end < g.prefix {
		return prefixSide
	}
	if !g.known {
		g.known = true
		g.suffix = suffixOf(data, g.prev, start, g.prefix)
	}
	if start >= g.suffix {
		return suffixSide
	}
	return changedSide
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	const block = 4096
	at := 0
	for at+block <= n && bytes.Equal(a[at:at+block], b[at:at+block]) {
		at += block
	}
	for at < n && a[at] == b[at] {
		at++
	}
	return at
}

func commonSuffix(a, b []byte) int {
	n := min(len(a), len(b))
	const block = 4096
	at := 0
	for at+block <= n && bytes.Equal(a[len(a)-at-block:len(a)-at], b[len(b)-at-block:len(b)-at]) {
		at += block
	}
	for at < n && a[len(a)-1-at] == b[len(b)-1-at] {
		at++
	}
	return at
}

// suffixOf returns from where on data is what prev is at its end, in the same arrays and objects: those that were open
// at from, where both are at the beginning of a token, and still are. prefix bytes are the same in both.
func suffixOf(data, prev []byte, from, prefix int) int {
	none := len(data) + 1
	most := min(len(data), len(prev)) - prefix
	n := min(commonSuffix(data, prev), most)
	end, old := len(data)-n, len(prev)-n
	if end < from || old < from {
		return none
	}
	var a, b lexer
	a.skim(data[from:end])
	b.skim(prev[from:old])
	if a.depth != b.depth || a.inString != b.inString || a.escape != b.escape {
		return none
	}
	a.least = min(a.least, b.least)
	for i := end; i < len(data); i++ {
		a.skim(data[i : i+1])
		if data[i] == ',' && !a.inString && a.depth == a.least {
			return i + 1
		}
	}
	return none
}

// lexer tells strings from the rest of JSON, and counts what is open.
type lexer struct {
	depth, least     int
	inString, escape bool
}

func (l *lexer) skim(data []byte) {
	for _, b := range data {
		switch {
		case l.escape:
			l.escape = false
		case l.inString:
			l.escape = b == '\\'
			l.inString = b != '"'
		case b == '"':
			l.inString = true
		case b == '{' || b == '[':
			l.depth++
		case b == '}' || b == ']':
			l.depth--
			l.least = min(l.least, l.depth)
		}
	}
}
