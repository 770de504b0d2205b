package redact

import "bytes"

// What streams cut into chunks: the strings at one place below consecutive elements of an array, which a reader puts
// together. Each chain follows one such place, for as long as what is on both sides of a cut could be one word.

const (
	chainEdge  = 64       // bytes on each side of a cut that are looked at, and on to the end of the word
	chainWord  = 4 << 10  // but no further than this
	chainChunk = 24       // strings up to this size are chunks of a stream whatever they begin or end with
	chainMost  = 64 << 10 // bytes of a chain
	chainDepth = 2        // arrays around a string that are followed, the innermost
)

// piece is a string, or the end or beginning of one, that is a link of a chain.
type piece struct {
	start, end int32 // in the data, or in what became of the string
	head       int32 // msgpack: where the header of the string is
	edited     int32 // which of the edited strings it is, counted from 1, 0 if it was not edited
	escaped    bool
	whole      bool
}

// pieceOf returns the string data[start:end] as it is after edits of the data.
func (c *chains) pieceOf(data []byte, start, end int, escaped bool, edits []edit) piece {
	if len(edits) == 0 {
		return piece{start: int32(start), end: int32(end), escaped: escaped}
	}
	own := make([]edit, len(edits))
	for i, e := range edits {
		own[i] = edit{e.start - start, e.end - start, e.text}
	}
	text := apply(data[start:end], own)
	c.edited = append(c.edited, text)
	return piece{end: int32(len(text)), escaped: escaped, edited: int32(len(c.edited))}
}

// source returns what a piece is a part of.
func (c *chains) source(p piece) []byte {
	if p.edited > 0 {
		return c.edited[p.edited-1]
	}
	return c.data
}

func (c *chains) text(p piece) []byte { return c.source(p)[p.start:p.end] }

// chain is what may be one text.
type chain struct {
	pieces []piece
	inline [2]piece // for the first pieces
	index  int      // of the element that the last of them is in
	side   side     // of the last string
	fresh  bool     // it is not known from the parent
	heat   heat     // of its cuts, the most
	begun  bool     // it has more than its first string, and of that only the end
	pem    bool     // in a private key: white space does not end it
	tail   []byte   // the last bytes, if there is a dash in them
	size   int
}

// links are the chains of an array, by the place of their strings in its elements.
type links struct {
	open  map[uint64]*chain
	order []*chain
}

// chains is what chains need that run through one text.
type chains struct {
	data   []byte
	edited [][]byte   // strings that were edited
	joins  []joinEdit // what was found
	splits []split

	joined []byte // scratch
	starts []int
}

// reset forgets the data, and keeps the memory for the next.
func (c *chains) reset() {
	clear(c.joins[:cap(c.joins)])
	clear(c.edited[:cap(c.edited)])
	c.data, c.edited, c.joins, c.splits = nil, c.edited[:0], c.joins[:0], c.splits[:0]
}

// hold puts the chains of an outer text away while an inner one is looked at.
func (s *scan) hold(data []byte) (outer *chains) {
	outer = s.chains
	if outer.data == nil {
		outer.data = data
		return nil
	}
	if s.chains = s.spare; s.chains == nil || s.chains.data != nil {
		s.chains = &chains{}
	}
	s.chains.data = data
	return outer
}

// release takes the outer chains out again.
func (s *scan) release(outer *chains) {
	s.chains.reset()
	if outer != nil {
		s.chains, s.spare = outer, s.chains
	}
}

// link adds a string to the chains of its place.
func (s *scan) link(base int, p piece, sd side) {
	arrays := 0
	place := uint64(0)
	for level := len(s.path) - 1; level >= base && arrays < chainDepth; level-- {
		f := &s.path[level]
		if f.object {
			place = mix(place, f.step())
			continue
		}
		arrays++
		if f.links == nil {
			f.links = s.newLinks()
		}
		c := f.links.open[place]
		if c == nil {
			c = s.newChain()
			c.side, c.fresh = sd, sd != prefixSide
			f.links.open[place] = c
			f.links.order = append(f.links.order, c)
			c.begin(p, f.index)
		} else {
			s.extend(c, p, f.index, sd)
		}
		place = mix(place, f.step())
	}
}

// unlink looks at the chains of an array that ends, at a place of a side.
func (s *scan) unlink(f *frame, sd side) {
	if f.links == nil {
		return
	}
	for _, c := range f.links.order {
		c.fresh = c.fresh || sd != c.side || sd == changedSide
		s.finish(c)
	}
	if len(s.spareChains) < maxSpare {
		s.spareChains = append(s.spareChains, f.links.order...)
		clear(f.links.open)
		f.links.order = f.links.order[:0]
		s.spareLinks = append(s.spareLinks, f.links)
	}
	f.links = nil
}

