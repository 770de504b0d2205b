package report

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/bench/result"
)

func render(t *testing.T, write func(io.Writer, *result.Run) error, run *result.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, run); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

type form struct {
	name  string
	write func(io.Writer, *result.Run) error
}

func forms() []form {
	return []form{{"text", Text}, {"markdown", Markdown}, {"html", HTML}, {"benchstat", Benchstat}}
}

func TestSameRunSameBytes(t *testing.T) {
	for _, f := range forms() {
		if diff := cmp.Diff(render(t, f.write, fakeRun(1, 1)), render(t, f.write, fakeRun(1, 1))); diff != "" {
			t.Errorf("%s differs: %s", f.name, diff)
		}
	}
}

// Every form shows the missed goals, what was skipped, and how to repeat the run.
func TestNothingIsHidden(t *testing.T) {
	run := fakeRun(1, 1)
	run.Points[0].Note = "its turn ended early"
	for _, f := range forms()[:3] {
		got := strings.ReplaceAll(render(t, f.write, run), "\n", " ")
		for _, want := range []string{
			"missed", "not measured", "make bench-full", "redis-server is not installed", "sampled: badger over steps", "a million directories",
			"its turn ended early", "Made-up CPU", "2,000/s offered", "0123abc",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q", f.name, want)
			}
		}
	}
}

func TestEmptyRun(t *testing.T) {
	for _, f := range forms() {
		run := &result.Run{Points: []result.Point{{}}, Curves: []result.Curve{{}}, Rivals: []result.Rival{{}}, Limits: []result.Limit{{}}}
		render(t, f.write, run)
		if got := render(t, f.write, &result.Run{}); f.name == "text" && !strings.Contains(got, "0 of 14 goals met, 0 missed, 14 not measured") {
			t.Errorf("an empty run: %s", got)
		}
	}
}

// The page loads nothing.
func TestPageIsSelfContained(t *testing.T) {
	got := render(t, HTML, fakeRun(1, 1))
	for _, reference := range []string{"http:", "https:", "src=", "<script", "<link", "url(", "@import", "//"} {
		if i := strings.Index(got, reference); i >= 0 {
			t.Errorf("the page has %q: %s", reference, got[max(0, i-40):i+40])
		}
	}
	seen := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(got, -1) {
		if seen[id[1]] {
			t.Errorf("two elements have the id %q", id[1])
		}
		seen[id[1]] = true
	}
	for _, to := range regexp.MustCompile(`(?:href="#|labelledby=")([^"]*)"`).FindAllStringSubmatch(got, -1) {
		for _, id := range strings.Fields(to[1]) {
			if !seen[id] {
				t.Errorf("nothing has the id %q", id)
			}
		}
	}
}

// Lines on a terminal are no longer than the width of a table, and a table that continues below
// loses nothing.
func TestTextFits(t *testing.T) {
	run := fakeRun(1, 1)
	run.Points[0].Workload = "a-workload-with-a-long-name-that-somebody-gave-to-their-own-runs"
	for line := range strings.Lines(render(t, Text, run)) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	wide := table{Head: []string{"row"}, Rows: [][]cell{words("first"), words("second")}}
	for i := range 40 {
		wide.Head = append(wide.Head, "column")
		for r := range wide.Rows {
			wide.Rows[r] = append(wide.Rows[r], cell{Text: fmt.Sprintf("%d", 1000*(r+1)+i), Note: "sampled"})
		}
	}
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	writeColumns(out, wide)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		for r := range wide.Rows {
			if text := fmt.Sprintf(" %d (sampled)", 1000*(r+1)+i); strings.Count(b.String(), text) != 1 {
				t.Errorf("%q stands %d times in\n%s", text, strings.Count(b.String(), text), b.String())
			}
		}
	}
}

// Names of rivals and workloads, and notes, are never markup.
func TestTextsAreEscaped(t *testing.T) {
	const hostile = `<img onerror="x">|*&`
	run := fakeRun(1, 1)
	run.Machine.CPU, run.Command = hostile, hostile
	for i := range run.Points {
		run.Points[i].Workload += hostile
		run.Points[i].Note = hostile
	}
	for i := range run.Curves {
		run.Curves[i].Rival += hostile
	}
	if got := render(t, HTML, run); strings.Contains(got, "<img") {
		t.Error("the page has markup of a name")
	}
	for line := range strings.Lines(render(t, Markdown, run)) {
		if strings.Contains(line, "<img") || strings.HasPrefix(line, "|") && strings.Count(line, `"x"`) > 0 && !strings.Contains(line, `\|`) {
			t.Fatalf("Markdown of a name: %s", line)
		}
	}
	for line := range strings.Lines(render(t, Benchstat, run)) {
		if strings.HasPrefix(line, "Benchmark") && len(strings.Fields(line))%2 != 0 {
			t.Fatalf("a name is several words: %s", line)
		}
	}
}

