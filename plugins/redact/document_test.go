package redact

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The configuration in docs/redaction.md is valid, and the figures there are those of the samples.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "redaction.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	_, rest, _ := strings.Cut(text, "```toml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no configuration")
	}
	c, err := ParseConfig([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(c); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d services' formats, against %d kinds", len(keys), len(notKeys)); !strings.Contains(text, want) {
		t.Errorf("the document does not say %q", want)
	}
}
