package main

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ckptd/ckptd/internal/telemetry"
)

// documents are what is written for users.
var documents = []string{"README.md", "docs/api.md", "docs/design.md", "docs/operations.md", "docs/threat-model.md"}

// TestMetricsOfTheDocuments compares the table of metrics with what the daemon has.
func TestMetricsOfTheDocuments(t *testing.T) {
	text := document(t, "docs/operations.md")
	var want [][]string
	known := map[string]bool{}
	for _, m := range metrics(t) {
		known[m[0]] = true
		if strings.HasPrefix(m[0], "ckptd_") {
			want = append(want, m)
		}
	}
	if diff := cmp.Diff(want, rows(t, text, "metric", "type", "labels", "meaning")); diff != "" {
		t.Errorf("metrics: (-code +docs/operations.md)\n%s", diff)
	}
	for _, name := range regexp.MustCompile(`\b(ckptd|process|go)_[a-z_]+\b`).FindAllString(text, -1) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !known[name] && !known[base] {
			t.Errorf("docs/operations.md has a metric %s that does not exist", name)
		}
	}
}

// metrics returns name, type, labels and meaning of the metrics of a daemon, in order of name.
func metrics(t *testing.T) (all [][]string) {
	t.Helper()
	m := telemetry.NewMetrics(telemetry.MetricsOptions{Version: "test"})
	m.RequestDone("/", "ok", time.Millisecond)
	m.Rejected("connections")
	m.Denied("/")
	m.PluginCalled("a@1.0.0", "pre_save", "ok", 1, time.Millisecond)
	m.PluginFound("redact", "email", 1)
	m.PluginSuspended("a@1.0.0", false)
	w := httptest.NewRecorder()
	telemetry.MetricsHandler(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	help, at := "", -1
	for _, line := range strings.Split(w.Body.String(), "\n") {
		f := strings.SplitN(line, " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			help = f[3]
		case strings.HasPrefix(line, "# TYPE "):
			all = append(all, []string{f[2], f[3], "", strings.TrimSuffix(help, ".")})
			at = len(all) - 1
		case at >= 0:
			var labels []string
			for _, l := range regexp.MustCompile(`[{,]([a-z]+)="`).FindAllStringSubmatch(line, -1) {
				if l[1] != "le" {
					labels = append(labels, l[1])
				}
			}
			if len(labels) > 0 {
				all[at][2] = strings.Join(labels, ", ")
			}
		}
	}
	return all
}

// TestCommandsOfTheDocuments reads every command line of ckptd in the documents.
func TestCommandsOfTheDocuments(t *testing.T) {
	found := 0
	for _, name := range documents {
		for _, b := range blocks(document(t, name)) {
			if b.language != "sh" {
				continue
			}
			for _, line := range strings.Split(b.text, "\n") {
				args, ok := commandLine(line)
				if !ok {
					continue
				}
				found++
				if err := parseCommand(args); err != nil {
					t.Errorf("%s: %s: %v", name, line, err)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d command lines found", found)
	}
}

// commandLine returns the arguments of a line that runs ckptd.
func commandLine(line string) ([]string, bool) {
	line = regexp.MustCompile(` +[#|<>].*$`).ReplaceAllString(strings.TrimSpace(line), "")
	rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "bin/"), "ckptd ")
	if !ok {
		return nil, false
	}
	rest = regexp.MustCompile(`"([^"]*)"`).ReplaceAllStringFunc(rest, func(quoted string) string {
		return strings.ReplaceAll(strings.Trim(quoted, `"`), " ", "_")
	})
	return strings.Fields(rest), true
}

// TestFlagsOfTheDocuments looks for flags that no command has.
func TestFlagsOfTheDocuments(t *testing.T) {
	known := map[string]bool{}
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		cmd.InheritedFlags()
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, c := range cmd.Commands() {
			collect(c)
		}
	}
	collect(newApp().root())
	// Of curl, docker, useradd, systemctl, kubectl and git.
	for _, other := range []string{"unix-socket", "data-binary", "system", "user-group", "home-dir", "shell", "now", "from-literal", "from", "chown", "name", "interval", "timeout", "start-period"} {
		known[other] = true
	}
	files := slices.Clone(documents)
	for _, e := range entries(t, "deploy") {
		files = append(files, "deploy/"+e.Name())
	}
	for _, name := range files {
		for _, m := range regexp.MustCompile("(?:^|[ `(\\[\"'])--([a-z][a-z-]*)").FindAllStringSubmatch(document(t, name), -1) {
			if !known[m[1]] {
				t.Errorf("%s: no command has a flag --%s", name, m[1])
			}
		}
	}
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	all, err := os.ReadDir(filepath.Join("..", "..", dir))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMessagesOfTheDocuments looks for the messages of the troubleshooting table in the code.
func TestMessagesOfTheDocuments(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"backend", "client", "cmd", "crypto", "engine", "internal", "plugins"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, section, _ := strings.Cut(document(t, "docs/operations.md"), "\n## Troubleshooting\n")
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1)
	if len(messages) == 0 {
		t.Error("no message found")
	}
	for _, m := range messages {
		system := slices.Contains([]string{"address already in use", "bind: invalid argument"}, m[1])
		if !system && !strings.Contains(code.String(), m[1]) {
			t.Errorf("nothing says %q", m[1])
		}
	}
}

// TestConfigurationsOfTheDocuments reads the pieces of configuration in the documents.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	found := 0
	for _, name := range documents {
		for _, b := range blocks(document(t, name)) {
			if b.language != "toml" {
				continue
			}
			found++
			c := parseConfig(t, b.text)
			if err := grantsOf(&c.access); err != nil {
				t.Errorf("%s:%d: %v", name, b.line, err)
			}
		}
	}
	if found == 0 {
		t.Error("none found")
	}
}

// TestLinksOfTheDocuments follows the links to files of the repository and to headings in them.
func TestLinksOfTheDocuments(t *testing.T) {
	for _, name := range documents {
		for _, link := range regexp.MustCompile(`\]\(([^): ]+)\)`).FindAllStringSubmatch(document(t, name), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: link to %s: %v", name, link[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(document(t, target)), anchor) {
				t.Errorf("%s: %s has no heading %s", name, target, anchor)
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
