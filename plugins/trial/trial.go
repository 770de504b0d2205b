// Package trial runs a plugin on its own, without a store: a single call by hand, or the fixtures
// of its bundle. The result is the same every time and on every machine: the clock is frozen, and
// blobs are discarded.
package trial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/redact"
)

// Host loads plugins. *plugins.Host implements it.
type Host interface {
	Load(context.Context, plugins.Spec) (*plugins.Plugin, error)
}

// Plugin is a loaded plugin. *plugins.Plugin implements it.
type Plugin interface {
	Call(context.Context, *plugins.Call) (*plugins.Result, error)
	Close() error
}

// Item is the input of a trial. Migration is set in the stage migrate, the other fields in every
// other stage.
type Item struct {
	Stage     hook.Stage
	Kind      hook.Kind
	Name      string
	Type      string
	Migration bundle.Migration
	Data      []byte
}

// Call runs a hook on an item. Pseudonyms use a fixed public key, and the id of a blob is the
// SHA-256 of its contents.
func Call(ctx context.Context, p Plugin, it Item) (*plugins.Result, error) {
	meta, err := json.Marshal(it.meta())
	if err != nil {
		return &plugins.Result{}, err
	}
	return p.Call(ctx, &plugins.Call{
		Stage: it.Stage, Item: it.String(), Payload: it.Data, Meta: meta,
		Time: noon, PseudonymKey: sha256.Sum256([]byte("ckptd plugin trial")),
		PutBlob: func(data []byte) ([32]byte, error) { return sha256.Sum256(data), nil },
		Redact: func(ctx context.Context, set string, data []byte) ([]byte, error) {
			return redactBy(ctx, set, it, data)
		},
		From: it.Migration.From, To: it.Migration.To,
	})
}

// redactBy runs the built-in redactor with all its rules or one group of them.
func redactBy(ctx context.Context, set string, it Item, data []byte) ([]byte, error) {
	r := redact.Default()
	switch set {
	case "":
	case "secrets", "personal":
		var err error
		if r, err = redact.New(redact.Config{Disable: []string{"all"}, Enable: []string{set}}); err != nil {
			return nil, err
		}
	default:
		return nil, &hook.Error{Kind: hook.ErrFailed, Stage: it.Stage, Item: it.String(), Reason: `unknown rule set: want "", "secrets" or "personal"`}
	}
	out, err := r.Redact(ctx, redact.Input{Name: it.String(), Data: data})
	return out.Data, err
}

// noon is the time on the plugin's clock.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// String names the item in the form used in errors.
func (it Item) String() string {
	if it.Stage == hook.Migrate {
		return fmt.Sprintf("state of %s from %d to %d", it.Migration.Kind, it.Migration.From, it.Migration.To)
	}
	if it.Name == "" {
		return it.Kind.String()
	}
	return it.Kind.String() + " " + it.Name
}

// meta returns the description of the item that a pipeline would pass.
func (it Item) meta() any {
	return struct {
		ABI           int       `json:"abi"`
		Stage         string    `json:"stage"`
		Kind          string    `json:"kind"`
		Name          string    `json:"name"`
		Type          string    `json:"type"`
		Step          int64     `json:"step"`
		Status        string    `json:"status"`
		SchemaVersion uint64    `json:"schema_version"`
		Time          time.Time `json:"time"`
	}{plugins.ABI, it.Stage.String(), it.Kind.String(), it.Name, it.Type, 0, "running", it.Migration.From, noon}
}

// Outcome is the result of a fixture.
type Outcome struct {
	Fixture *bundle.Fixture
	Item    Item
	Want    []byte // nil unless the fixture expects an output
	Result  *plugins.Result
	Err     error // of the call; nil if there is none or the fixture expects it
	Took    time.Duration
	Problem string // one line; "" if the fixture passes
}

