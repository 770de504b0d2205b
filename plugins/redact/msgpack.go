package redact

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
)

// packed goes through msgpack like walker goes through JSON. Extensions and binary values are looked into when what
// they hold is msgpack, and binary values when it is text.
type packed struct {
	s     *scan
	data  []byte
	base  int // how many frames were open outside
	edits []edit
}

// msgpack redacts a value in msgpack, or several one after the other.
func (s *scan) msgpack(data []byte) (edits []edit, drop, ok bool, err error) {
	p := &packed{s: s, data: data}
	p.base = len(s.path)
	outer := s.hold(data)
	defer func() {
		s.path = s.path[:p.base]
		s.release(outer)
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

// join makes the edits of what was cut into chunks.
func (p *packed) join() {
	s := p.s
	slices.SortStableFunc(s.chains.joins, func(x, y joinEdit) int { return cmp.Compare(x.edit.start, y.edit.start) })
	for i := 0; i < len(s.chains.joins); {
		at := int(s.chains.joins[i].piece.head)
		var edits []edit
		for ; i < len(s.chains.joins) && int(s.chains.joins[i].piece.head) == at; i++ {
			edits = append(edits, s.chains.joins[i].edit)
		}
		h, _ := p.head(at)
		edits = ordered(edits)
		for k := range edits {
			edits[k].start -= h.start
			edits[k].end -= h.start
		}
		p.edits = append(p.edits, edit{at, h.start + h.size, packText(h.kind, apply(p.data[h.start:h.start+h.size], edits))})
	}
	for _, sp := range s.chains.splits {
		s.count(sp.rule)
	}
}

// notMsgpack is the error of data that should be msgpack and is not: what we cannot read we cannot redact.
func (s *scan) notMsgpack(err error) error {
	if err != nil {
		return err
	}
	return &hook.Error{Kind: hook.ErrRejected, Plugin: name, Item: s.in.Name,
		Reason: "is not msgpack, so nothing in it can be redacted: save it as what it is"}
}

// head is the header of a value: where its content is, or how many values follow.
type head struct {
	kind  headKind
	start int // of the content
	size  int // of the content, in bytes, or in values (twice as many in a map)
	code  byte
}

type headKind uint8

const (
	scalar headKind = iota
	unsigned
	str
	bin
	ext
	array
	object
)

// head reads the header at data[at:]. Not ok: it is cut off, or no msgpack.
func (p *packed) head(at int) (h head, ok bool) {
	d := p.data
	b := d[at]
	wide := func(n int) (v int, ok bool) { // a length of n bytes behind the first
		if at+1+n > len(d) {
			return 0, false
		}
		var buf [8]byte
		copy(buf[8-n:], d[at+1:at+1+n])
		u := binary.BigEndian.Uint64(buf[:])
		return int(min(u, math.MaxInt64)), u <= math.MaxInt64
	}
	fixed := func(n int) (head, bool) { return head{scalar, at + 1, n, b}, at+1+n <= len(d) }
	sized := func(kind headKind, n int) (head, bool) {
		size, ok := wide(n)
		h := head{kind, at + 1 + n, size, 0}
		if kind == ext {
			h.start++
			if ok = ok && h.start <= len(d); ok {
				h.code = d[h.start-1]
			}
		}
		return h, ok && size <= len(d)-h.start
	}
	switch {
	case b < 0x80 || b >= 0xe0 || b == 0xc0 || b == 0xc2 || b == 0xc3:
		return fixed(0)
	case b < 0x90:
		return head{object, at + 1, int(b & 15), 0}, int(b&15) <= len(d)
	case b < 0xa0:
		return head{array, at + 1, int(b & 15), 0}, int(b&15) <= len(d)
	case b < 0xc0:
		return head{str, at + 1, int(b & 31), 0}, at+1+int(b&31) <= len(d)
	case b >= 0xc4 && b <= 0xc6:
		return sized(bin, 1<<(b-0xc4))
	case b >= 0xc7 && b <= 0xc9:
		return sized(ext, 1<<(b-0xc7))
	case b == 0xca || b == 0xcb:
		return fixed(4 << (b - 0xca))
	case b >= 0xcc && b <= 0xcf:
		h, ok = fixed(1 << (b - 0xcc))
		h.kind = unsigned
		return h, ok
	case b >= 0xd0 && b <= 0xd3:
		return fixed(1 << (b - 0xd0))
	case b >= 0xd4 && b <= 0xd8:
		h = head{ext, at + 2, 1 << (b - 0xd4), 0}
		if ok = h.start+h.size <= len(d); ok {
			h.code = d[at+1]
		}
		return h, ok
	case b >= 0xd9 && b <= 0xdb:
		return sized(str, 1<<(b-0xd9))
	case b == 0xdc || b == 0xdd:
		return sized(array, 2<<(b-0xdc))
	case b == 0xde || b == 0xdf:
		return sized(object, 2<<(b-0xde))
	}
	return h, false
}

// value redacts the value at data[at:] and returns where it ends, -1 if it is no msgpack.
func (p *packed) value(at int) (end int, drop bool, err error) {
	if at >= len(p.data) {
		return -1, false, nil
	}
	h, ok := p.head(at)
	if !ok {
		return -1, false, nil
	}
	if allow, block := p.s.judge(); allow || block {
		return p.whole(at, block && !allow)
	}
	switch h.kind {
	case str:
		drop, err = p.text(at, h)
	case bin, ext:
		drop, err = p.nested(at, h)
	case unsigned:
		drop = p.number(at, h)
	case array, object:
		return p.container(at, h)
	}
	return h.start + h.size, drop, err
}

// key returns the member that the value in hand belongs to.
func (p *packed) key() *member {
	if len(p.s.path) == 0 {
		return nil
	}
	f := &p.s.path[len(p.s.path)-1]
	if f.object {
		return f.key
	}
	return f.nearest
}

// container redacts an array or a map.
func (p *packed) container(at int, h head) (end int, drop bool, err error) {
	s := p.s
	if len(s.path) >= maxDepth {
		return -1, false, s.tooDeep()
	}
	s.path = append(s.path, frame{object: h.kind == object, nearest: p.key()})
	depth := len(s.path)
	end = h.start
	gone := 0
	for i := range h.size {
		start, mark := end, len(p.edits)
		f := &s.path[depth-1]
		f.index = i
		keyGone := false
		if f.object {
			if end, keyGone = p.name(end, f); end < 0 {
				return -1, false, nil
			}
		}
		var valueGone bool
		if end, valueGone, err = p.value(end); end < 0 || err != nil {
			return -1, false, err
		}
		if keyGone || valueGone {
			gone++
			p.edits = append(p.edits[:mark], edit{start: start, end: end})
			s.again = true // what was apart is together now
		}
	}
	f := &s.path[depth-1]
	for _, i := range f.marked {
		p.distinct(f, i)
	}
	s.unlink(f, changedSide)
	s.path = s.path[:depth-1]
	if gone > 0 {
		p.edits = append(p.edits, edit{at, h.start, appendHead(nil, h.kind, h.size-gone, 0)})
	}
	return end, false, nil
}

// name redacts the key of a map at data[at:] and returns where it ends.
func (p *packed) name(at int, f *frame) (end int, drop bool) {
	if at >= len(p.data) {
		return -1, false
	}
	h, ok := p.head(at)
	if !ok {
		return -1, false
	}
	f.key = p.s.member(nil)
	if h.kind != str && h.kind != bin {
		end, err := p.s.packedEnd(p.data, at)
		if err != nil {
			return -1, false
		}
		return end, false
	}
	end = h.start + h.size
	text := p.data[h.start:end]
	m := p.s.member(text)
	f.key = m
	if m.mark {
		f.take(m.name)
	}
	if len(m.edits) > 0 {
		for _, r := range m.found {
			p.s.count(r)
		}
		f.marked = append(f.marked, len(p.edits))
		p.edits = append(p.edits, edit{at, end, packText(h.kind, apply(text, m.edits))})
	}
	return end, m.drop
}

// distinct makes a name one that no other of the map has.
func (p *packed) distinct(f *frame, i int) {
	if i >= len(p.edits) {
		return // it was dropped
	}
	q := packed{s: p.s, data: p.edits[i].text}
	if len(q.data) == 0 {
		return
	}
	if h, ok := q.head(0); ok {
		p.edits[i].text = packText(h.kind, []byte(f.distinct(string(q.data[h.start:]))))
	}
}

// text redacts a string, or a binary value that is text.
func (p *packed) text(at int, h head) (drop bool, err error) {
	end := h.start + h.size
	text := p.data[h.start:end]
	edits, drop, err := p.s.inner(text, p.key())
	if err != nil {
		return false, err
	}
	if len(edits) > 0 {
		p.edits = append(p.edits, edit{at, end, packText(h.kind, apply(text, edits))})
	}
	if h.kind == str && !drop {
		for i := range edits {
			edits[i].start, edits[i].end = edits[i].start+h.start, edits[i].end+h.start
		}
		link := p.s.chains.pieceOf(p.data, h.start, end, false, edits)
		link.head = int32(at)
		p.s.link(p.base, link, changedSide)
	}
	return drop, nil
}

// nested redacts what a binary value or an extension holds: msgpack, or in a binary value text.
func (p *packed) nested(at int, h head) (drop bool, err error) {
	end := h.start + h.size
	content := p.data[h.start:end]
	if p.s.layers < maxLayers && (isContainer(content) || h.kind == ext && isString(content)) {
		if whole, _ := p.s.packedEnd(content, 0); whole == len(content) {
			p.s.layers++
			edits, drop, ok, err := p.s.msgpack(content)
			p.s.layers--
			if err != nil {
				return false, err
			}
			if ok && len(edits) > 0 {
				p.edits = append(p.edits, edit{at, end, packContent(h, apply(content, edits))})
			}
			return drop && ok, nil
		}
	}
	if h.kind == bin && utf8.Valid(content) {
		return p.text(at, h)
	}
	return false, nil
}

// isContainer reports whether msgpack begins with an array or map.
func isContainer(v []byte) bool {
	return len(v) > 0 && (v[0]&0xe0 == 0x80 || v[0] >= 0xdc && v[0] <= 0xdf)
}

// isString reports whether msgpack begins with a string.
func isString(v []byte) bool {
	return len(v) > 0 && (v[0]&0xe0 == 0xa0 || v[0] >= 0xd9 && v[0] <= 0xdb)
}

// number redacts an unsigned integer. What is found makes a string of it.
func (p *packed) number(at int, h head) (drop bool) {
	var buf [8]byte
	copy(buf[8-h.size:], p.data[h.start:h.start+h.size])
	text := strconv.AppendUint(nil, binary.BigEndian.Uint64(buf[:]), 10)
	key := p.key()
	if len(text) < 7 && (key == nil || len(key.assigned) == 0) || len(text) < 3 {
		return false
	}
	p.s.bare = true
	edits, drop := p.s.value(text, key)
	p.s.bare = false
	if len(edits) > 0 {
		p.edits = append(p.edits, edit{at, h.start + h.size, packText(str, apply(text, edits))})
	}
	return drop
}

// whole passes a value over, and replaces it if it is blocked.
func (p *packed) whole(at int, block bool) (end int, drop bool, err error) {
	if end, err = p.s.packedEnd(p.data, at); end < 0 || err != nil {
		return -1, false, err
	}
	value := p.data[at:end]
	h, _ := p.head(at)
	if !block || value[0] == 0xc0 || h.kind == str && (h.size == 0 || p.data[h.start] == '[' && markAt(p.data[:end], h.start) == end) {
		return end, false, nil
	}
	p.s.count(p.s.r.blocked)
	p.edits = append(p.edits, edit{at, end, packText(str, p.s.replacement(p.s.r.blocked, value))})
	return end, p.s.r.blocked.action == Drop, nil
}

// packedEnd returns where the value at data[at:] ends, -1 if it is cut off or no msgpack. What it opens it counts, so
// that depth costs nothing.
func (s *scan) packedEnd(data []byte, at int) (end int, err error) {
	p := packed{data: data}
	for left := 1; left > 0; left-- {
		if at >= len(data) {
			return -1, nil
		}
		h, ok := p.head(at)
		if !ok {
			return -1, nil
		}
		at = h.start
		switch h.kind {
		case array:
			left += h.size
		case object:
			left += 2 * h.size
		default:
			at += h.size
		}
		if left > len(data)-at+1 {
			return -1, nil
		}
	}
	return at, nil
}

// packText returns a string or binary value of text.
func packText(kind headKind, text []byte) []byte {
	return append(appendHead(nil, kind, len(text), 0), text...)
}

func packContent(h head, content []byte) []byte {
	return append(appendHead(nil, h.kind, len(content), h.code), content...)
}

// appendHead appends the shortest header.
func appendHead(buf []byte, kind headKind, n int, code byte) []byte {
	sized := func(b8, b16, b32 byte) []byte {
		switch {
		case n < 1<<8 && b8 != 0:
			return append(buf, b8, byte(n))
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(append(buf, b16), uint16(n))
		}
		return binary.BigEndian.AppendUint32(append(buf, b32), uint32(n))
	}
	switch {
	case kind == str && n < 32:
		return append(buf, 0xa0|byte(n))
	case kind == str:
		return sized(0xd9, 0xda, 0xdb)
	case kind == bin:
		return sized(0xc4, 0xc5, 0xc6)
	case kind == array && n < 16:
		return append(buf, 0x90|byte(n))
	case kind == array:
		return sized(0, 0xdc, 0xdd)
	case kind == object && n < 16:
		return append(buf, 0x80|byte(n))
	case kind == object:
		return sized(0, 0xde, 0xdf)
	}
	if i := slices.Index([]int{1, 2, 4, 8, 16}, n); i >= 0 {
		return append(buf, 0xd4+byte(i), code)
	}
	return append(sized(0xc7, 0xc8, 0xc9), code)
}
