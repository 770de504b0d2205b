package redact

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/spans"
)

// packed traverses msgpack as walker traverses JSON. It looks into extensions and binary values
// that contain msgpack, and into binary values that are text.
type packed struct {
	s     *scan
	data  []byte
	base  int // number of frames opened by outer texts
	edits []edit
}

// msgpack redacts one msgpack value or several in sequence.
func (s *scan) msgpack(data []byte) (edits []edit, drop, ok bool, err error) {
	p := &packed{s: s, data: data}
	p.base = len(s.path)
	outer := s.saveStreams(data)
	defer func() {
		s.path = s.path[:p.base]
		s.restoreStreams(outer)
	}()
	for at := 0; at < len(data); {
		next, gone, err := p.value(at)
		if err != nil {
			return nil, false, false, err
		}
		if next < 0 {
			return nil, false, false, nil
		}
		drop = drop || gone
		at = next
	}
	p.join()
	return ordered(p.edits), drop, true, nil
}

// join applies the edits of matches across chunks.
func (p *packed) join() {
	s := p.s
	slices.SortStableFunc(s.streams.joins, func(x, y joinEdit) int { return cmp.Compare(x.edit.start, y.edit.start) })
	for i := 0; i < len(s.streams.joins); {
		at := int(s.streams.joins[i].piece.head)
		var edits []edit
		for ; i < len(s.streams.joins) && int(s.streams.joins[i].piece.head) == at; i++ {
			edits = append(edits, s.streams.joins[i].edit)
		}
		h, _ := spans.Msgpack(p.data, at)
		edits = ordered(edits)
		for k := range edits {
			edits[k].start -= h.Start
			edits[k].end -= h.Start
		}
		p.edits = append(p.edits, edit{at, h.End(), packText(h.Kind, apply(p.data[h.Start:h.End()], edits))})
	}
	for _, sp := range s.streams.splits {
		s.count(sp.rule)
	}
}

// notMsgpack returns the error for data that should be msgpack but is not: unreadable data cannot
// be redacted.
func (s *scan) notMsgpack(err error) error {
	if err != nil {
		return err
	}
	return &hook.Error{Kind: hook.ErrRejected, Plugin: name, Item: s.in.Name,
		Reason: "is not msgpack and cannot be redacted: save it under its real type"}
}

// value redacts the value at data[at:] and returns its end, or -1 if it isn't msgpack.
func (p *packed) value(at int) (end int, drop bool, err error) {
	h, ok := spans.Msgpack(p.data, at)
	if !ok {
		return -1, false, nil
	}
	if allow, block := p.s.judge(); allow || block {
		return p.whole(at, block && !allow)
	}
	switch h.Kind {
	case spans.String:
		drop, err = p.text(at, h)
	case spans.Binary, spans.Ext:
		drop, err = p.nested(at, h)
	case spans.Uint:
		drop = p.number(at, h, h.Bits(p.data))
	case spans.Int:
		if n := h.Int(p.data); n >= 0 {
			drop = p.number(at, h, uint64(n))
		}
	case spans.Array, spans.Map:
		return p.container(at, h)
	}
	return h.End(), drop, err
}

// container redacts an array or a map.
func (p *packed) container(at int, h spans.Head) (end int, drop bool, err error) {
	s := p.s
	if err := s.enter(h.Kind == spans.Map); err != nil {
		return -1, false, err
	}
	depth := len(s.path)
	end = h.Start
	gone := 0
	for i := range h.Size {
		start, firstEdit := end, len(p.edits)
		f := &s.path[depth-1]
		f.index = i
		keyGone := false
		if f.object {
			if end, keyGone = p.name(end); end < 0 {
				return -1, false, nil
			}
		}
		var valueGone bool
		if end, valueGone, err = p.value(end); end < 0 || err != nil {
			return -1, false, err
		}
		if keyGone || valueGone {
			gone++
			p.edits = append(p.edits[:firstEdit], edit{start: start, end: end})
			s.again = true // separate parts are now adjacent
		}
	}
	f := &s.path[depth-1]
	for _, i := range f.nameEdits {
		p.distinct(f, i)
	}
	s.endStreams(f, changedSide)
	s.path = s.path[:depth-1]
	if gone > 0 {
		p.edits = append(p.edits, edit{at, h.Start, spans.AppendHead(nil, h.Kind, h.Size-gone, 0)})
	}
	return end, false, nil
}