// Fixtures runs every fixture of a bundle. The plugin must give the expected result, give it again
// with the same fuel, and, if the manifest declares it idempotent, leave its own output unchanged.
// Fixtures returns an error only if the plugin cannot be loaded.
func Fixtures(ctx context.Context, h Host, b *bundle.Bundle) ([]Outcome, error) {
	return FixturesIn(ctx, func(ctx context.Context, s plugins.Spec) (Plugin, error) { return h.Load(ctx, s) }, b)
}

// FixturesIn is Fixtures with a custom loader. If load fails, its Plugin is ignored.
func FixturesIn(ctx context.Context, load func(context.Context, plugins.Spec) (Plugin, error), b *bundle.Bundle) ([]Outcome, error) {
	loaded := map[string]Plugin{}
	defer func() {
		for _, p := range loaded {
			p.Close()
		}
	}()
	var all []Outcome
	for i := range b.Manifest.Fixtures {
		f := &b.Manifest.Fixtures[i]
		config, err := b.FixtureConfig(f)
		if err != nil {
			return all, err
		}
		p := loaded[string(config)]
		if p == nil {
			if p, err = load(ctx, b.Spec(config)); err != nil {
				return all, err
			}
			loaded[string(config)] = p
		}
		o, err := fixture(ctx, p, b, f)
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
	return all, nil
}

// fixture runs a single fixture. It returns an error only if the context is done.
func fixture(ctx context.Context, p Plugin, b *bundle.Bundle, f *bundle.Fixture) (Outcome, error) {
	o := Outcome{Fixture: f, Item: Item{Stage: f.Stage, Kind: f.Kind, Name: f.Name, Type: f.Type, Migration: f.Step, Data: b.FixtureInput(f)}}
	if f.Want == bundle.WantOutput {
		o.Want = b.FixtureOutput(f)
	}
	start := time.Now()
	o.Result, o.Err = Call(ctx, p, o.Item)
	o.Took = time.Since(start)
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	if o.Problem = o.compare(); o.Problem != "" {
		return o, nil
	}
	again, err := Call(ctx, p, o.Item)
	switch {
	case (err == nil) != (o.Err == nil), !bytes.Equal(again.Output, o.Result.Output), again.Unchanged != o.Result.Unchanged:
		o.Problem = "a second run on the same input gives a different result: it must not use time, randomness or memory of earlier calls"
	case again.Fuel != o.Result.Fuel:
		o.Problem = fmt.Sprintf("a second run on the same input takes %d fuel instead of %d", again.Fuel, o.Result.Fuel)
	case b.Manifest.Idempotent && o.Err == nil && !o.Result.Unchanged:
		it := o.Item
		it.Data = o.Result.Output
		if twice, err := Call(ctx, p, it); err != nil || !twice.Unchanged && !bytes.Equal(twice.Output, it.Data) {
			o.Problem = "it changes its own output although the manifest says idempotent = true"
		}
	}
	if o.Problem == "" {
		o.Err = nil
	}
	return o, ctx.Err()
}

// compare describes how the result differs from the expected one.
func (o *Outcome) compare() string {
	rejected := errors.Is(o.Err, hook.ErrRejected)
	switch want := o.Fixture.Want; {
	case want == bundle.WantRejected && rejected, want == bundle.WantError && o.Err != nil && !rejected:
		return ""
	case o.Err != nil:
		return "it returns an error: " + o.Err.Error()
	case want == bundle.WantRejected:
		return "it does not reject the input"
	case want == bundle.WantError:
		return "it returns no error"
	case want == bundle.WantUnchanged && !o.Result.Unchanged:
		o.Want = o.Item.Data
		return "it changes the input"
	case want == bundle.WantOutput && o.Result.Unchanged:
		return "it leaves the input unchanged"
	case want == bundle.WantOutput && !bytes.Equal(o.Result.Output, o.Want):
		return "it gives another output"
	case want == bundle.WantOutput && o.Item.Type == "json" && json.Valid(o.Item.Data) && !json.Valid(o.Result.Output):
		return "its output is not JSON although the input is: a store refuses that"
	}
	return ""
}
