package redact

import (
	"bytes"
	"cmp"
	"slices"
)

// text returns the matches of the rules in a text, in order and without overlaps. Key is the member
// that has the text as its value, or nil. The result is valid until the next call.
func (s *scan) text(text []byte, key *member) []match {
	s.found = s.found[:0]
	s.pass(len(text))
	if len(text) < 3 || s.spent() || s.isClean(text, key) {
		return nil
	}
	s.key, s.until, s.sign = key, 0, 0
	var marks []edit
	hits := s.r.words.scan(&s.hits, text)
	if len(hits) > 0 {
		marks = marksIn(text)
		s.walk(text, hits, marks)
	}
	if key != nil {
		s.byKey(text, key)
	}
	if s.layers < maxLayers {
		s.encoded(text)
	}
	if len(s.found) == 0 {
		s.setClean(text, key)
		return nil
	}
	if len(hits) == 0 {
		marks = marksIn(text)
	}
	return s.resolve(text, marks)
}

// cleanText is a short text without matches. States of agents repeat the same ones again and again.
type cleanText struct {
	size int8
	text [shortText]byte
}

const shortText = 31

// cleanSlot returns the cache slot for a short text whose member name tells nothing, or nil for
// others.
func (s *scan) cleanSlot(text []byte, key *member) *cleanText {
	if len(text) > shortText || s.layers == maxLayers || key != nil && len(key.context)+len(key.unless)+len(key.assigned) > 0 || s.joined || s.bare {
		return nil
	}
	h := uint(len(text))
	for _, b := range text {
		h = h*31 + uint(b)
	}
	return &s.clean[h%uint(len(s.clean))]
}

func (s *scan) isClean(text []byte, key *member) bool {
	slot := s.cleanSlot(text, key)
	return slot != nil && string(slot.text[:slot.size]) == string(text)
}

func (s *scan) setClean(text []byte, key *member) {
	if slot := s.cleanSlot(text, key); slot != nil {
		slot.size = int8(copy(slot.text[:], text))
	}
}

// walk examines each word hit in a text, except inside marks, whose words do not belong to the
// text.
func (s *scan) walk(text []byte, hits []hit, marks []edit) {
	s.unsee()
	s.barrier, s.masked = 0, 0
	for _, h := range hits {
		for len(marks) > 0 && h.end > marks[0].end {
			s.barrier, s.masked = marks[0].end, s.masked+marks[0].end-marks[0].start
			marks = marks[1:]
		}
		if len(marks) > 0 && h.end > marks[0].start {
			continue
		}
		if s.spent() {
			return
		}
		for _, word := range s.r.words.at(h.state) {
			for k := range s.r.acts[word] {
				s.look(text, h.end, &s.r.acts[word][k])
			}
		}
	}
}

// look runs a trigger at the end of a word.
func (s *scan) look(text []byte, end int, t *trigger) {
	start := end - t.size
	if t.exact != "" && string(text[start:end]) != t.exact {
		return
	}
	switch t.kind {
	case byDigits:
		if start >= s.until {
			s.digits(text, start)
		}
	case byContext:
		if startsWord(text, start, end) {
			s.see(t.rule).context = end
		}
	case byUnless:
		if startsWord(text, start, end) {
			s.see(t.rule).unless = end - s.masked
		}
	case byClose:
		if standsApart(text, start, end) {
			s.see(t.rule).close = end
		}
	case byPattern:
		s.pattern(text, start, end, t.rule)
	case byAssigned:
		s.assigned(text, start, end, t.rule)
	case byEmail:
		s.email(text, start, end)
	case byURL:
		s.url(text, start, end)
	case byHeader:
		s.header(text, start)
	case byColons:
		s.colons(text, start)
	}
}

// see returns the record of a rule's context words in the current text, for updating.
func (s *scan) see(r *rule) *seenAt {
	seen := &s.seen[r.rank]
	if *seen == (seenAt{}) {
		s.touched = append(s.touched, r.rank)
	}
	return seen
}

// unsee forgets context words of the previous text.
func (s *scan) unsee() {
	for _, rank := range s.touched {
		s.seen[rank] = seenAt{}
	}
	s.touched = s.touched[:0]
}

// add records a match. Too many end the walk.
func (s *scan) add(start, end int, r *rule) {
	if s.matches++; s.matches > maxFound {
		s.allowed = -1
		return
	}
	s.found = append(s.found, match{start: start, end: end, rule: r})
}

