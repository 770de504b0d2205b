package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutations are wrong turns that a client could take. Each is a text of the Go client, and the same
// with a turn that is taken where WRONG is true.
var mutations = []struct{ name, file, right, wrong string }{
	{"repeats what would be something else when it is done twice", "errors.go",
		"return method.RetryFor(m)", "if WRONG { return ckptdv1.Retry_RETRY_REPEAT }; return method.RetryFor(m)"},
	{"repeats whatever fails", "retry.go",
		"if !f.again || n >= s.o.Attempts {", "if !f.again && !WRONG || n >= s.o.Attempts {"},
	{"gives drafts no ids", "thread.go",
		"{ d.ID = cmp.Or(d.ID, s.newID()) }", "{ if !WRONG { d.ID = cmp.Or(d.ID, s.newID()) } }"},
	{"gives a whole save another id than the splices had", "session.go",
		"s.t.s.identify(&d)", "if !WRONG { s.t.s.identify(&d) }"},
	{"ignores what the server asks to wait", "retry.go",
		"wait := f.after + rand.N(", "if WRONG { f.after = 0 }; wait := f.after + rand.N("},
	{"forgets that an answer is missing", "retry.go",
		"doubt = doubt || errors.Is(", "doubt = !WRONG && doubt || errors.Is("},
	{"is in doubt about what only reads", "errors.go",
		"case may != reads && !unsent:", "case (may != reads || WRONG) && !unsent:"},
	{"loses the cursor of a watch", "watch.go",
		`if m.GetCursor() != "" {`, `if m.GetCursor() != "" && !WRONG {`},
	{"tells an event twice", "watch.go",
		"return !w.seen.first(e) ||", "return !w.seen.first(e) && !WRONG ||"},
	{"takes the end of a watch for one", "watch.go",
		"if err == nil { // a watch", "if err == nil && !(WRONG && progress) { // a watch"},
	{"begins a list again", "list.go",
		"progress, token = true, next", `progress, token = true, next; if WRONG { token = "" }`},
	{"does not send whole what the server needs whole", "session.go",
		"if errors.Is(err, engine.ErrNeedFull) {", "if errors.Is(err, engine.ErrNeedFull) && !WRONG {"},
}

// TestMutationsOfTheClient takes each wrong turn: the scripts must notice. They are all in one
// program, which is told by the environment which of them to take.
func TestMutationsOfTheClient(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the client once more")
	}
	bin := buildMutated(t)
	run := func(number string) string {
		cmd := exec.Command(bin, "-test.run", "^TestGoClient$")
		cmd.Env = append(os.Environ(), "CLIENT_WRONG="+number)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := run(""); !strings.HasPrefix(out, "PASS") {
		t.Fatalf("without a wrong turn:\n%s", out)
	}
	for i, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out := run(fmt.Sprint(i + 1))
			if !strings.Contains(out, "--- FAIL: TestGoClient/") {
				t.Fatalf("no script notices it:\n%s", out)
			}
			for line := range strings.Lines(out) {
				if _, script, ok := strings.Cut(line, "--- FAIL: TestGoClient/"); ok {
					t.Log("found by " + strings.TrimSpace(script))
				}
			}
		})
	}
}

// buildMutated builds the tests of this package with a client that can take all wrong turns.
func buildMutated(t *testing.T) string {
	root, err := filepath.Abs(filepath.Join("..", "..", "client"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"wrong.go": "package client\n\nimport \"os\"\n\nvar turn = os.Getenv(\"CLIENT_WRONG\")\n"}
	for i, m := range mutations {
		if files[m.file] == "" {
			text, err := os.ReadFile(filepath.Join(root, m.file))
			if err != nil {
				t.Fatal(err)
			}
			files[m.file] = string(text)
		}
		if n := strings.Count(files[m.file], m.right); n != 1 {
			t.Fatalf("a client that %s: the text is in client/%s %d times:\n%s", m.name, m.file, n, m.right)
		}
		wrong := strings.ReplaceAll(m.wrong, "WRONG", fmt.Sprintf("(turn == \"%d\")", i+1))
		files[m.file] = strings.Replace(files[m.file], m.right, wrong, 1)
	}
	dir, replace := t.TempDir(), map[string]string{}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range files {
		replace[filepath.Join(root, name)] = write(name, text)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "conformance.test")
	if out, err := exec.Command("go", "test", "-overlay", write("overlay.json", string(list)), "-c", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("the client does not build: %v\n%s", err, out)
	}
	return bin
}