// name redacts the map key at data[at:] and returns its end.
func (p *packed) name(at int) (end int, drop bool) {
	h, ok := spans.Msgpack(p.data, at)
	if !ok {
		return -1, false
	}
	if h.Kind != spans.String && h.Kind != spans.Binary {
		p.s.path[len(p.s.path)-1].key = unnamed
		end, err := spans.MsgpackEnd(p.data, at)
		if err != nil {
			return -1, false
		}
		return end, false
	}
	end = h.End()
	text := p.data[h.Start:end]
	f := p.s.reach(text)
	if len(f.key.edits) > 0 {
		f.nameEdits = append(f.nameEdits, len(p.edits))
		p.edits = append(p.edits, edit{at, end, packText(h.Kind, apply(text, f.key.edits))})
	}
	return end, f.key.drop
}

// distinct makes a name distinct from all others in the map.
func (p *packed) distinct(f *frame, i int) {
	if i >= len(p.edits) {
		return // it was dropped
	}
	text := p.edits[i].text
	if h, ok := spans.Msgpack(text, 0); ok {
		p.edits[i].text = packText(h.Kind, []byte(f.distinct(string(text[h.Start:]))))
	}
}

// text redacts a string, or a binary value that is text.
func (p *packed) text(at int, h spans.Head) (drop bool, err error) {
	end := h.End()
	text := p.data[h.Start:end]
	edits, drop, err := p.s.inner(text, p.s.owner())
	if err != nil {
		return false, err
	}
	if len(edits) > 0 {
		p.edits = append(p.edits, edit{at, end, packText(h.Kind, apply(text, edits))})
	}
	if h.Kind == spans.String && !drop {
		for i := range edits {
			edits[i].start, edits[i].end = edits[i].start+h.Start, edits[i].end+h.Start
		}
		chunk := p.s.streams.pieceOf(p.data, h.Start, end, false, edits)
		chunk.head = int32(at)
		p.s.follow(p.base, chunk, changedSide)
	}
	return drop, nil
}

// nested redacts the contents of a binary value or an extension: msgpack or, in a binary value,
// text.
func (p *packed) nested(at int, h spans.Head) (drop bool, err error) {
	end := h.End()
	content := p.data[h.Start:end]
	inner, _ := spans.Msgpack(content, 0)
	if p.s.layers < maxLayers && (inner.Kind == spans.Array || inner.Kind == spans.Map || inner.Kind == spans.String && h.Kind == spans.Ext) {
		if whole, err := spans.MsgpackEnd(content, 0); err == nil && whole == len(content) {
			p.s.layers++
			edits, drop, ok, err := p.s.msgpack(content)
			p.s.layers--
			if err != nil {
				return false, err
			}
			if ok && len(edits) > 0 {
				redacted := apply(content, edits)
				p.edits = append(p.edits, edit{at, end, append(spans.AppendHead(nil, h.Kind, len(redacted), h.Code), redacted...)})
			}
			return drop && ok, nil
		}
	}
	if h.Kind == spans.Binary && utf8.Valid(content) {
		return p.text(at, h)
	}
	return false, nil
}

// number redacts an integer with the value n. A match turns it into a string.
func (p *packed) number(at int, h spans.Head, n uint64) (drop bool) {
	if n < 100 {
		return false // like most
	}
	var buf [20]byte
	text := strconv.AppendUint(buf[:0], n, 10)
	edits, drop := p.s.number(text)
	if len(edits) > 0 {
		p.edits = append(p.edits, edit{at, h.End(), packText(spans.String, apply(text, edits))})
	}
	return drop
}

// whole skips a value. If it is blocked, it is replaced.
func (p *packed) whole(at int, block bool) (end int, drop bool, err error) {
	if end, err = spans.MsgpackEnd(p.data, at); err != nil {
		return -1, false, nil
	}
	value := p.data[at:end]
	h, _ := spans.Msgpack(p.data, at)
	if !block || h.Kind == spans.Nil || h.Kind == spans.String && (h.Size == 0 || p.data[h.Start] == '[' && markAt(p.data[:end], h.Start) == end) {
		return end, false, nil
	}
	p.s.count(p.s.r.blocked)
	p.edits = append(p.edits, edit{at, end, packText(spans.String, p.s.replacement(p.s.r.blocked, value))})
	return end, p.s.r.blocked.action == Drop, nil
}

// packText encodes text as a string or binary value.
func packText(kind spans.Kind, text []byte) []byte {
	return append(spans.AppendHead(nil, kind, len(text), 0), text...)
}
