package bundle

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ckptd/ckptd/hook"
)

// Bounds of a manifest.
const (
	maxHooks       = 32
	maxGlobs       = 64 // per hook, each at most maxGlob bytes
	maxGlob        = 200
	maxMigrations  = 200
	maxFixtures    = 200
	maxDescription = 1000 // bytes
	maxVersion     = 64
)

// ValidName reports whether a plugin can have this name: 1 to 64 lower-case letters, digits and
// hyphens, with a letter or digit at both ends. "redact" is reserved for the built-in plugin.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 || name == "redact" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-')
	})
}

// ValidVersion reports whether a text is a version as defined by semver.org, such as 1.2.0 or
// 1.2.0-beta.1.
func ValidVersion(version string) bool {
	const id = `(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)`
	semver := regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-` + id + `(\.` + id + `)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	return len(version) <= maxVersion && semver.MatchString(version)
}

// check checks the manifest on its own, without the files.
func (m *Manifest) check() error {
	switch {
	case !ValidName(m.Name):
		return invalidf("%s: the name is %.80q: want at most 64 lower-case letters, digits and hyphens, and not redact",
			ManifestFile, m.Name)
	case !ValidVersion(m.Version):
		return invalidf("%s: the version is %.80q: want one such as 1.2.0", ManifestFile, m.Version)
	case len(m.Description) > maxDescription || strings.ContainsFunc(m.Description, func(r rune) bool { return r < ' ' }):
		return invalidf("%s: the description must be one line of at most %d bytes", ManifestFile, maxDescription)
	case m.Wasm == "":
		return invalidf("%s: wasm is missing: set it to the module's file name", ManifestFile)
	case m.SHA256 != "" && (len(m.SHA256) != 64 || strings.Trim(m.SHA256, "0123456789abcdef") != ""):
		return invalidf("%s: sha256 is not a SHA-256: want 64 hexadecimal digits", ManifestFile)
	case len(m.Hooks) == 0 && len(m.Migrations) == 0:
		return invalidf("%s: add [[hooks]] or [[migrations]]: without them the plugin never runs", ManifestFile)
	case len(m.Hooks) > maxHooks || len(m.Migrations) > maxMigrations || len(m.Fixtures) > maxFixtures:
		return invalidf("%s: a plugin can have at most %d hooks, %d migrations and %d fixtures", ManifestFile, maxHooks,
			maxMigrations, maxFixtures)
	}
	for _, path := range m.paths() {
		if !validPath(path) {
			return badPath(path)
		}
		if path == ManifestFile {
			return invalidf("%s: the manifest names itself as a file of the plugin", ManifestFile)
		}
	}
	for _, c := range m.Capabilities {
		if !slices.Contains([]string{RedactBuiltin, Pseudonym, BlobPut, Identity}, c) {
			return invalidf("%s: unknown capability %.80q: want redact_builtin, pseudonym, blob_put or identity",
				ManifestFile, c)
		}
	}
	if err := m.Limits.Check(); err != nil {
		return err
	}
	for i := range m.Hooks {
		if err := m.checkHook(&m.Hooks[i]); err != nil {
			return err
		}
	}
	return m.checkMigrations()
}

func (m *Manifest) checkHook(h *Hook) error {
	for _, globs := range [][]string{h.Channels, h.Types} {
		if len(globs) > maxGlobs || slices.ContainsFunc(globs, func(g string) bool { return g == "" || len(g) > maxGlob }) {
			return invalidf("%s: a hook can have at most %d channels and %d types, of 1 to %d bytes", ManifestFile, maxGlobs,
				maxGlobs, maxGlob)
		}
	}
	switch {
	case h.FailOpen && h.Stage != hook.Load:
		return invalidf(`%s: fail = "open" is only for the stage load: remove it from %s`, ManifestFile, h.Stage)
	case h.FailOpen && h.Redacts:
		return invalidf(`%s: fail = "open" is only for hooks that do not redact: set redacts = false, or remove it`, ManifestFile)
	case h.Elements && !m.Idempotent:
		return invalidf(`%s: scope = "element" is only for idempotent plugins: set idempotent = true, or remove it`, ManifestFile)
	case h.Elements && h.Stage == hook.Migrate:
		return invalidf(`%s: scope = "element" is not for the stage migrate: remove it`, ManifestFile)
	case h.Stage == hook.Migrate && len(m.Migrations) == 0:
		return invalidf("%s: a hook for migrate needs [[migrations]]: list its steps", ManifestFile)
	}
	return nil
}

func (m *Manifest) checkMigrations() error {
	for i, step := range m.Migrations {
		switch {
		case step.Kind == "" || len(step.Kind) > maxGlob:
			return invalidf("%s: a migration has no kind, or one that is too long: set the kind of its threads", ManifestFile)
		case step.From == step.To:
			return invalidf("%s: a migration of %.80q leads from version %d to itself", ManifestFile, step.Kind, step.From)
		case slices.Contains(m.Migrations[:i], step):
			return invalidf("%s: the migration of %.80q from %d to %d is repeated", ManifestFile, step.Kind, step.From, step.To)
		}
	}
	return nil
}
