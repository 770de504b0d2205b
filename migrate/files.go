package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Module runs the steps of a WebAssembly module: it converts the JSON of a document to that of the
// next version.
type Module func(ctx context.Context, from, to uint64, doc []byte) ([]byte, error)

// Reader reads sets from files.
type Reader struct {
	// Load loads a Module from a binary; source names it in messages. If nil, sets with modules are
	// refused.
	Load   func(ctx context.Context, source string, binary []byte) (Module, error)
	Limits Limits // of every step; zero fields mean DefaultLimits
	Tried  bool   // the sets were read before: do not run their fixtures again
}

// Read reads the sets in a directory. There is a folder for every kind, named after it (characters
// that a file name cannot have are escaped as in URLs). It contains
//
//	0002_rename.jq              the step from version 1 to 2 (or .wasm)
//	0002_rename.down.jq         the way back
//	0002_rename.fixtures.json   [{"name": …, "before": document, "after": document, "back": document or false}, …]
//	0002.schema.json            the JSON Schema of the documents of version 2
//	versions.toml               display names: [names] 2 = "1.1.0"
//
// Read ignores subfolders and files whose names begin with a dot or end in .md. Any other file is
// an error.
func (r *Reader) Read(ctx context.Context, fsys fs.FS) (*Registry, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("reading migrations: %w", err)
	}
	var sets []*Set
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		sub, err := fs.Sub(fsys, e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading migrations: %w", err)
		}
		kind, err := url.PathUnescape(e.Name())
		if err != nil {
			return nil, invalid("folder %s: %w", e.Name(), err)
		}
		s, err := r.ReadSet(ctx, sub, kind)
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	return NewRegistry(sets...)
}

// FolderOf returns the name of the folder for the set of a kind.
func FolderOf(kind string) string { return url.PathEscape(kind) }

var (
	stepFile   = regexp.MustCompile(`^(\d{4,})_([A-Za-z0-9_-]+)(\.down)?\.(jq|wasm)$`)
	fixFile    = regexp.MustCompile(`^(\d{4,})_([A-Za-z0-9_-]+)\.fixtures\.json$`)
	schemaFile = regexp.MustCompile(`^(\d{4,})\.schema\.json$`)
)

const versionsFile = "versions.toml"

// ReadSet reads the set of one kind from its folder.
func (r *Reader) ReadSet(ctx context.Context, fsys fs.FS, kind string) (*Set, error) {
	files, err := readFiles(fsys)
	if err != nil {
		return nil, fmt.Errorf("reading the migrations of %q: %w", kind, err)
	}
	spec := Spec{Kind: kind, Limits: r.Limits, Schemas: map[uint64]*Schema{}, Digest: digest(files)}
	if spec.Limits.Memory == 0 {
		spec.Limits.Memory = DefaultLimits().Memory
	}
	// Fixtures come after the steps, because they depend on whether there is a way back.
	slices.SortStableFunc(files, func(a, b file) int { return compareBool(fixFile.MatchString(a.name), fixFile.MatchString(b.name)) })
	for _, f := range files {
		if err := r.readFile(ctx, &spec, f); err != nil {
			return nil, err
		}
	}
	if r.Tried {
		spec.Fixtures = nil
	}
	return NewSet(ctx, spec)
}

// file is a file of a set. where is its name including the folder's.
type file struct {
	name, where string
	data        []byte
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// maxFile bounds the size of a file in bytes, maxNames the size of the file of display names.
const (
	maxFile  = 16 << 20
	maxNames = 1 << 20
)

func readFiles(fsys fs.FS) ([]file, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || path.Ext(e.Name()) == ".md" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if info.Size() > maxFile {
			return nil, invalid("%s is %d bytes, over the limit of %d", e.Name(), info.Size(), maxFile)
		}
		data, err := fs.ReadFile(fsys, e.Name())
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: e.Name(), data: data})
	}
	return files, nil
}

// digest returns the SHA-256 of all files in order of name: length and name, and SHA-256 of the
// contents.
func digest(files []file) (d [32]byte) {
	h := sha256.New()
	for _, f := range files {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(f.name)))
		h.Write(n[:])
		h.Write([]byte(f.name))
		sum := sha256.Sum256(f.data)
		h.Write(sum[:])
	}
	h.Sum(d[:0])
	return d
}

