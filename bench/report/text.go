package report

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Maximum widths of a terminal's table, of a column and of its head; longer texts continue on the
// next line.
const (
	tableWidth = 120
	widest     = 44
	widestHead = 14
	narrowest  = 12 // minimum width of a text column in a table that has to shrink
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

// writeColumns writes a table with aligned columns, figures to the right. A table that is too wide
// continues below with its first column and the remaining ones.
func writeColumns(w *bufio.Writer, t table) {
	widths := t.widths()
	for n := len(t.Head); ; n = len(t.Head) {
		for n > 2 && width(widths[:n]) > tableWidth {
			n--
		}
		t.writeColumns(w, widths[:n])
		if n == len(t.Head) {
			return
		}
		w.WriteByte('\n')
		widths = slices.Delete(slices.Clone(widths), 1, n)
		t = t.without(1, n)
	}
}

// without removes columns.
func (t table) without(from, to int) table {
	rest := table{Head: slices.Delete(slices.Clone(t.Head), from, to)}
	for _, row := range t.Rows {
		rest.Rows = append(rest.Rows, slices.Delete(slices.Clone(row), from, to))
	}
	return rest
}

const gap = "  " // before every column

func width(columns []int) (sum int) {
	for _, n := range columns {
		sum += len(gap) + n
	}
	return sum
}

// widths returns the widths of the columns. Text columns shrink as far as needed for the table to
// fit; columns of figures never do.
func (t table) widths() []int {
	right := t.right()
	widths, least := make([]int, len(t.Head)), make([]int, len(t.Head))
	for i, head := range t.Head {
		widths[i], least[i] = min(utf8.RuneCountInString(head), widestHead), longestWord(head)
		for _, row := range t.Rows {
			text := row[i].plain()
			n := min(utf8.RuneCountInString(text), widest)
			widths[i] = max(widths[i], n)
			if !right[i] {
				n = max(min(n, narrowest), longestWord(text))
			}
			least[i] = max(least[i], n)
		}
		widths[i] = max(widths[i], least[i])
	}
	for width(widths) > tableWidth {
		at := -1
		for i := range widths {
			if widths[i] > least[i] && (at < 0 || widths[i] > widths[at]) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		widths[at]--
	}
	return widths
}

func longestWord(text string) (most int) {
	for _, word := range strings.Fields(text) {
		most = max(most, utf8.RuneCountInString(word))
	}
	return most
}

// writeColumns writes the first columns.
func (t table) writeColumns(w *bufio.Writer, widths []int) {
	lines := unfold(words(t.Head[:len(widths)]...), widths)
	for _, row := range t.Rows {
		lines = append(lines, unfold(row[:len(widths)], widths)...)
	}
	right := t.right()
	for _, l := range lines {
		var b strings.Builder
		for i, text := range l {
			space := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text)))
			if right[i] {
				b.WriteString(gap + space + text)
			} else {
				b.WriteString(gap + text + space)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// unfold splits a row into lines: more than one if a text is wider than its column.
func unfold(row []cell, widths []int) [][]string {
	var lines [][]string
	for i, c := range row {
		for n, text := range strings.Split(wrap(c.plain(), widths[i]), "\n") {
			if n == len(lines) {
				lines = append(lines, make([]string, len(row)))
			}
			lines[n][i] = text
		}
	}
	return lines
}

// plain returns a cell on one line. A bad one gets a marker, for readers without colors.
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

// right reports which columns contain figures.
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
