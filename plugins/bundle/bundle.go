// Package bundle reads and writes plugins in the form in which their authors distribute them: a
// directory, or a single archive of it, with the manifest plugin.toml, the module, and the files
// that the manifest names.
//
// Every bundle is assumed to be hostile: sizes, counts and paths are bounded, and unknown fields
// are errors. Errors match hook.ErrInvalid, or hook.ErrLimit for a limit that is too high, and say
// in one line what to do. docs/bundles.md is the contract.
package bundle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/durable"
	"github.com/ckptd/ckptd/internal/schema"
	"github.com/ckptd/ckptd/plugins"
)

// Names of files.
const (
	ManifestFile  = "plugin.toml"
	SignatureFile = "plugin.sig"
	Extension     = ".ckptd-plugin" // of an archive
)

// Bounds of a bundle.
const (
	MaxSize     = 96 << 20 // bytes of all files
	maxFiles    = 1000
	maxPath     = 100     // bytes
	maxManifest = 1 << 20 // bytes
)

// File is a file of a bundle. Its path uses slashes.
type File struct {
	Path string
	Data []byte
}

// Bundle is a plugin with a valid manifest and all of its files. It is immutable.
type Bundle struct {
	Manifest Manifest

	files  []File // sorted by path
	digest [sha256.Size]byte
	schema *schema.Schema // nil if it has none
}

// Load creates a Bundle from its files and keeps them. A file that the manifest does not name is an
// error, except for files next to the manifest whose names begin with README or LICENSE.
func Load(files []File) (*Bundle, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	b := &Bundle{files: files, digest: digest(files)}
	text, ok := b.File(ManifestFile)
	if !ok {
		return nil, invalidf("%s is missing: add the manifest", ManifestFile)
	}
	var err error
	if b.Manifest, err = parseManifest(text); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		if e, ok := errors.AsType[*hook.Error](err); ok && e.Plugin == "" {
			named := *e
			named.Plugin = b.Name()
			return nil, &named
		}
		return nil, err
	}
	return b, nil
}

// LoadFS creates a Bundle from a directory. It reads the manifest, the files that it names, the
// signature, README* and LICENSE*, and nothing else.
func LoadFS(fsys fs.FS) (*Bundle, error) {
	text, err := readFile(fsys, ManifestFile, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalidf("%s is missing: name the directory that has it", ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, err
	}
	files := []File{{ManifestFile, text}}
	top, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("reading plugin: %w", err)
	}
	paths := m.paths()
	for _, entry := range top {
		if accompanies(entry.Name()) && entry.Type().IsRegular() {
			paths = append(paths, entry.Name())
		}
	}
	slices.Sort(paths)
	left := int64(MaxSize)
	for _, path := range slices.Compact(paths) {
		if !validPath(path) {
			return nil, badPath(path)
		}
		data, err := readFile(fsys, path, left)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // Load's error names the field that refers to it
		case err != nil:
			return nil, err
		}
		files, left = append(files, File{path, data}), left-int64(len(data))
	}
	return Load(files)
}

// Open creates a Bundle from the directory or archive at a path.
func Open(path string) (*Bundle, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening plugin: %w", err)
	}
	if info.IsDir() {
		root, err := os.OpenRoot(path) // so that links cannot lead outside
		if err != nil {
			return nil, fmt.Errorf("opening plugin: %w", err)
		}
		defer root.Close()
		return LoadFS(root.FS())
	}
	archive, err := durable.ReadFile(path, maxArchive)
	if errors.Is(err, durable.ErrTooLarge) {
		return nil, invalidf("the archive has more than %d bytes", maxArchive)
	}
	if err != nil {
		return nil, fmt.Errorf("reading plugin: %w", err)
	}
	return LoadArchive(archive)
}

// readFile reads a file of at most the given size.
func readFile(fsys fs.FS, path string, most int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading plugin: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, invalidf("%s is not a file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading plugin: %w", err)
	}
	if int64(len(data)) > most {
		return nil, invalidf("%s is too large: all files of a plugin together can have %d bytes, the manifest %d", path,
			MaxSize, maxManifest)
	}
	return data, nil
}

// Name returns NAME@VERSION.
func (b *Bundle) Name() string { return b.Manifest.Name + "@" + b.Manifest.Version }

// Digest identifies all files except the signature. It is a SHA-256 over one line per file, in path
// order: the SHA-256 of the file in hexadecimal, two spaces, the path and a line feed. This is the
// output of sha256sum.
func (b *Bundle) Digest() [sha256.Size]byte { return b.digest }

// Files returns the files sorted by path. Do not modify the bytes.
func (b *Bundle) Files() []File { return slices.Clone(b.files) }

