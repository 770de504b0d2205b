package workload

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

const (
	messages     = "messages" // the channel of a chat
	messageBytes = 1000       // of content
)

// transcript is a channel holding an array to which messages are appended.
type transcript struct {
	most   int // maximum bytes
	keep   int // bytes of its newest messages to keep when it would exceed most
	buffer []byte
}

// around returns a transcript that repeatedly grows from half of a size to one and a half of it. So
// it has that size on average, and nearly every step only appends a message. 0 means no bound.
func around(size int) transcript {
	if size == 0 {
		return transcript{most: endless}
	}
	return transcript{most: size + size/2, keep: size / 2}
}

const endless = 1 << 40 // bytes, never reached

// begin fills a new array with messages up to the given size, with at least one.
func (t *transcript) begin(p *Player, size int, message func([]byte) []byte) {
	b := append(t.buffer[:0], '[')
	for {
		b = message(b)
		if len(b) >= size-messageBytes {
			break
		}
		b = append(b, ',')
	}
	t.buffer = append(b, ']')
	p.set(messages, t.buffer)
}

// add appends a message. If there is no room for it, the transcript drops its oldest messages, like
// an agent whose context is full; the change is then everything that remains.
func (t *transcript) add(p *Player, message func([]byte) []byte) {
	value := p.state.Value(messages)
	end := len(value) - 1
	b := message(append(t.buffer[:0], ','))
	t.buffer = b
	if end+len(b) < t.most {
		p.splice(messages, end, 0, b)
		return
	}
	drop := min(max(end+len(b)-t.keep, 1), end)
	if next := bytes.Index(value[drop:], []byte(between)); next >= 0 { // drop the rest of that message, too
		drop += next + len(",")
	} else {
		drop, b = end, b[1:]
	}
	p.state.splice(messages, 1, drop-1, nil)
	p.state.splice(messages, end-drop+1, 0, b)
	p.edits = append(p.edits, edit{messages, false, 1, end - drop + len(b)})
}

// between begins every message except the first, and occurs nowhere else in the arrays of this
// package.
const between = `,{"role":"`

// first returns the initial size of a thread. If threads are to be filled, it is between half the
// size and one and a half of it, so that they do not all drop their oldest messages at once.
func (o Options) first() int {
	if !o.Filled {
		return 0
	}
	return o.Size/2 + o.Size*((o.Thread*61+50)%100)/100
}

type chat struct {
	transcript
	fill int // initial bytes
}

func newChat(o Options) script { return &chat{around(o.Size), o.first()} }

func (c *chat) message(p *Player) func([]byte) []byte {
	return func(b []byte) []byte { return p.words.message(b, "assistant", messageBytes) }
}
func (c *chat) first(p *Player) { c.begin(p, c.fill, c.message(p)) }
func (c *chat) next(p *Player)  { c.add(p, c.message(p)) }

// tools is a chat with tool outputs. It remembers the last few of them, to repeat them.
type tools struct {
	chat
	seen [][]byte
}

func newTools(o Options) script { return &tools{chat: *newChat(o).(*chat)} }

func (t *tools) answer(p *Player) func([]byte) []byte {
	return func(b []byte) []byte {
		if len(t.seen) > 0 && p.rng.IntN(4) == 0 {
			return append(b, t.seen[p.rng.IntN(len(t.seen))]...)
		}
		n := int(100 * math.Pow(500, p.rng.Float64())) // 0.1 to 50 kB, equally many of each magnitude
		start := len(b)
		b = append(b, `{"role":"tool","content":[`...)
		for row := 0; len(b) < start+n; row++ {
			if row > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"id":`...)
			b = strconv.AppendUint(b, p.rng.Uint64N(1e9), 10)
			b = append(b, `,"status":"ok","text":"`...)
			b = append(p.words.text(b, 60), `"}`...)
		}
		b = append(b, `]}`...)
		if len(t.seen) < 8 {
			t.seen = append(t.seen, append([]byte(nil), b[start:]...))
		} else {
			i := p.rng.IntN(len(t.seen))
			t.seen[i] = append(t.seen[i][:0], b[start:]...)
		}
		return b
	}
}
func (t *tools) first(p *Player) { t.begin(p, t.fill, t.answer(p)) }
func (t *tools) next(p *Player)  { t.add(p, t.answer(p)) }

type blackboard struct {
	slot   int // bytes
	names  []string
	buffer []byte
}

func newBlackboard(o Options) script {
	b := &blackboard{slot: 1000}
	if o.Size > 0 {
		b.slot = max(o.Size/64, 64)
	}
	for i := range 64 {
		b.names = append(b.names, fmt.Sprintf("slot-%02d", i))
	}
	return b
}

func (b *blackboard) value(p *Player) []byte {
	b.buffer = p.words.message(b.buffer[:0], "writer", b.slot-32)
	return b.buffer
}

func (b *blackboard) first(p *Player) {
	for _, name := range b.names {
		p.set(name, b.value(p))
	}
}

