package worker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// Every operation has a number, which its answer repeats. A plugin has a handle. A worker is not
// trusted: the parse functions in this file return an error for any message that a correct worker
// would not send.

const (
	maxText     = 1 << 10 // of a name, a reason, a rule or a path
	maxFindings = 1 << 14
	maxStages   = 16
	noAnswer    = -1
)

// start is the first message to a worker.
type start struct {
	memory int64 // for guests
}

func (s start) build() (b builder) {
	b.string(protocol)
	b.int(s.memory)
	return b
}

func parseStart(body []byte) (s start, err error) {
	p := parser{left: body}
	if v := p.string(maxText); v != protocol {
		return s, fmt.Errorf("%w: this is %s", errFrame, protocol)
	}
	s.memory = p.int()
	return s, p.end()
}

// ready is the answer to start: the means by which the worker confined itself.
func buildReady(walls []string) (b builder) {
	b.string(protocol)
	b.string(strings.Join(walls, ", "))
	return b
}

func parseReady(body []byte) (walls string, err error) {
	p := parser{left: body}
	if v := p.string(maxText); v != protocol {
		return "", fmt.Errorf("%w: it does not speak %s", errFrame, protocol)
	}
	return p.text(maxText), p.end()
}

func buildLoad(number, handle uint64, s plugins.Spec) (b builder) {
	b.uint(number)
	b.uint(handle)
	b.string(s.Name)
	b.bytes(s.Config)
	for _, v := range limitFields(&s.Limits) {
		b.int(*v)
	}
	b.uint(s.Limits.Fuel)
	b.int(int64(s.Limits.LogLines))
	b.int(int64(s.Limits.LogLine))
	for _, v := range capabilityFields(&s.Capabilities) {
		b.bool(*v)
	}
	return b // followed by the binary
}

func parseLoad(body []byte) (number, handle uint64, s plugins.Spec, err error) {
	p := parser{left: body}
	number, handle = p.uint(), p.uint()
	s.Name = p.string(maxText)
	if s.Config = p.bytes(math.MaxInt32); len(s.Config) == 0 {
		s.Config = nil
	}
	for _, v := range limitFields(&s.Limits) {
		*v = p.int()
	}
	s.Limits.Fuel = p.uint()
	s.Limits.LogLines, s.Limits.LogLine = int(p.int()), int(p.int())
	for _, v := range capabilityFields(&s.Capabilities) {
		*v = p.bool()
	}
	s.Binary = p.rest()
	return number, handle, s, p.end()
}

func limitFields(l *plugins.Limits) []*int64 {
	return []*int64{&l.Binary, &l.Memory, &l.Input, &l.Output, (*int64)(&l.Call), (*int64)(&l.Init), (*int64)(&l.Compile)}
}

func capabilityFields(c *plugins.Capabilities) []*bool {
	return []*bool{&c.RedactBuiltin, &c.Pseudonym, &c.PutBlob}
}

func buildLoaded(number uint64, digest [32]byte, stages []hook.Stage) (b builder) {
	b.uint(number)
	b.array(digest)
	b.uint(uint64(len(stages)))
	for _, s := range stages {
		b.uint(uint64(s))
	}
	return b
}

func parseLoaded(body []byte, number uint64) (digest [32]byte, stages []hook.Stage, err error) {
	p := parser{left: body}
	p.failed = p.uint() != number
	digest = p.array()
	for range p.count(maxStages) {
		s := p.uint()
		if s < uint64(hook.PreSave) || s > uint64(hook.Migrate) || slices.Contains(stages, hook.Stage(s)) {
			p.failed = true
		}
		stages = append(stages, hook.Stage(s))
	}
	return digest, stages, p.end()
}

// call is the part of a plugins.Call that is sent to a worker.
type call struct {
	number, handle  uint64
	putBlob, redact bool // whether the worker may ask for them
	plugins.Call
}

func (c *call) build() (b builder) {
	b.uint(c.number)
	b.uint(c.handle)
	b.bool(c.PutBlob != nil)
	b.bool(c.Redact != nil)
	b.uint(uint64(c.Stage))
	b.int(c.Time.Unix())
	b.int(int64(c.Time.Nanosecond()))
	b.array(c.Seed)
	b.array(c.PseudonymKey)
	b.uint(c.From)
	b.uint(c.To)
	b.bytes(c.Meta)
	return b // followed by the payload
}

func parseCall(body []byte) (c call, err error) {
	p := parser{left: body}
	c.number, c.handle = p.uint(), p.uint()
	c.putBlob, c.redact = p.bool(), p.bool()
	c.Stage = hook.Stage(p.uint())
	c.Time = time.Unix(p.int(), p.int()).UTC()
	c.Seed, c.PseudonymKey = p.array(), p.array()
	c.From, c.To = p.uint(), p.uint()
	c.Meta = p.bytes(math.MaxInt32)
	c.Payload = p.rest()
	return c, p.end()
}

