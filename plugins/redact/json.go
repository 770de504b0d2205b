package redact

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/ckptd/ckptd/internal/spans"
)

// walker traverses JSON text without building values and collects edits. It interprets JSON and is
// otherwise lenient: any invalid JSON that it accepts is left unchanged.
type walker struct {
	s     *scan
	data  []byte
	pos   int
	base  int // number of frames opened by outer texts
	state wants
	any   bool // there has been a value
	edits []edit
	drop  bool    // the root value is dropped
	same  region  // the part known from the parent
	stops []split // findings to count when the walk reaches them
}

// wants is the set of tokens that may come next.
type wants uint8

const (
	wantValue   wants = iota
	wantElement       // a value, or the end of an array
	wantMember        // a name, or the end of an object
	wantName
	wantColon
	wantNext // a comma, or the end
)

// json redacts JSON text: one value or several in sequence. If the text is not JSON, it does
// nothing and returns ok = false.
func (s *scan) json(data, prev []byte) (edits []edit, drop, ok bool, err error) {
	w := &walker{s: s, data: data, base: len(s.path)}
	w.same = regionOf(data, prev, s.r)
	outer := s.saveStreams(data)
	found, again, reject := s.countedSoFar(), s.again, s.reject
	ok, err = w.run()
	s.path = s.path[:w.base]
	if ok && err == nil {
		w.join()
	}
	s.restoreStreams(outer)
	if !ok || err != nil {
		s.uncount(found)
		s.again, s.reject = again, reject
		return nil, false, ok, err
	}
	return ordered(w.edits), w.drop, true, nil
}

func (w *walker) run() (ok bool, err error) {
	for {
		for w.pos < len(w.data) && isSpace(w.data[w.pos]) {
			w.pos++
		}
		if w.pos >= len(w.data) {
			return w.any && w.state == wantNext && len(w.s.path) == w.base, nil
		}
		b := w.data[w.pos]
		switch w.state {
		case wantMember, wantName:
			if b == '}' && w.state == wantMember {
				w.close()
			} else if b != '"' || !w.name() {
				return false, nil
			}
		case wantColon:
			if b != ':' {
				return false, nil
			}
			w.pos++
			w.state = wantValue
		case wantNext:
			if !w.next(b) {
				return false, nil
			}
		default:
			if b == ']' && w.state == wantElement {
				w.close()
				continue
			}
			if ok, err := w.value(b); !ok || err != nil {
				return ok, err
			}
		}
	}
}

// top returns the innermost open frame, or nil at the root.
func (w *walker) top() *frame {
	if len(w.s.path) == w.base {
		return nil
	}
	return &w.s.path[len(w.s.path)-1]
}

// next continues after a value.
func (w *walker) next(b byte) bool {
	f := w.top()
	switch {
	case f == nil:
		w.state = wantValue // another value: JSON lines
		return true
	case b == ',' && f.object:
		w.state = wantName
	case b == ',':
		w.state = wantValue
		f.index++
	case b == '}' && f.object, b == ']' && !f.object:
		w.close()
		return true
	default:
		return false
	}
	w.pos++
	return true
}

// open begins an object or array.
func (w *walker) open(object bool) error {
	if err := w.s.enter(object); err != nil {
		return err
	}
	w.pos++
	w.state = wantElement
	if object {
		w.state = wantMember
	}
	return nil
}

// step is the part that a frame adds to the path hash.
func (f *frame) step() uint64 {
	if f.object {
		return f.key.hash << 1
	}
	return uint64(f.index)<<1 | 1
}

func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

// close ends the current object or array.
func (w *walker) close() {
	w.pos++
	f := w.top()
	if f.dropped >= 0 {
		from := f.dropped
		if f.kept > 0 {
			from = f.kept
		}
		w.edits = append(w.edits, edit{start: from, end: f.ends})
	}
	w.distinct(f)
	if f.streams != nil {
		w.s.endStreams(f, w.same.sideOf(w.data, w.pos-1, w.pos))
	}
	w.s.path = w.s.path[:len(w.s.path)-1]
	w.done(false)
}

// done ends the current value. If drop is set, the value is removed.
func (w *walker) done(drop bool) {
	w.state, w.any = wantNext, true
	f := w.top()
	switch {
	case f == nil:
		w.drop = w.drop || drop
	case drop || f.object && f.key.drop:
		if drop {
			w.edits = w.edits[:f.firstEdit]
		}
		w.s.again = true // separate parts are now adjacent
		if f.dropped < 0 {
			f.dropped = f.start
		}
		f.ends = w.pos
	default:
		if f.dropped >= 0 {
			w.edits = append(w.edits, edit{start: f.dropped, end: f.start})
		}
		f.dropped, f.kept = -1, w.pos
	}
}

// name reads the name of a member.
func (w *walker) name() bool {
	end, escaped := spans.StringEnd(w.data, w.pos+1)
	if end < 0 {
		return false
	}
	raw := w.data[w.pos+1 : end]
	text := raw
	if escaped {
		var ok bool
		if text, ok = unescape(nil, raw); !ok {
			text = raw
		}
	}
	f := w.s.reach(text)
	f.start, f.firstEdit = w.pos, len(w.edits)
	if m := f.key; len(m.edits) > 0 && !m.drop {
		f.nameEdits = append(f.nameEdits, len(w.edits))
		w.edits = append(w.edits, edit{w.pos + 1, end, appendEscaped(nil, apply(text, m.edits))})
	}
	w.pos = end + 1
	w.state = wantColon
	return true
}

// distinct makes names that redaction made equal distinct again, so that no member hides another.
func (w *walker) distinct(f *frame) {
	for _, i := range f.nameEdits {
		w.edits[i].text = []byte(f.distinct(string(w.edits[i].text)))
	}
}

