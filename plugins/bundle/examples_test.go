package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamples: the manifests of the examples are valid. Other tests build their modules.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../examples/*/*/" + ManifestFile)
	if err != nil || len(paths) == 0 {
		t.Fatalf("there is no example: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseManifest(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list := []File{{ManifestFile, text}, {m.Wasm, []byte("\x00asm")}}
		for _, name := range m.paths() {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
			if err == nil && !strings.HasSuffix(name, ".wasm") && !slices.ContainsFunc(list, func(f File) bool { return f.Path == name }) {
				list = append(list, File{name, data})
			}
		}
		if _, err := Load(list); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
