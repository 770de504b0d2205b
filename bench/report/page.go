package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

// writePage writes the document as a self-contained page: it loads no scripts, fonts or images.
func writePage(w io.Writer, doc document) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(w, doc)
}

// Right exports right to the template.
func (t table) Right() []bool { return t.right() }

// Noted reports which columns have notes, which are then aligned vertically.
func (t table) Noted() []bool {
	noted := make([]bool, len(t.Head))
	for _, row := range t.Rows {
		for i, c := range row {
			noted[i] = noted[i] || c.Note != ""
		}
	}
	return noted
}