func (b *blackboard) next(p *Player) {
	at := p.rng.IntN(len(b.names))
	for i := range 1 + p.rng.IntN(4) {
		p.set(b.names[(at+17*i)%len(b.names)], b.value(p))
	}
}

// coder edits files in a single channel. Their texts have no characters that JSON would escape.
type coder struct {
	chat
	size   int
	texts  []int // bytes of the files
	buffer []byte
}

const (
	files     = "files"
	openFiles = 16
)

func newCoder(o Options) script {
	size := o.Size
	if size == 0 {
		size = 1_000_000
	}
	return &coder{chat: chat{around(max(size/20, 2*messageBytes)), o.first() / 20}, size: size}
}

func fileName(i int) string { return fmt.Sprintf(`"src/file-%02d.go":"`, i) }

func (c *coder) first(p *Player) {
	b := append(c.buffer[:0], '{')
	for i := range openFiles {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, fileName(i)...)
		b = append(p.words.text(b, c.size/openFiles), '"')
		c.texts = append(c.texts, c.size/openFiles)
	}
	c.buffer = append(b, '}')
	p.set(files, c.buffer)
	c.chat.first(p)
}

func (c *coder) next(p *Player) {
	file := p.rng.IntN(openFiles)
	at := len(`{`)
	for i := range file {
		at += len(fileName(0)) + c.texts[i] + len(`",`)
	}
	at += len(fileName(0))
	cut := min(20+p.rng.IntN(180), c.texts[file])
	c.buffer = p.words.text(c.buffer[:0], 20+p.rng.IntN(180))
	p.splice(files, at+p.rng.IntN(c.texts[file]-cut+1), cut, c.buffer)
	c.texts[file] += len(c.buffer) - cut
	c.chat.next(p)
}

type summariser struct {
	chat
	n, per int // steps since the summary, bytes per message
}

const summaryEvery = 60

func newSummariser(o Options) script {
	s := &summariser{per: messageBytes}
	if o.Size > 0 {
		s.per = max(o.Size/summaryEvery, 32)
	}
	s.most = endless
	if o.Filled {
		s.n = 1 + o.Thread%(summaryEvery-1) // threads must not all summarize at the same time
		s.fill = s.n * s.per
	}
	return s
}

func (s *summariser) message(p *Player) func([]byte) []byte {
	return func(b []byte) []byte { return p.words.message(b, "assistant", s.per) }
}
func (s *summariser) first(p *Player) { s.begin(p, s.fill, s.message(p)) }

func (s *summariser) next(p *Player) {
	if s.n++; s.n < summaryEvery {
		s.add(p, s.message(p))
		return
	}
	s.n = 0
	s.buffer = append(p.words.message(append(s.buffer[:0], '['), "system", s.per), ']')
	p.set(messages, s.buffer)
}

// branchy goes back in time: the state of an earlier step of its branch is a prefix of the current
// one.
type branchy struct {
	chat
	branch []place // the ancestors of the current step, and the step itself
}

// place is a step and the end of the array after it.
type place struct{ step, end int }

func newBranchy(o Options) script {
	b := &branchy{chat: *newChat(o).(*chat)}
	b.most = endless
	if o.Filled {
		b.fill = o.Size * 9 / 10
	}
	return b
}

func (b *branchy) first(p *Player) {
	b.chat.first(p)
	b.arrive(p)
}

func (b *branchy) arrive(p *Player) {
	b.branch = append(b.branch, place{p.step.Number, len(p.state.Value(messages)) - 1})
}

func (b *branchy) next(p *Player) {
	end := b.branch[len(b.branch)-1].end
	if p.rng.IntN(16) == 0 || end > p.o.limit() {
		b.branch = b.branch[:max(1, len(b.branch)-1-p.rng.IntN(20))]
		back := b.branch[len(b.branch)-1]
		p.parent = back.step
		p.state.splice(messages, back.end, end-back.end, nil)
	}
	b.chat.next(p)
	b.arrive(p)
}

type multimodal struct {
	chat
	n      int
	filled bool
	raw    []byte
	text   []byte // of an image, as a JSON string
}

const (
	imageBytes = 256 << 10
	imageEvery = 10
	images     = 8
)

func newMultimodal(o Options) script {
	return &multimodal{chat: chat{around(100_000), 0}, filled: o.Filled, raw: make([]byte, imageBytes)}
}

func (m *multimodal) image(p *Player) {
	for i := 0; i < len(m.raw); i += 8 {
		binary.LittleEndian.PutUint64(m.raw[i:], p.rng.Uint64())
	}
	m.text = append(base64.StdEncoding.AppendEncode(append(m.text[:0], '"'), m.raw), '"')
	p.set(fmt.Sprintf("image-%d", m.n/imageEvery%images), m.text)
}

func (m *multimodal) first(p *Player) {
	m.chat.first(p)
	for m.filled && m.n < imageEvery*images/2 {
		m.image(p)
		m.n += imageEvery
	}
}

func (m *multimodal) next(p *Player) {
	m.chat.next(p)
	if m.n++; m.n%imageEvery == 0 {
		m.image(p)
	}
}
