package redact

import "bytes"

// Streams cut text into chunks: strings at the same path below consecutive elements of an array,
// which a reader joins. Each stream follows one such path, as long as the text on both sides of a
// cut could be a single word.

const (
	streamEdge  = 64       // bytes to examine on each side of a cut, extended to the end of the word
	streamWord  = 4 << 10  // but to no more than this
	streamChunk = 24       // strings up to this size count as chunks, whatever they begin or end with
	streamMost  = 64 << 10 // bytes of a stream
	streamDepth = 2        // how many arrays around a string to follow, from the innermost
)

// piece is a chunk of a stream: a string, or its beginning or end.
type piece struct {
	start, end int32 // in the data, or in the edited string
	head       int32 // msgpack: position of the string's header
	edited     int32 // number of the edited string, from 1; 0 if it was not edited
	escaped    bool
	whole      bool
}

// pieceOf returns the string data[start:end] after edits of the data.
func (c *streams) pieceOf(data []byte, start, end int, escaped bool, edits []edit) piece {
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

// source returns the bytes that a piece is part of.
func (c *streams) source(p piece) []byte {
	if p.edited > 0 {
		return c.edited[p.edited-1]
	}
	return c.data
}

func (c *streams) text(p piece) []byte { return c.source(p)[p.start:p.end] }

// stream is a sequence of pieces that may be a single text.
type stream struct {
	pieces []piece
	inline [2]piece // backs the first pieces
	index  int      // of the element that contains the last piece
	side   side     // of the last string
	fresh  bool     // not known from the parent
	heat   heat     // maximum of its cuts
	begun  bool     // it has more than its first string, of which it keeps only the end
	pem    bool     // inside a private key: white space does not end it
	tail   []byte   // the last bytes, if they contain a dash
	size   int
}

// arrayStreams are the streams of an array, by the hash of the path of their strings in its
// elements.
type arrayStreams struct {
	open  map[uint64]*stream
	order []*stream
}

// streams is the shared state of the streams of one text.
type streams struct {
	data   []byte
	edited [][]byte   // strings that were edited
	joins  []joinEdit // edits for matches across cuts
	splits []split

	joined []byte // scratch
	starts []int
}

// reset forgets the data and keeps the memory for reuse.
func (c *streams) reset() {
	clear(c.joins[:cap(c.joins)])
	clear(c.edited[:cap(c.edited)])
	c.data, c.edited, c.joins, c.splits = nil, c.edited[:0], c.joins[:0], c.splits[:0]
}

// saveStreams sets the streams of an outer text aside while an inner text is redacted.
func (s *scan) saveStreams(data []byte) (outer *streams) {
	outer = s.streams
	if outer.data == nil {
		outer.data = data
		return nil
	}
	if s.streams = s.spare; s.streams == nil || s.streams.data != nil {
		s.streams = &streams{}
	}
	s.streams.data = data
	return outer
}

// restoreStreams brings back the outer streams.
func (s *scan) restoreStreams(outer *streams) {
	s.streams.reset()
	if outer != nil {
		s.streams, s.spare = outer, s.streams
	}
}

// follow adds a string to the streams of its path.
func (s *scan) follow(base int, p piece, sd side) {
	arrays := 0
	path := uint64(0)
	for level := len(s.path) - 1; level >= base && arrays < streamDepth; level-- {
		f := &s.path[level]
		if f.object {
			path = mix(path, f.step())
			continue
		}
		arrays++
		if f.streams == nil {
			f.streams = s.newArrayStreams()
		}
		c := f.streams.open[path]
		if c == nil {
			c = s.newStream()
			c.side, c.fresh = sd, sd != prefixSide
			f.streams.open[path] = c
			f.streams.order = append(f.streams.order, c)
			c.begin(p, f.index)
		} else {
			s.extend(c, p, f.index, sd)
		}
		path = mix(path, f.step())
	}
}

// endStreams examines the streams of an array at its end, which is on the given side.
func (s *scan) endStreams(f *frame, sd side) {
	if f.streams == nil {
		return
	}
	for _, c := range f.streams.order {
		c.fresh = c.fresh || sd != c.side || sd == changedSide
		s.finish(c)
	}
	if len(s.spareStreams) < maxSpare {
		s.spareStreams = append(s.spareStreams, f.streams.order...)
		clear(f.streams.open)
		f.streams.order = f.streams.order[:0]
		s.spareArrays = append(s.spareArrays, f.streams)
	}
	f.streams = nil
}

const maxSpare = 1024 // streams to keep for reuse

func (s *scan) newArrayStreams() *arrayStreams {
	if n := len(s.spareArrays); n > 0 {
		l := s.spareArrays[n-1]
		s.spareArrays = s.spareArrays[:n-1]
		return l
	}
	return &arrayStreams{open: map[uint64]*stream{}}
}

func (s *scan) newStream() *stream {
	if n := len(s.spareStreams); n > 0 {
		c := s.spareStreams[n-1]
		s.spareStreams = s.spareStreams[:n-1]
		return c
	}
	c := &stream{}
	c.pieces = c.inline[:0]
	return c
}

// extend adds a string to a stream, or ends the stream and starts another with it.
func (s *scan) extend(c *stream, p piece, index int, sd side) {
	if p.start == p.end && c.index+1 == index {
		c.index = index // an empty chunk
		return
	}
	turned := sd != c.side || sd == changedSide
	c.fresh = c.fresh || turned
	c.side = sd
	if c.index+1 == index && s.streams.continues(c, p) && s.join(c, p) {
		c.index = index
		return
	}
	s.finish(c)
	c.fresh = turned
	c.begin(p, index)
}

// begin starts a stream with a string. The string is not examined before there is a second one.
func (c *stream) begin(p piece, index int) {
	c.pieces, c.index, c.begun, c.pem, c.heat, c.tail, c.size = append(c.pieces[:0], p), index, false, false, cold, c.tail[:0], 0
}

// join adds the beginning of a string to a stream. It reports whether the stream can continue after
// the string, which it cannot if it did not include all of it.
func (s *scan) join(c *stream, p piece) bool {
	cs := s.streams
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
	return head.whole && c.size < streamMost
}

// note remembers the end of the stream and whether it is inside a private key.
func (cs *streams) note(c *stream, p piece) {
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

// inKey reports whether a text ends inside a private key.
func inKey(text []byte) bool {
	return bytes.LastIndex(text, []byte("-----BEGIN")) > bytes.LastIndex(text, []byte("-----END"))
}

// continues reports whether a string can continue the stream.
func (cs *streams) continues(c *stream, p piece) bool {
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
	if len(left) <= streamChunk && len(right) <= streamChunk {
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

// standsAlone reports whether a string begins with an option or an assignment of its own: --name or
// NAME=value. Lists of environment variables and of arguments are not streams.
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

// looksCut reports whether the strings of a stream look like pieces of a text: one of them begins
// or ends with white space, consists of signs only, or has an unpaired quote.
func (cs *streams) looksCut(c *stream) bool {
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

// heat rates how likely it is that a word across a cut is a finding.
type heat uint8

const (
	cold heat = iota // few letters
	warm             // digits, which can be a finding among words
	hot
)

func heatOf(left, right []byte) heat {
	const long = 20
	n := 0
	var letters, digits, signs bool
	take := func(b byte) {
		n++
		switch {
		case isLetter(b):
			letters = true
		case isDigit(b):
			digits = true
		case b == '@' || b >= 0x80:
			letters, signs = true, true
		case b == '_' || b == '-' || b == '=' || b == '/' || b == '+' || b == ':':
			signs = true
		}
	}
	for i := len(left) - 1; i >= 0 && n <= long && !isSpace(left[i]); i-- {
		take(left[i])
	}
	for i := 0; i < len(right) && n <= long && !isSpace(right[i]); i++ {
		take(right[i])
	}
	switch {
	case letters && (signs || n > long):
		return hot
	case digits, len(left) > 1 && isDigit(left[len(left)-2]), len(right) > 1 && isDigit(right[1]):
		return warm
	}
	return cold
}

// headOf returns the part at the beginning of a string that a stream examines.
func (c *streams) headOf(p piece) piece {
	end := p.end
	if text := c.text(p); len(text) > streamEdge {
		if n := bytes.IndexByte(text[streamEdge:min(len(text), streamWord)], ' '); n >= 0 {
			end = p.start + streamEdge + int32(n)
		} else if len(text) > streamWord {
			end = p.start
		}
	}
	p.whole, p.end = end == p.end, end
	return p
}

// tailOf returns the part at the end of a string that a stream examines.
func (c *streams) tailOf(p piece) piece {
	start := p.start
	if text := c.text(p); len(text) > streamEdge {
		from := max(0, len(text)-streamWord)
		if n := bytes.LastIndexByte(text[from:len(text)-streamEdge], ' '); n >= 0 {
			start += int32(from + n + 1)
		} else if len(text) > streamWord {
			start = p.end
		}
	}
	p.whole, p.start = start == p.start, start
	return p
}

// finish examines a stream that ends.
func (s *scan) finish(c *stream) {
	if len(c.pieces) < 2 || !c.fresh || c.heat == cold {
		return
	}
	text, starts := s.streams.joined[:0], s.streams.starts[:0]
	for _, p := range c.pieces {
		starts = append(starts, len(text))
		raw := s.streams.text(p)
		if p.escaped {
			if decoded, ok := unescape(text, raw); ok {
				text = decoded
				continue
			}
		}
		text = append(text, raw...)
	}
	starts = append(starts, len(text))
	s.streams.joined, s.streams.starts = text, starts
	prose := bytes.IndexByte(text, ' ') >= 0 && bytes.ContainsFunc(text, func(r rune) bool { return r < 0x80 && isLetter(byte(r)) })
	if c.heat == warm && !prose {
		return
	}
	s.joined = true
	s.layers += maxLayers // do not decode encoded text
	matches := s.text(text, nil)
	s.layers -= maxLayers
	s.joined = false
	for _, m := range matches {
		first := 0
		for starts[first+1] <= m.start {
			first++
		}
		if starts[first+1] >= m.end || !prose && m.rule.numeric() || m.rule.Scanner == "assigned" && !s.streams.looksCut(c) {
			continue
		}
		s.cut(c, starts, first, m, text)
	}
}

// numeric reports whether a rule finds digits. Joined digits make new numbers by accident, so such
// a match needs prose around it.
func (r *rule) numeric() bool {
	switch scanners[r.Scanner].kind {
	case byDigits, byWord, byIBAN, byColons:
		return true
	}
	return false
}

// cut records the edits of a match that spans several pieces; the first piece gets the replacement.
// If one of the pieces was edited already, the match is left to the next pass over the data.
func (s *scan) cut(c *stream, starts []int, first int, m match, text []byte) {
	s.again = true
	last := first
	for last < len(c.pieces) && starts[last] < m.end {
		if c.pieces[last].edited > 0 {
			return
		}
		last++
	}
	s.streams.splits = append(s.streams.splits, split{int(c.pieces[first].start), m.rule})
	for k := first; k < last; k++ {
		p := c.pieces[k]
		e := edit{start: max(m.start, starts[k]) - starts[k], end: min(m.end, starts[k+1]) - starts[k]}
		if k == first {
			e.text = s.replacement(m.rule, text[m.start:m.end])
		}
		if p.escaped {
			e = escapedEdits(s.streams.text(p), []edit{e})[0]
		}
		s.streams.joins = append(s.streams.joins, joinEdit{p, edit{e.start + int(p.start), e.end + int(p.start), e.text}})
	}
}

// joinEdit is an edit of a piece, with offsets in the data. split is a finding that begins at an
// offset in the data.
type joinEdit struct {
	piece piece
	edit  edit
}

type split struct {
	at   int
	rule *rule
}
