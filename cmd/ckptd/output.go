package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"

	"github.com/ckptd/ckptd/engine"
)

// paint colours text, or leaves it alone where colours are not wanted.
type paint bool

func (p paint) with(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string { return p.with("1", s) }
func (p paint) dim(s string) string  { return p.with("2", s) }

func (p paint) status(s string) string {
	switch s {
	case engine.StatusSucceeded:
		return p.with("32", s)
	case engine.StatusFailed:
		return p.with("31", s)
	case engine.StatusRunning:
		return p.with("33", s)
	}
	return s
}

// emit prints a value as one line of JSON.
func (a *app) emit(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return wroteOut(enc.Encode(v))
}

// printf prints to standard output.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return wroteOut(err)
}

func wroteOut(err error) error {
	if err != nil {
		return outputError{err}
	}
	return nil
}

// printable returns s without terminal control sequences: stored text was written by agents, not by
// the user.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), `\\`, `\`)
}

// printableText is printable for text of many lines.
func printableText(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = printable(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// cut shortens s to at most n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// size prints bytes for people.
func size(n int64) string {
	if n < 0 {
		return "-" + size(-n)
	}
	return humanize.Bytes(uint64(n))
}

// took prints a duration for people.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// count prints a number with its noun.
func count(n int, noun string) string { return plural(n, noun, noun+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(n)) + " " + many
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, printable(k)+"="+printable(labels[k]))
	}
	return strings.Join(parts, " ")
}

// checkpointView is a checkpoint as --json prints it.
type checkpointView struct {
	Tenant        string            `json:"tenant"`
	User          string            `json:"user"`
	Thread        string            `json:"thread"`
	Namespace     string            `json:"namespace,omitempty"`
	ID            string            `json:"id"`
	Seq           uint64            `json:"seq"`
	Parent        string            `json:"parent,omitempty"`
	ParentSeq     uint64            `json:"parent_seq,omitempty"`
	Branch        string            `json:"branch,omitempty"`
	Heads         []string          `json:"heads,omitempty"`
	Time          time.Time         `json:"time"`
	Step          int64             `json:"step"`
	Status        string            `json:"status"`
	Kind          string            `json:"kind,omitempty"`
	SchemaVersion uint64            `json:"schema_version"`
	Migrated      *migratedView     `json:"migrated,omitempty"`
	RunID         string            `json:"run_id,omitempty"`
	Delta         []string          `json:"delta,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Meta          json.RawMessage   `json:"meta,omitempty"`
	Blobs         []string          `json:"blobs,omitempty"`
	Channels      []channelView     `json:"channels"`
	Hash          string            `json:"hash"`
	StateBytes    int64             `json:"state_bytes"`
	StoredBytes   int64             `json:"stored_bytes"`
	Depth         int               `json:"depth"`
	Hooks         []hookView        `json:"hooks,omitempty"`
	Fuel          uint64            `json:"fuel,omitempty"`
}

// migratedView has the migrations that a load applied to the stored state.
type migratedView struct {
	From  uint64   `json:"from"`
	To    uint64   `json:"to"`
	Steps []string `json:"steps"`
}

// hookView is a hook that processed a checkpoint when it was saved.
type hookView struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Config string `json:"config,omitempty"`
}

// channelView is a channel as --json prints it: the data of a json channel as they are, others in
// base64.
type channelView struct {
	Name string          `json:"name"`
	Type string          `json:"type"`
	Size int64           `json:"size"`
	Data json.RawMessage `json:"data,omitempty"`
	Raw  []byte          `json:"data_base64,omitempty"`

	Rewritten bool `json:"rewritten,omitempty"`
}

func viewOf(cp *engine.Checkpoint) checkpointView {
	v := checkpointView{Tenant: cp.Ref.Tenant, User: cp.Ref.User, Thread: cp.Ref.Thread, Namespace: cp.Ref.Namespace,
		ID: cp.ID, Seq: cp.Seq, Parent: cp.Parent, ParentSeq: cp.ParentSeq, Branch: cp.Branch, Time: cp.Time.UTC(), Step: cp.Step,
		Status: cp.Status, Kind: cp.Kind, SchemaVersion: cp.SchemaVersion, RunID: cp.RunID, Delta: cp.Delta, Labels: cp.Labels, Hash: fmt.Sprintf("%x", cp.Hash),
		Channels: []channelView{}, StateBytes: cp.Cost.State, StoredBytes: cp.Cost.Stored, Depth: cp.Cost.Depth}
	if json.Valid(cp.Meta) {
		v.Meta = cp.Meta
	}
	v.Fuel = cp.Fuel
	if m := cp.Migrated; m != nil {
		v.Migrated = &migratedView{m.From, m.To, m.Steps}
	}
	for _, h := range cp.Hooks {
		hv := hookView{Name: h.Name, Digest: fmt.Sprintf("%x", h.Digest)}
		if h.Config != [32]byte{} {
			hv.Config = fmt.Sprintf("%x", h.Config)
		}
		v.Hooks = append(v.Hooks, hv)
	}
	for _, b := range cp.Blobs {
		v.Blobs = append(v.Blobs, b.String())
	}
	for _, c := range cp.Channels {
		cv := channelView{Name: c.Name, Type: c.Type, Size: c.Size, Rewritten: c.Rewritten}
		if c.Type == "json" && json.Valid(c.Data) {
			cv.Data = c.Data
		} else {
			cv.Raw = c.Data
		}
		v.Channels = append(v.Channels, cv)
	}
	return v
}

// headline prints a checkpoint in one line.
func (a *app) headline(cp *engine.Checkpoint) string {
	line := fmt.Sprintf("%s  step %d  %s  %s", a.paint.bold(fmt.Sprintf("@%d", cp.Seq)), cp.Step,
		a.paint.status(printable(cp.Status)), cp.Time.Local().Format("2006-01-02 15:04:05"))
	if l := labelText(cp.Labels); l != "" {
		line += "  " + l
	}
	return line
}
