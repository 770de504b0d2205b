package main

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/plugins/bundle"
)

// What docs/writing-plugins.md calls by a name is there in the files that it is about.
func TestDocsWritingPlugins(t *testing.T) {
	text := document(t, "docs/writing-plugins.md")
	const files = "plugins/scaffold/files/"
	sources := []string{
		document(t, files+"go/pdk.txtar"), document(t, files+"assemblyscript/assembly/ckptd.ts"),
		document(t, files+"c/ckptd.h"), document(t, files+"rust/src/ckptd.rs"),
	}
	name := regexp.MustCompile(`[A-Za-z_]+$`)
	checked := 0
	for _, row := range rows(t, text, "the hook wants", "Go", "AssemblyScript", "C", "Rust") {
		for i, cell := range row[1:] {
			for _, call := range regexp.MustCompile(`[\w.:]+`).FindAllString(cell, -1) {
				word := name.FindString(call)
				if !strings.ContainsAny(call, ".:_") && strings.ToUpper(call) != call && !strings.Contains(cell, call+"(") && cell != call {
					continue // a word of the table, not of a language
				}
				checked++
				if !regexp.MustCompile(`\b` + word + `\b`).MatchString(sources[i]) {
					t.Errorf("%s is not in %.40q", call, sources[i])
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("the table has only %d names", checked)
	}
}

// The manifest that docs/writing-plugins.md shows is one.
func TestDocsManifest(t *testing.T) {
	module := []byte("\x00asm")
	for _, b := range blocks(document(t, "docs/writing-plugins.md")) {
		if b.language != "toml" {
			continue
		}
		manifest := strings.Replace(b.text, `"…"`, fmt.Sprintf(`"%x"`, sha256.Sum256(module)), 1)
		files := []bundle.File{{Path: "plugin.toml", Data: []byte(manifest)}, {Path: "mail.wasm", Data: module}, {Path: "config.schema.json", Data: []byte(`{}`)}}
		for _, f := range []string{"messages.json", "messages.out.json", "clean.json"} {
			files = append(files, bundle.File{Path: "fixtures/" + f, Data: []byte("[]")})
		}
		got, err := bundle.Load(files)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name() != "mail@1.0.0" || len(got.Manifest.Fixtures) != 2 {
			t.Errorf("%+v", got.Manifest)
		}
		return
	}
	t.Error("there is no manifest")
}
