// Package scaffold creates projects for new plugins and runs the toolchains that build them. The
// directory files holds the files of a project, including an SDK of ABI v1 for each language; the
// examples in plugins/examples use the same SDKs. The package does not run plugins.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/tools/txtar"
)

// pdk.txtar is a copy of the module plugins/pdk. A separate module cannot be embedded; go generate
// updates the copy.
//
//go:generate go test -run ^TestArchiveOfPDK$ . -update
//go:embed files
var files embed.FS

// Languages lists the supported languages.
func Languages() []string { return []string{"go", "assemblyscript", "c", "rust"} }

var (
	ErrName     = errors.New("not a valid plugin name")
	ErrLanguage = errors.New("not a plugin language")
)

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// CheckName returns an error for a name that a new plugin cannot have.
func CheckName(name string) error {
	if len(name) > 40 || !namePattern.MatchString(name) {
		return fmt.Errorf("%q is %w: use up to 40 lower-case letters and digits, with single hyphens between them", name, ErrName)
	}
	return nil
}

// New creates a project in dir, which must be empty or not exist, and returns the names of its
// files. After an error it leaves nothing behind.
func New(dir, name, language string) ([]string, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if !slices.Contains(Languages(), language) {
		return nil, fmt.Errorf("%q is %w: want %s", language, ErrLanguage, strings.Join(Languages(), ", "))
	}
	all := map[string][]byte{}
	for _, from := range []string{"files/any", "files/" + language} {
		if err := collect(all, from, name); err != nil {
			return nil, err
		}
	}
	return write(dir, all)
}

// collect adds the files below a template directory.
func collect(all map[string][]byte, from, name string) error {
	return fs.WalkDir(files, from, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(file)
		if err != nil {
			return err
		}
		to := strings.TrimPrefix(file, from+"/")
		switch dir, base := path.Split(to); {
		case base == "pdk.txtar":
			for _, f := range txtar.Parse(text).Files {
				all[dir+"pdk/"+f.Name] = f.Data
			}
			return nil
		case base == "gitignore":
			to = dir + ".gitignore"
		case strings.HasSuffix(base, ".tmpl"):
			to = dir + strings.Replace(strings.TrimSuffix(base, ".tmpl"), "NAME", name, 1)
			if text, err = fill(text, name); err != nil {
				return fmt.Errorf("filling %s: %w", file, err)
			}
		}
		all[to] = text
		return nil
	})
}

func fill(text []byte, name string) ([]byte, error) {
	t, err := template.New("").Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, struct{ Name string }{name})
	return b.Bytes(), err
}

// write writes a temporary directory next to dir and renames it once it is complete.
func write(dir string, all map[string][]byte) (names []string, err error) {
	if err := vacant(dir); err != nil {
		return nil, err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, err
	}
	made, err := os.MkdirTemp(parent, ".new-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(made)
	for name, data := range all {
		file := filepath.Join(made, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, data, 0o666); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return nil, err
	}
	os.Remove(dir) // if it exists, it is empty
	slices.Sort(names)
	return names, os.Rename(made, dir)
}

// vacant returns an error if dir is already taken.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s: %w", dir, fs.ErrExist)
	}
	return nil
}
