package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) diffCmd() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "diff THREAD [FROM [TO]]",
		Short: "Show the changes between two checkpoints",
		Long: `Diff shows the changes from one checkpoint to another by channel and, within JSON, by path, as JSON
Patch operations (RFC 6902). TO defaults to the head, FROM to the checkpoint before TO.`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := "head~1", "head"
			if len(args) > 1 {
				from = args[1]
			}
			if len(args) > 2 {
				to = args[2]
			}
			return a.with(cmd.Context(), false, func(s store) error {
				t := s.Thread(a.thread(args[0]))
				d, err := diffOf(cmd.Context(), t, from, to)
				if err != nil {
					return err
				}
				if a.json {
					return a.emit(diffViewOf(d))
				}
				return a.showDiff(d, full)
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	cmd.Flags().BoolVar(&full, "full", false, "print values in full, however long")
	return cmd
}

func diffOf(ctx context.Context, t thread, from, to string) (*engine.Diff, error) {
	x, err := find(ctx, t, from)
	if err != nil {
		return nil, err
	}
	y, err := find(ctx, t, to)
	if err != nil {
		return nil, err
	}
	return t.Diff(ctx, engine.AtSeq(x.Seq), engine.AtSeq(y.Seq))
}

// diffView is a diff in JSON: only the differences.
type diffView struct {
	From     checkpointView    `json:"from"`
	To       checkpointView    `json:"to"`
	Fields   []fieldDiffView   `json:"fields,omitempty"`
	Labels   []fieldDiffView   `json:"labels,omitempty"`
	Meta     *valueDiffView    `json:"meta,omitempty"`
	Channels []channelDiffView `json:"channels"`
}

type fieldDiffView struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

type valueDiffView struct {
	Kind    string          `json:"kind"`
	OldSize int64           `json:"old_size"`
	NewSize int64           `json:"new_size"`
	Prefix  int64           `json:"common_prefix"`
	Suffix  int64           `json:"common_suffix"`
	Patch   json.RawMessage `json:"patch,omitempty"`
	NoPatch string          `json:"no_patch,omitempty"`
}

type channelDiffView struct {
	Name    string `json:"name"`
	OldType string `json:"old_type,omitempty"`
	NewType string `json:"new_type,omitempty"`
	valueDiffView
}

func diffViewOf(d *engine.Diff) diffView {
	value := func(v engine.ValueDiff) valueDiffView {
		return valueDiffView{string(v.Kind), v.OldSize, v.NewSize, v.Prefix, v.Suffix, v.Patch, v.NoPatch}
	}
	fields := func(diffs []engine.FieldDiff) (views []fieldDiffView) {
		for _, f := range diffs {
			views = append(views, fieldDiffView{f.Name, string(f.Kind), f.Old, f.New})
		}
		return views
	}
	v := diffView{From: viewOf(d.From), To: viewOf(d.To), Fields: fields(d.Fields), Labels: fields(d.Labels), Channels: []channelDiffView{}}
	if d.Meta.Kind != engine.Same {
		meta := value(d.Meta)
		v.Meta = &meta
	}
	for _, c := range d.Channels {
		if c.Kind != engine.Same {
			v.Channels = append(v.Channels, channelDiffView{c.Name, c.OldType, c.NewType, value(c.ValueDiff)})
		}
	}
	return v
}

func (a *app) showDiff(d *engine.Diff, full bool) error {
	a.printf("%s %s\n%s %s\n", a.paint.with("31", "-"), a.headline(d.From), a.paint.with("32", "+"), a.headline(d.To))
	for _, f := range slices.Concat(d.Fields, d.Labels) {
		a.printf("%s: %s → %s\n", a.paint.bold(printable(f.Name)), printable(f.Old), printable(f.New))
	}
	none := true
	if d.Meta.Kind != engine.Same {
		none = false
		if err := a.showValueDiff("metadata", d.Meta, full); err != nil {
			return err
		}
	}
	for _, c := range d.Channels {
		if c.Kind == engine.Same {
			continue
		}
		none = false
		title := a.paint.bold(printable(c.Name)) + " (" + printable(cmp.Or(c.NewType, c.OldType)) + ")"
		if err := a.showValueDiff(title, c.ValueDiff, full); err != nil {
			return err
		}
	}
	if none {
		return a.printf("no channels differ\n")
	}
	return nil
}

func (a *app) showValueDiff(title string, v engine.ValueDiff, full bool) error {
	line := fmt.Sprintf("\n%s %s: %d → %d bytes", title, v.Kind, v.OldSize, v.NewSize)
	if v.Kind == engine.Changed {
		line += fmt.Sprintf(", the first %d and the last %d are the same", v.Prefix, v.Suffix)
	}
	a.printf("%s\n", line)
	if v.NoPatch != "" {
		a.printf("  no patch: %s\n", printable(v.NoPatch))
	}
	return a.showPatch(v.Patch, full)
}

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

func (op *operation) text() string {
	path := op.Path
	if path == "" {
		path = "(all)"
	}
	if op.From != "" {
		return path + " from " + op.From
	}
	return strings.TrimSuffix(path+" "+string(op.Value), " ")
}

func operations(patch []byte) ([]operation, error) {
	var ops []operation
	if len(patch) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, fmt.Errorf("reading the patch: %w", err)
	}
	return ops, nil
}

// showPatch prints the operations of a JSON patch, one a line.
func (a *app) showPatch(patch []byte, full bool) error {
	ops, err := operations(patch)
	if err != nil {
		return err
	}
	colours := map[string]string{"add": "32", "remove": "31", "replace": "33"}
	for _, op := range ops {
		text := op.text()
		if !full {
			text = cut(text, 160)
		}
		if err := a.printf("  %s %s\n", a.paint.with(colours[op.Op], pad(op.Op, 7)), printable(text)); err != nil {
			return err
		}
	}
	return nil
}
