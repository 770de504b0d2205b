package redact

import "bytes"

// What streams cut into chunks: the strings at one place below consecutive elements of an array, which a reader puts
// together. Each chain follows one such place, for as long as what is on both sides of a cut could be one word.

const (
	chainEdge  = 64       // bytes on each side of a cut that are looked at, and on to the end of the word
	chainWord  = 4 << 10  // but no further than this
	chainChunk = 24       // strings up to this size are chunks of a stream whatever they begin or end with
	chainMost  = 64 << 10 // bytes of a chain
	chainDepth = 3        // arrays around a string that are followed, the innermost
)

// piece is a string, or the end or beginning of one, that is a link of a chain.
type piece struct {
	src        []byte // the data, or what became of the string in it
	start, end int    // in src
	escaped    bool
	edited     bool
	head       int // msgpack: where the header of the string is
	whole      bool
}

// pieceOf returns the string data[start:end] as it is after edits of the data.
func pieceOf(data []byte, start, end int, escaped bool, edits []edit) piece {
	if len(edits) == 0 {
		return piece{src: data, start: start, end: end, escaped: escaped}
	}
	own := make([]edit, len(edits))
	for i, e := range edits {
		own[i] = edit{e.start - start, e.end - start, e.text}
	}
	src := apply(data[start:end], own)
	return piece{src: src, end: len(src), escaped: escaped, edited: true}
}

func (p *piece) text() []byte { return p.src[p.start:p.end] }

// chain is what may be one text.
type chain struct {
	pieces []piece
	index  int    // of the element that the last of them is in
	side   side   // of the last string
	fresh  bool   // it is not known from the parent
	pem    bool   // in a private key: white space does not end it
	tail   []byte // the last bytes, if there is a dash in them
	size   int
}

// chains are those that are open, by the hash of their place, and in order; and what was found in those that ended.
type chains struct {
	open   map[uint64]*chain
	order  []*chain
	joins  []join
	splits []split
}

func newChains() chains { return chains{open: map[uint64]*chain{}} }

func (c *chains) reset() {
	clear(c.open)
	clear(c.order[:cap(c.order)])
	clear(c.joins[:cap(c.joins)])
	c.order, c.joins, c.splits = c.order[:0], c.joins[:0], c.splits[:0]
}

// hold puts the chains of an outer text away while an inner one is looked at.
func (s *scan) hold() (outer chains) {
	outer, s.chains = s.chains, newChains()
	return outer
}

// link adds a string to the chains of its place.
func (s *scan) link(base int, p piece, sd side) {
	arrays := 0
	for level := len(s.path) - 1; level >= base && arrays < chainDepth; level-- {
		f := &s.path[level]
		if f.object {
			continue
		}
		arrays++
		h := mix(f.hash, 0)
		for k := level + 1; k < len(s.path); k++ {
			h = mix(h, s.path[k].step())
		}
		c := s.chains.open[h]
		if c == nil {
			c = &chain{side: sd, fresh: sd != prefixSide}
			s.chains.open[h] = c
			s.chains.order = append(s.chains.order, c)
			c.begin(p, f.index)
			continue
		}
		s.extend(c, p, f.index, sd)
	}
}

// extend adds a string to a chain, or ends the chain and begins another with it.
func (s *scan) extend(c *chain, p piece, index int, sd side) {
	if p.start == p.end && c.index+1 == index {
		c.index = index // nothing was streamed
		return
	}
	head := headOf(p)
	turned := sd != c.side || sd == changedSide
	c.fresh = c.fresh || turned
	c.side = sd
	if c.index+1 == index && len(c.pieces) > 0 && head.end > head.start && c.links(head) {
		c.pieces = append(c.pieces, head)
		if c.index = index; head.whole && c.size < chainMost {
			c.note(head)
			return
		}
	}
	s.finish(c)
	c.fresh = turned
	c.begin(p, index)
}

// begin starts a chain with the end of a string.
func (c *chain) begin(p piece, index int) {
	c.pieces, c.index, c.pem, c.tail, c.size = c.pieces[:0], index, false, c.tail[:0], 0
	if tail := tailOf(p); tail.end > tail.start {
		c.pieces = append(c.pieces, tail)
		c.note(tail)
	}
}

// note remembers how the chain ends, and whether it is in a private key.
func (c *chain) note(p piece) {
	c.size += p.end - p.start
	end := p.src[max(p.start, p.end-96):p.end]
	if len(c.tail) == 0 && bytes.IndexByte(end, '-') < 0 {
		return
	}
	c.tail = append(c.tail, end...)
	if k := bytes.LastIndex(c.tail, []byte("-----")); k >= 0 {
		c.pem = bytes.LastIndex(c.tail, []byte("-----BEGIN")) > bytes.LastIndex(c.tail, []byte("-----END"))
	}
	if len(c.tail) > 192 {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-96:]...)
	}
}

