package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

// Capabilities that a manifest may ask for.
const (
	RedactBuiltin = "redact_builtin" // call the built-in redactor
	Pseudonym     = "pseudonym"      // make pseudonyms
	BlobPut       = "blob_put"       // store blobs for the user
	Identity      = "identity"       // see tenant, user, thread, namespace and checkpoint
)

// Manifest is the contents of plugin.toml.
type Manifest struct {
	Name, Version string
	Description   string
	Wasm          string // path of the module
	SHA256        string // of the module, in hexadecimal, or ""
	Capabilities  []string
	Idempotent    bool // running it on its own output changes nothing
	Hooks         []Hook
	Limits        plugins.Limits // zero fields mean the default
	Config        map[string]any // defaults; nil for none
	ConfigSchema  string         // path, or ""
	Migrations    []Migration
	Fixtures      []Fixture
}

// Hook selects the items that a plugin runs on at a stage.
type Hook struct {
	Stage    hook.Stage
	Order    int         // among the plugins of a stage; the lowest runs first
	Kinds    []hook.Kind // never empty
	Channels []string    // globs, for channels and writes; empty means all
	Types    []string    // globs; empty means text: json, text and text/…
	Elements bool        // scope = "element"
	FailOpen bool        // fail = "open": an item on which the plugin fails passes unchanged
	Redacts  bool        // data that it removes must not get past it
}

// Migration is a step that a plugin provides for one kind of thread, from one schema version to
// another.
type Migration struct {
	Kind     string
	From, To uint64
}

// Capable reports whether the manifest asks for a capability.
func (m *Manifest) Capable(capability string) bool {
	return slices.Contains(m.Capabilities, capability)
}

// Stages returns the stages for which the plugin must export hooks.
func (m *Manifest) Stages() []hook.Stage {
	var stages []hook.Stage
	for i := range m.Hooks {
		stages = append(stages, m.Hooks[i].Stage)
	}
	if len(m.Migrations) > 0 {
		stages = append(stages, hook.Migrate)
	}
	slices.Sort(stages)
	return slices.Compact(stages)
}

// paths returns the paths of the files that the manifest names, plus that of the signature.
func (m *Manifest) paths() []string {
	paths := []string{SignatureFile}
	add := func(path string) {
		if path != "" {
			paths = append(paths, path)
		}
	}
	add(m.Wasm)
	add(m.ConfigSchema)
	for i := range m.Fixtures {
		add(m.Fixtures[i].Input)
		add(m.Fixtures[i].Output)
	}
	return paths
}

// Takes reports whether the hook runs on an item.
func (h *Hook) Takes(kind hook.Kind, name, typ string) bool {
	if !slices.Contains(h.Kinds, kind) {
		return false
	}
	if kind == hook.Channel || kind == hook.Write {
		if len(h.Channels) > 0 && !matchAny(h.Channels, name) {
			return false
		}
	}
	if len(h.Types) == 0 {
		return typ == "json" || typ == "text" || strings.HasPrefix(typ, "text/")
	}
	return matchAny(h.Types, typ)
}

func matchAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return match(g, name) })
}

// match matches a name against a glob, in which * matches any text.
func match(glob, name string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == name
	}
	last := len(parts) - 1
	if len(name) < len(parts[0])+len(parts[last]) || !strings.HasPrefix(name, parts[0]) || !strings.HasSuffix(name, parts[last]) {
		return false
	}
	name = name[len(parts[0]) : len(name)-len(parts[last])]
	for _, part := range parts[1:last] {
		_, rest, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = rest
	}
	return true
}

// text mirrors the fields of plugin.toml.
type text struct {
	Name         string          `toml:"name"`
	Version      string          `toml:"version"`
	ABI          int64           `toml:"abi"`
	Description  string          `toml:"description"`
	Wasm         string          `toml:"wasm"`
	SHA256       string          `toml:"sha256"`
	Capabilities []string        `toml:"capabilities"`
	Idempotent   bool            `toml:"idempotent"`
	Hooks        []hookText      `toml:"hooks"`
	Limits       limitsText      `toml:"limits"`
	Config       map[string]any  `toml:"config"`
	ConfigSchema string          `toml:"config_schema"`
	Migrations   []migrationText `toml:"migrations"`
	Fixtures     []fixtureText   `toml:"fixtures"`
}

type hookText struct {
	Stage    string   `toml:"stage"`
	Order    int32    `toml:"order"`
	Kinds    []string `toml:"kinds"`
	Channels []string `toml:"channels"`
	Types    []string `toml:"types"`
	Scope    string   `toml:"scope"`
	Fail     string   `toml:"fail"`
	Redacts  *bool    `toml:"redacts"`
}

type migrationText struct {
	Kind string `toml:"kind"`
	From uint64 `toml:"from"`
	To   uint64 `toml:"to"`
}

