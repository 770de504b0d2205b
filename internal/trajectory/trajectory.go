// Package trajectory reads and writes recorded agent runs: files with the messages of runs and
// facts about them.
//
// It reads three forms: a JSON array of runs, JSONL with one run per line, and a file with a single
// run (an SWE-agent .traj). A run is an object that has its messages in an array named traj,
// messages, history or trajectory. If it has several of these, the first name in this list counts,
// and the others remain ordinary members.
//
// The data is validated and compacted but otherwise unchanged: number literals, escapes, the order
// of members, and members that occur twice are all kept. So a run that is written back has the same
// JSON value, and the same bytes if the file was written in the way of Python's json.dumps(runs,
// indent=2).
package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Form is the layout of a file of runs.
type Form uint8

const (
	Auto   Form = iota // detect while reading: an array, or objects
	Array              // a JSON array of runs
	Lines              // JSONL, one run per line
	Object             // a single run
)

var formNames = [...]string{Auto: "auto", Array: "array", Lines: "jsonl", Object: "object"}

// String returns the name that ParseForm accepts.
func (f Form) String() string { return formNames[f] }

// ParseForm is the inverse of String.
func ParseForm(s string) (Form, error) {
	for f, name := range formNames {
		if s == name {
			return Form(f), nil
		}
	}
	return Auto, fmt.Errorf("parsing form %q: want auto, array, jsonl or object", s)
}

// Statuses of a run, derived from its reward.
const (
	Running   = "running"   // no reward
	Succeeded = "succeeded" // a reward of 1 or more
	Failed    = "failed"    // a lower reward
)

// Run is one agent run. The caller owns all of it.
type Run struct {
	Index    int // position in the file, from 0; unreadable runs count
	Line     int // first line, from 1
	Offset   int64
	Form     Form // of the file: Array, Lines or Object
	Messages []json.RawMessage
	// Meta is the run's object, compact, with a placeholder for the messages. Join puts them back.
	Meta   []byte
	Status string
}

var (
	// ErrSyntax matches errors of files that aren't JSON or don't contain runs.
	ErrSyntax = errors.New("malformed trajectory")
	// ErrTooLarge matches errors of messages and runs above the limits of Options.
	ErrTooLarge = errors.New("over the limit")
	// ErrRead matches errors of the underlying reader.
	ErrRead = errors.New("cannot read")
)

// Error describes a fault in a file and its position. It matches one of ErrSyntax, ErrTooLarge and
// ErrRead.
type Error struct {
	File   string
	Line   int   // from 1
	Offset int64 // in bytes
	Run    int   // index of the run, -1 outside any run
	What   string
	Kind   error // ErrSyntax, ErrTooLarge or ErrRead
	Fatal  bool  // nothing after this position was read
}

func (e *Error) Error() string {
	run, rest := "", ""
	if e.Run >= 0 {
		run = fmt.Sprintf("run %d: ", e.Run)
	}
	if e.Fatal {
		rest = "; nothing after it was read"
	}
	return fmt.Sprintf("%s:%d (offset %d): %s%s%s", e.File, e.Line, e.Offset, run, e.What, rest)
}

func (e *Error) Unwrap() error { return e.Kind }

// fields are the possible names of the array of messages, in order of preference.
var fields = [...]string{"traj", "messages", "history", "trajectory"}

func fieldRank(name string) int {
	for i, f := range fields {
		if f == name {
			return i
		}
	}
	return -1
}

// placeholder replaces in Meta the messages of a run that came from a file of the given form.
func placeholder(f Form) string { return `"ckptd:` + f.String() + `"` }

// placeholderForm is the inverse of placeholder. It returns Auto if raw isn't a placeholder.
func placeholderForm(raw []byte) Form {
	for _, f := range [...]Form{Array, Lines, Object} {
		if string(raw) == placeholder(f) {
			return f
		}
	}
	return Auto
}
