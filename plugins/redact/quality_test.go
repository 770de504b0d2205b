package redact

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sample is a text of which is known what it holds: one value of a kind, or nothing that is to be found.
type sample struct {
	Text, Locale, Kind, Value string
}

// score counts what was found of a kind, what was missed, and what was found where nothing is.
type score struct{ found, missed, wrong int }

func (s score) recall() float64    { return ratio(s.found, s.found+s.missed) }
func (s score) precision() float64 { return ratio(s.found, s.found+s.wrong) }

func ratio(n, of int) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

// kindOf is the kind of sample that a rule is for.
func kindOf(r *rule) string {
	switch {
	case r == nil: // within base64
		return "key"
	case r.ID == "us-ssn":
		return "ssn"
	case r.ID == "ipv4" || r.ID == "ipv6":
		return "ip"
	case r.Group == "secrets":
		return "key"
	}
	return r.ID
}

// measure counts by kind. What is found of another kind where something is to be found is no error of that kind: it
// goes all the same. examples gets some of the errors.
func measure(r *Redactor, samples []sample, examples io.Writer) map[string]score {
	scores := map[string]score{}
	shown := map[string]int{}
	show := func(what, kind string, s sample) {
		if shown[what+kind]++; shown[what+kind] <= 40 {
			fmt.Fprintf(examples, "%s %s (%s): %q\n", what, kind, s.Locale, s.Text)
		}
	}
	scan := newScan(r)
	for _, s := range samples {
		matches := slices.Clone(scan.matchesOf(s.Text))
		start := strings.Index(s.Text, s.Value)
		end := start + len(s.Value)
		found := false
		for _, m := range matches {
			kind := kindOf(m.rule)
			if s.Kind != "" && m.start < end && start < m.end {
				found = found || m.start <= start && m.end >= end
				continue
			}
			c := scores[kind]
			c.wrong++
			scores[kind] = c
			show("wrong", kind, s)
		}
		if s.Kind == "" {
			continue
		}
		c := scores[s.Kind]
		if found {
			c.found++
		} else {
			c.missed++
			show("missed", s.Kind, s)
		}
		scores[s.Kind] = c
	}
	return scores
}

// matchesOf returns what the rules find in a text, and in the strings of it if it is JSON.
func (s *scan) matchesOf(text string) []match {
	if !json.Valid([]byte(text)) || !looksLikeJSON([]byte(text)) {
		return s.text([]byte(text), nil)
	}
	// By the edits, as the walk through JSON makes them: each is where its mask is.
	s.in = Input{Type: "json"}
	defer s.reset()
	edits, _, _, _ := s.json([]byte(text), nil)
	var matches []match
	for _, e := range edits {
		mark := string(e.text)
		for _, r := range s.r.rules {
			if strings.Contains(mark, "[REDACTED:"+r.ID+"]") {
				matches = append(matches, match{start: e.start, end: e.end, rule: r})
				break
			}
		}
	}
	return matches
}

func table(scores map[string]score) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %7s %7s %7s %8s %10s\n", "kind", "found", "missed", "wrong", "recall", "precision")
	for _, kind := range slices.Sorted(maps.Keys(scores)) {
		s := scores[kind]
		fmt.Fprintf(&b, "%-14s %7d %7d %7d %8.4f %10.4f\n", kind, s.found, s.missed, s.wrong, s.recall(), s.precision())
	}
	return b.String()
}

func check(t *testing.T, scores map[string]score, kinds []string, recall, precision float64) {
	t.Helper()
	for _, kind := range kinds {
		if s := scores[kind]; s.found == 0 || s.recall() < recall || s.precision() < precision {
			t.Errorf("%s: recall %.4f and precision %.4f, want %.2f and %.2f", kind, s.recall(), s.precision(), recall, precision)
		}
	}
}

func readSamples(in io.Reader) (list []sample, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, lines.Err()
}

// On what Faker makes, in ten locales, and on what looks like it.
func TestQualityOfPersonalData(t *testing.T) {
	python := cmp.Or(os.Getenv("CKPTD_FAKER_PYTHON"), filepath.Join("..", "..", "bin", "faker", "bin", "python"))
	if _, err := os.Stat(python); err != nil {
		t.Skip("Faker is not installed: make test installs it")
	}
	cmd := exec.Command(python, filepath.Join("quality", "samples.py"), "40")
	cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8", "PYTHONHASHSEED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	samples, err := readSamples(strings.NewReader(string(out)))
	if err != nil || len(samples) == 0 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}
	var examples strings.Builder
	scores := measure(Default(), samples, &examples)
	t.Logf("%d samples\n%s\n%s", len(samples), table(scores), examples.String())
	check(t, scores, []string{"email", "card", "iban", "ssn", "ip", "mac"}, 0.99, 0.98)
	check(t, scores, []string{"phone"}, 0.9, 0.9)
}