// links reports whether a string can go on where the chain ends.
func (c *chain) links(head piece) bool {
	last := c.pieces[len(c.pieces)-1]
	if c.pem || last.whole && head.whole && last.end-last.start <= chainChunk && head.end-head.start <= chainChunk {
		return true
	}
	left, right := last.text(), head.text()
	a, b := left[len(left)-1], right[0]
	if last.escaped && len(left) > 1 && left[len(left)-2] == '\\' && (a == 'n' || a == 't' || a == 'r') {
		a = '\n'
	}
	if head.escaped && b == '\\' && len(right) > 1 && (right[1] == 'n' || right[1] == 't' || right[1] == 'r') {
		b = '\n'
	}
	switch {
	case !isSpace(a) && !isSpace(b):
		return true
	case isDigit(a) && b == ' ' && len(right) > 1 && isDigit(right[1]):
		return true
	}
	return a == ' ' && len(left) > 1 && isDigit(left[len(left)-2]) && isDigit(b)
}

// headOf returns the beginning of a string, as far as a chain looks into it.
func headOf(p piece) piece {
	end := p.end
	if end-p.start > chainEdge {
		if n := bytes.IndexByte(p.src[p.start+chainEdge:min(end, p.start+chainWord)], ' '); n >= 0 {
			end = p.start + chainEdge + n
		} else if end-p.start > chainWord {
			end = p.start
		}
	}
	p.whole, p.end = end == p.end, end
	return p
}

// tailOf returns the end of a string, as far as a chain looks into it.
func tailOf(p piece) piece {
	start := p.start
	if p.end-start > chainEdge {
		if n := bytes.LastIndexByte(p.src[max(start, p.end-chainWord):p.end-chainEdge], ' '); n >= 0 {
			start = max(start, p.end-chainWord) + n + 1
		} else if p.end-start > chainWord {
			start = p.end
		}
	}
	p.whole, p.start = start == p.start, start
	return p
}

// finish looks at a chain that ends.
func (s *scan) finish(c *chain) {
	if len(c.pieces) < 2 || !c.fresh {
		return
	}
	var text []byte
	starts := make([]int, 0, len(c.pieces)+1)
	for _, p := range c.pieces {
		starts = append(starts, len(text))
		raw := p.text()
		if p.escaped {
			if decoded, ok := unescape(text, raw); ok {
				text = decoded
				continue
			}
		}
		text = append(text, raw...)
	}
	starts = append(starts, len(text))
	s.joined = true
	s.layers += maxLayers // what is encoded is not looked into
	matches := s.text(text, nil)
	s.layers -= maxLayers
	s.joined = false
	prose := bytes.IndexByte(text, ' ') >= 0 && bytes.ContainsFunc(text, func(r rune) bool { return r < 0x80 && isLetter(byte(r)) })
	for _, m := range matches {
		first := 0
		for starts[first+1] <= m.start {
			first++
		}
		if starts[first+1] >= m.end || !prose && m.rule.numeric() {
			continue
		}
		s.cut(c, starts, first, m, text)
	}
}

// numeric reports whether a rule finds digits, which make other numbers when they are put together: it takes prose
// around them for us to believe that they belong together.
func (r *rule) numeric() bool {
	switch scanners[r.Scanner].kind {
	case byDigits, byWord, byIBAN, byColons:
		return true
	}
	return false
}

// cut notes the edits of a match that begins in a piece and ends in another: the first gets what stands for it. Where
// a piece was edited already, that is left to the next look at the data.
func (s *scan) cut(c *chain, starts []int, first int, m match, text []byte) {
	s.again = true
	last := first
	for last < len(c.pieces) && starts[last] < m.end {
		if c.pieces[last].edited {
			return
		}
		last++
	}
	s.chains.splits = append(s.chains.splits, split{c.pieces[first].start, m.rule})
	for k := first; k < last; k++ {
		p := c.pieces[k]
		e := edit{start: max(m.start, starts[k]) - starts[k], end: min(m.end, starts[k+1]) - starts[k]}
		if k == first {
			e.text = s.replacement(m.rule, text[m.start:m.end])
		}
		if p.escaped {
			e = escapedEdits(p.text(), []edit{e})[0]
		}
		s.chains.joins = append(s.chains.joins, join{p, edit{e.start + p.start, e.end + p.start, e.text}})
	}
}

// join is an edit of a piece, in the data; split a finding that begins at a place in the data.
type join struct {
	piece piece
	edit  edit
}

type split struct {
	at   int
	rule *rule
}

// finishAll looks at all chains that are open.
func (s *scan) finishAll() {
	for _, c := range s.chains.order {
		c.fresh = true // what came after it in an earlier version is gone
		s.finish(c)
	}
}
