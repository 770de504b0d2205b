package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the README and all of docs/.
func documents(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no documents found: %v", err)
	}
	all := []string{"README.md"}
	for _, name := range found {
		all = append(all, "docs/"+filepath.Base(name))
	}
	return all
}

// TestDocumentsSayWhoTheyAreFor: each begins with a line for its readers.
func TestDocumentsSayWhoTheyAreFor(t *testing.T) {
	for _, name := range documents(t)[1:] {
		lines := strings.Split(document(t, name), "\n")
		if len(lines) < 3 || !strings.HasPrefix(lines[0], "# ") || !strings.HasPrefix(lines[2], "For ") {
			t.Errorf("%s does not begin with its title and a line that says who it is for", name)
		}
	}
}

// TestDocumentsLinks follows the links to files of the repository, and to headings in them.
func TestDocumentsLinks(t *testing.T) {
	linked := map[string]bool{}
	for _, name := range documents(t) {
		for _, link := range regexp.MustCompile(`\]\(([^): ]+)\)`).FindAllStringSubmatch(document(t, name), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			linked[target] = linked[target] || name == "README.md"
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: link to %s: %v", name, link[1], err)
			} else if anchor != "" && !slices.Contains(anchors(document(t, target)), anchor) {
				t.Errorf("%s: %s has no heading %s", name, target, anchor)
			}
		}
	}
	for _, name := range documents(t)[1:] {
		if !linked[name] {
			t.Errorf("the README has no link to %s", name)
		}
	}
}

// TestDocumentsFiles checks that every Go file that a document names with its path exists.
func TestDocumentsFiles(t *testing.T) {
	for _, name := range documents(t) {
		for _, file := range regexp.MustCompile("`([a-z0-9_]+/[a-z0-9_/]+\\.go)`").FindAllStringSubmatch(document(t, name), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file[1]))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// anchors returns the names by which the headings of a document are linked to.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}
