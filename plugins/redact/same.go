package redact

import (
	"bytes"

	"github.com/ckptd/ckptd/internal/alike"
	"github.com/ckptd/ckptd/internal/spans"
)

// side is the part of the data that contains a string: the beginning, which is unchanged except for
// some values; the part that changed; or the end, which is unchanged.
type side uint8

const (
	changedSide side = iota
	prefixSide
	suffixSide
)

// region tracks the part of a JSON text that is known from an earlier, redacted version. Names,
// arrays and objects around a known part are the same, too, so it has the same meaning; only the
// indexes of array elements can differ.
type region struct {
	prev    []byte
	at, old int  // positions in the data and in prev up to which they differ only in values
	equal   int  // number of equal bytes from there on
	lost    bool // they differ in more than values
	suffix  int  // data[suffix:] is unchanged, once that is known
	known   bool
	whole   bool // all of the data is known
}

// regionOf compares data with an earlier version, which may be nil.
func regionOf(data, prev []byte, r *Redactor) region {
	if prev == nil {
		return region{suffix: len(data) + 1, known: true, lost: true}
	}
	return region{prev: prev, equal: alike.Prefix(data, prev), suffix: len(data) + 1,
		known: r.allowPaths.indexed() || r.blockPaths.indexed()}
}

// sideOf returns the side of the value data[start:end], including its quotes. Values must be passed
// in order.
func (g *region) sideOf(data []byte, start, end int) side {
	if g.whole || !g.lost && end < g.at+g.equal {
		return prefixSide
	}
	if !g.lost {
		if start <= g.at+g.equal && g.pass(data, start, end) {
			return changedSide
		}
		g.lost = true
	}
	if !g.known {
		g.known = true
		g.suffix = suffixOf(data, g.prev, g.at, g.old)
	}
	if start >= g.suffix {
		return suffixSide
	}
	return changedSide
}

// pass continues after a changed value, if prev has a value at the same position.
func (g *region) pass(data []byte, start, end int) bool {
	from := g.old + start - g.at
	if from >= len(g.prev) || bytes.IndexByte([]byte("]},:"), g.prev[from]) >= 0 {
		return false
	}
	to, err := spans.JSON(g.prev, from, maxDepth)
	if err != nil {
		return false
	}
	g.at, g.old, g.equal = end, to, alike.Prefix(data[end:], g.prev[to:])
	return true
}

// suffixOf returns the offset in data from which it equals the end of prev within the same arrays
// and objects: those that were open at data[at] and prev[old], both between two tokens, and still
// are.
func suffixOf(data, prev []byte, at, old int) int {
	none := len(data) + 1
	n := alike.Suffix(data[at:], prev[old:])
	end, oldEnd := len(data)-n, len(prev)-n
	var a, b lexer
	a.skim(data[at:end])
	b.skim(prev[old:oldEnd])
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

// lexer separates strings from the rest of JSON and counts open arrays and objects.
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
