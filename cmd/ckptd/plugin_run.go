package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/trial"
)

// trialFlags are the flags for the item that a plugin is run on.
type trialFlags struct {
	plugin, stage, kind, config string
	item                        trial.Item
}

func (a *app) pluginRunCmd() *cobra.Command {
	var o trialFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a plugin on a file and print its output",
		Long: `Run passes FILE, or standard input for -, to a plugin as if it were being saved, and prints the
output, or the input if the plugin leaves it unchanged. It stores nothing. The plugin's log and
findings, its time and its fuel go to standard error.`,
		Example: `  ckptd plugin run --stage pre_save messages.json
  ckptd plugin run --plugin ./steps --stage migrate --kind support --from 1 --to 2 state.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := bundle.Open(o.plugin)
			if err != nil {
				return err
			}
			if err := o.complete(b); err != nil {
				return err
			}
			if o.item.Data, err = a.readInput(args[0]); err != nil {
				return err
			}
			return withPluginLoader(func(l pipeline.Loader) error { return a.pluginRun(cmd.Context(), l, b, &o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.plugin, "plugin", ".", "`path` of the plugin's directory or archive")
	f.StringVar(&o.stage, "stage", "", "`stage` to run: pre_save, load, export or migrate (default: the plugin's only stage)")
	f.StringVar(&o.kind, "kind", "", "`kind` of FILE: channel, write, meta, label, blob or memory; for a migration, the kind of the threads (default: channel)")
	f.StringVar(&o.item.Name, "name", "messages", "channel `name`")
	f.StringVar(&o.item.Type, "type", "json", "content `type` of FILE")
	f.StringVar(&o.config, "config", "", "configuration `file` (JSON), merged over the manifest's defaults")
	f.Uint64Var(&o.item.Migration.From, "from", 0, "schema `version` to migrate from")
	f.Uint64Var(&o.item.Migration.To, "to", 0, "schema `version` to migrate to")
	return cmd
}

// complete fills the item in from the flags, with defaults from the manifest.
func (o *trialFlags) complete(b *bundle.Bundle) error {
	stages := b.Manifest.Stages()
	var ok bool
	if o.item.Stage, ok = hook.ParseStage(o.stage); !ok {
		if o.stage != "" || len(stages) != 1 {
			return usagef("--stage %q: want one of %v", o.stage, stages)
		}
		o.item.Stage = stages[0]
	}
	o.item.Kind = hook.Channel
	if o.item.Stage == hook.Migrate {
		o.item.Migration.Kind = o.kind
	} else if o.kind != "" {
		if o.item.Kind, ok = hook.ParseKind(o.kind); !ok {
			return usagef("--kind %q: want channel, write, meta, label, blob or memory", o.kind)
		}
	}
	return nil
}

// readInput reads a file that the command line names; - is standard input.
func (a *app) readInput(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(path)
}

// findingView is a finding as --json prints it.
type findingView struct {
	Rule  string `json:"rule"`
	Path  string `json:"path,omitempty"`
	Count int    `json:"count"`
}

func findingViews(r *plugins.Result) (views []findingView) {
	for _, f := range r.Findings {
		views = append(views, findingView{f.Rule, f.Path, f.Count})
	}
	return views
}

// ranView is the result of running a plugin in JSON: JSON output as it is, any other in base64.
type ranView struct {
	Unchanged bool            `json:"unchanged"`
	Output    json.RawMessage `json:"output,omitempty"`
	Raw       []byte          `json:"output_base64,omitempty"`
	Findings  []findingView   `json:"findings,omitempty"`
	Log       []string        `json:"log,omitempty"`
	Fuel      uint64          `json:"fuel"`
	Seconds   float64         `json:"seconds"`
}

func (a *app) pluginRun(ctx context.Context, l pipeline.Loader, b *bundle.Bundle, o *trialFlags) error {
	var over []byte
	var err error
	if o.config != "" {
		if over, err = os.ReadFile(o.config); err != nil {
			return fmt.Errorf("reading the configuration of the plugin: %w", err)
		}
	}
	config, err := b.Config(over)
	if err != nil {
		return err
	}
	p, err := pipeline.Load(ctx, l, b, config)
	if err != nil {
		return tried(err)
	}
	start := time.Now()
	r, err := trial.Call(ctx, p, o.item)
	v := ranView{Unchanged: r.Unchanged, Findings: findingViews(r), Fuel: r.Fuel, Seconds: time.Since(start).Seconds()}
	for _, l := range r.Logs {
		v.Log = append(v.Log, l.Text)
	}
	if !a.json || err != nil {
		a.ran(&v, r)
	}
	if err != nil {
		return tried(err)
	}
	out := r.Output
	if r.Unchanged {
		out = o.item.Data
	}
	if !a.json {
		_, err := a.out.Write(out)
		return wroteOut(err)
	}
	switch {
	case r.Unchanged:
	case json.Valid(out):
		v.Output = out
	default:
		v.Raw = out
	}
	return a.emit(v)
}

// ran prints everything except the output.
func (a *app) ran(v *ranView, r *plugins.Result) {
	for _, l := range v.Log {
		a.note("log: %s", printable(l))
	}
	if r.Dropped > 0 {
		a.note("log: %s more over the limit", count(r.Dropped, "line"))
	}
	for _, f := range v.Findings {
		at := ""
		if f.Path != "" {
			at = " at " + printable(f.Path)
		}
		a.note("found: %s %d×%s", printable(f.Rule), f.Count, at)
	}
	if r.Error != "" {
		a.note("its message: %s", printable(r.Error))
	}
	what := ""
	if v.Unchanged {
		what = "unchanged, "
	}
	a.note("%s%s, %s fuel", what, took(time.Duration(v.Seconds*float64(time.Second))), humanize.Comma(int64(v.Fuel)))
}