// pattern tries the pattern of a rule at one of its keywords.
func (s *scan) pattern(text []byte, start, end int, r *rule) {
	for n := 0; n < r.Before && start > 0 && r.lead.set[text[start-1]]; n++ {
		start--
	}
	rest := text[start:]
	if !r.first.fits(rest) || !boundary(text, start) && !(r.Before > 0 && bytes.HasSuffix(text[:start], []byte("bot"))) {
		return
	}
	rest = rest[:r.first.run(rest)]
	if !s.spend(len(rest) * r.cost) {
		return
	}
	loc := r.pattern.FindSubmatchIndex(rest)
	if loc == nil {
		return
	}
	if whole := start + loc[1]; whole < len(text) && isWord(text[whole-1]) && isWord(text[whole]) {
		return
	}
	from, to := loc[0], loc[1]
	for k := 2; k < len(loc); k += 2 {
		if loc[k] >= 0 {
			from, to = loc[k], loc[k+1]
			break
		}
	}
	value := rest[from:to]
	if r.Group == "secrets" && placeholder(value) {
		return
	}
	if r.Entropy > 0 && entropy(value) < r.Entropy || r.check != nil && !r.check(value) || !s.inContext(r, start+from) {
		return
	}
	s.add(start+from, start+to, r)
}

const (
	maxPattern = 16 << 10 // bytes that a pattern may examine
	maxWork    = 16       // bytes that patterns may examine for each byte of the data, plus a megabyte
)

// inContext reports whether a rule has the context it needs before a position.
func (s *scan) inContext(r *rule, at int) bool {
	return len(r.Context) == 0 || s.near(r, at)
}

const (
	contextReach = 64 // bytes from a word about the following text to its subject
	closeReach   = 12
	unlessReach  = 24
)

// near reports whether a context word of the rule, in the preceding text or in the member's name,
// refers to a position. Words before a mark do not reach past it: the mark would bring them closer
// to text that they were far from.
func (s *scan) near(r *rule, at int) bool {
	seen := s.seen[r.rank]
	if seen.context <= s.barrier || seen.unless > seen.context-s.masked { // a word against it is closer
		return s.named(r) || s.close(r, at)
	}
	return at-seen.context <= contextReach || s.named(r) || s.close(r, at)
}

// close is near with at most one word in between.
func (s *scan) close(r *rule, at int) bool {
	seen := s.seen[r.rank]
	last := max(seen.context, seen.close)
	return s.named(r) || last > s.barrier && at-last <= closeReach
}

// named reports whether the member's name has a context word of the rule.
func (s *scan) named(r *rule) bool { return s.key != nil && slices.Contains(s.key.context, r) }

// denied reports whether a word against the rule refers to a position and is closer than those for
// it. Such a word reaches past marks as if they were not there.
func (s *scan) denied(r *rule, at int) bool {
	seen := s.seen[r.rank]
	context := max(seen.context, seen.close) - s.masked
	if max(seen.context, seen.close) <= s.barrier {
		context = 0
	}
	if seen.unless > 0 && at-s.masked-seen.unless <= unlessReach && seen.unless > context {
		return true
	}
	return s.key != nil && slices.Contains(s.key.unless, r) && context == 0
}

// resolve sorts the matches, removes allowed ones and marks, and merges overlapping ones.
func (s *scan) resolve(text []byte, marks []edit) []match {
	s.found = slices.DeleteFunc(s.found, func(m match) bool {
		return m.start >= m.end || m.rule != nil && s.allows(text[m.start:m.end])
	})
	s.sortFound()
	if len(marks) > 0 {
		s.cutOut(text, marks)
		s.sortFound()
	}
	kept := s.found[:0]
	for _, m := range s.found {
		n := len(kept) - 1
		if n < 0 || m.start >= kept[n].end {
			kept = append(kept, m)
			continue
		}
		last := &kept[n]
		switch {
		case m.rule == nil:
		case last.rule == nil:
			*last = match{last.start, max(last.end, m.end), m.rule, nil}
		default:
			last.rule = stronger(last.rule, m.rule)
			last.end = max(last.end, m.end)
		}
	}
	s.found = kept
	return kept
}

func (s *scan) sortFound() {
	slices.SortFunc(s.found, func(x, y match) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(y.end, x.end))
	})
}

