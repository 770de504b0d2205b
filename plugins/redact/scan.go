package redact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/hook"
)

const (
	maxDepth  = 10000   // of arrays, objects and maps, those in strings included: what is deeper is refused
	maxLayers = 8       // of encodings in each other (JSON in strings, base64): what is deeper is text
	maxRounds = 4       // of looking at what redaction left of a text
	lookEvery = 1 << 20 // bytes of work from one look at the context to the next
	maxFound  = 1 << 20 // matches in one call: each takes some hundred bytes of memory
)

// scan is the work of one call of Redact, and the memory that it uses.
type scan struct {
	r   *Redactor
	in  Input
	ctx context.Context

	path      []frame // where we are: the open objects, arrays and maps
	layers    int
	keys      map[string]*member
	recent    [128]*member // of keys
	members   int
	findings  []hook.Finding // one for each rule and place, or several
	matches   int            // found so far
	reject    *hook.Error
	work      int  // bytes that patterns and assignments looked at
	allowed   int  // of it
	unlooked  int  // bytes of work since the last look at the context
	reporting bool // findings are counted; not while a name is looked at, which is kept
	again     bool // something was made that must be looked at as a whole once more
	chains    *chains
	spare     *chains // for JSON in strings

	spareLinks  []*links
	spareChains []*chain

	// Of the text in hand; see text.go.
	found   []match
	seen    []seenAt
	hits    hits
	clean   [512]cleanText
	touched []int // ranks that have something in seen
	until   int   // digits before it are done with
	barrier int   // the end of the last mask: words before it say nothing about what is behind it
	masked  int   // bytes of masks so far
	key     *member
	joined  bool
	bare    bool                  // the text is a number of JSON or msgpack
	sign    int                   // the @ behind the credentials of the last URL, 0 for none
	scratch [maxLayers + 1][]byte // for decoded strings, by layer
}

// match is what a rule found in a text.
type match struct {
	start, end int
	rule       *rule
	text       []byte // what is to stand there instead, when that is no mask: base64 that was redacted inside
}

// seenAt says where words that tell about their surroundings were last seen: the end of them, 0 for nowhere. That of
// unless is counted without the masks before it.
type seenAt struct{ context, close, unless int }

func newScan(r *Redactor) *scan {
	return &scan{r: r, keys: map[string]*member{}, seen: make([]seenAt, len(r.rules)), reporting: true,
		allowed: math.MaxInt, chains: &chains{}}
}

// reset forgets the data.
func (s *scan) reset() {
	s.forget()
	clear(s.findings)
	s.findings = s.findings[:0]
	clear(s.path[:cap(s.path)])
	clear(s.found[:cap(s.found)])
	clear(s.clean[:])
	s.chains.reset()
	s.in, s.ctx, s.path, s.found, s.layers = Input{}, nil, s.path[:0], s.found[:0], 0
	s.reject, s.again, s.key, s.joined, s.reporting = nil, false, nil, false, true
	s.bare, s.matches = false, 0
}

// forget forgets the names of members that may be data, and all of them when there are many. Names of a schema come
// again with the next data.
func (s *scan) forget() {
	if len(s.keys) > maxNames {
		clear(s.keys)
	}
	clear(s.recent[:])
	for name, m := range s.keys {
		if m.shown == "*" {
			delete(s.keys, name)
		}
	}
	for i := range s.scratch {
		if cap(s.scratch[i]) > maxScratch {
			s.scratch[i] = nil
		}
	}
}

const (
	maxNames   = 512
	maxScratch = 1 << 20
)

// run redacts the input until redacting it again would change nothing.
func (s *scan) run() (Output, error) {
	data := s.in.Data
	for round := 0; ; round++ {
		s.again, s.work, s.allowed, s.unlooked = false, 0, maxWork*len(data)+1<<20, lookEvery
		next, dropped, err := s.once(data)
		switch {
		case s.ctx.Err() != nil:
			err = &hook.Error{Kind: hook.ErrTimeout, Plugin: name, Item: s.in.Name, Reason: s.ctx.Err().Error()}
		case err != nil:
		case s.matches > maxFound:
			err = s.limit(fmt.Sprintf("has more than %d matches: save it in pieces", maxFound))
		case s.spent():
			err = s.limit("has too much that keys begin with: save it in pieces")
		case s.reject != nil:
			err = s.reject
		}
		if err != nil {
			return Output{}, err
		}
		if dropped {
			return Output{Changed: true, Dropped: true, Findings: s.report()}, nil
		}
		data = next
		if !s.again || round == 4*maxRounds {
			break
		}
	}
	changed := len(s.findings) > 0
	return Output{Data: data, Changed: changed, Findings: s.report()}, nil
}