type limitsText struct {
	Binary   size   `toml:"binary"`
	Memory   size   `toml:"memory"`
	Input    size   `toml:"input"`
	Output   size   `toml:"output"`
	Fuel     uint64 `toml:"fuel"`
	Call     span   `toml:"call"`
	Init     span   `toml:"init"`
	Compile  span   `toml:"compile"`
	LogLines int    `toml:"log_lines"`
	LogLine  size   `toml:"log_line"`
}

// size is a number of bytes, written as "64MiB".
type size int64

func (s *size) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = n, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(number), "B"), 10, 64)
	if err != nil || n <= 0 || n > 1<<50/unit {
		return fmt.Errorf(`%q is not a size: want one such as "64MiB", "512KiB" or "1000B"`, text)
	}
	*s = size(n * unit)
	return nil
}

// span is a duration, written as "500ms".
type span time.Duration

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf(`%q is not a duration: want one such as "500ms" or "2s"`, text)
	}
	*s = span(d)
	return nil
}

// parseManifest reads plugin.toml. The result is well formed but not checked yet.
func parseManifest(content []byte) (Manifest, error) {
	if len(content) > maxManifest {
		return Manifest{}, invalidf("%s has more than %d bytes", ManifestFile, maxManifest)
	}
	var t text
	if err := toml.NewDecoder(bytes.NewReader(content)).DisallowUnknownFields().Decode(&t); err != nil {
		return Manifest{}, tomlError(err)
	}
	if t.ABI != plugins.ABI {
		return Manifest{}, invalidf("%s: abi is %d, but this host has %d: set abi = %d and rebuild the plugin, or use a matching host",
			ManifestFile, t.ABI, plugins.ABI, plugins.ABI)
	}
	return t.manifest()
}

// tomlError names the wrong field and its line in one line.
func tomlError(err error) error {
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(e.Errors) > 0 {
		row, _ := e.Errors[0].Position()
		return invalidf("%s:%d: unknown field %s: correct its name or remove it", ManifestFile, row,
			strings.Join(e.Errors[0].Key(), "."))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := e.Position()
		field := ""
		if key := e.Key(); len(key) > 0 {
			field = strings.Join(key, ".") + ": "
		}
		return invalidf("%s:%d:%d: %s%s", ManifestFile, row, column, field, strings.TrimPrefix(e.Error(), "toml: "))
	}
	return invalidf("%s: %s", ManifestFile, strings.TrimPrefix(err.Error(), "toml: "))
}

func (t *text) manifest() (Manifest, error) {
	l := &t.Limits
	m := Manifest{
		Name: t.Name, Version: t.Version, Description: t.Description, Wasm: t.Wasm, SHA256: strings.ToLower(t.SHA256),
		Capabilities: t.Capabilities, Idempotent: t.Idempotent, Config: t.Config, ConfigSchema: t.ConfigSchema,
		Limits: plugins.Limits{
			Binary: int64(l.Binary), Memory: int64(l.Memory), Input: int64(l.Input), Output: int64(l.Output), Fuel: l.Fuel,
			Call: time.Duration(l.Call), Init: time.Duration(l.Init), Compile: time.Duration(l.Compile),
			LogLines: l.LogLines, LogLine: int(l.LogLine),
		},
	}
	for i := range t.Hooks {
		h, err := t.Hooks[i].hook()
		if err != nil {
			return Manifest{}, err
		}
		m.Hooks = append(m.Hooks, h)
	}
	for _, step := range t.Migrations {
		m.Migrations = append(m.Migrations, Migration(step))
	}
	for i := range t.Fixtures {
		f, err := t.Fixtures[i].fixture(&m)
		if err != nil {
			return Manifest{}, err
		}
		m.Fixtures = append(m.Fixtures, f)
	}
	return m, nil
}

func (t *hookText) hook() (Hook, error) {
	h := Hook{Order: int(t.Order), Channels: t.Channels, Types: t.Types, Redacts: t.Redacts == nil || *t.Redacts}
	var ok bool
	if h.Stage, ok = hook.ParseStage(t.Stage); !ok {
		return h, invalidf("%s: a hook has the stage %q: want pre_save, load, export or migrate", ManifestFile, t.Stage)
	}
	for _, name := range t.Kinds {
		kind, ok := hook.ParseKind(name)
		if !ok {
			return h, invalidf("%s: a hook is for the kind %q: want channel, write, meta, label, blob or memory",
				ManifestFile, name)
		}
		h.Kinds = append(h.Kinds, kind)
	}
	if len(h.Kinds) == 0 {
		h.Kinds = []hook.Kind{hook.Channel, hook.Write, hook.Meta}
	}
	switch t.Scope {
	case "", "value":
	case "element":
		h.Elements = true
	default:
		return h, invalidf("%s: a hook has the scope %q: want value or element", ManifestFile, t.Scope)
	}
	switch t.Fail {
	case "", "closed":
	case "open":
		h.FailOpen = true
	default:
		return h, invalidf("%s: a hook has fail = %q: want closed or open", ManifestFile, t.Fail)
	}
	return h, nil
}
