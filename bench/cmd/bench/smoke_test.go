package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/rival"
)

// Smoke test of all rivals: every installed one is measured everywhere, returns the saved states,
// and appears in every form of the results; nothing is left behind. Times are not judged.
func TestSmoke(t *testing.T) {
	out, stores, input := t.TempDir(), scratch(t), filepath.Join(t.TempDir(), "real.json")
	if err := os.WriteFile(input, []byte(`[{"reward":1,"traj":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := bench(t, "run", "--set", "smoke", "--input", input, "--out", out, "--dir", stores)
	if err != nil {
		t.Fatal(err)
	}
	found, err := readRun(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(stores); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, name := range []string{result.LimitSync, result.LimitWrite, result.LimitRead, result.LimitCopy, result.LimitAESGCM, result.LimitZstd, result.LimitPipeline} {
		if l, ok := found.Limit(name); !ok || l.Median <= 0 {
			t.Errorf("limit %s: %+v", name, l)
		}
	}
	page, lines := wholePage(t, filepath.Join(out, "bench.html")), wholeLines(t, filepath.Join(out, "bench.txt"))
	skipped := 0
	for _, r := range rival.All() {
		if r.Installed != nil {
			if _, err := r.Installed(); err != nil {
				skipped++
				t.Logf("%s is SKIPPED: %v", r.Name, err)
				continue
			}
		}
		measured(t, found, r)
		for _, kind := range []string{"Speed", "Space", "Growth"} {
			if !slices.ContainsFunc(lines, func(l string) bool {
				return strings.HasPrefix(l, "Benchmark"+kind+"/") && strings.Contains(l, "/rival="+r.Name+"/")
			}) {
				t.Errorf("%s has no Benchmark%s in bench.txt", r.Name, kind)
			}
		}
		if !strings.Contains(text, r.Name) || !strings.Contains(page, ">"+r.Name+"<") {
			t.Errorf("%s is not in the report, or not in the page", r.Name)
		}
	}
	if len(found.Skipped) != skipped {
		t.Errorf("skipped: %+v, but all of %d rivals are installed", found.Skipped, len(rival.All())-skipped)
	}
}

// scratch returns a folder that the accounts of servers can access.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptd-smoke-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// measured checks that a run has every figure of a rival at every point of the smoke set.
func measured(t *testing.T, found *result.Run, r rival.Rival) {
	t.Helper()
	var at []string
	for _, p := range found.Points {
		if p.Rival != r.Name {
			continue
		}
		at = append(at, p.Kind+" "+p.Table+" "+p.Workload)
		wanted := []string{result.SaveRate, result.SaveP50, result.SaveP999}
		if p.Kind == result.Space {
			wanted = append(wanted, result.LoadWarm, result.LoadCold, result.LoadOld, result.WriteAmp, result.PeakRSS, result.PeakAnonymous)
		}
		for _, measure := range wanted {
			if p.Figures[measure].Median <= 0 {
				t.Errorf("%s at %s: %s is %v", r.Name, p.Workload, measure, p.Figures[measure].Median)
			}
		}
	}
	want := []string{"speed durable chat", "speed durable branchy", "space durable chat", "space durable multimodal", "space durable real"}
	if r.Default != "" {
		want = slices.Insert(want, 2, "speed default blackboard")
	}
	if !slices.Equal(at, want) {
		t.Errorf("%s was measured at %q, want %q", r.Name, at, want)
	}
	curves := 0
	for _, c := range found.Curves {
		if c.Rival != r.Name {
			continue
		}
		curves++
		if len(c.Points) != 2 {
			t.Errorf("%s over %s has %d points: %s", r.Name, c.Over, len(c.Points), c.Note)
		} else if last := c.Points[1]; c.Over == result.OverSteps && (last.Sampled != r.Whole || last.Figures[result.SaveBytes].Median <= 0) {
			t.Errorf("%s: its history is sampled: %v, a save allocates %v bytes", r.Name, last.Sampled, last.Figures[result.SaveBytes].Median)
		}
	}
	if curves != 2 {
		t.Errorf("%s has %d curves", r.Name, curves)
	}
}

// wholePage returns a page after checking that it is complete and all elements are closed.
func wholePage(t *testing.T, path string) string {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(bytes.TrimSpace(page), []byte("</html>")) {
		t.Errorf("the page ends in %q", page[max(0, len(page)-40):])
	}
	for _, element := range []string{"section", "table", "tr", "svg", "figure", "details", "div"} {
		begun, ended := bytes.Count(page, []byte("<"+element)), bytes.Count(page, []byte("</"+element+">"))
		if element == "tr" || element == "div" { // other elements don't share these prefixes, apart from attributes
			begun = bytes.Count(page, []byte("<"+element+">")) + bytes.Count(page, []byte("<"+element+" "))
		}
		if begun == 0 || begun != ended {
			t.Errorf("the page has %d beginnings of %s and %d ends", begun, element, ended)
		}
	}
	return string(page)
}

// wholeLines returns lines in benchstat's format: a name, 1, and pairs of a number and a unit.
func wholeLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range lines {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		if len(fields) < 4 || len(fields)%2 != 0 {
			t.Fatalf("%d fields: %s", len(fields), line)
		}
		for i := 2; i < len(fields); i += 2 {
			if _, err := strconv.ParseFloat(fields[i], 64); err != nil {
				t.Fatalf("field %d: %s", i, line)
			}
		}
	}
	return lines
}
