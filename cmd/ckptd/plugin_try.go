package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/bundle"
	"github.com/ckptd/ckptd/plugins/pipeline"
	"github.com/ckptd/ckptd/plugins/trial"
)

var errFixtures = errors.New("fail")

func (a *app) pluginTestCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "test [PATH]",
		Short: "Run a plugin's fixtures",
		Long: `Test runs every fixture in plugin.toml, without a store. The plugin must produce the expected output,
produce it again with the same fuel, and, if the manifest declares it idempotent, leave its own output
unchanged. PATH is the plugin's directory or archive (default: the working directory).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := bundle.Open(pathOf(args))
			if err != nil {
				return err
			}
			return withPluginLoader(func(l pipeline.Loader) error { return a.pluginTest(cmd.Context(), l, b) })
		},
	}
}

// outcomeView is the outcome of a fixture as --json prints it.
type outcomeView struct {
	Input   string        `json:"input"`
	Stage   string        `json:"stage"`
	Item    string        `json:"item"`
	Passed  bool          `json:"passed"`
	Problem string        `json:"problem,omitempty"`
	Error   string        `json:"error,omitempty"`
	Diff    []string      `json:"diff,omitempty"`
	Seconds float64       `json:"seconds"`
	Fuel    uint64        `json:"fuel"`
	Found   []findingView `json:"findings,omitempty"`
}

func (a *app) pluginTest(ctx context.Context, l pipeline.Loader, b *bundle.Bundle) error {
	outcomes, err := trial.FixturesIn(ctx, func(ctx context.Context, s plugins.Spec) (trial.Plugin, error) { return l.Load(ctx, s) }, b)
	if err != nil {
		return tried(err)
	}
	wide := 0
	for _, o := range outcomes {
		wide = max(wide, utf8.RuneCountInString(o.Fixture.Input))
	}
	failed := 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.Problem != "" {
			failed++
		}
		if err := a.outcome(o, wide); err != nil {
			return err
		}
	}
	switch {
	case len(outcomes) == 0 && !a.json:
		a.note("%s has no fixtures: add some to %s under [[fixtures]]", b.Name(), bundle.ManifestFile)
	case failed > 0:
		return fmt.Errorf("%d of %s of %s %w", failed, count(len(outcomes), "fixture"), b.Name(), errFixtures)
	case !a.json:
		return a.printf("%s of %s: all pass\n", count(len(outcomes), "fixture"), b.Name())
	}
	return nil
}

func (a *app) outcome(o *trial.Outcome, wide int) error {
	var lines []string
	if o.Problem != "" && o.Want != nil && o.Err == nil {
		got := o.Result.Output
		if o.Result.Unchanged {
			got = o.Item.Data
		}
		lines = lineDiff(readable(o.Want), readable(got))
		if slices.Equal(readable(o.Want), readable(got)) && !bytes.Equal(o.Want, got) {
			lines = []string{fmt.Sprintf("  the same JSON, written differently from byte %d on", differ(o.Want, got))}
		}
	}
	if a.json {
		return a.emit(outcomeView{o.Fixture.Input, o.Fixture.Stage.String(), o.Item.String(), o.Problem == "", o.Problem, o.Result.Error, lines,
			o.Took.Seconds(), o.Result.Fuel, findingViews(o.Result)})
	}
	mark := a.paint.with("32", "ok  ")
	if o.Problem != "" {
		mark = a.paint.with("31", "FAIL")
	}
	a.printf("%s  %s  %s  %s\n", mark, pad(printable(o.Fixture.Input), wide), printable(o.Fixture.Stage.String()+" "+o.Item.String()),
		a.paint.dim(took(o.Took)+", "+humanize.Comma(int64(o.Result.Fuel))+" fuel"))
	if o.Problem == "" {
		return nil
	}
	a.printf("      %s\n", printable(o.Problem))
	if o.Result.Error != "" {
		a.printf("      it says: %s\n", printable(o.Result.Error))
	}
	for _, l := range lines {
		text := printable(l)
		switch l[0] {
		case '-':
			text = a.paint.with("31", text)
		case '+':
			text = a.paint.with("32", text)
		}
		a.printf("      %s\n", text)
	}
	return nil
}

// differ returns where two texts begin to differ.
func differ(x, y []byte) int {
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

// readable returns the lines of a text, of JSON with one value a line.
func readable(text []byte) []string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") == nil {
		text = b.Bytes()
	}
	return strings.Split(string(text), "\n")
}

// mostLines is how much lineDiff compares line by line: it takes memory and time of the square of
// that.
const mostLines = 2000

// lineDiff returns the changes from want to got: lines that begin with "- ", "+ ", or "  " where
// they are the same in both, which are only there next to a difference.
func lineDiff(want, got []string) []string {
	head := 0
	for head < len(want) && head < len(got) && want[head] == got[head] {
		head++
	}
	tail := 0
	for tail < len(want)-head && tail < len(got)-head && want[len(want)-1-tail] == got[len(got)-1-tail] {
		tail++
	}
	x, y := want[head:len(want)-tail], got[head:len(got)-tail]
	var lines []string
	if head > 0 {
		lines = append(lines, "  "+want[head-1])
	}
	if len(x) > mostLines || len(y) > mostLines {
		lines = append(lines, prefixed("- ", x[:min(len(x), mostLines)])...)
		lines = append(lines, prefixed("+ ", y[:min(len(y), mostLines)])...)
	} else {
		lines = append(lines, changes(x, y)...)
	}
	if tail > 0 {
		lines = append(lines, "  "+want[len(want)-tail])
	}
	return lines
}

// changes is lineDiff by the longest common subsequence.
func changes(x, y []string) (lines []string) {
	common := make([][]int, len(x)+1) // of x[i:] and y[j:]
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			lines = append(lines, "  "+x[i])
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "- "+x[i])
			i++
		default:
			lines = append(lines, "+ "+y[j])
			j++
		}
	}
	return lines
}

func prefixed(prefix string, lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, prefix+l)
	}
	return out
}