// spent reports whether the work that may be done is done, or nobody waits for it any more. Nothing is looked at then.
func (s *scan) spent() bool { return s.work > s.allowed }

// spend counts work on n bytes, and reports whether it may be done.
func (s *scan) spend(n int) bool {
	s.work += n
	s.pass(n)
	return !s.spent()
}

// pass counts n bytes that are gone through, which is no work to speak of, and looks at the context now and then.
func (s *scan) pass(n int) {
	if s.unlooked += n; s.unlooked < lookEvery {
		return
	}
	s.unlooked = 0
	if s.ctx != nil && s.ctx.Err() != nil {
		s.allowed = -1
	}
}

// once redacts data by its format.
func (s *scan) once(data []byte) (out []byte, dropped bool, err error) {
	kind := formatOf(s.in.Type, data)
	text, prev := data, s.in.Prev
	var order binary.ByteOrder // of UTF-16
	var mark int
	if kind != msgpackFormat {
		if order, mark = utf16Order(data, kind != opaque); order != nil {
			text, prev = fromUTF16(data[mark:], order), nil
			kind = formatOf(s.in.Type, text)
		}
	}
	var edits []edit
	ok := true
	switch kind {
	case opaque:
		return data, false, nil
	case plain:
		ok = false
	case jsonFormat:
		edits, dropped, ok, err = s.json(text, prev)
	case msgpackFormat:
		if edits, dropped, ok, err = s.msgpack(data); !ok {
			return data, false, s.notMsgpack(err)
		}
	}
	if err != nil {
		return nil, false, err
	}
	if !ok {
		edits, dropped = s.value(text, nil)
	}
	if len(edits) == 0 {
		return data, dropped, nil
	}
	if order != nil {
		return slices.Concat(data[:mark], apply(data[mark:], utf16Edits(data[mark:], order, edits))), dropped, nil
	}
	return apply(data, edits), dropped, nil
}

func (s *scan) limit(what string) error {
	return &hook.Error{Kind: hook.ErrLimit, Plugin: name, Item: s.in.Name, Reason: what}
}

// tooDeep is the error of data that is nested deeper than we follow.
func (s *scan) tooDeep() error {
	return s.limit(fmt.Sprintf("nested deeper than %d levels: flatten it", maxDepth))
}

// value redacts a text, and tells whether the value that it is, or is part of, is to be dropped.
func (s *scan) value(text []byte, key *member) (edits []edit, drop bool) {
	edits, rules := s.settle(text, key)
	for _, r := range rules {
		drop = drop || r.action == Drop
	}
	return edits, drop
}

// number redacts the digits of a number. Few of them are something only where the name says so.
func (s *scan) number(digits []byte) (edits []edit, drop bool) {
	key := s.owner()
	if len(digits) < 3 || len(digits) < 7 && (key == nil || len(key.assigned) == 0) {
		return nil, false
	}
	s.bare = true
	edits, drop = s.value(digits, key)
	s.bare = false
	return edits, drop
}

// settle redacts a text and returns the edits and whose they are. All that was found is counted.
//
// What is left of the text is looked at again: a part of a match may be one, such as the rest of a number. Masks say
// nothing about what is beside them, so that this ends as a rule with the second look. What the last look finds stays,
// and is counted.
func (s *scan) settle(text []byte, key *member) (edits []edit, rules []*rule) {
	left := text
	for round := 0; ; round++ {
		matches := s.text(left, key)
		if len(matches) == 0 {
			return edits, rules
		}
		more := make([]edit, len(matches))
		for i, m := range matches {
			more[i] = edit{m.start, m.end, m.text}
			if m.rule != nil {
				more[i].text = s.replacement(m.rule, left[m.start:m.end])
				s.count(m.rule)
			}
		}
		if round == maxRounds {
			return edits, rules
		}
		for _, m := range matches {
			if m.rule != nil {
				rules = append(rules, m.rule)
			}
		}
		edits = onto(edits, more)
		left = apply(text, edits)
	}
}

// count counts a finding where we are.
func (s *scan) count(r *rule) {
	if !s.reporting {
		return
	}
	f := hook.Finding{Rule: r.ID, Path: s.pointer(), Item: s.in.Name, Count: 1}
	if n := len(s.findings); n > 0 && s.findings[n-1].Rule == f.Rule && s.findings[n-1].Path == f.Path {
		s.findings[n-1].Count++
	} else {
		s.findings = append(s.findings, f)
	}
	if r.action == Reject && s.reject == nil {
		where := ""
		if f.Path != "" {
			where = " at " + f.Path
		}
		s.reject = &hook.Error{Kind: hook.ErrRejected, Plugin: name, Item: s.in.Name,
			Reason: fmt.Sprintf("the rule %s matched%s: remove the match and save again", r.ID, where)}
	}
}

