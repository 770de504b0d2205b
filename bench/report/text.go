package report

import (
	"bufio"
	"fmt"
	"strings"
	"unicode/utf8"
)

// How wide a column of a terminal's table and its head may be; longer texts go on below.
const (
	widest     = 44
	widestHead = 20
)

func writeText(w *bufio.Writer, doc document) {
	fmt.Fprintf(w, "%s\n%s\n", doc.Title, wrap(doc.Lead, 100))
	for _, s := range doc.Sections {
		fmt.Fprintf(w, "\n%s\n%s\n", strings.ToUpper(s.Title), strings.Repeat("─", utf8.RuneCountInString(s.Title)))
		for _, l := range s.Lines {
			fmt.Fprintln(w, wrap(l, 100))
		}
		for _, p := range s.Parts {
			if p.Folded {
				continue
			}
			w.WriteByte('\n')
			if p.Title != "" {
				fmt.Fprintln(w, p.Title)
			}
			for _, l := range p.Lines {
				fmt.Fprintln(w, wrap(l, 100))
			}
			writeColumns(w, p.Table)
		}
	}
}

// writeColumns writes a table with its columns below each other, figures to the right.
func writeColumns(w *bufio.Writer, t table) {
	lines := unfold(words(t.Head...), widestHead)
	for _, row := range t.Rows {
		lines = append(lines, unfold(row, widest)...)
	}
	widths := make([]int, len(t.Head))
	for _, l := range lines {
		for i, text := range l {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	right := t.right()
	for _, l := range lines {
		var b strings.Builder
		for i, text := range l {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if right[i] {
				b.WriteString("  " + gap + text)
			} else {
				b.WriteString("  " + text + gap)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// unfold makes lines of a row: more than one where a text is wider than it may be.
func unfold(row []cell, width int) [][]string {
	var lines [][]string
	for i, c := range row {
		for n, text := range strings.Split(wrap(c.plain(), width), "\n") {
			if n == len(lines) {
				lines = append(lines, make([]string, len(row)))
			}
			lines[n][i] = text
		}
	}
	return lines
}

// plain is a cell in one line. A bad one is marked for those who see no colours.
func (c cell) plain() string {
	s := c.Text
	if c.Note != "" {
		s += " (" + c.Note + ")"
	}
	if c.Mood == "bad" {
		s += " ✗"
	}
	return s
}

// right says which columns are of figures.
func (t table) right() []bool {
	right := make([]bool, len(t.Head))
	for i := range right {
		right[i] = i > 0
		for _, row := range t.Rows {
			if first, _ := utf8.DecodeRuneInString(row[i].Text); row[i].Text != "" && first != '–' && (first < '0' || first > '9') {
				right[i] = false
			}
		}
	}
	return right
}

// wrap breaks a text between words.
func wrap(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
