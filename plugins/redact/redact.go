// Package redact finds secrets and personal data in saved data, and masks, pseudonymizes, drops or
// rejects them.
//
// The rules are data: rules.toml and a Config. Redact examines the meaning of data rather than its
// encoding: strings with their escapes decoded, JSON within strings, base64, member names, numbers,
// msgpack within msgpack, and strings that were cut into the chunks of a stream. It keeps all other
// data byte for byte, and leaves its own output unchanged when it sees it again. docs/redaction.md
// is the contract.
package redact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"github.com/ckptd/ckptd/hook"
)

const (
	name    = "redact"
	version = "3" // of the scanners' behavior: part of the digest, incremented when the behavior changes
)

// Redactor redacts according to one configuration. It is safe for concurrent use.
type Redactor struct {
	rules    []*rule
	words    *automaton
	acts     [][]trigger
	digits   []*rule         // with the scanner "digits" or a related one
	byLength map[int][]*rule // with the scanner "word", by the length of the word
	iban     *rule
	url      *rule
	email    *rule
	pem      *rule
	ipv6     *rule
	mac      *rule
	blocked  *rule
	allowed  allowed

	allowKeys, blockKeys   map[string]bool
	allowPaths, blockPaths paths

	digest, config [32]byte
	scans          sync.Pool // of *scan
}

// Input is the data to redact. Data and Prev are not modified.
type Input struct {
	Type string // type tag: "json", "msgpack", "text" and so on; if "", it is guessed from Data
	Name string // kind and name of the item, for errors and findings, such as "channel messages"
	Data []byte
	// Prev, if not nil, is the output of a Redactor with the same digests for an earlier version of
	// Data. Parts of Data that are the same are not examined again. Prev does not affect the
	// result.
	Prev []byte
	// PseudonymKey derives the pseudonyms of the action hash. If it is zero, that action masks
	// instead.
	PseudonymKey [32]byte
}

// Output is the result of redacting an Input.
type Output struct {
	Data     []byte // Input.Data itself if nothing changed
	Changed  bool
	Dropped  bool // a rule with the action drop matched, and nothing around the match could stay: Data is nil
	Findings []hook.Finding
}

// New returns the Redactor for a configuration. Errors are *hook.Error of the kind ErrInvalid and
// name the field.
func New(c Config) (*Redactor, error) {
	base, err := loadRules()
	if err != nil {
		return nil, err
	}
	r := &Redactor{digest: sha256.Sum256(append([]byte("ckptd redact "+version+"\n"), builtin...)), config: c.digest()}
	patterns := &budget{maxProgram}
	if r.rules, err = c.compile(base, patterns); err != nil {
		return nil, err
	}
	if r.allowed, err = newAllowed(c.Allow, patterns); err != nil {
		return nil, err
	}
	if r.allowPaths, err = parsePaths("allow.paths", c.Allow.Paths); err != nil {
		return nil, err
	}
	if r.blockPaths, err = parsePaths("block.paths", c.Block.Paths); err != nil {
		return nil, err
	}
	r.allowKeys, r.blockKeys = keySet(c.Allow.Keys), keySet(c.Block.Keys)
	r.blocked = &rule{Rule: Rule{ID: blocked}, rank: -1, action: c.Block.Action}
	if r.blocked.action == "" {
		r.blocked.action = c.actionOf(r.blocked.Rule)
	}
	r.sort()
	words, acts := triggers(r.rules)
	if r.words, err = newAutomaton(words); err != nil {
		return nil, wrong("rules: %v", err)
	}
	r.acts = acts
	r.scans.New = func() any { return newScan(r) }
	return r, nil
}

// sort indexes the rules by their scanners.
func (r *Redactor) sort() {
	r.byLength = map[int][]*rule{}
	for _, c := range r.rules {
		if c.off {
			continue
		}
		switch scanners[c.Scanner].kind {
		case byDigits:
			r.digits = append(r.digits, c)
		case byWord:
			for _, n := range c.lengths() {
				r.byLength[n] = append(r.byLength[n], c)
			}
		case byIBAN:
			r.iban = c
		case byURL:
			r.url = c
		case byEmail:
			r.email = c
		case byHeader:
			r.pem = c
		case byColons:
			if c.Scanner == "mac" {
				r.mac = c
			} else {
				r.ipv6 = c
			}
		}
	}
}

// Default returns the Redactor of the zero Config.
func Default() *Redactor {
	r, err := New(Config{})
	if err != nil {
		panic(err) // the built-in rules are part of the program
	}
	return r
}

