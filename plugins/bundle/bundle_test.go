package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
)

const manifest = `name = "mail"
version = "1.2.0"
abi = 1
description = "keeps mail addresses out"
wasm = "build/mail.wasm"
idempotent = true
capabilities = ["redact_builtin"]
config_schema = "config.schema.json"

[[hooks]]
stage = "pre_save"
order = 10
channels = ["messages", "tool_*"]
scope = "element"

[[hooks]]
stage = "load"
kinds = ["blob"]
types = ["text/*"]
redacts = false
fail = "open"

[limits]
memory = "64MiB"
call = "500ms"
fuel = 1000000

[config]
marker = "[mail]"
keep = ["a@example.com"]

[[migrations]]
kind = "support"
from = 1
to = 2

[[fixtures]]
stage = "pre_save"
name = "messages"
input = "fixtures/a.json"
output = "fixtures/b.json"

[[fixtures]]
stage = "pre_save"
name = "messages"
input = "fixtures/b.json"
expect = "unchanged"
`

const configSchema = `{"type":"object","additionalProperties":false,"properties":{
	"marker":{"type":"string","maxLength":20},"keep":{"type":"array","items":{"type":"string"}},"deep":{"$ref":"#/$defs/deep"}},
	"$defs":{"deep":{"type":"object","properties":{"n/m":{"type":"integer"}}}}}`

// good returns the files of a valid plugin.
func good() map[string]string {
	return map[string]string{ManifestFile: manifest, "build/mail.wasm": "\x00asm", "config.schema.json": configSchema,
		"fixtures/a.json": "[1]\n", "fixtures/b.json": "[2]", "README.md": "read me"}
}

func files(contents map[string]string) []File {
	var list []File
	for path, data := range contents {
		list = append(list, File{path, []byte(data)})
	}
	return list
}

