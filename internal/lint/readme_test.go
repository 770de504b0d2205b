package lint

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestReadmeExample builds the example of the README as a package of this module, runs it in an
// empty folder, and compares what it prints with what the README says.
func TestReadmeExample(t *testing.T) {
	program, output := example(t)
	if out := runProgram(t, program, t.TempDir()); out != output {
		t.Errorf("the example prints\n%s\nand the README says\n%s", out, output)
	}
}

// TestReadmeClientExample runs the same program with the store of a daemon, as the README says it
// can be.
func TestReadmeClientExample(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: who owns a socket is not known here")
	}
	dial := regexp.MustCompile("`(store := [^`]*)`").FindStringSubmatch(readme(t))
	if dial == nil {
		t.Fatal("the README does not say how to use a daemon")
	}
	program, output := example(t)
	for _, change := range [][2]string{
		{`(?s)\troot, err := .*?\tstore := [^\n]*`, "\t" + dial[1]},
		{`\t"errors"\n`, ""},
		{`\n[^\n]*/backend/badger"`, ""},
		{`/ckptd/crypto"`, `/ckptd/client"`},
	} {
		program = regexp.MustCompile(change[0]).ReplaceAllLiteralString(program, change[1])
	}
	if out := runProgram(t, program, startDaemon(t)); out != output {
		t.Errorf("with a daemon the example prints\n%s\nand the README says\n%s", out, output)
	}
}

// TestReadmeCalls runs the calls of the README in the folder of a daemon.
func TestReadmeCalls(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil || runtime.GOOS == "windows" {
			t.Skipf("SKIPPED: there is no %s to run the calls with", tool)
		}
	}
	calls := "ckptd() { " + buildCommand(t) + ` "$@"; }` + "\n" + block(t, readme(t), "sh", "call Save")
	cmd := exec.Command("sh", "-eu", "-c", calls)
	cmd.Dir = startDaemon(t)
	out, err := cmd.Output()
	if err != nil || !regexp.MustCompile(`(?s)"text": ?"hi".*\nhello `).Match(out) {
		t.Errorf("the calls fail: %v\n%s", err, out)
	}
}

// startDaemon starts ckptd serve on ./data in an empty folder, and returns that when it serves.
func startDaemon(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptd") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(buildCommand(t), "serve", "--listen", "none")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		os.RemoveAll(dir)
	})
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("the daemon does not start")
	}
	return dir
}

// example returns the program of the README and the output that the README claims for it.
func example(t *testing.T) (program, output string) {
	t.Helper()
	program = block(t, readme(t), "go", "func main()")
	_, rest, ok := strings.Cut(program, "// Output:\n")
	if !ok {
		t.Fatal("the README does not give the output of its example")
	}
	for line := range strings.Lines(rest) {
		text, ok := strings.CutPrefix(line, "\t// ")
		if !ok {
			break
		}
		output += text
	}
	return program, output
}

// runProgram builds a program as a package of this module, runs it in a folder, and returns what it prints.
func runProgram(t *testing.T, program, in string) string {
	t.Helper()
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
	run.Dir = in
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("the example fails: %v\n%s", err, out)
	}
	return string(out)
}

// buildCommand builds ckptd and returns where it is.
func buildCommand(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "ckptd.exe")
	build := exec.Command("go", "build", "-o", bin, "./cmd/ckptd")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("ckptd does not build: %v\n%s", err, out)
	}
	return bin
}

// TestReadmeCommands asks for the help of every command line in the README, which fails for a command or flag that does
// not exist.
func TestReadmeCommands(t *testing.T) {
	bin := buildCommand(t)
	lines := regexp.MustCompile(`(?m)^ckptd ([^#\n]*)`).FindAllStringSubmatch(readme(t), -1)
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

// TestReadmeInstall checks that the package that the README installs is a command of this module, and that its make
// targets exist.
func TestReadmeInstall(t *testing.T) {
	text := readme(t)
	install := regexp.MustCompile(`(?m)^go install (\S+)@latest`).FindStringSubmatch(text)
	if install == nil {
		t.Fatal("the README has no go install line")
	}
	list := exec.Command("go", "list", "-f", "{{.Name}}", install[1])
	list.Dir = root
	if out, err := list.CombinedOutput(); err != nil || string(out) != "main\n" {
		t.Errorf("%s is not a command: %v\n%s", install[1], err, out)
	}
	makefile := document(t, "Makefile")
	for _, target := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(makefile, "\n"+target[1]+":") {
			t.Errorf("the Makefile has no target %s", target[1])
		}
	}
}

func TestReadmeLength(t *testing.T) {
	if n := strings.Count(readme(t), "\n"); n > 198 {
		t.Errorf("the README has %d lines, at most 198 wanted", n)
	}
}

func readme(t *testing.T) string { return document(t, "README.md") }

// block returns the first fenced block of a language that contains a string.
func block(t *testing.T, text, language, containing string) string {
	t.Helper()
	var b strings.Builder
	inside, ours := false, false
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && ours && strings.Contains(b.String(), containing):
			return b.String()
		case isFence:
			b.Reset()
			inside = !inside
			ours = inside && strings.TrimSpace(fence) == language
		case ours:
			b.WriteString(line)
		}
	}
	t.Fatalf("the README has no block of language %q with %q", language, containing)
	return ""
}
