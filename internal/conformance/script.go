// Package conformance is a suite for clients of the daemon, in any language: scripts of calls, of
// the requests that a correct client makes for them, and of the answers and faults that they meet,
// with a server that replays them. README.md has the format.
package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Script has the calls that a client makes, and the answers and faults that it meets.
type Script struct {
	Name      string     `json:"name,omitempty"` // that of its file
	About     string     `json:"about"`
	Client    Options    `json:"client"`
	Calls     []Call     `json:"calls"`
	Exchanges []Exchange `json:"exchanges"`
}

// Options are those of the client.
type Options struct {
	Attempts int  `json:"attempts"` // 0 is 4
	NoIDs    bool `json:"noIds"`    // the client gives drafts no ids
}

// Call is a call that the client's user makes.
type Call struct {
	Method  string          `json:"method"`  // such as CheckpointService/Save
	Request json.RawMessage `json:"request"` // its message; the client fills in its own fields
	Session bool            `json:"session"` // of a session, which sends only changes
	Take    int             `json:"take"`    // of a watch: its user leaves after this many events
	Result  Result          `json:"result"`
}

// Result is the result for the user.
type Result struct {
	Reason string   `json:"reason,omitempty"` // of the error, in the words of ckptd.v1.Reason or UNREACHABLE
	IDs    []string `json:"ids,omitempty"`    // of the checkpoints or events
}

// Check compares the results that the user of a client got with those of the script.
func (s *Script) Check(got []Result) (problems []string) {
	if len(got) != len(s.Calls) {
		return []string{fmt.Sprintf("%d calls have a result, want %d", len(got), len(s.Calls))}
	}
	for i, c := range s.Calls {
		want := c.Result
		if got[i].Reason != want.Reason || want.IDs != nil && !slices.Equal(got[i].IDs, want.IDs) {
			problems = append(problems, fmt.Sprintf("call %d ends with %q and %q, want %q and %q", i+1, got[i].Reason, got[i].IDs, want.Reason, want.IDs))
		}
	}
	return problems
}

// Exchange is one request that must come, and its answer.
type Exchange struct {
	Method string          `json:"method"` // that of the first call, if left out
	Expect json.RawMessage `json:"expect"` // members of its message
	// Answers are the messages of the answer: one, but for streams.
	Answers []json.RawMessage `json:"answers"`
	Error   *Error            `json:"error"` // in place of an answer, or behind the messages of a stream
	Proxy   int               `json:"proxy"` // HTTP status of an answer that is not the daemon's
	// Cut says when the connection breaks: before the answer, during it or after it.
	Cut string `json:"cut"`
}

// Error is an error of the daemon.
type Error struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail"` // a ckptd.v1.ErrorDetail, or nothing
}

//go:embed scripts/*.json
var files embed.FS

// Scripts returns all scripts, in the order of their names.
func Scripts() ([]*Script, error) {
	entries, err := files.ReadDir("scripts")
	if err != nil {
		return nil, err
	}
	var all []*Script
	for _, e := range entries {
		text, err := files.ReadFile("scripts/" + e.Name())
		if err != nil {
			return nil, err
		}
		s, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		s.Name = strings.TrimSuffix(e.Name(), ".json")
		all = append(all, s)
	}
	return all, nil
}

func parse(text []byte) (*Script, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	s := &Script{}
	if err := d.Decode(s); err != nil {
		return nil, err
	}
	if s.About == "" || len(s.Calls) == 0 {
		return nil, fmt.Errorf("a script needs a description and calls")
	}
	if s.Client.Attempts == 0 {
		s.Client.Attempts = 4
	}
	for i := range s.Exchanges {
		x := &s.Exchanges[i]
		if x.Method == "" {
			x.Method = s.Calls[0].Method
		}
		if !slices.Contains([]string{"", "before", "during", "after"}, x.Cut) {
			return nil, fmt.Errorf("exchange %d: cut must be before, during or after the answer", i+1)
		}
	}
	return s, nil
}
