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
	maxDepth  = 10000   // of arrays, objects and maps, including those in strings: deeper data is refused
	maxLayers = 8       // of nested encodings (JSON in strings, base64): deeper ones are treated as text
	maxRounds = 4       // of examining the result of a redaction again
	lookEvery = 1 << 20 // bytes of work between two checks of the context
	maxFound  = 1 << 20 // matches in one call: each takes some hundred bytes of memory
)

// scan is the state and the memory of one call of Redact.
type scan struct {
	r   *Redactor
	in  Input
	ctx context.Context

	path      []frame // current position: the open objects, arrays and maps
	layers    int
	keys      map[string]*member
	recent    [128]*member // of keys
	members   int
	findings  []hook.Finding // at least one for each rule and path
	matches   int            // found so far
	reject    *hook.Error
	work      int  // bytes examined by patterns and assignments
	allowed   int  // limit of work
	unlooked  int  // bytes of work since the last check of the context
	reporting bool // count findings; off while examining a name, which is not changed
	again     bool // a result must be examined as a whole once more
	streams   *streams
	spare     *streams // for JSON in strings

	spareArrays  []*arrayStreams
	spareStreams []*stream

	// State of the current text; see text.go.
	found   []match
	seen    []seenAt
	hits    hits
	clean   [512]cleanText
	touched []int // ranks with an entry in seen
	until   int   // digits before this have been examined
	barrier int   // end of the last mark: words before it say nothing about text after it
	masked  int   // bytes of marks so far
	key     *member
	joined  bool
	bare    bool                  // the text is a JSON or msgpack number
	sign    int                   // the @ after the credentials of the last URL, 0 if none
	scratch [maxLayers + 1][]byte // for decoded strings, by layer
}

// match is a match of a rule in a text.
type match struct {
	start, end int
	rule       *rule
	text       []byte // replacement, if not a mark: base64 that was redacted inside
}

// seenAt records where context words were last seen: their ends, or 0. The position of unless is
// counted without the marks before it.
type seenAt struct{ context, close, unless int }

func newScan(r *Redactor) *scan {
	return &scan{r: r, keys: map[string]*member{}, seen: make([]seenAt, len(r.rules)), reporting: true,
		allowed: math.MaxInt, streams: &streams{}}
}

// reset forgets the data.
func (s *scan) reset() {
	s.forget()
	clear(s.findings)
	s.findings = s.findings[:0]
	clear(s.path[:cap(s.path)])
	clear(s.found[:cap(s.found)])
	clear(s.clean[:])
	s.streams.reset()
	s.in, s.ctx, s.path, s.found, s.layers = Input{}, nil, s.path[:0], s.found[:0], 0
	s.reject, s.again, s.key, s.joined, s.reporting = nil, false, nil, false, true
	s.bare, s.matches = false, 0
}

// forget forgets member names that may be data, and all names if there are many. Names of a schema
// return with the next data.
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

// spent reports whether the work limit is used up or the caller has given up. Nothing is examined
// after that.
func (s *scan) spent() bool { return s.work > s.allowed }

// spend counts work on n bytes and reports whether it is within the limit.
func (s *scan) spend(n int) bool {
	s.work += n
	s.pass(n)
	return !s.spent()
}

// pass counts n bytes that are only skimmed, at negligible cost, and checks the context now and
// then.
func (s *scan) pass(n int) {
	if s.unlooked += n; s.unlooked < lookEvery {
		return
	}
	s.unlooked = 0
	if s.ctx != nil && s.ctx.Err() != nil {
		s.allowed = -1
	}
}

// once redacts data once, according to its format.
func (s *scan) once(data []byte) (out []byte, dropped bool, err error) {
	kind := formatOf(s.in.Type, data)
	text, prev := data, s.in.Prev
	var order binary.ByteOrder // for UTF-16
	var bom int
	if kind != msgpackFormat {
		if order, bom = utf16Order(data, kind != opaque); order != nil {
			text, prev = fromUTF16(data[bom:], order), nil
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
		return slices.Concat(data[:bom], apply(data[bom:], utf16Edits(data[bom:], order, edits))), dropped, nil
	}
	return apply(data, edits), dropped, nil
}

func (s *scan) limit(what string) error {
	return &hook.Error{Kind: hook.ErrLimit, Plugin: name, Item: s.in.Name, Reason: what}
}

// tooDeep returns the error for data that is nested too deeply.
func (s *scan) tooDeep() error {
	return s.limit(fmt.Sprintf("nested deeper than %d levels: flatten it", maxDepth))
}

// value redacts a text. Drop reports whether to drop the value that is or contains the text.
func (s *scan) value(text []byte, key *member) (edits []edit, drop bool) {
	edits, rules := s.settle(text, key)
	for _, r := range rules {
		drop = drop || r.action == Drop
	}
	return edits, drop
}

// number redacts the digits of a number. Most numbers are findings only if the name says so.
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

// settle redacts a text, counts all findings, and returns the edits and their rules.
//
// It examines the remaining text again, because part of a match can be left, such as the rest of a
// number. Marks say nothing about their surroundings, so the second pass is usually the last. A
// match of the last allowed pass is counted but stays.
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

// count counts a finding at the current path.
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

// tally is a position in the counts to roll back to.
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

// report returns the findings in order, with their counts.
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

// replacement returns the mark that replaces a match. It is plain ASCII without quotes or
// backslashes, and no rule matches in it.
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

// normal returns a form that equal values share: only letters and digits, for rules where other
// characters are decoration.
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

// markAt returns the end of the mark that begins at text[i], which is '[', or 0. A mark is a mask
// or a pseudonym made by a redaction.
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

// pseudonym writes a hash in hexadecimal digits. At least one is a letter, so that it cannot be
// taken for a number.
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

// unmarked returns a value without the marks in it.
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