// value reads a value that begins with b.
func (w *walker) value(b byte) (ok bool, err error) {
	if f := w.top(); f != nil && !f.object {
		f.start, f.firstEdit = w.pos, len(w.edits)
	}
	if allow, block := w.s.judge(); allow || block {
		return w.whole(block && !allow)
	}
	switch b {
	case '{', '[':
		return true, w.open(b == '{')
	case '"':
		end, escaped := spans.StringEnd(w.data, w.pos+1)
		if end < 0 {
			return false, nil
		}
		drop, err := w.text(w.pos+1, end, escaped)
		if err != nil {
			return false, err
		}
		w.pos = end + 1
		w.done(drop)
		return true, nil
	}
	end := spans.LiteralEnd(w.data, w.pos)
	if end == w.pos {
		return false, nil
	}
	drop := w.literal(w.pos, end)
	w.pos = end
	w.done(drop)
	return true, nil
}

// text redacts the string between two quotes.
func (w *walker) text(start, end int, escaped bool) (drop bool, err error) {
	if w.stops != nil {
		w.stop(end)
		return false, nil
	}
	from := len(w.edits)
	sd := w.same.sideOf(w.data, start-1, end+1)
	if sd == changedSide {
		if drop, err = w.changed(start, end, escaped); err != nil {
			return false, err
		}
	}
	if !drop {
		w.s.follow(w.base, w.s.streams.pieceOf(w.data, start, end, escaped, w.edits[from:]), sd)
	}
	return drop, nil
}

// changed redacts a string that isn't known from the parent.
func (w *walker) changed(start, end int, escaped bool) (drop bool, err error) {
	text := w.data[start:end]
	if escaped {
		scratch := &w.s.scratch[w.s.layers]
		decoded, ok := unescape((*scratch)[:0], text)
		if ok {
			*scratch, text = decoded, decoded
		} else {
			escaped = false
		}
	}
	edits, drop, err := w.s.inner(text, w.s.owner())
	if err != nil || len(edits) == 0 {
		return drop, err
	}
	if escaped {
		edits = escapedEdits(w.data[start:end], edits)
	} else {
		for i := range edits {
			edits[i].text = appendEscaped(nil, edits[i].text)
		}
	}
	for _, e := range edits {
		w.edits = append(w.edits, edit{e.start + start, e.end + start, e.text})
	}
	return drop, nil
}

// inner redacts a text that is a value: as JSON if it is an object or array, otherwise as plain
// text.
func (s *scan) inner(text []byte, key *member) (edits []edit, drop bool, err error) {
	if s.layers < maxLayers && len(text) > 1 && (text[0] == '{' || text[0] == '[' || isSpace(text[0])) && looksLikeJSON(text) {
		s.layers++
		edits, drop, ok, err := s.json(text, nil)
		s.layers--
		if ok || err != nil {
			return edits, drop, err
		}
	}
	edits, drop = s.value(text, key)
	return edits, drop, nil
}

// literal redacts a number. A match turns it into a string.
func (w *walker) literal(start, end int) (drop bool) {
	text := w.data[start:end]
	if len(text) < 3 || w.same.sideOf(w.data, start, end) != changedSide || bytes.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		return false
	}
	edits, drop := w.s.number(text)
	if len(edits) > 0 {
		w.edits = append(w.edits, edit{start, end, slices.Concat([]byte(`"`), apply(text, edits), []byte(`"`))})
	}
	return drop
}

// join applies the edits of matches across chunks and counts these findings at the path where they
// begin.
func (w *walker) join() {
	for _, j := range w.s.streams.joins {
		w.edits = append(w.edits, j.edit)
	}
	if len(w.s.streams.splits) == 0 {
		return
	}
	// A second walk finds the paths of the findings.
	stops := slices.Clone(w.s.streams.splits)
	slices.SortStableFunc(stops, func(x, y split) int { return cmp.Compare(x.at, y.at) })
	again := &walker{s: w.s, data: w.data, base: w.base, same: region{whole: true}, stops: stops}
	outer := w.s.saveStreams(w.data)
	w.s.reporting = false
	_, _ = again.run() // it has completed once already
	w.s.reporting = true
	w.s.restoreStreams(outer)
	w.s.path = w.s.path[:w.base]
}

// stop counts the findings that begin in the current string.
func (w *walker) stop(end int) {
	for len(w.stops) > 0 && w.stops[0].at <= end {
		w.s.reporting = true
		w.s.count(w.stops[0].rule)
		w.s.reporting = false
		w.stops = w.stops[1:]
	}
}

// whole skips a value without examining it. If it is blocked, it is replaced.
func (w *walker) whole(block bool) (ok bool, err error) {
	start := w.pos
	end, err := spans.JSON(w.data, start, maxDepth-len(w.s.path))
	if errors.Is(err, spans.ErrDeep) {
		return false, w.s.tooDeep()
	}
	if err != nil {
		return false, nil
	}
	w.same.sideOf(w.data, start, end) // to continue after it
	w.pos = end
	value := w.data[start:end]
	if !block || string(value) == "null" || len(value) > 2 && value[0] == '"' && value[1] == '[' && markAt(value, 1) == len(value)-1 ||
		string(value) == `""` {
		w.done(false)
		return true, nil
	}
	w.s.count(w.s.r.blocked)
	mark := slices.Concat([]byte(`"`), w.s.replacement(w.s.r.blocked, value), []byte(`"`))
	w.edits = append(w.edits, edit{start, end, mark})
	w.done(w.s.r.blocked.action == Drop)
	return true, nil
}
