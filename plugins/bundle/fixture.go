package bundle

import (
	"bytes"
	"slices"

	"github.com/ckptd/ckptd/hook"
)

// Expectation is the outcome that a fixture expects.
type Expectation uint8

// The expectations.
const (
	WantOutput    Expectation = iota // the contents of the file Output
	WantUnchanged                    // the input is left unchanged
	WantRejected                     // a rejection by policy
	WantError                        // any other failure
)

// Fixture is an example of the plugin's behavior. It must pass before the plugin runs on saved
// data.
type Fixture struct {
	Stage hook.Stage

	// Kind, Name and Type describe the item. In the stage migrate it is a channel of type json, and
	// Step is the migration.
	Kind hook.Kind
	Name string
	Type string
	Step Migration

	Input  string // path
	Output string // path; "" unless Want is WantOutput
	Want   Expectation
	Config map[string]any // applied to the defaults; nil for none
}

type fixtureText struct {
	Stage  string         `toml:"stage"`
	Kind   string         `toml:"kind"`
	Name   string         `toml:"name"`
	Type   string         `toml:"type"`
	From   uint64         `toml:"from"`
	To     uint64         `toml:"to"`
	Input  string         `toml:"input"`
	Output string         `toml:"output"`
	Expect string         `toml:"expect"`
	Config map[string]any `toml:"config"`
}

// fixture checks a fixture and fills in omitted fields: the stage if there is only one, kind
// channel, type json.
func (t *fixtureText) fixture(m *Manifest) (Fixture, error) {
	f := Fixture{Kind: hook.Channel, Name: t.Name, Type: t.Type, Input: t.Input, Output: t.Output, Config: t.Config}
	if t.Input == "" {
		return f, invalidf("%s: a fixture has no input: name a file", ManifestFile)
	}
	var ok bool
	if f.Stage, ok = hook.ParseStage(t.Stage); !ok {
		stages := m.Stages()
		if t.Stage != "" || len(stages) != 1 {
			return f, invalidf("%s: the fixture %s has the stage %q: want pre_save, load, export or migrate",
				ManifestFile, t.Input, t.Stage)
		}
		f.Stage = stages[0]
	}
	if f.Stage == hook.Migrate {
		f.Step = Migration{t.Kind, t.From, t.To}
		if !slices.Contains(m.Migrations, f.Step) {
			return f, invalidf("%s: the fixture %s is for a migration of %.80q from %d to %d, which is not in [[migrations]]",
				ManifestFile, t.Input, t.Kind, t.From, t.To)
		}
	} else if t.Kind != "" {
		if f.Kind, ok = hook.ParseKind(t.Kind); !ok {
			return f, invalidf("%s: the fixture %s is of the kind %.80q: want channel, write, meta, label, blob or memory", ManifestFile, t.Input, t.Kind)
		}
	}
	if f.Type == "" {
		f.Type = "json"
	}
	switch {
	case t.Expect == "" && t.Output != "":
	case t.Expect != "" && t.Output != "":
		return f, invalidf("%s: the fixture %s has an output and expects %.80q: remove one of them", ManifestFile, t.Input, t.Expect)
	case t.Expect == "unchanged":
		f.Want = WantUnchanged
	case t.Expect == "rejected":
		f.Want = WantRejected
	case t.Expect == "error":
		f.Want = WantError
	default:
		return f, invalidf(`%s: the fixture %s has no output: name its file, or set expect = "unchanged", "rejected" or "error"`, ManifestFile, t.Input)
	}
	for i := range m.Fixtures {
		if f.asks(&m.Fixtures[i]) && f.Config == nil && m.Fixtures[i].Config == nil {
			return f, invalidf("%s: the fixture %s is repeated: remove one, or give it another input, name or config", ManifestFile, t.Input)
		}
	}
	return f, nil
}

// asks reports whether two fixtures give the plugin the same input.
func (f *Fixture) asks(g *Fixture) bool {
	return f.Stage == g.Stage && f.Kind == g.Kind && f.Name == g.Name && f.Type == g.Type && f.Step == g.Step && f.Input == g.Input
}

// FixtureInput and FixtureOutput return a fixture's input and its expected output. A line feed at
// the end of the file does not count, because editors add one.
func (b *Bundle) FixtureInput(f *Fixture) []byte  { return b.fixtureFile(f.Input) }
func (b *Bundle) FixtureOutput(f *Fixture) []byte { return b.fixtureFile(f.Output) }

func (b *Bundle) fixtureFile(path string) []byte {
	data, _ := b.File(path)
	return bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
}

// FixtureConfig returns the configuration of a fixture.
func (b *Bundle) FixtureConfig(f *Fixture) ([]byte, error) {
	if f.Config == nil {
		return b.Config(nil)
	}
	over, err := merged(f.Config, nil)
	if err != nil {
		return nil, invalidf("%s: config%v of the fixture %s", ManifestFile, err, f.Input)
	}
	config, err := b.Config(over)
	if err != nil {
		return nil, invalidf("the fixture %s: %v", f.Input, err)
	}
	return config, nil
}
