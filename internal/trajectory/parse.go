package trajectory

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"strconv"
)

// Options of Parse. The zero value detects the form and has the default limits.
type Options struct {
	File       string // name for errors
	Form       Form
	MaxMessage int64 // bytes of one message as written in the file; 0 is 64 MiB
	MaxRun     int64 // bytes of one run, not counting space between its members; 0 is 256 MiB
}

// Parse reads runs one at a time and holds at most one in memory. Some errors do not end the
// sequence, and the next runs follow: a value that isn't a run, a run above a limit, or a bad line
// of JSONL. Any other error ends the sequence and has Fatal set. All errors are *Error.
func Parse(r io.Reader, o Options) iter.Seq2[*Run, error] {
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
	if o.MaxRun <= 0 {
		o.MaxRun = 256 << 20
	}
	if o.File == "" {
		o.File = "input"
	}
	return func(yield func(*Run, error) bool) {
		p := &parser{scanner: newScanner(r, o.File), maxMessage: o.MaxMessage, maxRun: o.MaxRun, yield: yield}
		p.file(o.Form)
	}
}

type parser struct {
	*scanner
	maxMessage, maxRun int64
	yield              func(*Run, error) bool
	index              int
}

// file reads the whole input.
func (p *parser) file(form Form) {
	c, ok := p.space()
	switch {
	case !ok && p.failed != io.EOF:
		p.yield(nil, p.ended())
	case !ok && form == Lines: // no runs
	case !ok:
		p.yield(nil, p.at(p.place, ErrSyntax, true, "the file is empty"))
	case form == Lines:
		p.objects(Lines)
	case c == '[' && form != Object:
		p.array()
	case c == '{' && form != Array:
		p.objects(form)
	default:
		p.yield(nil, p.at(p.place, ErrSyntax, true, "found %q, want a JSON array or object of agent runs", c))
	}
}

// array reads a JSON array of runs.
func (p *parser) array() {
	p.skip()
	if c, _ := p.space(); c == ']' {
		p.skip()
	} else if !p.elements() {
		return
	}
	p.run = -1
	if c, ok := p.space(); ok {
		p.yield(nil, p.at(p.place, ErrSyntax, true, "found %q after the end of the array", c))
	} else if p.failed != io.EOF {
		p.yield(nil, p.ended())
	}
}

// elements reads the runs of an array and its closing bracket. It returns false if the sequence is
// over.
func (p *parser) elements() bool {
	for {
		run, err := p.element()
		if run != nil {
			err = run.finish(Array)
		}
		if !p.deliver(run, err) {
			return false
		}
		p.scanner.run = -1
		c, err := p.expect(",]")
		if err != nil {
			p.yield(nil, err)
			return false
		}
		if c == ']' {
			return true
		}
	}
}

// objects reads consecutive runs: the lines of JSONL, or a single one.
func (p *parser) objects(form Form) {
	p.lines = form == Lines
	for {
		if c, ok := p.space(); !ok && p.pos < p.end {
			p.nextLine() // a blank line, or the remainder of one
			continue
		} else if !ok {
			if p.run = -1; p.failed != io.EOF {
				p.yield(nil, p.ended())
			}
			return
		} else if form == Object && p.index > 0 {
			p.run = -1
			p.yield(nil, p.at(p.place, ErrSyntax, true, "found %q after the end of the object", c))
			return
		}
		first := p.place.line
		run, err := p.element()
		if form == Auto {
			// A second object makes the file a sequence. If the first object is entirely on the
			// first line, it is JSONL.
			oneLine := p.place.line == first
			if _, more := p.space(); more && !fatal(err) {
				form, p.lines = Lines, oneLine
			} else {
				form = Object
			}
		}
		if run != nil {
			err = run.finish(form)
		}
		if e, ok := err.(*Error); ok && e.Fatal && p.lines && e.Kind != ErrRead {
			e.Fatal = false
			p.nextLine()
		}
		if !p.deliver(run, err) {
			return
		}
	}
}

// fatal reports whether err ends the reading.
func fatal(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Fatal
}

// deliver yields a run or its error, and reports whether to continue.
func (p *parser) deliver(run *draft, err error) bool {
	p.index++
	if err != nil {
		return p.yield(nil, err) && !fatal(err)
	}
	return p.yield(&run.Run, nil)
}

// draft is a run of unknown form.
type draft struct {
	Run
	s       *scanner
	start   place
	members []member
	traj    int // index of the member with the messages
}

// member is a member of a run's object. An array that may be the messages is in elems, any other
// value in value.
type member struct {
	key   []byte // as written in the file, quoted
	rank  int    // in fields; -1 for an ordinary member
	value []byte
	elems []json.RawMessage
}

// element reads one run. After a nonfatal error the run has been consumed entirely.
func (p *parser) element() (*draft, error) {
	p.run = p.index
	c, ok := p.space()
	if !ok {
		return nil, p.ended()
	}
	d := &draft{s: p.scanner, start: p.place, traj: -1}
	d.Index, d.Line, d.Offset = p.index, p.place.line, p.place.offset
	if c != '{' {
		if _, err := p.value(nil, p.maxRun); err != nil {
			return nil, err
		}
		return nil, p.at(d.start, ErrSyntax, false, "not an object")
	}
	p.skip()
	if err := p.members(d); err != nil {
		return nil, err
	}
	return d, nil
}

