package sim

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

//go:embed mutations.txt
var mutationsText string

// mutation is a bug that is put into the code, by replacing texts of its files.
type mutation struct {
	number, what string
	edits        []edit
}

type edit struct{ file, old, text string }

// always is the mutation that every run of the tests tries.
const always = "25"

// TestMutations puts bugs into the engine, and wants the simulation to find each with the seeds that every run of the tests
// has: one bug, or those that SIM_MUTATIONS names by number, with "all" for all of them.
func TestMutations(t *testing.T) {
	all := parseMutations(t, mutationsText)
	names := strings.Fields(os.Getenv("SIM_MUTATIONS"))
	if len(names) == 0 {
		names = []string{always}
	}
	if testing.Short() || os.Getenv("SIM_BROKEN") != "" {
		names = nil
	}
	for _, m := range all {
		files := m.apply(t) // one whose old text is gone is red, whether it runs or not
		if slices.Contains(names, m.number) || slices.Contains(names, "all") {
			t.Run(m.number, func(t *testing.T) { m.mustBeFound(t, files) })
		}
	}
}

// parseMutations reads mutations.txt.
func parseMutations(t *testing.T, text string) (all []*mutation) {
	t.Helper()
	var m *mutation
	file, last := "", byte(0)
	for i, line := range strings.Split(text, "\n") {
		kind := byte(0)
		if line != "" {
			kind = line[0]
		}
		if m == nil && kind != '#' {
			continue
		}
		switch kind {
		case '#':
			number, what, ok := strings.Cut(line[2:], ": ")
			if !ok {
				t.Fatalf("mutations.txt, line %d: no number", i+1)
			}
			m = &mutation{number: number, what: what}
			all = append(all, m)
		case '@':
			file = line[2:]
		case '-':
			if last != '-' {
				m.edits = append(m.edits, edit{file: file})
			}
			m.edits[len(m.edits)-1].old += line[1:] + "\n"
		case '+':
			m.edits[len(m.edits)-1].text += line[1:] + "\n"
		case 0:
		default:
			t.Fatalf("mutations.txt, line %d: it begins with %q", i+1, kind)
		}
		last = kind
	}
	return all
}

const module = "../.."

// apply returns the files that the mutation changes, as it makes them.
func (m *mutation) apply(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, e := range m.edits {
		if files[e.file] == "" {
			b, err := os.ReadFile(filepath.Join(module, e.file))
			if err != nil {
				t.Fatal(err)
			}
			files[e.file] = string(b)
		}
		if n := strings.Count(files[e.file], e.old); n != 1 {
			t.Errorf("mutation %s: its text is in %s %d times:\n%s", m.number, e.file, n, e.old)
		}
		files[e.file] = strings.Replace(files[e.file], e.old, e.text, 1)
	}
	return files
}

// mustBeFound runs the simulation on the code with the bug in it.
func (m *mutation) mustBeFound(t *testing.T, files map[string]string) {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range files {
		from, err := filepath.Abs(filepath.Join(module, file))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[from] = to
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-c", "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutated code does not build: %v\n%s", err, out)
	}
	began := time.Now()
	run := exec.Command(bin, "-test.run", "^TestSimulation$", "-test.v")
	run.Env = append(os.Environ(), "SIM_BROKEN=1", "SIM_TIME=", "SIM_SEED=")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("nobody noticed: %s\n%s", m.what, bytes.TrimSpace(out))
	}
	found := regexp.MustCompile(`(?s)sim\.Plan\{Seed: (\d+).*?:\n(.*?)\n`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("it failed, but not with a problem that was found:\n%s", out)
	}
	t.Logf("%s: found with seed %s in %v: %.300s", m.what, found[1], time.Since(began).Round(time.Second), bytes.TrimSpace(found[2]))
}
