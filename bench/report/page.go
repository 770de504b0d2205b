package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

// writePage writes the document as a page. Everything it needs is in it: no script, no font, no image from elsewhere.
func writePage(w io.Writer, doc document) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(w, doc)
}

// Right is right, for the template.
func (t table) Right() []bool { return t.right() }

// Noted says which columns have notes, which then stand below each other.
func (t table) Noted() []bool {
	noted := make([]bool, len(t.Head))
	for _, row := range t.Rows {
		for i, c := range row {
			noted[i] = noted[i] || c.Note != ""
		}
	}
	return noted
}
