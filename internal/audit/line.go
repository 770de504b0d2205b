package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind says why something is in the log.
type Kind string

// The kinds of entries.
const (
	Denied Kind = "denied" // a request was denied
	Export Kind = "export" // states were read in bulk
	Admin  Kind = "admin"  // the store, its users, tokens, plugins or this log were looked after
	Notice Kind = "notice" // an entry about the log itself
)

// Entry is the content of a line of the log.
type Entry struct {
	Number uint64    // counts the lines, from 1, through all files
	Time   time.Time // to the millisecond, in UTC

	Kind   Kind
	Method string
	Caller string // never a person's name
	// Pseudonyms of its subjects, each "" or 32 hexadecimal digits.
	Tenant, User, Thread string
	About                string // any other subject, such as a token; "" for none
	Code                 string // of the answer
	Count                int    // count, at least 1
}

const (
	hashDomain = "ckptd/audit/1\n"
	timeLayout = "2006-01-02T15:04:05.000Z"
	maxText    = 256
	maxLine    = 2 << 10 // bytes, with the line feed
)

// line is an entry in its place in the chain.
type line struct {
	Entry
	prev, hash [sha256.Size]byte
}

// spelling is the JSON form of a line (docs/format.md §19). The order of its members, and which are
// omitted, are part of the format.
type spelling struct {
	Number uint64 `json:"n"`
	Time   string `json:"time"`
	Kind   Kind   `json:"kind"`
	Method string `json:"method"`
	Caller string `json:"caller"`
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`
	Thread string `json:"thread,omitempty"`
	About  string `json:"about,omitempty"`
	Code   string `json:"code"`
	Count  int    `json:"count,omitempty"` // left out for 1
	Prev   string `json:"prev"`
}

// encode spells an entry behind the line whose hash is prev, and returns it with its line feed and
// its hash.
func encode(e Entry, prev [sha256.Size]byte) ([]byte, [sha256.Size]byte, error) {
	if err := e.check(); err != nil {
		return nil, prev, err
	}
	s := spelling{e.Number, e.Time.UTC().Format(timeLayout), e.Kind, e.Method, e.Caller, e.Tenant, e.User, e.Thread, e.About, e.Code, e.Count, hex.EncodeToString(prev[:])}
	if s.Count == 1 {
		s.Count = 0
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, prev, err
	}
	b = b[:len(b)-1] // the hash covers everything before the member "hash"
	hash := sha256.Sum256(append([]byte(hashDomain), b...))
	return fmt.Appendf(b, `,"hash":"%x"}`+"\n", hash), hash, nil
}

var errLine = errors.New("is not an audit log line, or was changed")

// decode reads a line with its line feed. It accepts only the exact output of encode.
func decode(b []byte) (line, error) {
	var s struct {
		spelling
		Hash string `json:"hash"`
	}
	if len(b) > maxLine || json.Unmarshal(b, &s) != nil {
		return line{}, errLine
	}
	at, err := time.Parse(timeLayout, s.Time)
	prev, prevErr := hex.DecodeString(s.Prev)
	if err != nil || prevErr != nil || len(prev) != sha256.Size {
		return line{}, errLine
	}
	l := line{Entry: Entry{s.Number, at, s.Kind, s.Method, s.Caller, s.Tenant, s.User, s.Thread, s.About, s.Code, max(s.Count, 1)}, prev: [sha256.Size]byte(prev)}
	again, hash, err := encode(l.Entry, l.prev)
	if err != nil || !bytes.Equal(again, b) {
		return line{}, errLine
	}
	l.hash = hash
	return l, nil
}

// check refuses entries that must not be in the log.
func (e Entry) check() error {
	switch e.Kind {
	case Denied, Export, Admin, Notice:
	default:
		return fmt.Errorf("invalid audit entry: unknown kind %q", e.Kind)
	}
	for _, s := range []string{e.Method, e.Caller, e.Code} {
		if s == "" || s != tame(s) {
			return errors.New("invalid audit entry: a text is empty, too long or has control characters")
		}
	}
	if e.About != tame(e.About) {
		return errors.New("invalid audit entry: its subject is too long or has control characters")
	}
	for _, p := range []string{e.Tenant, e.User, e.Thread} {
		if b, err := hex.DecodeString(p); p != "" && (err != nil || len(b) != 16 || hex.EncodeToString(b) != p) {
			return errors.New("invalid audit entry: a name in place of a pseudonym")
		}
	}
	if e.Number == 0 || e.Count < 1 || e.Time.Year() < 1970 || e.Time.Year() > 9999 {
		return errors.New("invalid audit entry: impossible number, count or time")
	}
	return nil
}

// tame makes a text plain: at most maxText printable characters of ASCII, none of which JSON has to
// escape.
func tame(s string) string {
	b := []byte(s[:min(len(s), maxText)])
	for i, c := range b {
		if c < ' ' || c > '~' || bytes.IndexByte([]byte(`"\<>&`), c) >= 0 {
			b[i] = '?'
		}
	}
	return string(b)
}