// File returns the file at a path. Do not modify the bytes.
func (b *Bundle) File(path string) ([]byte, bool) {
	i, ok := slices.BinarySearchFunc(b.files, path, func(f File, path string) int { return cmp.Compare(f.Path, path) })
	if !ok {
		return nil, false
	}
	return b.files[i].Data, true
}

// Binary returns the module.
func (b *Bundle) Binary() []byte {
	data, _ := b.File(b.Manifest.Wasm)
	return data
}

// Spec returns the input for a host to load the plugin with a configuration returned by Config.
func (b *Bundle) Spec(config []byte) plugins.Spec {
	m := &b.Manifest
	return plugins.Spec{Name: b.Name(), Binary: b.Binary(), Config: config, Limits: m.Limits, Capabilities: plugins.Capabilities{
		RedactBuiltin: m.Capable(RedactBuiltin), Pseudonym: m.Capable(Pseudonym), PutBlob: m.Capable(BlobPut),
	}}
}

func digest(files []File) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		if f.Path != SignatureFile {
			fmt.Fprintf(h, "%x  %s\n", sha256.Sum256(f.Data), f.Path)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func checkFiles(files []File) error {
	if len(files) > maxFiles {
		return invalidf("%d files, more than the limit of %d: remove files that the plugin does not need", len(files), maxFiles)
	}
	size := 0
	for i, f := range files {
		if !validPath(f.Path) {
			return badPath(f.Path)
		}
		if i > 0 && f.Path == files[i-1].Path {
			return invalidf("the file %s is repeated", f.Path)
		}
		size += len(f.Data)
	}
	if size > MaxSize {
		return invalidf("all files together have %d bytes, more than the limit of %d", size, MaxSize)
	}
	return nil
}

// validPath reports whether a path is short and relative, and contains only letters, digits, '.',
// '_', '-' and '/'.
func validPath(path string) bool {
	return len(path) <= maxPath && path != "." && fs.ValidPath(path) && !strings.ContainsFunc(path, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-/", r))
	})
}

func badPath(path string) error {
	return invalidf("invalid path %.120q in a plugin: want at most %d letters, digits, and . _ - /, relative to the manifest", path, maxPath)
}

// accompanies reports whether a file is allowed although the manifest does not name it.
func accompanies(path string) bool {
	return !strings.Contains(path, "/") && (strings.HasPrefix(path, "README") || strings.HasPrefix(path, "LICENSE"))
}

// check checks the manifest against the files.
func (b *Bundle) check() error {
	m := &b.Manifest
	if err := m.check(); err != nil {
		return err
	}
	named := append(m.paths(), ManifestFile)
	for _, f := range b.files {
		if !slices.Contains(named, f.Path) && !accompanies(f.Path) {
			return invalidf("the file %s is not in the manifest: remove it", f.Path)
		}
	}
	if _, ok := b.File(m.Wasm); !ok {
		return invalidf("the file %s, the wasm of the manifest, is missing: build the plugin", m.Wasm)
	}
	if sum := sha256.Sum256(b.Binary()); m.SHA256 != "" && m.SHA256 != hex.EncodeToString(sum[:]) {
		return invalidf("%s has the SHA-256 %x, but the manifest says %s: rebuild it, or correct sha256", m.Wasm, sum, m.SHA256)
	}
	for i := range m.Fixtures {
		for _, path := range []string{m.Fixtures[i].Input, m.Fixtures[i].Output} {
			if _, ok := b.File(path); path != "" && !ok {
				return invalidf("the file %s of a fixture is missing: add it", path)
			}
		}
	}
	return b.checkConfigs()
}

// checkConfigs checks the defaults, and the fixtures' configurations on top of them, against the
// schema.
func (b *Bundle) checkConfigs() error {
	m := &b.Manifest
	if m.ConfigSchema != "" {
		text, ok := b.File(m.ConfigSchema)
		if !ok {
			return invalidf("the file %s, the config_schema of the manifest, is missing: add it", m.ConfigSchema)
		}
		var err error
		if b.schema, err = compileSchema(text); err != nil {
			return invalidf("%s: %v", m.ConfigSchema, err)
		}
	}
	if _, err := merged(m.Config, nil); err != nil {
		return invalidf("%s: config%v", ManifestFile, err)
	}
	for i := range m.Fixtures {
		if _, err := b.FixtureConfig(&m.Fixtures[i]); err != nil {
			return err
		}
	}
	return nil
}

func invalidf(format string, args ...any) error {
	return &hook.Error{Kind: hook.ErrInvalid, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// oneLine bounds a text that may quote a hostile file, and puts it on one line.
func oneLine(text string) string {
	const most = 500
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
