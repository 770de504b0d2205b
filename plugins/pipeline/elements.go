package pipeline

import (
	"bytes"
	"math"

	"github.com/ckptd/ckptd/internal/alike"
	"github.com/ckptd/ckptd/internal/spans"
)

// splitter iterates over the elements of a JSON value. For an array these are its elements. For an
// object they are the elements of members that are arrays, and the values of all other members. Any
// other value is its own single element. The splitter is fast and can accept invalid JSON, but the
// elements it finds never overlap and do not depend on anything after them.
type splitter struct {
	data  []byte
	pos   int
	state splitState
}

type splitState uint8

const (
	splitBegin  splitState = iota
	splitArray             // in the outermost array
	splitObject            // in the outermost object
	splitMember            // in an array that is a member of that object
	splitEnd               // after the value
	splitBad               // not JSON
)

// span is the position of an element.
type span struct{ start, end int }

// next returns the next element. At the end, or at the first invalid JSON, ok is false.
func (s *splitter) next() (e span, ok bool) {
	for {
		s.skipBlanks()
		if s.pos >= len(s.data) {
			if s.state != splitEnd {
				s.state = splitBad
			}
			return span{}, false
		}
		c := s.data[s.pos]
		switch s.state {
		case splitBegin:
			switch c {
			case '[':
				s.state = splitArray
				s.pos++
			case '{':
				s.state = splitObject
				s.pos++
			default:
				s.state = splitEnd
				return s.value()
			}
		case splitArray, splitMember:
			switch c {
			case ',':
				s.pos++
			case ']':
				s.pos++
				if s.state == splitArray {
					s.state = splitEnd
				} else {
					s.state = splitObject
				}
			default:
				return s.value()
			}
		case splitObject:
			switch c {
			case ',':
				s.pos++
			case '}':
				s.pos++
				s.state = splitEnd
			default:
				if !s.key() {
					return s.bad()
				}
				if s.pos < len(s.data) && s.data[s.pos] == '[' {
					s.pos++
					s.state = splitMember
					continue
				}
				return s.value()
			}
		default:
			return s.bad() // there is more after the value
		}
	}
}

func (s *splitter) bad() (span, bool) {
	s.state = splitBad
	return span{}, false
}

func (s *splitter) skipBlanks() {
	for s.pos < len(s.data) && spans.Blank(s.data[s.pos]) {
		s.pos++
	}
}

// key skips a name and the colon after it.
func (s *splitter) key() bool {
	if s.data[s.pos] != '"' {
		return false
	}
	quote, _ := spans.StringEnd(s.data, s.pos+1)
	if quote < 0 {
		return false
	}
	s.pos = quote + 1
	s.skipBlanks()
	if s.pos >= len(s.data) || s.data[s.pos] != ':' {
		return false
	}
	s.pos++
	s.skipBlanks()
	return true
}

// value skips a value and returns its position.
func (s *splitter) value() (span, bool) {
	end, err := spans.JSON(s.data, s.pos, math.MaxInt)
	if err != nil {
		return s.bad()
	}
	e := span{s.pos, end}
	s.pos = end
	return e, true
}

// changedElements returns the elements of data that are not elements of prev, in order. If data
// cannot be split, ok is false and data must be treated as a whole.
func changedElements(data, prev []byte) (changed []span, ok bool) {
	s := splitter{data: data}
	same := 0 // length of the common prefix
	if prev != nil {
		same = alike.Prefix(data, prev)
	}
	fork := splitter{data: prev} // after the last element of prev that is at the same position in data
	for {
		e, more := s.next()
		if !more {
			break
		}
		if e.end < same || e.end == same && ends(prev, e.end) {
			fork.pos, fork.state = s.pos, s.state
			continue
		}
		changed = append(changed, e)
	}
	if s.state != splitEnd {
		return nil, false
	}
	if prev == nil || len(changed) == 0 {
		return changed, true
	}
	known := map[string]bool{}
	for {
		e, more := fork.next()
		if !more {
			break
		}
		known[string(prev[e.start:e.end])] = true
	}
	if fork.state != splitEnd {
		known = nil
	}
	rest := changed[:0]
	for _, e := range changed {
		if !known[string(data[e.start:e.end])] {
			rest = append(rest, e)
		}
	}
	return rest, true
}

// ends reports whether a value just before pos is complete there. Strings, objects and arrays have
// an end of their own; numbers and words extend until something else follows.
func ends(data []byte, pos int) bool {
	if pos == 0 || pos >= len(data) {
		return false
	}
	return bytes.IndexByte([]byte("\"}]"), data[pos-1]) >= 0 || spans.Blank(data[pos]) || bytes.IndexByte([]byte(",]}"), data[pos]) >= 0
}
