// Package mutation inserts bugs into the code, to see whether its tests find them. A mutation
// replaces a few texts in files; the overlay of the go command applies one of a list.
//
// A list is a text. An introduction precedes the first "#". A mutation is a line "# NUMBER: the
// fault", then files ("@ FILE", from the module's root) with texts in them: lines with "-" are
// replaced by those with "+". A text that is not in its file any more fails the test, whether the
// mutation runs or not: then find the code that prevents the bug now, and break that.
package mutation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Mutation is a bug, and how to make it.
type Mutation struct {
	Number, What string
	edits        []edit
}

type edit struct{ file, old, text string }

// Each checks that all mutations of a list can be made, and runs those that names has, by number or as "all", as subtests: run
// gets the test binary of the package it is called in, with the bug. Root is the module's, as seen from there.
func Each(t *testing.T, list, root string, names []string, run func(t *testing.T, m *Mutation, binary string)) {
	t.Helper()
	for _, m := range parse(t, list) {
		files := m.apply(t, root)
		if files == nil {
			continue
		}
		if slices.Contains(names, m.Number) || slices.Contains(names, "all") {
			t.Run(m.Number, func(t *testing.T) { run(t, m, build(t, root, files)) })
		}
	}
}

func parse(t *testing.T, text string) (all []*Mutation) {
	t.Helper()
	var m *Mutation
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
				t.Fatalf("line %d of the mutations: no number", i+1)
			}
			m = &Mutation{Number: number, What: what}
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
			t.Fatalf("line %d of the mutations: it begins with %q", i+1, kind)
		}
		last = kind
	}
	return all
}

// apply returns the files that the mutation changes, as it makes them; nil if it cannot be made.
func (m *Mutation) apply(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, e := range m.edits {
		if files[e.file] == "" {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				t.Fatal(err)
			}
			files[e.file] = string(b)
		}
		if n := strings.Count(files[e.file], e.old); n != 1 {
			t.Errorf("mutation %s: its text is in %s %d times:\n%s", m.Number, e.file, n, e.old)
			return nil
		}
		files[e.file] = strings.Replace(files[e.file], e.old, e.text, 1)
	}
	return files
}

// build builds the tests of the package in the working directory with other files.
func build(t *testing.T, root string, files map[string]string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range files {
		from, err := filepath.Abs(filepath.Join(root, file))
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
	binary = filepath.Join(dir, "mutated.test")
	cmd := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-c", "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutated code does not build: %v\n%s", err, out)
	}
	return binary
}