// Digest identifies the built-in rules and scanners.
func (r *Redactor) Digest() [32]byte { return r.digest }

// ConfigDigest identifies the configuration: the SHA-256 of its JSON, or zero for the zero Config.
func (r *Redactor) ConfigDigest() [32]byte { return r.config }

// Rules lists the active rules with their actions.
func (r *Redactor) Rules() []Rule {
	var list []Rule
	for _, c := range r.rules {
		if !c.off {
			c.Rule.Action = c.action
			list = append(list, c.Rule)
		}
	}
	return list
}

// Redacting takes up to thirty times the memory of the data if there is a match every few bytes. So
// calls in this process wait for each other, except for small data.
const (
	maxAtOnce = 32 << 20
	smallData = 16 << 10
)

var atOnce = semaphore.NewWeighted(maxAtOnce)

// Redact returns the redacted data. Errors are *hook.Error and never quote the data: ErrRejected if
// a rule with the action reject matched, ErrLimit if the data is nested too deeply or takes too
// much work, ErrTimeout if the context is done.
func (r *Redactor) Redact(ctx context.Context, in Input) (Output, error) {
	if in.Prev != nil && bytes.Equal(in.Data, in.Prev) {
		return Output{Data: in.Data}, nil
	}
	if size := int64(len(in.Data)); size > smallData {
		size = min(size, maxAtOnce)
		if err := atOnce.Acquire(ctx, size); err != nil {
			return Output{}, &hook.Error{Kind: hook.ErrTimeout, Plugin: name, Item: in.Name, Reason: err.Error()}
		}
		defer atOnce.Release(size)
	}
	s := r.scans.Get().(*scan)
	s.in, s.ctx = in, ctx
	out, err := s.run()
	if err == nil { // a scan that was cut short may have learned wrong facts about names
		s.reset()
		r.scans.Put(s)
	}
	return out, err
}

// Names checks names that are stored unchanged. They cannot be redacted, because references to them
// would then find nothing. So it returns an error if one contains a secret or a match of a rule
// with the action reject. Errors are *hook.Error of the kind ErrRejected and quote nothing.
func (r *Redactor) Names(ctx context.Context, names []hook.Name) error {
	s := r.scans.Get().(*scan)
	defer func() {
		s.reset()
		r.scans.Put(s)
	}()
	s.ctx = ctx
	for _, n := range names {
		text := append(s.scratch[0][:0], n.Text...)
		s.scratch[0] = text
		s.work, s.allowed = 0, maxWork*len(text)+1<<20
		for _, m := range s.text(text, nil) {
			if m.rule != nil && (m.rule.Group == "secrets" || m.rule.action == Reject) {
				return &hook.Error{Kind: hook.ErrRejected, Plugin: name, Item: n.What, Reason: "the rule " + m.rule.ID +
					" matched, and this is stored as it is: choose another"}
			}
		}
	}
	return nil
}

// format is the encoding of data.
type format uint8

const (
	opaque format = iota // kept unchanged
	plain
	jsonFormat
	msgpackFormat
)

// formatOf returns the format for a type tag, or guesses it from the data if the tag says nothing.
func formatOf(tag string, data []byte) format {
	tag, _, _ = strings.Cut(strings.ToLower(tag), ";")
	switch {
	case tag == "json" || strings.HasSuffix(tag, "/json") || strings.HasSuffix(tag, "+json") || strings.HasSuffix(tag, "jsonl") ||
		strings.HasSuffix(tag, "ndjson"):
		return jsonFormat
	case tag == "msgpack" || strings.HasSuffix(tag, "/msgpack") || strings.HasSuffix(tag, "/x-msgpack"):
		return msgpackFormat
	case tag == "text" || strings.HasPrefix(tag, "text/"):
		return plain
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return opaque
	case looksLikeJSON(data):
		return jsonFormat
	}
	return plain
}

// Opaque reports whether data without a type tag would be kept unexamined, because it isn't text.
func Opaque(data []byte) bool {
	order, _ := utf16Order(data, false)
	return order == nil && formatOf("", data) == opaque
}

// looksLikeJSON reports whether data may be a JSON object or array.
func looksLikeJSON(data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) < 2 {
		return false
	}
	first, last := data[0], data[len(data)-1]
	second := bytes.TrimLeft(data[1:], " \t\r\n")[0]
	return first == '{' && last == '}' && (second == '"' || second == '}') ||
		first == '[' && last == ']' && bytes.IndexByte([]byte(`"{[]-0123456789tfnNI`), second) >= 0
}