func (r *Reader) readFile(ctx context.Context, spec *Spec, f file) (err error) {
	f.where = FolderOf(spec.Kind) + "/" + f.name
	if m := stepFile.FindStringSubmatch(f.name); m != nil {
		return r.readStep(ctx, spec, f, m)
	}
	if m := fixFile.FindStringSubmatch(f.name); m != nil {
		return readFixtures(spec, f, m[1])
	}
	if m := schemaFile.FindStringSubmatch(f.name); m != nil {
		version, err := parseVersion(f, m[1])
		if err == nil {
			spec.Schemas[version], err = NewSchema(f.where, f.data)
		}
		return err
	}
	if f.name == versionsFile {
		spec.Names, err = readNames(f)
		return err
	}
	return invalid("%s is not named like 0002_name.jq, 0002_name.down.jq, 0002_name.wasm, 0002_name.fixtures.json, 0002.schema.json or %s: rename it or move it away",
		f.where, versionsFile)
}

func parseVersion(f file, digits string) (uint64, error) {
	v, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || v == 0 {
		return 0, invalid("%s: the number must be the step's target version, from 1 to 4294967295", f.where)
	}
	return v, nil
}

func (r *Reader) readStep(ctx context.Context, spec *Spec, f file, m []string) error {
	to, err := parseVersion(f, m[1])
	if err != nil {
		return err
	}
	from := to - 1
	if m[3] != "" {
		from, to = to, from
	}
	var step Step
	switch m[4] {
	case "jq":
		step, err = JQ(from, to, f.where, string(f.data), spec.Limits)
	default:
		if r.Load == nil {
			return invalid("%s: this program cannot run WebAssembly modules", f.where)
		}
		var module Module
		if module, err = r.Load(ctx, f.where, f.data); err == nil {
			step = Bytes(from, to, "", f.where, module)
		}
	}
	if err != nil {
		return err
	}
	if step.Description == "" {
		step.Description = strings.ReplaceAll(m[2], "_", " ")
	}
	spec.Steps = append(spec.Steps, step)
	return nil
}

// readFixtures reads the fixtures of the step to a version, and of its way back if that exists.
func readFixtures(spec *Spec, f file, digits string) error {
	to, err := parseVersion(f, digits)
	if err != nil {
		return err
	}
	var c counter
	if c.json(f.data); c.memory() > decodedShare*spec.Limits.Memory {
		return invalid("%s: it has too many values (%d)", f.where, c.values)
	}
	var list []struct {
		Name          string          `json:"name"`
		Before, After json.RawMessage `json:",omitempty"`
		Back          json.RawMessage `json:"back"`
	}
	if err := json.Unmarshal(f.data, &list); err != nil {
		return invalid("%s: it must be a list of {name, before, after}: %w", f.where, err)
	}
	for i, fx := range list {
		name := fmt.Sprintf("%s %q (number %d)", f.where, fx.Name, i+1)
		if fx.Before == nil || fx.After == nil {
			return invalid("%s: before or after is missing", name)
		}
		spec.Fixtures = append(spec.Fixtures, Fixture{Name: name, From: to - 1, To: to, Before: fx.Before, After: fx.After})
		switch {
		case string(fx.Back) == "false", fx.Back == nil && !hasBack(spec.Steps, to):
		case fx.Back == nil:
			spec.Fixtures = append(spec.Fixtures, Fixture{Name: name, From: to, To: to - 1, Before: fx.After, After: fx.Before})
		default:
			spec.Fixtures = append(spec.Fixtures, Fixture{Name: name, From: to, To: to - 1, Before: fx.After, After: fx.Back})
		}
	}
	return nil
}

// hasBack reports whether steps have a way back from a version.
func hasBack(steps []Step, from uint64) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.From == from && s.To == from-1 })
}

func readNames(f file) (map[uint64]string, error) {
	if len(f.data) > maxNames {
		return nil, invalid("%s is %d bytes, over the limit of %d", f.where, len(f.data), maxNames)
	}
	var doc struct {
		Names map[string]string `toml:"names"`
	}
	d := toml.NewDecoder(strings.NewReader(string(f.data))).DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
			return nil, invalid("%s: %s", f.where, strings.SplitN(strict.String(), "\n", 2)[0])
		}
		return nil, invalid("%s: %w", f.where, err)
	}
	names, taken := map[uint64]string{}, map[string]bool{}
	for digits, name := range doc.Names {
		v, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			return nil, invalid("%s: %q is not a version number", f.where, digits)
		}
		if _, err := strconv.ParseUint(name, 10, 64); err == nil || name == "" || taken[name] {
			return nil, invalid("%s: version %d cannot be named %q: use a unique name that is not a number", f.where, v, name)
		}
		names[v], taken[name] = name, true
	}
	return names, nil
}