const maxSpare = 1024 // chains that are kept for what comes next

func (s *scan) newLinks() *links {
	if n := len(s.spareLinks); n > 0 {
		l := s.spareLinks[n-1]
		s.spareLinks = s.spareLinks[:n-1]
		return l
	}
	return &links{open: map[uint64]*chain{}}
}

func (s *scan) newChain() *chain {
	if n := len(s.spareChains); n > 0 {
		c := s.spareChains[n-1]
		s.spareChains = s.spareChains[:n-1]
		return c
	}
	c := &chain{}
	c.pieces = c.inline[:0]
	return c
}

// extend adds a string to a chain, or ends the chain and begins another with it.
func (s *scan) extend(c *chain, p piece, index int, sd side) {
	if p.start == p.end && c.index+1 == index {
		c.index = index // nothing was streamed
		return
	}
	turned := sd != c.side || sd == changedSide
	c.fresh = c.fresh || turned
	c.side = sd
	if c.index+1 == index && s.chains.links(c, p) && s.join(c, p) {
		c.index = index
		return
	}
	s.finish(c)
	c.fresh = turned
	c.begin(p, index)
}

// begin starts a chain with a string, of which nothing is looked at before the next is there.
func (c *chain) begin(p piece, index int) {
	c.pieces, c.index, c.begun, c.pem, c.heat, c.tail, c.size = append(c.pieces[:0], p), index, false, false, cold, c.tail[:0], 0
}

// join adds the beginning of a string to a chain, and reports whether the chain goes on behind the string: not if that
// was not all of it.
func (s *scan) join(c *chain, p piece) bool {
	cs := s.chains
	if !c.begun {
		c.begun = true
		c.pieces[0] = cs.tailOf(c.pieces[0])
		cs.note(c, c.pieces[0])
	}
	last, head := c.pieces[len(c.pieces)-1], cs.headOf(p)
	if last.start == last.end || head.start == head.end {
		return false
	}
	if c.heat = max(c.heat, heatOf(cs.text(last), cs.text(head))); c.pem {
		c.heat = hot
	}
	c.pieces = append(c.pieces, head)
	cs.note(c, head)
	return head.whole && c.size < chainMost
}

// note remembers how the chain ends, and whether it is in a private key.
func (cs *chains) note(c *chain, p piece) {
	c.size += int(p.end - p.start)
	end := cs.source(p)[max(p.start, p.end-96):p.end]
	if len(c.tail) == 0 && !bytes.Contains(end, []byte("----")) {
		return
	}
	if c.tail = append(c.tail, end...); bytes.Contains(c.tail, []byte("-----")) {
		c.pem = inKey(c.tail)
	}
	if len(c.tail) > 192 {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-96:]...)
	}
}

// inKey reports whether a text ends in a private key.
func inKey(text []byte) bool {
	return bytes.LastIndex(text, []byte("-----BEGIN")) > bytes.LastIndex(text, []byte("-----END"))
}

// links reports whether a string can go on where the chain ends.
func (cs *chains) links(c *chain, p piece) bool {
	last := c.pieces[len(c.pieces)-1]
	left, right := cs.text(last), cs.text(p)
	if len(left) == 0 || len(right) == 0 {
		return false
	}
	if c.pem {
		return true
	}
	if standsAlone(right) {
		return false
	}
	if len(left) <= chainChunk && len(right) <= chainChunk {
		return true
	}
	a, b := left[len(left)-1], right[0]
	if last.escaped && len(left) > 1 && left[len(left)-2] == '\\' && (a == 'n' || a == 't' || a == 'r') {
		a = '\n'
	}
	if p.escaped && b == '\\' && len(right) > 1 && (right[1] == 'n' || right[1] == 't' || right[1] == 'r') {
		b = '\n'
	}
	switch {
	case !isSpace(a) && !isSpace(b):
		return true
	case isDigit(a) && b == ' ' && len(right) > 1 && isDigit(right[1]):
		return true
	case a == ' ' && len(left) > 1 && isDigit(left[len(left)-2]) && isDigit(b):
		return true
	}
	return !c.begun && inKey(left[max(0, len(left)-96):])
}

// standsAlone reports whether a string begins with an option or an assignment of its own: --name or NAME=value. Lists of
// environments and of arguments are no streams.
func standsAlone(text []byte) bool {
	if len(text) > 2 && text[0] == '-' && text[1] == '-' && isLetter(text[2]) {
		return true
	}
	if len(text) == 0 || !isLetter(text[0]) && text[0] != '_' {
		return false
	}
	n := 1
	for n < len(text) && (isToken(text[n]) || text[n] == '.') {
		n++
	}
	return n+1 < len(text) && text[n] == '=' && text[n+1] != '='
}

