// Package trajectory reads and writes recorded agent runs: files of messages with facts about the run around them.
//
// Three forms are read: a JSON array of runs, JSONL with a run on every line, and a file that is one run (an
// SWE-agent .traj). A run is an object that has its messages in an array named traj, messages, history or
// trajectory; where it has several of them the first of this list is taken and the others stay with its other members.
//
// What is read is checked, compacted and otherwise kept as it was: number literals, escapes, the order of members and
// members that occur twice. So a run that is written again has the same JSON value, and the same bytes if the file
// was written the way Python's json.dumps(runs, indent=2) does.
package trajectory

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Form is how a file holds its runs.
type Form uint8

const (
	Auto   Form = iota // found out while reading: an array, or objects
	Array              // a JSON array of runs
	Lines              // JSONL, a run on every line
	Object             // the file is the run
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

// Statuses of a run, as its reward tells.
const (
	Running   = "running"   // there is no reward
	Succeeded = "succeeded" // a reward of 1 or more
	Failed    = "failed"    // a lower one
)

// Run is one agent run. All of it belongs to the caller.
type Run struct {
	Index    int // position in the file, from 0; runs that could not be read count
	Line     int // where it begins, from 1
	Offset   int64
	Form     Form // of the file: Array, Lines or Object
	Messages []json.RawMessage
	// Meta is the run's object, compact, with a mark in place of the messages. Join puts them back.
	Meta   []byte
	Status string
}

var (
	// ErrSyntax is matched by errors of files that are not JSON, or not runs.
	ErrSyntax = errors.New("malformed trajectory")
	// ErrTooLarge is matched by errors of messages and runs over the limits of Options.
	ErrTooLarge = errors.New("over the limit")
	// ErrRead is matched by errors of the reader underneath.
	ErrRead = errors.New("cannot read")
)

// Error tells what is wrong with a file and where. It matches one of ErrSyntax, ErrTooLarge and ErrRead.
type Error struct {
	File   string
	Line   int   // from 1
	Offset int64 // bytes before the place
	Run    int   // index of the run, -1 outside of any
	What   string
	Kind   error // ErrSyntax, ErrTooLarge or ErrRead
	Fatal  bool  // nothing after the place was read
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

// fields are the names of the array of messages, the preferred first.
var fields = [...]string{"traj", "messages", "history", "trajectory"}

func fieldRank(name string) int {
	for i, f := range fields {
		if f == name {
			return i
		}
	}
	return -1
}

// mark stands in Meta for the messages of a run that came from a file of a form.
func mark(f Form) string { return `"ckptd:` + f.String() + `"` }

// markForm is the inverse of mark; Auto means that raw is no mark.
func markForm(raw []byte) Form {
	for _, f := range [...]Form{Array, Lines, Object} {
		if string(raw) == mark(f) {
			return f
		}
	}
	return Auto
}
