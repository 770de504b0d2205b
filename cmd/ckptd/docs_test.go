package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the documents say is tested: these are the pieces to read them with.

// block is a fenced block of a document.
type block struct {
	section, heading string // "## " and "### " above it
	language         string
	text             string
	line             int // of its first line in the document
}

// document reads a file by its path from the root of the repository.
func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// blocks returns the fenced blocks of a document.
func blocks(text string) []block {
	var all []block
	var at block
	inside := false
	for i, line := range strings.Split(text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && inside:
			all, inside = append(all, at), false
		case fence:
			at.language, at.text, at.line, inside = language, "", i+2, true
		case inside:
			at.text += line + "\n"
		case strings.HasPrefix(line, "## "):
			at.section, at.heading = line[3:], ""
		case strings.HasPrefix(line, "### "):
			at.heading = line[4:]
		}
	}
	return all
}

// rows returns the cells of the table whose heading begins with these cells, without backticks, and fails without one.
func rows(t *testing.T, text string, heading ...string) [][]string {
	t.Helper()
	var found [][]string
	inside := false
	for line := range strings.Lines(text) {
		cells, isRow := cellsOf(strings.TrimSpace(line))
		switch {
		case !isRow:
			inside = false
		case inside && strings.Trim(strings.Join(cells, ""), "-: ") != "":
			found = append(found, cells)
		case len(cells) >= len(heading) && strings.Join(cells[:len(heading)], "|") == strings.Join(heading, "|"):
			inside = true
		}
	}
	if len(found) == 0 {
		t.Fatalf("there is no table with the columns %q", heading)
	}
	return found
}

func cellsOf(line string) ([]string, bool) {
	if len(line) < 2 || line[0] != '|' || line[len(line)-1] != '|' {
		return nil, false
	}
	cells := strings.Split(line[1:len(line)-1], "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "`", ""))
	}
	return cells, true
}