// streamed reports whether the strings of a chain look like cut out of a text: one begins or ends with white space, is
// nothing but signs, or has a quote that another closes.
func (cs *chains) streamed(c *chain) bool {
	for _, p := range c.pieces {
		text := cs.text(p)
		if p.escaped {
			if decoded, ok := unescape(nil, text); ok {
				text = decoded
			}
		}
		if n := len(text); n > 0 && (isSpace(text[0]) || isSpace(text[n-1]) || bytes.Count(text, []byte(`"`))%2 == 1 ||
			!bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x80 || isWord(byte(r)) })) {
			return true
		}
	}
	return false
}

// heat is how likely the word that a cut goes through is something to find.
type heat uint8

const (
	cold heat = iota // letters, and not many
	warm             // digits: among words they may be something
	hot
)

func heatOf(left, right []byte) heat {
	const long = 20
	n := 0
	var letters, digits, marks bool
	take := func(b byte) {
		n++
		switch {
		case isLetter(b):
			letters = true
		case isDigit(b):
			digits = true
		case b == '@' || b >= 0x80:
			letters, marks = true, true
		case b == '_' || b == '-' || b == '=' || b == '/' || b == '+' || b == ':':
			marks = true
		}
	}
	for i := len(left) - 1; i >= 0 && n <= long && !isSpace(left[i]); i-- {
		take(left[i])
	}
	for i := 0; i < len(right) && n <= long && !isSpace(right[i]); i++ {
		take(right[i])
	}
	switch {
	case letters && (marks || n > long):
		return hot
	case digits, len(left) > 1 && isDigit(left[len(left)-2]), len(right) > 1 && isDigit(right[1]):
		return warm
	}
	return cold
}

// headOf returns the beginning of a string, as far as a chain looks into it.
func (c *chains) headOf(p piece) piece {
	end := p.end
	if text := c.text(p); len(text) > chainEdge {
		if n := bytes.IndexByte(text[chainEdge:min(len(text), chainWord)], ' '); n >= 0 {
			end = p.start + chainEdge + int32(n)
		} else if len(text) > chainWord {
			end = p.start
		}
	}
	p.whole, p.end = end == p.end, end
	return p
}

// tailOf returns the end of a string, as far as a chain looks into it.
func (c *chains) tailOf(p piece) piece {
	start := p.start
	if text := c.text(p); len(text) > chainEdge {
		from := max(0, len(text)-chainWord)
		if n := bytes.LastIndexByte(text[from:len(text)-chainEdge], ' '); n >= 0 {
			start += int32(from + n + 1)
		} else if len(text) > chainWord {
			start = p.end
		}
	}
	p.whole, p.start = start == p.start, start
	return p
}

// finish looks at a chain that ends.
func (s *scan) finish(c *chain) {
	if len(c.pieces) < 2 || !c.fresh || c.heat == cold {
		return
	}
	text, starts := s.chains.joined[:0], s.chains.starts[:0]
	for _, p := range c.pieces {
		starts = append(starts, len(text))
		raw := s.chains.text(p)
		if p.escaped {
			if decoded, ok := unescape(text, raw); ok {
				text = decoded
				continue
			}
		}
		text = append(text, raw...)
	}
	starts = append(starts, len(text))
	s.chains.joined, s.chains.starts = text, starts
	prose := bytes.IndexByte(text, ' ') >= 0 && bytes.ContainsFunc(text, func(r rune) bool { return r < 0x80 && isLetter(byte(r)) })
	if c.heat == warm && !prose {
		return
	}
	s.joined = true
	s.layers += maxLayers // what is encoded is not looked into
	matches := s.text(text, nil)
	s.layers -= maxLayers
	s.joined = false
	for _, m := range matches {
		first := 0
		for starts[first+1] <= m.start {
			first++
		}
		if starts[first+1] >= m.end || !prose && m.rule.numeric() || m.rule.Scanner == "assigned" && !s.chains.streamed(c) {
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
		if c.pieces[last].edited > 0 {
			return
		}
		last++
	}
	s.chains.splits = append(s.chains.splits, split{int(c.pieces[first].start), m.rule})
	for k := first; k < last; k++ {
		p := c.pieces[k]
		e := edit{start: max(m.start, starts[k]) - starts[k], end: min(m.end, starts[k+1]) - starts[k]}
		if k == first {
			e.text = s.replacement(m.rule, text[m.start:m.end])
		}
		if p.escaped {
			e = escapedEdits(s.chains.text(p), []edit{e})[0]
		}
		s.chains.joins = append(s.chains.joins, joinEdit{p, edit{e.start + int(p.start), e.end + int(p.start), e.text}})
	}
}

// joinEdit is an edit of a piece, in the data; split a finding that begins at a place in the data.
type joinEdit struct {
	piece piece
	edit  edit
}

type split struct {
	at   int
	rule *rule
}