func load(t *testing.T, contents map[string]string) *Bundle {
	t.Helper()
	b, err := Load(files(contents))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestManifest(t *testing.T) {
	b := load(t, good())
	want := Manifest{
		Name: "mail", Version: "1.2.0", Description: "keeps mail addresses out", Wasm: "build/mail.wasm", Idempotent: true,
		Capabilities: []string{"redact_builtin"}, ConfigSchema: "config.schema.json",
		Hooks: []Hook{
			{Stage: hook.PreSave, Order: 10, Kinds: []hook.Kind{hook.Channel, hook.Write, hook.Meta}, Channels: []string{"messages", "tool_*"}, Elements: true, Redacts: true},
			{Stage: hook.Load, Kinds: []hook.Kind{hook.Blob}, Types: []string{"text/*"}, FailOpen: true},
		},
		Config:     map[string]any{"marker": "[mail]", "keep": []any{"a@example.com"}},
		Migrations: []Migration{{"support", 1, 2}},
		Fixtures: []Fixture{
			{Stage: hook.PreSave, Kind: hook.Channel, Name: "messages", Type: "json", Input: "fixtures/a.json", Output: "fixtures/b.json"},
			{Stage: hook.PreSave, Kind: hook.Channel, Name: "messages", Type: "json", Input: "fixtures/b.json", Want: WantUnchanged},
		},
	}
	want.Limits.Memory, want.Limits.Fuel, want.Limits.Call = 64<<20, 1_000_000, 500_000_000
	if diff := cmp.Diff(want, b.Manifest); diff != "" {
		t.Error(diff)
	}
	if got := b.Manifest.Stages(); !slices.Equal(got, []hook.Stage{hook.PreSave, hook.Load, hook.Migrate}) {
		t.Errorf("stages %v", got)
	}
	s := b.Spec([]byte("{}"))
	if s.Name != "mail@1.2.0" || string(s.Binary) != "\x00asm" || !s.Capabilities.RedactBuiltin || s.Capabilities.PutBlob || s.Limits.Memory != 64<<20 {
		t.Errorf("spec %+v", s)
	}
	if got := b.FixtureInput(&b.Manifest.Fixtures[0]); string(got) != "[1]" {
		t.Errorf("the input of a fixture is %q", got)
	}
}

func TestBadBundles(t *testing.T) {
	edit := func(path, old, new string) func(map[string]string) {
		return func(files map[string]string) {
			if !strings.Contains(files[path], old) {
				panic("nothing to edit: " + old)
			}
			files[path] = strings.Replace(files[path], old, new, 1)
		}
	}
	toml := func(old, new string) func(map[string]string) { return edit(ManifestFile, old, new) }
	drop := func(path string) func(map[string]string) {
		return func(files map[string]string) { delete(files, path) }
	}
	for _, tt := range []struct {
		name  string
		spoil func(map[string]string)
		want  string
	}{
		{"no manifest", drop(ManifestFile), "plugin.toml is missing: add the manifest"},
		{"not TOML", toml(`abi = 1`, `abi = = 1`), "plugin.toml:3:"},
		{"unknown field", toml(`order = 10`, `ordr = 10`), "plugin.toml:12: unknown field hooks.ordr: correct its name or remove it"},
		{"unknown table", toml(`[limits]`, `[limit]`), "unknown field limit"},
		{"wrong type", toml(`order = 10`, `order = "ten"`), "plugin.toml:12:"},
		{"other ABI", toml(`abi = 1`, `abi = 2`), "abi is 2, but this host has 1: set abi = 1 and rebuild the plugin"},
		{"no ABI", toml("abi = 1\n", ""), "abi is 0"},
		{"bad name", toml(`"mail"`, `"Mail"`), "at most 64 lower-case letters"},
		{"name of the redactor", toml(`"mail"`, `"redact"`), "and not redact"},
		{"bad version", toml(`"1.2.0"`, `"1.2"`), "mail@1.2: invalid plugin: plugin.toml: the version is \"1.2\": want one such as 1.2.0"},
		{"no module", drop("build/mail.wasm"), "build/mail.wasm, the wasm of the manifest, is missing: build the plugin"},
		{"wrong sum", toml(`abi = 1`, "abi = 1\nsha256 = \""+strings.Repeat("0", 64)+"\""), ", but the manifest says 0000"},
		{"no sum", toml(`abi = 1`, "abi = 1\nsha256 = \"zz\""), "sha256 is not a SHA-256"},
		{"bad size", toml(`"64MiB"`, `"lots"`), `"lots" is not a size`},
		{"negative size", toml(`"64MiB"`, `"-1MiB"`), `is not a size`},
		{"huge size", toml(`"64MiB"`, `"99999999999GiB"`), `is not a size`},
		{"bad time", toml(`"500ms"`, `"half"`), `"half" is not a duration`},
		{"over the hard limit", toml(`"64MiB"`, `"64GiB"`), "memory"},
		{"negative fuel", toml(`fuel = 1000000`, `fuel = -1`), "plugin.toml:26:"},
		{"stage", toml(`stage = "load"`, `stage = "boot"`), `the stage "boot": want pre_save`},
		{"kind", toml(`["blob"]`, `["blobs"]`), `the kind "blobs": want channel`},
		{"scope", toml(`"element"`, `"elements"`), `want value or element`},
		{"fail", toml(`fail = "open"`, `fail = "ajar"`), `want closed or open`},
		{"open and redacting", toml("redacts = false\n", ""), "set redacts = false, or remove it"},
		{"open in a save", toml(`scope = "element"`, "fail = \"open\"\nredacts = false"), "remove it from pre_save"},
		{"elements without idempotence", toml("idempotent = true\n", ""), "set idempotent = true"},
		{"capability", toml(`["redact_builtin"]`, `["root"]`), `unknown capability "root"`},
		{"migration to itself", toml(`to = 2`, `to = 1`), "from version 1 to itself"},
		{"migration twice", toml(`[[migrations]]`, "[[migrations]]\nkind = \"support\"\nfrom = 1\nto = 2\n[[migrations]]"), "is repeated"},
		{"fixture twice", toml(`[[fixtures]]`, "[[fixtures]]\nstage = \"pre_save\"\nname = \"messages\"\ninput = \"fixtures/a.json\"\nexpect = \"error\"\n[[fixtures]]"),
			"the fixture fixtures/a.json is repeated"},
		{"fixture without file", drop("fixtures/b.json"), "the file fixtures/b.json of a fixture is missing: add it"},
		{"fixture expects nothing", toml(`output = "fixtures/b.json"`, ""), "has no output: name its file"},
		{"fixture expects both", toml(`output = "fixtures/b.json"`, "output = \"fixtures/b.json\"\nexpect = \"error\""), "remove one of them"},
		{"fixture configured wrongly", toml(`expect = "unchanged"`, "expect = \"unchanged\"\nconfig = {marker = 1}"), "at /marker: got number, want string"},
		{"other file", func(f map[string]string) { f["secret.key"] = "" }, "the file secret.key is not in the manifest: remove it"},
		{"path out", func(f map[string]string) { f["../x"] = "" }, `invalid path "../x" in a plugin`},
		{"manifest names a path out", toml(`"build/mail.wasm"`, `"../../etc/passwd"`), `invalid path "../../etc/passwd"`},
		{"manifest names itself", toml(`"build/mail.wasm"`, `"plugin.toml"`), `names itself`},
		{"default against the schema", toml(`marker = "[mail]"`, `marker = 7`), "at /marker: got number, want string"},
		{"a date as default", toml(`marker = "[mail]"`, `marker = 2026-01-02`), "config/marker: dates and times are not JSON"},
		{"infinite default", toml(`marker = "[mail]"`, `marker = inf`), "config/marker: the number"},
		{"no schema", drop("config.schema.json"), "the config_schema of the manifest"},
		{"schema is not JSON", edit("config.schema.json", "{", "<"), "config.schema.json: it is not JSON"},
		{"schema is no schema", edit("config.schema.json", `"type":"object"`, `"type":"thing"`), "config.schema.json: it is not a JSON Schema at /type: "},
		{"schema from elsewhere", edit("config.schema.json", `#/$defs/deep`, `file:///etc/passwd`), "cannot refer to anything outside of it"},
		{"schema with a huge number", edit("config.schema.json", `"maxLength":20`, `"multipleOf":1e999999999`), "out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			contents := good()
			tt.spoil(contents)
			_, err := Load(files(contents))
			if err == nil {
				t.Fatal("it was taken")
			}
			if !errors.Is(err, hook.ErrInvalid) && !errors.Is(err, hook.ErrLimit) {
				t.Errorf("%v is of no kind", err)
			}
			if text := err.Error(); !strings.Contains(text, tt.want) || strings.Contains(text, "\n") {
				t.Errorf("the error is %q, want %q", text, tt.want)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	contents := good()
	b := load(t, contents)
	var lines strings.Builder // the output of sha256sum README.md build/mail.wasm …
	for _, path := range slices.Sorted(func(yield func(string) bool) {
		for path := range contents {
			if !yield(path) {
				return
			}
		}
	}) {
		sum := sha256.Sum256([]byte(contents[path]))
		lines.WriteString(hex.EncodeToString(sum[:]) + "  " + path + "\n")
	}
	if want := sha256.Sum256([]byte(lines.String())); b.Digest() != want {
		t.Errorf("digest %x, want %x", b.Digest(), want)
	}
	for path := range contents {
		changed := good()
		changed[path] += "\n"
		if load(t, changed).Digest() == b.Digest() {
			t.Errorf("a change of %s does not change the digest", path)
		}
	}
}

func TestDirectory(t *testing.T) {
	fsys := fstest.MapFS{}
	for path, data := range good() {
		fsys[path] = &fstest.MapFile{Data: []byte(data)}
	}
	fsys["src/main.go"] = &fstest.MapFile{Data: []byte("not of the plugin")}
	b, err := LoadFS(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if want := load(t, good()); b.Digest() != want.Digest() {
		t.Error("a directory makes another bundle than its files")
	}
	delete(fsys, "fixtures/b.json")
	if _, err := LoadFS(fsys); err == nil || !strings.Contains(err.Error(), "fixtures/b.json of a fixture is missing") {
		t.Errorf("without a file: %v", err)
	}
	if _, err := LoadFS(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "name the directory that has it") {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for path, data := range good() {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "mail"+Extension)
	if err := os.WriteFile(archive, b.Archive(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != b.Digest() || !bytes.Equal(again.Archive(), b.Archive()) {
		t.Error("the archive holds another plugin")
	}
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "fixtures", "a.json")
	if err := errors.Join(os.Remove(link), os.Symlink(outside, link)); err != nil {
		t.Skip(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a link led out of the directory")
	}
}

func TestGlobs(t *testing.T) {
	for _, tt := range []struct {
		glob, name string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "any", true}, {"a*", "abc", true}, {"a*", "ba", false},
		{"*a", "ba", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false},
		{"a*b*b", "ab", false}, {"a*bc*c", "abc", false}, {"", "", true}, {"a**b", "ab", true},
	} {
		if got := match(tt.glob, tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.glob, tt.name, got)
		}
	}
	h := Hook{Kinds: []hook.Kind{hook.Channel, hook.Meta}, Channels: []string{"m*"}}
	for _, tt := range []struct {
		kind      hook.Kind
		name, typ string
		want      bool
	}{
		{hook.Channel, "messages", "json", true}, {hook.Channel, "other", "json", false}, {hook.Meta, "", "json", true}, {hook.Write, "messages", "json", false},
		{hook.Channel, "messages", "msgpack", false}, {hook.Channel, "messages", "text", true}, {hook.Channel, "messages", "text/plain", true},
	} {
		if got := h.Takes(tt.kind, tt.name, tt.typ); got != tt.want {
			t.Errorf("%v %s %s: %v", tt.kind, tt.name, tt.typ, got)
		}
	}
}