// cutOut cuts marks out of the matches that overlap them: the text next to a mark is matched as if
// the mark were not there. A match in joined chunks or decoded text that contains a mark is left
// alone.
func (s *scan) cutOut(text []byte, marks []edit) {
	var parts []match
	for _, m := range s.found {
		for len(marks) > 0 && marks[0].end <= m.start {
			marks = marks[1:]
		}
		if len(marks) == 0 || marks[0].start >= m.end {
			parts = append(parts, m)
			continue
		}
		if s.joined || m.rule == nil {
			continue
		}
		at := m.start
		part := func(end int) {
			if end > at && len(bytes.TrimSpace(text[at:end])) > 0 {
				parts = append(parts, match{start: at, end: end, rule: m.rule})
			}
		}
		for _, mark := range marks {
			if mark.start >= m.end {
				break
			}
			part(mark.start)
			at = mark.end
		}
		part(m.end)
	}
	s.found = append(s.found[:0], parts...)
}

// stronger returns the rule that applies to two overlapping matches: the one with the harsher
// action or, if they are equal, the lower rank.
func stronger(x, y *rule) *rule {
	if harsh(x.action) != harsh(y.action) {
		if harsh(x.action) > harsh(y.action) {
			return x
		}
		return y
	}
	if x.rank <= y.rank {
		return x
	}
	return y
}

func harsh(a Action) int { return slices.Index([]Action{Hash, Mask, Drop, Reject}, a) }

// marksIn returns the positions of the marks in a text.
func marksIn(text []byte) []edit {
	var list []edit
	for i := 0; i < len(text); i++ {
		k := bytes.IndexByte(text[i:], '[')
		if k < 0 {
			break
		}
		i += k
		if end := markAt(text, i); end > 0 {
			list = append(list, edit{start: i, end: end})
			i = end - 1
		}
	}
	return list
}

func isDigit(b byte) bool { return b-'0' <= 9 }
func isLetter(b byte) bool {
	b |= 0x20
	return b-'a' <= 25
}
func isUpper(b byte) bool { return b-'A' <= 25 }
func isLower(b byte) bool { return b-'a' <= 25 }
func isHex(b byte) bool   { return isDigit(b) || (b|0x20)-'a' <= 5 }
func isWord(b byte) bool  { return isLetter(b) || isDigit(b) || b == '_' }
func isToken(b byte) bool { return isWord(b) || b == '-' }
func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// boundary reports whether a word can begin at text[i], that is, whether the preceding text isn't
// part of it. A letter that belongs to a written-out escape (\n, %3D, \u0022) is not.
func boundary(text []byte, i int) bool {
	if i == 0 || !isWord(text[i-1]) {
		return true
	}
	return escapeEnds(text, i)
}

// escapeEnds reports whether a written-out escape or a terminal color ends before text[i].
func escapeEnds(text []byte, i int) bool {
	switch {
	case i >= 2 && text[i-2] == '\\' && bytes.IndexByte([]byte("nrtbf"), text[i-1]) >= 0:
		return true
	case i >= 3 && text[i-3] == '%' && isHex(text[i-2]) && isHex(text[i-1]):
		return true
	case i >= 6 && text[i-6] == '\\' && text[i-5] == 'u' && isHex(text[i-4]) && isHex(text[i-3]) && isHex(text[i-2]) && isHex(text[i-1]):
		return true
	}
	return colourEnds(text, i)
}

// startsWord reports whether a context word at text[start:end] is a word or the start of one. Words
// in scripts without spaces need no boundary.
func startsWord(text []byte, start, end int) bool {
	if text[start] >= 0x80 || start == 0 || !isLetter(text[start]) {
		return true
	}
	if isLetter(text[start-1]) && !(isLower(text[start-1]) && isUpper(text[start])) && !escapeEnds(text, start) {
		return false
	}
	// Short words must be whole words: "tel" does not match "tell".
	if end-start <= 4 && end < len(text) && isLetter(text[end]) && !(isLower(text[end-1]) && isUpper(text[end])) {
		return end+1 >= len(text) || text[end] == 's' && !isLetter(text[min(end+1, len(text)-1)])
	}
	return true
}

// standsApart reports whether text[start:end] is a separate word rather than part of a longer name,
// such as ring_buffer.
func standsApart(text []byte, start, end int) bool {
	joins := func(b byte) bool { return isToken(b) || b >= 0x80 || b == '.' || b == '/' || b == '$' || b == '@' }
	if start > 0 && joins(text[start-1]) && !escapeEnds(text, start) {
		return false
	}
	if end == len(text) || !joins(text[end]) {
		return true
	}
	return text[end] == '.' && (end+1 == len(text) || !isWord(text[end+1]))
}
