package report

import (
	"bufio"
	"fmt"
	"strings"
)

func writeMarkdown(w *bufio.Writer, doc document) {
	fmt.Fprintln(w, markdownText(doc.Lead))
	for _, s := range doc.Sections {
		fmt.Fprintf(w, "\n## %s\n", markdownText(s.Title))
		for _, l := range s.Lines {
			fmt.Fprintf(w, "\n%s\n", markdownText(l))
		}
		for _, p := range s.Parts {
			if p.Folded {
				continue
			}
			if p.Title != "" {
				fmt.Fprintf(w, "\n### %s\n", markdownText(p.Title))
			}
			for _, l := range p.Lines {
				fmt.Fprintf(w, "\n%s\n", markdownText(l))
			}
			w.WriteByte('\n')
			writeGrid(w, p.Table)
		}
	}
}

func writeGrid(w *bufio.Writer, t table) {
	right := t.right()
	for i, head := range t.Head {
		fmt.Fprintf(w, "| %s ", markdownText(head))
		if i == len(t.Head)-1 {
			w.WriteString("|\n")
		}
	}
	for i := range t.Head {
		rule := "| --- "
		if right[i] {
			rule = "| ---: "
		}
		w.WriteString(rule)
	}
	w.WriteString("|\n")
	for _, row := range t.Rows {
		for _, c := range row {
			text := markdownText(c.Text)
			if c.Note != "" {
				text += " (" + markdownText(c.Note) + ")"
			}
			if c.Mood == "bad" {
				text = "**" + text + "**"
			}
			fmt.Fprintf(w, "| %s ", text)
		}
		w.WriteString("|\n")
	}
}

// markdownText escapes markup in a text.
func markdownText(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "`", "\\`", "\n", " ").Replace(s)
}
