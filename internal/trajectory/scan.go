package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// scanner splits a stream of JSON into the texts of its values and tracks the current position. It
// only finds the ends of values; encoding/json checks that they are valid.
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	failed   error // the reader's error, including io.EOF

	file  string
	place place
	run   int  // for errors
	lines bool // a line feed ends the input until nextLine
}

type place struct {
	offset int64
	line   int
}

func newScanner(r io.Reader, file string) *scanner {
	s := &scanner{r: r, buf: make([]byte, 64<<10), file: file, place: place{line: 1}, run: -1}
	s.fill()
	if bytes.HasPrefix(s.buf[:s.end], []byte("\ufeff")) {
		s.pos, s.place.offset = 3, 3
	}
	return s
}

// fill reads more data after the consumed part. The buffer is empty afterwards only at the end of
// the input.
func (s *scanner) fill() {
	s.pos, s.end = 0, 0
	for idle := 0; s.end == 0 && s.failed == nil; idle++ {
		s.end, s.failed = s.r.Read(s.buf)
		if idle == 100 {
			s.failed = io.ErrNoProgress
		}
	}
}

// peek returns the next byte; ok is false at the end of the input.
func (s *scanner) peek() (c byte, ok bool) {
	if s.pos == s.end {
		if s.fill(); s.end == 0 {
			return 0, false
		}
	}
	c = s.buf[s.pos]
	return c, !s.lines || c != '\n'
}

// skip consumes the byte that peek returned.
func (s *scanner) skip() {
	if s.buf[s.pos] == '\n' {
		s.place.line++
	}
	s.pos++
	s.place.offset++
}

// space consumes white space and returns the byte after it.
func (s *scanner) space() (byte, bool) {
	for {
		c, ok := s.peek()
		if !ok || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, ok
		}
		s.skip()
	}
}

// nextLine consumes the rest of the line with its line feed and reports whether there was one.
func (s *scanner) nextLine() bool {
	lines := s.lines
	s.lines = false
	defer func() { s.lines = lines }()
	for {
		c, ok := s.peek()
		if !ok {
			return false
		}
		if s.skip(); c == '\n' {
			return true
		}
	}
}

// expect consumes a byte that must be one of want, after optional white space.
func (s *scanner) expect(want string) (byte, error) {
	c, ok := s.space()
	if !ok {
		return 0, s.ended()
	}
	if bytes.IndexByte([]byte(want), c) < 0 {
		return 0, s.unexpected(c, want)
	}
	s.skip()
	return c, nil
}

// value consumes one value and appends its text to dst. A text longer than most bytes is consumed
// entirely but not kept; the error is then not fatal.
func (s *scanner) value(dst []byte, most int64) ([]byte, error) {
	c, ok := s.space()
	if !ok {
		return nil, s.ended()
	}
	start, from := s.place, len(dst)
	if bytes.IndexByte([]byte(",:]}"), c) >= 0 {
		return nil, s.unexpected(c, "a value")
	}
	var size int64
	var x extent
	for {
		c, ok := s.peek()
		if !ok {
			if x.scalar() {
				break
			}
			return nil, s.ended()
		}
		if x.before(c) {
			break
		}
		if plain := s.plain(&x); len(plain) > 0 {
			if size += int64(len(plain)); size <= most {
				dst = append(dst, plain...)
			}
			continue
		}
		if size++; size <= most {
			dst = append(dst, c)
		}
		if s.skip(); x.after(c) {
			break
		}
	}
	if size > most {
		return nil, s.at(start, ErrTooLarge, false, "a value of %d bytes is over the limit of %d", size, most)
	}
	return dst, s.check(dst[from:], start)
}

// plain consumes and returns the buffered bytes of a string up to the next special one.
func (s *scanner) plain(x *extent) []byte {
	if !x.quoted || x.escape {
		return nil
	}
	text := s.buf[s.pos:min(s.end, s.pos+512)] // more would be searched again after every escape
	for _, c := range [...]byte{'"', '\\', '\n'} {
		if n := bytes.IndexByte(text, c); n >= 0 {
			text = text[:n]
		}
	}
	s.pos += len(text)
	s.place.offset += int64(len(text))
	return text
}

// extent finds the end of a value. It is fed one byte at a time.
type extent struct {
	depth          int
	begun          bool
	quoted, escape bool
}

// scalar reports whether the value ends at the next delimiter or the end of the input.
func (x *extent) scalar() bool { return x.begun && x.depth == 0 && !x.quoted }

// before reports whether the value ended before c.
func (x *extent) before(c byte) bool {
	return x.scalar() && bytes.IndexByte([]byte(",:]} \t\r\n"), c) >= 0
}

// after takes c and reports whether the value ends with it.
func (x *extent) after(c byte) bool {
	x.begun = true
	switch {
	case x.escape:
		x.escape = false
	case x.quoted:
		x.escape = c == '\\'
		x.quoted = c != '"'
		return !x.quoted && x.depth == 0
	case c == '"':
		x.quoted = true
	case c == '{' || c == '[':
		x.depth++
	case c == '}' || c == ']':
		x.depth--
		return x.depth <= 0
	}
	return false
}

// check refuses a text that begins at start and isn't JSON in UTF-8.
func (s *scanner) check(text []byte, start place) error {
	if !utf8.Valid(text) {
		n := 0
		for r, size := utf8.DecodeRune(text); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRune(text[n:]) {
			n += size
		}
		return s.at(start.plus(text[:n]), ErrSyntax, true, "invalid UTF-8")
	}
	// RawMessage makes the decoder only validate the text.
	var checked json.RawMessage
	err := json.Unmarshal(text, &checked)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		n := min(max(syntax.Offset-1, 0), int64(len(text)))
		return s.at(start.plus(text[:n]), ErrSyntax, true, "%v", err)
	}
	if err != nil {
		return s.at(start, ErrSyntax, true, "%v", err)
	}
	return nil
}

// plus returns the place after text.
func (p place) plus(text []byte) place {
	return place{p.offset + int64(len(text)), p.line + bytes.Count(text, []byte("\n"))}
}

func (s *scanner) at(p place, kind error, fatal bool, format string, args ...any) *Error {
	return &Error{File: s.file, Line: p.line, Offset: p.offset, Run: s.run, Kind: kind, Fatal: fatal,
		What: fmt.Sprintf(format, args...)}
}

func (s *scanner) unexpected(c byte, want string) *Error {
	if want != "a value" && want != "an object" {
		want = fmt.Sprintf("one of %q", want)
	}
	return s.at(s.place, ErrSyntax, true, "found %q, want %s", c, want)
}

// ended returns the error for an input that ends too early.
func (s *scanner) ended() *Error {
	switch {
	case s.failed != nil && s.failed != io.EOF:
		return s.at(s.place, ErrRead, true, "%v", s.failed)
	case s.pos < s.end:
		return s.at(s.place, ErrSyntax, true, "unexpected end of the line")
	}
	return s.at(s.place, ErrSyntax, true, "unexpected end of the file")
}
