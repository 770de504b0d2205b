package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const concepts = "docs/concepts.md"

// TestConceptsVocabulary keeps the vocabulary small: 20 words for an agent's author, 40 with those
// for an operator. No word is defined twice, also not among the words of the code in
// docs/design.md.
func TestConceptsVocabulary(t *testing.T) {
	text := document(t, concepts)
	author := definedIn(section(t, text, "Words for an agent's author"))
	operator := definedIn(section(t, text, "Words for an operator"))
	if n := len(author); n == 0 || n > 20 {
		t.Errorf("an agent's author has to learn %d words, at most 20 wanted", n)
	}
	if n := len(author) + len(operator); len(operator) == 0 || n > 40 {
		t.Errorf("an operator has to learn %d words, at most 40 wanted", n)
	}
	code := definedIn(section(t, document(t, "docs/design.md"), "Words of the code"))
	all := slices.Sorted(slices.Values(slices.Concat(author, operator, code)))
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Errorf("%q is defined twice", all[i])
		}
	}
}

// TestConceptsFiles checks that every file that the page names exists, and that a step's functions
// are in its file.
func TestConceptsFiles(t *testing.T) {
	text := document(t, concepts)
	files := regexp.MustCompile("`([a-z0-9_/]+\\.go)`").FindAllStringSubmatch(text, -1)
	if len(files) < 30 {
		t.Errorf("the page names only %d files", len(files))
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(f[1]))); err != nil {
			t.Error(err)
		}
	}
	steps := 0
	step := regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+\\.go)`: ((?:.|\n   )*)")
	for _, s := range step.FindAllStringSubmatch(text, -1) {
		code := document(t, s[1])
		own, _, _ := strings.Cut(s[2], ".go`") // functions behind another file are of that one
		for _, name := range regexp.MustCompile("`(?:[A-Za-z]+\\.)?([A-Za-z]+)`").FindAllStringSubmatch(own, -1) {
			steps++
			if !regexp.MustCompile(`(?m)^func .*\b` + name[1] + `(\[[^]]*\])?\(`).MatchString(code) {
				t.Errorf("%s has no function %s", s[1], name[1])
			}
		}
	}
	if steps < 30 {
		t.Errorf("the steps name only %d functions", steps)
	}
}

// TestConceptsPackages compares the map of packages with those of the module.
func TestConceptsPackages(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\|").FindAllStringSubmatch(section(t, document(t, concepts), "Map of packages"), -1) {
		if listed[m[1]] {
			t.Errorf("%s is listed twice", m[1])
		}
		listed[m[1]] = true
	}
	for name := range packages(t) {
		if !listed[name] {
			t.Errorf("%s does not list package %s", concepts, name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("%s lists package %s, which does not exist", concepts, name)
	}
}

// packages are the folders of the module with Go files, without those of other modules and of test
// data.
func packages(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, module := os.Stat(filepath.Join(name, "go.mod"))
			if name != root && (module == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") {
			dir, err := filepath.Rel(root, filepath.Dir(name))
			found[filepath.ToSlash(dir)] = true
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// section returns the text under a heading of level 2.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("there is no section %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// definedIn lists the words that the table in a section defines.
func definedIn(section string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(section, -1) {
		if m[1] != "word" {
			all = append(all, m[1])
		}
	}
	return all
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