// All rows of a table are as long as its head; otherwise columns would shift.
func TestTablesAreRectangles(t *testing.T) {
	for _, s := range build(fakeRun(1, 1)).Sections {
		for _, p := range s.Parts {
			for _, row := range p.Table.Rows {
				if len(row) != len(p.Table.Head) {
					t.Errorf("%s, %s: %d cells below %d heads", s.Title, p.Title, len(row), len(p.Table.Head))
				}
			}
		}
	}
}

func TestAdvantage(t *testing.T) {
	run := fakeRun(1, 1)
	v := newView(run)
	k := key{result.Speed, result.Durable, growingChat, 0, rawBadger, 64, 0}
	for _, measure := range []string{result.SaveRate, result.SaveP50} {
		c := v.cell(k, measure)
		if !strings.HasPrefix(c.Note, "2.9") || c.Mood != "" { // 590 µs to 201 µs
			t.Errorf("%s: %+v", measure, c)
		}
	}
	k.rival = result.Ckptd
	if c := v.cell(k, result.SaveP50); c.Note != "" {
		t.Errorf("ckptd compared with itself: %+v", c)
	}
	scale(run, rawBadger, result.SaveP50, 0.1)
	k.rival = rawBadger
	if c := newView(run).cell(k, result.SaveP50); c.Mood != "bad" {
		t.Errorf("ckptd is behind: %+v", c)
	}
}

// A rival that is durable by default is in the second table with its figures from the first.
func TestDefaultsThatAreDurable(t *testing.T) {
	v := newView(fakeRun(1, 1))
	k := key{result.Speed, result.Default, growingChat, 0, bbolt, 64, 0}
	got, ok := v.point(k)
	k.table = result.Durable
	want, has := v.point(k)
	if !ok || !has || !cmp.Equal(got, want) {
		t.Errorf("bbolt with defaults: %v %v", ok, has)
	}
	k.table, k.rival = result.Default, sqlite
	if got, ok := v.point(k); !ok || got.Table != result.Default {
		t.Errorf("SQLite with defaults: %v, %v", got.Table, ok)
	}
}

func TestBenchstatLines(t *testing.T) {
	got := render(t, Benchstat, fakeRun(1, 1))
	for _, want := range []string{"goos: linux\ngoarch: amd64\n", "Unit save-rate-saves/s better=higher\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	const name = "BenchmarkSpeed/table=durable/workload=chat/size=100000/rival=badger/writers=64 "
	if n := strings.Count(got, name); n != 5 {
		t.Errorf("%d lines of 5 rounds", n)
	}
	for line := range strings.Lines(got) {
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || len(fields)%2 != 0 {
			t.Fatalf("%d fields: %s", len(fields), line)
		}
		for i := 2; i < len(fields); i += 2 {
			if _, err := strconv.ParseFloat(fields[i], 64); err != nil || fields[1] != "1" {
				t.Fatalf("field %d: %s", i, line)
			}
		}
	}
}

// Every form for people shows how close ckptd comes to the limits, next to the limits.
func TestNearLimits(t *testing.T) {
	run := fakeRun(1, 1)
	for _, p := range run.Points {
		if p.Rival == result.Ckptd && p.Workload == growingChat && p.Writers == 1 && p.Table == result.Durable && p.Kind == result.Speed {
			p.Figures[result.SaveP50] = result.Figure{Median: 1, Limit: result.LimitSync, Fraction: 0.4321}
		}
	}
	for _, f := range forms()[:3] {
		if got := render(t, f.write, run); !strings.Contains(got, "43.2 %") {
			t.Errorf("%s does not say how near the limit is", f.name)
		}
	}
}

func TestWritersErrors(t *testing.T) {
	for _, f := range forms() {
		if err := f.write(full{}, fakeRun(1, 1)); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// scale multiplies a measure of a rival everywhere.
func scale(run *result.Run, rival, measure string, by float64) {
	each := func(figures map[string]result.Figure) {
		if f, ok := figures[measure]; ok {
			limit := f
			f = mapped(f, func(v float64) float64 { return v * by })
			f.Limit, f.Fraction = limit.Limit, limit.Fraction
			figures[measure] = f
		}
	}
	for _, p := range run.Points {
		if p.Rival == rival {
			each(p.Figures)
		}
	}
	for _, c := range run.Curves {
		if c.Rival == rival {
			for _, p := range c.Points {
				each(p.Figures)
			}
		}
	}
}

// wellFormed parses a drawing as XML.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v: %s", err, svg)
		}
	}
}
