package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/bench/report"
	"github.com/ckptd/ckptd/bench/result"
)

// written writes a run with a single figure to a file.
func written(t *testing.T, allocations float64) string {
	t.Helper()
	rounds := []float64{allocations, allocations, allocations}
	path := filepath.Join(t.TempDir(), "results.json")
	var b bytes.Buffer
	err := result.Write(&b, &result.Run{Rounds: 3, Points: []result.Point{{Kind: result.Speed, Table: result.Durable, Workload: "chat", Rival: result.Ckptd,
		Writers: 1, Figures: map[string]result.Figure{result.SaveAllocs: result.FigureOf(rounds)}}}})
	if err := errors.Join(err, os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func execute(args ...string) (string, error) {
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestCompare(t *testing.T) {
	old, worse := written(t, 10), written(t, 12)
	if out, err := execute("compare", old, old); err != nil {
		t.Errorf("a run with itself: %v\n%s", err, out)
	}
	out, err := execute("compare", old, worse)
	if !errors.Is(err, report.ErrRegressed) || !strings.Contains(out, "1.2 ×") {
		t.Errorf("a fifth more allocations: %v\n%s", err, out)
	}
	if out, err := execute("compare", "--threshold", "0.25", old, worse); err != nil {
		t.Errorf("within the threshold: %v\n%s", err, out)
	}
	for _, args := range [][]string{{old}, {old, old + "no"}, {"--threshold", "0", old, old}} {
		if _, err := execute(append([]string{"compare"}, args...)...); err == nil || errors.Is(err, report.ErrRegressed) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestReport(t *testing.T) {
	run := written(t, 10)
	for form, want := range map[string]string{"text": "GOALS", "markdown": "## Goals", "benchstat": "BenchmarkSpeed/", "html": "<!doctype html>"} {
		out, err := execute("report", "--form", form, run)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", form, err, out)
		}
		file := filepath.Join(t.TempDir(), "out")
		if _, err := execute("report", "--form", form, "-o", file, run); err != nil {
			t.Error(err)
		}
		if again, err := os.ReadFile(file); err != nil || string(again) != out {
			t.Errorf("%s in a file: %v", form, err)
		}
	}
	if _, err := execute("report", "--form", "pdf", run); err == nil {
		t.Error("a form that there is not")
	}
}

func TestReportInto(t *testing.T) {
	run, doc := written(t, 10), filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(doc, []byte("# Before\n"+figuresBegin+"\nold\n"+figuresEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for range 2 {
		if _, err := execute("report", "--into", doc, run); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	got := texts[0]
	if !strings.HasPrefix(got, "# Before\n"+figuresBegin+"\n") || !strings.HasSuffix(got, figuresEnd+"\nafter\n") || strings.Contains(got, "old\n") ||
		!strings.Contains(got, "## Goals") || texts[1] != got {
		t.Errorf("the document became\n%s", got)
	}
	if _, err := execute("report", "--into", run, run); err == nil {
		t.Error("put into a file without marks")
	}
}
