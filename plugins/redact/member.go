package redact

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// member holds the facts that a name tells about its value.
type member struct {
	name     string
	hash     uint64  // of the name
	context  []*rule // rules that have the name as a context word
	unless   []*rule
	assigned []*rule // rules that have a keyword in the name
	allow    bool
	block    bool
	mark     bool   // the name is a mark
	drop     bool   // a rule with the action drop matched in the name
	edits    []edit // edits that redact the name
	found    []*rule
	shown    string // form of the name in a path
}

// unnamed is the member of values without a name.
var unnamed = &member{shown: "*"}

// frame is an open object, array or map.
type frame struct {
	object    bool
	key       *member // the current member
	nearest   *member // the member that contains the values of an array
	index     int
	streams   *arrayStreams  // for an array: the streams across its elements
	start     int            // start of the current child
	kept      int            // end of the last child that stays, 0 if none
	dropped   int            // start of the current run of dropped children, -1 if none
	ends      int            // end of that run
	firstEdit int            // number of edits before the child
	nameEdits []int          // indexes of the edits of names
	taken     map[string]int // names that are marks, with the last number used to make each distinct
}

// enter opens an object, array or map.
func (s *scan) enter(object bool) error {
	if len(s.path) >= maxDepth {
		return s.tooDeep()
	}
	s.path = append(s.path, frame{object: object, dropped: -1, nearest: s.owner()})
	return nil
}

// owner returns the member that the current value belongs to, or nil.
func (s *scan) owner() *member {
	if len(s.path) == 0 {
		return nil
	}
	f := &s.path[len(s.path)-1]
	if f.object {
		return f.key
	}
	return f.nearest
}

// reach moves on to a member of the current object and returns that object.
func (s *scan) reach(name []byte) *frame {
	m := s.member(name) // may walk JSON within the name, which can move s.path
	f := &s.path[len(s.path)-1]
	f.key = m
	if m.mark {
		f.take(m.name)
	}
	if len(m.edits) > 0 {
		for _, r := range m.found {
			s.count(r)
		}
	}
	return f
}

// take records a name as taken.
func (f *frame) take(name string) {
	if f.taken == nil {
		f.taken = map[string]int{}
	}
	f.taken[name] = max(f.taken[name], 1)
}

// distinct returns an unused variant of a name that redaction made, and takes it.
func (f *frame) distinct(name string) string {
	made := name
	for f.taken[made] > 0 {
		f.taken[name]++
		made = numbered(name, f.taken[name])
	}
	f.take(made)
	return made
}

// member returns the facts about a name, which is given without escapes.
func (s *scan) member(name []byte) *member {
	slot := &s.recent[0]
	if n := len(name); n > 0 {
		slot = &s.recent[(n*7+int(name[0])*3+int(name[n-1])+int(name[n/2])*5)%len(s.recent)]
		if *slot != nil && (*slot).name == string(name) {
			return *slot
		}
	}
	m, ok := s.keys[string(name)]
	if !ok {
		m = s.newMember(name)
	}
	*slot = m
	return m
}

func (s *scan) newMember(name []byte) *member {
	m := &member{name: string(name), shown: "*"}
	s.members++
	m.hash = uint64(s.members)
	lower := strings.ToLower(string(name))
	m.allow, m.block = s.r.allowKeys[lower], s.r.blockKeys[lower]
	if len(name) > 0 && name[0] == '[' {
		m.mark = markAt(name, 0) == len(name)
	}
	reports := s.reporting
	s.reporting = false
	if n := len(s.path); n > 0 {
		s.path[n-1].key = unnamed // path while inside a name that contains JSON
	}
	m.edits, m.found = s.settle(name, nil)
	s.reporting = reports
	if len(m.edits) > 0 {
		for _, r := range m.found {
			m.drop = m.drop || r.action == Drop
		}
	} else if !m.mark {
		s.learn(m, name)
		if !odd(name) {
			m.shown = pointerName.Replace(string(name))
		}
	}
	s.keys[string(name)] = m
	return m
}

var pointerName = strings.NewReplacer("~", "~0", "/", "~1")

// odd reports whether a name looks like data: it is long or unlike a name in a schema.
func odd(name []byte) bool {
	digits := 0
	for _, b := range name {
		if isDigit(b) {
			digits++
		}
	}
	return len(name) == 0 || len(name) > 48 || digits > 4 || !utf8.Valid(name) || bytes.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.$:@/~", r)
	}) || bytes.IndexByte(name, '@') > 0
}

// learn finds words in a name that tell something about its value.
func (s *scan) learn(m *member, name []byte) {
	state := uint16(0)
	for i, b := range name {
		state = s.r.words.step(state, b)
		if state < s.r.words.accept {
			continue
		}
		for _, word := range s.r.words.at(state) {
			for _, t := range s.r.acts[word] {
				start, end := i+1-t.size, i+1
				if t.exact != "" && string(name[start:end]) != t.exact {
					continue
				}
				switch t.kind {
				case byContext:
					if startsWord(name, start, end) {
						m.context = append(m.context, t.rule)
					}
				case byClose:
					if standsApart(name, start, end) {
						m.context = append(m.context, t.rule)
					}
				case byUnless:
					if startsWord(name, start, end) {
						m.unless = append(m.unless, t.rule)
					}
				case byAssigned:
					if !isName(name, start, end) {
						continue
					}
					if at, _ := nameEnd(name, start, end); at == len(name) {
						m.assigned = append(m.assigned, t.rule)
					}
				}
			}
		}
	}
}

// byKey finds a secret that is the whole value of a member, judging by its name.
func (s *scan) byKey(text []byte, key *member) {
	for _, r := range key.assigned {
		if from, ok := r.takes(text, how{quoted: true}); ok {
			s.add(from, len(text), r)
		}
	}
}

// pointer returns the current path as a JSON pointer, with * for names that may be data.
func (s *scan) pointer() string {
	var b []byte
	for i := range s.path {
		f := &s.path[i]
		b = append(b, '/')
		switch {
		case !f.object:
			b = strconv.AppendInt(b, int64(f.index), 10)
		case f.key != nil:
			b = append(b, f.key.shown...)
		default:
			b = append(b, '*')
		}
	}
	return string(b)
}
