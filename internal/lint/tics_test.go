package lint

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A tic is a turn of phrase that this project's text once used everywhere and that a native writer
// rarely needs. The rule is simple, so some of what it counts is good English: limits are not zero.
//
// Counted are comments and string literals of Go files and .proto files, without tests and
// generated code, and Markdown files, without CHANGELOG.md. "what" does not count in a question,
// nor in "what to"; "is no" does not count in "is no longer" and "there is no".
//
// At commit f0fe854, before the texts were rewritten, the counts were 2,550 "what", 105 "is no",
// 101 "anew", 97 "beside" and 7 "let … no longer". The goal is a tenth of that.
var tics = []struct {
	name    string
	pattern *regexp.Regexp
	limit   int // the count when it was last set: lower it when there are fewer
}{
	{"what", regexp.MustCompile(`(?i)\bwhat\b( to\b)?`), 128},
	{"is no", regexp.MustCompile(`(?i)(\bthere is no\b|\bis no longer\b)|\bis no\b`), 0},
	{"anew", regexp.MustCompile(`(?i)\banew\b`), 4},
	{"beside", regexp.MustCompile(`(?i)\bbeside\b`), 2},
	{"let … no longer", regexp.MustCompile(`(?i)\blets?\b[^.;:?!]{0,80}\bno longer\b`), 0},
}

func TestTics(t *testing.T) {
	counts := map[string]map[string]int{} // by tic and file
	texts := 0
	err := eachText(root, func(file, text string) {
		texts++
		for name, n := range countTics(text) {
			if counts[name] == nil {
				counts[name] = map[string]int{}
			}
			counts[name][file] += n
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if texts < 5000 {
		t.Errorf("%d texts were read: is the test blind?", texts)
	}
	for _, tic := range tics {
		total, files := 0, []string{}
		for file, n := range counts[tic.name] {
			total += n
			files = append(files, file)
		}
		t.Logf("%s: %d of %d", tic.name, total, tic.limit)
		if total > tic.limit {
			slices.SortFunc(files, func(a, b string) int { return counts[tic.name][b] - counts[tic.name][a] })
			for i, file := range files[:min(len(files), 10)] {
				files[i] = fmt.Sprintf("%s %d", file, counts[tic.name][file])
			}
			t.Errorf("%q is used %d times, over the limit of %d: rephrase some; most are in %s", tic.name, total, tic.limit,
				strings.Join(files[:min(len(files), 10)], ", "))
		}
	}
}

// countTics counts the tics in a text.
func countTics(text string) map[string]int {
	counts := map[string]int{}
	for _, tic := range tics {
		for _, at := range tic.pattern.FindAllStringSubmatchIndex(text, -1) {
			excepted := len(at) == 4 && at[2] >= 0
			if !excepted && !(tic.name == "what" && asks(text[at[1]:])) {
				counts[tic.name]++
			}
		}
	}
	return counts
}

// asks reports whether the sentence of which rest is the end is a question.
func asks(rest string) bool {
	end := sentenceEnd.FindString(rest)
	return strings.HasPrefix(end, "?")
}

var sentenceEnd = regexp.MustCompile(`[?]|[.!](\s|$)|\n\n`)

// eachText hands every comment, string literal and Markdown file below dir to f.
func eachText(dir string, f func(file, text string)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != dir && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "bin" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		var read func(src []byte, f func(text string))
		switch {
		case name == "CHANGELOG.md", strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".pb.go"),
			strings.HasSuffix(name, ".connect.go"):
			return nil
		case strings.HasSuffix(name, ".go"):
			read = goTexts
		case strings.HasSuffix(name, ".proto"):
			read = protoTexts
		case strings.HasSuffix(name, ".md"):
			read = func(src []byte, f func(string)) { f(string(src)) }
		default:
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		read(src, func(text string) { f(filepath.ToSlash(rel), text) })
		return err
	})
}

// goTexts finds the comments, adjacent ones as one text, and the string literals of a Go file.
func goTexts(src []byte, f func(text string)) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	comment := ""
	for {
		_, tok, lit := s.Scan()
		switch {
		case tok == token.COMMENT:
			comment += strings.TrimPrefix(lit, "//") + "\n"
			continue
		case tok == token.SEMICOLON && lit == "\n":
			continue
		case comment != "":
			f(comment)
			comment = ""
		}
		if tok == token.STRING {
			f(lit)
		}
		if tok == token.EOF {
			return
		}
	}
}

// protoTexts finds the comments, adjacent ones as one text, and the strings of a .proto file.
func protoTexts(src []byte, f func(text string)) {
	for _, part := range protoText.FindAllString(string(src), -1) {
		f(protoSlashes.ReplaceAllString(part, "\n"))
	}
}

var (
	protoText    = regexp.MustCompile(`//[^\n]*(\n\s*//[^\n]*)*|"(?:[^"\\\n]|\\.)*"`)
	protoSlashes = regexp.MustCompile(`(?m)\n?^\s*//`)
)

func TestFindsTics(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"plain words", "map[]"},
		{"what a save costs", "map[what:1]"},
		{"Remove what nothing\nrefers to.", "map[what:1]"},
		{"What is a thread? A run.", "map[]"},
		{"it shows what it is. Why?", "map[what:1]"},
		{"errors say what to do, whatever", "map[]"},
		{"it is no file, and is no longer read", "map[is no:1]"},
		{"sealed anew, beside the store; besides, renewed", "map[anew:1 beside:1]"},
		{"Let a plugin no longer run", "map[let … no longer:1]"},
		{"let it be. It is no longer used", "map[]"},
	} {
		if got := fmt.Sprint(countTics(tt.text)); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.text, got, tt.want)
		}
	}
	var found []string
	add := func(text string) { found = append(found, strings.TrimSpace(text)) }
	goTexts([]byte("// what is\n// said?\npackage x // anew\n\nvar what = \"beside\" + `it`\n"), add)
	protoTexts([]byte("// what is\n// said?\nmessage What {} // anew\nimport \"x.proto\";\n"), add)
	want := []string{"what is\n said?", "anew", `"beside"`, "`it`", "what is\n said?", "anew", `"x.proto"`}
	if !slices.Equal(found, want) {
		t.Errorf("texts are %q, want %q", found, want)
	}
}