// tally is how far findings were counted, to go back to.
type tally struct{ findings, last int }

func (s *scan) countedSoFar() (c tally) {
	if c.findings = len(s.findings); c.findings > 0 {
		c.last = s.findings[c.findings-1].Count
	}
	return c
}

func (s *scan) uncount(c tally) {
	if s.findings = s.findings[:c.findings]; c.findings > 0 {
		s.findings[c.findings-1].Count = c.last
	}
}

// report returns the findings in order, counted.
func (s *scan) report() []hook.Finding {
	slices.SortFunc(s.findings, func(x, y hook.Finding) int {
		return cmp.Or(strings.Compare(x.Path, y.Path), strings.Compare(x.Rule, y.Rule))
	})
	var list []hook.Finding
	for _, f := range s.findings {
		if n := len(list); n == 0 || list[n-1].Path != f.Path || list[n-1].Rule != f.Rule {
			list = append(list, f)
			continue
		}
		list[len(list)-1].Count += f.Count
	}
	return list
}

// replacement is what stands for a value that a rule found. It is plain ASCII without quotes or backslashes, and no
// rule finds anything in it.
func (s *scan) replacement(r *rule, value []byte) []byte {
	if r.action != Hash || s.in.PseudonymKey == [32]byte{} {
		return []byte("[REDACTED:" + r.ID + "]")
	}
	mac := hmac.New(sha256.New, s.in.PseudonymKey[:])
	mac.Write([]byte("ckptd redact 1\x00" + r.ID + "\x00"))
	mac.Write(normal(r, value))
	sum := mac.Sum(nil)
	return []byte("[" + r.ID + ":" + pseudonym(sum) + "]")
}

const pseudonymSize = 8 // bytes

// normal is the form of a value that equal values share: letters and digits only where others are decoration.
func normal(r *rule, value []byte) []byte {
	switch scanners[r.Scanner].kind {
	case byEmail:
		return []byte(strings.ToLower(string(value)))
	case byDigits, byIBAN, byWord:
		if r.Scanner == "ipv4" {
			return value
		}
		return []byte(strings.Map(func(c rune) rune {
			switch {
			case c >= '0' && c <= '9', c >= 'A' && c <= 'Z':
				return c
			case c >= 'a' && c <= 'z':
				return c - 'a' + 'A'
			}
			return -1
		}, string(value)))
	}
	return value
}

// markAt returns the end of a mask or pseudonym of ours that begins at text[i], which is '[', or 0.
func markAt(text []byte, i int) int {
	rest := text[i+1 : min(len(text), i+81)]
	if len(rest) == 0 || !isLetter(rest[0]) {
		return 0
	}
	end := bytes.IndexByte(rest, ']')
	if end < 0 {
		return 0
	}
	colon := bytes.IndexByte(rest[:end], ':')
	if colon < 0 {
		return 0
	}
	id, tail := string(rest[:colon]), string(rest[colon+1:end])
	if id == "REDACTED" {
		id, tail, _ = strings.Cut(tail, "#")
		if _, err := strconv.ParseUint(tail, 10, 32); tail != "" && err != nil {
			return 0
		}
	} else if !isPseudonym(tail) {
		return 0
	}
	if !goodID(id) {
		return 0
	}
	return i + 1 + end + 1
}

// pseudonym writes a sum in hexadecimal digits. At least one is a letter: a number is no pseudonym.
func pseudonym(sum []byte) string {
	text := []byte(hex.EncodeToString(sum[:pseudonymSize]))
	if !isPseudonym(string(text)) {
		text[0] = "abcdefabcd"[text[0]-'0']
	}
	return string(text)
}

func isPseudonym(text string) bool {
	return len(text) == 2*pseudonymSize && strings.Trim(text, "0123456789abcdef") == "" && strings.ContainsAny(text, "abcdef")
}

// unmarked returns a value without the marks of ours in it.
func unmarked(value []byte) []byte {
	if bytes.IndexByte(value, '[') < 0 {
		return value
	}
	var rest []byte
	at := 0
	for _, m := range marksIn(value) {
		rest = append(rest, value[at:m.start]...)
		at = m.end
	}
	return append(rest, value[at:]...)
}