// buildDone encodes the result and the error of a call; e is nil if there was no error.
func buildDone(number uint64, r *plugins.Result, e *hook.Error) (b builder) {
	b.uint(number)
	b.bool(e != nil)
	if e != nil {
		b.failure(e)
	}
	b.bool(r.Unchanged)
	b.uint(r.Fuel)
	b.uint(uint64(len(r.Findings)))
	for _, f := range r.Findings {
		b.string(f.Rule)
		b.string(f.Path)
		b.int(int64(f.Count))
	}
	b.uint(uint64(len(r.Logs)))
	for _, l := range r.Logs {
		b.int(int64(l.Level))
		b.string(l.Text)
	}
	b.int(int64(r.Dropped))
	b.string(r.Error)
	return b // followed by the output
}

// parseDone checks a result against the limits of its plugin. Findings refer to item.
func parseDone(body []byte, number uint64, l plugins.Limits, item string) (r *plugins.Result, failed *hook.Error, err error) {
	p := parser{left: body}
	p.failed = p.uint() != number
	if p.bool() {
		failed = p.failure()
	}
	r = &plugins.Result{Unchanged: p.bool(), Fuel: p.uint()}
	p.failed = p.failed || r.Fuel > l.Fuel
	for range p.count(maxFindings) {
		f := hook.Finding{Rule: p.text(maxText), Path: p.text(maxText), Item: item, Count: int(p.int())}
		p.failed = p.failed || f.Count < 1 || f.Count > math.MaxInt32
		if p.failed {
			break
		}
		r.Findings = append(r.Findings, f)
	}
	for range p.count(l.LogLines) {
		line := plugins.LogLine{Level: int32(p.int()), Text: p.text(3 * l.LogLine)}
		if p.failed {
			break
		}
		r.Logs = append(r.Logs, line)
	}
	r.Dropped = int(p.int())
	r.Error = p.text(4 * maxText)
	p.failed = p.failed || r.Dropped < 0
	if out := p.rest(); r.Unchanged || failed != nil {
		p.failed = p.failed || len(out) > 0 || r.Unchanged && failed != nil
	} else {
		r.Output = out
		p.failed = p.failed || int64(len(out)) > l.Output
	}
	return r, failed, p.end()
}

// text reads text for people: one line of UTF-8.
func (p *parser) text(limit int) string {
	s := p.string(limit)
	p.failed = p.failed || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
	return s
}

// kinds lists the kinds of errors that a worker can report, by their number on the wire.
func kinds() []error {
	return []error{hook.ErrInvalid, hook.ErrLimit, hook.ErrFuel, hook.ErrTimeout, hook.ErrTrap, hook.ErrRejected, hook.ErrFailed, hook.ErrUnavailable}
}

// failure appends an error. The parent, who knows the plugin, stage and item, adds them.
func (b *builder) failure(e *hook.Error) {
	b.int(int64(slices.Index(kinds(), e.Kind)))
	b.int(int64(e.Code))
	reason := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(e.Reason, "\uFFFD"))
	b.string(strings.ToValidUTF8(reason[:min(len(reason), maxText)], ""))
}

func (p *parser) failure() *hook.Error {
	at, code := p.int(), p.int()
	e := &hook.Error{Code: int32(code), Reason: p.text(maxText)}
	if at < 0 || at >= int64(len(kinds())) || int64(e.Code) != code {
		p.failed = true
		return e
	}
	e.Kind = kinds()[at]
	return e
}

// buildFailed encodes the answer to a failed load.
func buildFailed(number uint64, e *hook.Error) (b builder) {
	b.uint(number)
	b.failure(e)
	return b
}

func parseFailed(body []byte, number uint64) (*hook.Error, error) {
	p := parser{left: body}
	p.failed = p.uint() != number
	return p.failure(), p.end()
}

// ask is a worker's question during a call: to store data as a blob, or to redact it with a set of
// rules.
type ask struct {
	set  string
	data []byte
}

func buildAsk(number uint64, set string) (b builder) {
	b.uint(number)
	b.string(set)
	return b // followed by the data
}

func parseAsk(body []byte, number uint64) (a ask, err error) {
	p := parser{left: body}
	p.failed = p.uint() != number
	a.set, a.data = p.text(maxText), p.rest()
	return a, p.end()
}

// An answer is one of these, followed by data on success.
const (
	answerOK = iota
	answerFailed
	answerLimit // limit exceeded; the plugin is informed
)

func buildAnswer(number uint64, err error) (b builder) {
	b.uint(number)
	switch {
	case err == nil:
		b.uint(answerOK)
	case errors.Is(err, hook.ErrLimit):
		b.uint(answerLimit)
	default:
		b.uint(answerFailed)
	}
	return b // followed by the data
}

type answer struct {
	number, status uint64
	data           []byte
}

func parseAnswer(body []byte) (a answer, err error) {
	p := parser{left: body}
	a.number, a.status, a.data = p.uint(), p.uint(), p.rest()
	p.failed = p.failed || a.status > answerLimit
	return a, p.end()
}
