package redact

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// member is what a name says about the value that it names.
type member struct {
	name     string
	hash     uint64  // of the name
	context  []*rule // rules of whose context the name is a word
	unless   []*rule
	assigned []*rule // rules of which the name has a keyword
	allow    bool
	block    bool
	mark     bool   // the name is a mask of ours
	drop     bool   // a rule that drops found something in the name
	edits    []edit // what the rules do to the name
	found    []*rule
	shown    string // in a path
}

// unnamed is the member of what has no name.
var unnamed = &member{shown: "*"}

// frame is an object, array or map that is open.
type frame struct {
	object  bool
	key     *member // the member that we are in
	nearest *member // the member that the values of an array belong to
	index   int
	links   *links         // of an array: the chains through its elements
	start   int            // where its child in hand begins
	kept    int            // where its last child ends that stays, 0 for none
	dropped int            // where the run of children begins that go, -1 for none
	ends    int            // and where that run ends
	mark    int            // edits before the child
	marked  []int          // edits of names
	taken   map[string]int // names that are masks; how far those that are like it are numbered
}

// enter opens an object, array or map.
func (s *scan) enter(object bool) error {
	if len(s.path) >= maxDepth {
		return s.tooDeep()
	}
	s.path = append(s.path, frame{object: object, dropped: -1, nearest: s.owner()})
	return nil
}

// owner returns the member that the value in hand belongs to, nil if to none.
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

// reach goes to a member of the object in hand, and returns that object.
func (s *scan) reach(name []byte) *frame {
	m := s.member(name) // goes through JSON within the name, which may move the path
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

// take notes a name that is there.
func (f *frame) take(name string) {
	if f.taken == nil {
		f.taken = map[string]int{}
	}
	f.taken[name] = max(f.taken[name], 1)
}

// distinct returns a name that is not there yet for one that redaction made, and takes it.
func (f *frame) distinct(name string) string {
	made := name
	for f.taken[made] > 0 {
		f.taken[name]++
		made = numbered(name, f.taken[name])
	}
	f.take(made)
	return made
}

// member returns what a name says. The name is text as it is meant, without escapes.
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
		s.path[n-1].key = unnamed // where we are in a name that holds JSON
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

// odd reports whether a name looks like data: it is long, or none of a schema.
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

// learn finds the words in a name that say something about its value.
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

// byKey finds a secret that is the whole value of a member, by its name.
func (s *scan) byKey(text []byte, key *member) {
	for _, r := range key.assigned {
		if from, ok := r.takes(text, how{quoted: true}); ok {
			s.add(from, len(text), r)
		}
	}
}

// pointer returns the path of where we are as a JSON pointer, with * for names that may be data.
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
