package redact

import (
	"bytes"

	"github.com/ckptd/ckptd/internal/alike"
	"github.com/ckptd/ckptd/internal/spans"
)

// side is where a string is: in what is the same as before from the beginning on, but for some values; in what changed;
// or in what is the same at the end.
type side uint8

const (
	changedSide side = iota
	prefixSide
	suffixSide
)

// region tells what of some JSON is known from an earlier version of it, which was redacted. Names, arrays and objects
// around what is known are the same ones, so that it means the same; but for the numbers of elements.
type region struct {
	prev    []byte
	at, old int  // the place in the data and in prev up to which they are alike but for values
	run     int  // from there on so many bytes are the same
	lost    bool // they differ in more than values
	suffix  int  // data[suffix:] is the same, once it is known
	known   bool
	whole   bool // all of the data is known
}

// regionOf compares data with an earlier version, nil if there is none.
func regionOf(data, prev []byte, r *Redactor) region {
	if prev == nil {
		return region{suffix: len(data) + 1, known: true, lost: true}
	}
	return region{prev: prev, run: alike.Prefix(data, prev), suffix: len(data) + 1,
		known: r.allowPaths.indexed() || r.blockPaths.indexed()}
}

// sideOf tells the side of the value data[start:end], its quotes included. Values must be asked for in order.
func (g *region) sideOf(data []byte, start, end int) side {
	if g.whole || !g.lost && end < g.at+g.run {
		return prefixSide
	}
	if !g.lost {
		if start <= g.at+g.run && g.pass(data, start, end) {
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

// pass goes on behind a value that changed, if prev has a value in its place.
func (g *region) pass(data []byte, start, end int) bool {
	from := g.old + start - g.at
	if from >= len(g.prev) || bytes.IndexByte([]byte("]},:"), g.prev[from]) >= 0 {
		return false
	}
	to, err := spans.JSON(g.prev, from, maxDepth)
	if err != nil {
		return false
	}
	g.at, g.old, g.run = end, to, alike.Prefix(data[end:], g.prev[to:])
	return true
}

// suffixOf returns from where on data is what prev is at its end, in the same arrays and objects: those that were open
// at data[at] and prev[old], between two tokens of each, and still are.
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
