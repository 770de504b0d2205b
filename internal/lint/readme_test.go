package lint

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeExample builds the example of the README as a package of this module, runs it in an empty folder, and
// compares what it prints with what the README says.
func TestReadmeExample(t *testing.T) {
	text := readme(t)
	program, output := block(t, text, "go"), block(t, text, "")
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	overlay := filepath.Join(dir, "overlay.json")
	place, err := filepath.Abs(filepath.Join(root, "internal", "lint", "readme", "main.go")) // a folder that does not exist
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{place: source}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{source: []byte(program), overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "example.exe")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", bin, "./internal/lint/readme")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the example does not build: %v\n%s", err, out)
	}
	run := exec.Command(bin)
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("the example fails: %v\n%s", err, out)
	}
	if string(out) != output {
		t.Errorf("the example prints\n%s\nand the README says\n%s", out, output)
	}
}

// TestReadmeCommands asks for the help of every command line in the README, which fails for a command or flag that does
// not exist.
func TestReadmeCommands(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "ckptd.exe")
	build := exec.Command("go", "build", "-o", bin, "./cmd/ckptd")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("ckptd does not build: %v\n%s", err, out)
	}
	lines := regexp.MustCompile(`(?m)^bin/ckptd ([^#\n]*)`).FindAllStringSubmatch(readme(t), -1)
	if len(lines) == 0 {
		t.Fatal("no command line found")
	}
	for _, line := range lines {
		args := append(strings.Fields(line[1]), "--help")
		if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
			t.Errorf("ckptd %s: %v\n%s", line[1], err, out)
		} else if !strings.Contains(string(out), "ckptd "+args[0]) {
			t.Errorf("ckptd %s is not the help of that command:\n%s", line[1], out)
		}
	}
}

func TestReadmeLength(t *testing.T) {
	if n := strings.Count(readme(t), "\n"); n > 150 {
		t.Errorf("the README has %d lines, at most 150 wanted", n)
	}
}

// TestReadmeLinks follows the links to files of the repository.
func TestReadmeLinks(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)#: ]+)\)`).FindAllStringSubmatch(readme(t), -1)
	if len(links) == 0 {
		t.Error("no link found")
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(link[1]))); err != nil {
			t.Errorf("link to %s: %v", link[1], err)
		}
	}
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block returns the first fenced block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	var b strings.Builder
	inside, ours := false, false
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && ours:
			return b.String()
		case isFence:
			inside = !inside
			ours = inside && strings.TrimSpace(fence) == language
		case ours:
			b.WriteString(line)
		}
	}
	t.Fatalf("the README has no block of language %q", language)
	return ""
}