// members reads the members of a run's object and its closing brace.
func (p *parser) members(d *draft) error {
	var soft error // the first nonfatal error
	room := p.maxRun
	for c, first := byte(','), true; c != '}'; first = false {
		if c, _ := p.space(); c == '}' && first {
			p.skip()
			break
		}
		m, err := p.member(&room)
		if fatal(err) {
			return err
		}
		if err != nil && soft == nil {
			soft, d.members = err, nil
		}
		if soft == nil {
			if m.elems != nil && (d.traj < 0 || m.rank < d.members[d.traj].rank) {
				d.traj = len(d.members)
			}
			d.members = append(d.members, m)
		}
		if c, err = p.expect(",}"); err != nil {
			return err
		}
	}
	return soft
}

// member reads a key, the colon and a value, and subtracts their size from room.
func (p *parser) member(room *int64) (member, error) {
	m := member{rank: -1}
	if c, ok := p.space(); ok && c != '"' {
		return m, p.unexpected(c, `"`)
	}
	var err error
	if m.key, err = p.piece(*room); err != nil {
		return m, p.hard(err)
	}
	if _, err = p.expect(":"); err != nil {
		return m, err
	}
	var name string
	if json.Unmarshal(m.key, &name) == nil {
		m.rank = fieldRank(name)
	}
	if c, _ := p.space(); c == '[' && m.rank >= 0 {
		err = p.messages(&m, room)
	} else {
		m.rank = -1
		m.value, err = p.piece(*room)
		m.value = compact(m.value)
	}
	*room -= int64(len(m.key) + len(m.value))
	return m, err
}

// piece reads a value no larger than the room left in the run and the limit of a message.
func (p *parser) piece(room int64) ([]byte, error) {
	raw, err := p.value(nil, max(0, min(p.maxMessage, room)))
	if e, ok := err.(*Error); ok && e.Kind == ErrTooLarge && room < p.maxMessage {
		e.What = "the run is over the limit of " + strconv.FormatInt(p.maxRun, 10) + " bytes"
	}
	return raw, err
}

// hard makes an error fatal: reading cannot continue after half a member.
func (p *parser) hard(err error) error {
	if e, ok := err.(*Error); ok {
		e.Fatal = true
	}
	return err
}

// messages reads an array into m.elems.
func (p *parser) messages(m *member, room *int64) error {
	var soft error
	m.elems = []json.RawMessage{}
	p.skip()
	if c, _ := p.space(); c == ']' {
		p.skip()
		return nil
	}
	for {
		raw, err := p.piece(*room)
		if fatal(err) {
			return err
		}
		if e, ok := err.(*Error); ok && soft == nil {
			e.What = "message " + strconv.Itoa(len(m.elems)) + ": " + e.What
			soft, m.elems = e, nil
		}
		if soft == nil {
			*room -= int64(len(raw))
			m.elems = append(m.elems, compact(raw))
		}
		c, err := p.expect(",]")
		if err != nil {
			return err
		}
		if c == ']' {
			return soft
		}
	}
}

// compact returns checked JSON without the space between its tokens.
func compact(text []byte) []byte {
	if text == nil {
		return nil
	}
	var b bytes.Buffer
	b.Grow(len(text))
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// finish completes the run once the form of its file is known.
func (d *draft) finish(form Form) error {
	if d.traj < 0 {
		return d.s.at(d.start, ErrSyntax, false, "no array named traj, messages, history or trajectory")
	}
	d.Form, d.Messages, d.Status = form, d.members[d.traj].elems, Running
	meta := []byte{'{'}
	for i, m := range d.members {
		if i > 0 {
			meta = append(meta, ',')
		}
		meta = append(append(meta, m.key...), ':')
		switch {
		case i == d.traj:
			meta = append(meta, placeholder(form)...)
		case m.elems != nil:
			meta = append(meta, State(m.elems)...)
		default:
			meta = append(meta, m.value...)
		}
		if string(m.key) == `"reward"` {
			d.Status = statusOf(m.value)
		}
	}
	d.Meta = append(meta, '}')
	d.members = nil
	if found, ok := locate(d.Meta); !ok || found.at != d.traj {
		return d.s.at(d.start, ErrSyntax, false, "another member contains the text %s", placeholder(form))
	}
	return nil
}

// State returns the first messages of a run as a compact JSON array: the value of the channel after
// the last of them.
func State(messages []json.RawMessage) []byte {
	size := 2 + len(messages)
	for _, m := range messages {
		size += len(m)
	}
	b := append(make([]byte, 0, size), '[')
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	return append(b, ']')
}

func statusOf(reward []byte) string {
	r, err := strconv.ParseFloat(string(reward), 64)
	switch {
	case err != nil || len(reward) == 0 || reward[0] != '-' && (reward[0] < '0' || reward[0] > '9'):
		return Running
	case r >= 1:
		return Succeeded
	}
	return Failed
}
