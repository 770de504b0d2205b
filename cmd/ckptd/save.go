package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) saveCmd() *cobra.Command {
	var o saveOptions
	cmd := &cobra.Command{
		Use:   "save THREAD [CHANNEL=FILE]...",
		Short: "Save a checkpoint whose channels are the contents of files",
		Long: `Save adds a checkpoint to a thread and ends when it is durable. Each CHANNEL=FILE sets a channel; - is standard input.
CHANNEL:TYPE=FILE says of what type it is, else a FILE.json is json and anything else bytes. The channels are the whole
state or, with --keep, the changes to the parent's. Without --parent or --branch it goes on from the newest checkpoint,
whatever branch that is on: to go on from an older one, name it with --parent.

With --expect the save fails with exit code 4 unless the newest checkpoint has that seq. Saving the same --id with the
same content again changes nothing.`,
		Example: `  echo '{"messages":[]}' | ckptd save support-42 state:json=- --step 1`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := o.draft(cmd, a.in, args[1:])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), true, func(s store) error {
				return a.save(cmd.Context(), s.Thread(a.thread(args[0])), d, o.parent)
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.BoolVar(&o.keep, "keep", false, "keep what is not given from the parent")
	f.Uint64Var(&o.expect, "expect", 0, "only if the newest checkpoint has seq `N`; 0: if there is none")
	f.StringVar(&o.id, "id", "", "`ID` of the checkpoint instead of a new one")
	f.StringVar(&o.parent, "parent", "", "`CHECKPOINT` to save on instead of the head")
	f.StringVar(&o.branch, "branch", "", "branch `NAME` to extend; it is made if it does not exist")
	f.Int64Var(&o.step, "step", 0, "number `N` of the step")
	f.StringVar(&o.status, "status", "", "`STATUS`, such as running (the default), waiting or succeeded")
	f.StringVar(&o.kind, "kind", "", "`KIND` of the thread: the agent that it is a run of (default: the parent's)")
	f.Uint64Var(&o.schema, "schema", 0, "schema version `N` of the state")
	f.StringVar(&o.run, "run", "", "`ID` of the run")
	f.StringArrayVar(&o.labels, "label", nil, "label `KEY=VALUE` (repeatable)")
	f.StringVar(&o.meta, "meta", "", "metadata: `JSON`, or @FILE with it")
	f.StringArrayVar(&o.blobs, "blob", nil, "`ID` of a blob that the checkpoint keeps (repeatable)")
	return cmd
}

type saveOptions struct {
	keep                                        bool
	expect, schema                              uint64
	step                                        int64
	id, parent, branch, status, kind, run, meta string
	labels, blobs                               []string
}

// draft makes the draft that the command line asks for, but for its parent.
func (o *saveOptions) draft(cmd *cobra.Command, in io.Reader, channels []string) (engine.Draft, error) {
	if len(channels) == 0 && !o.keep {
		return engine.Draft{}, usagef("no CHANNEL=FILE is given: the state would be empty; --keep keeps the parent's")
	}
	d := engine.Draft{ID: o.id, Branch: o.branch, Step: o.step, Status: o.status, Kind: o.kind, SchemaVersion: o.schema, RunID: o.run, Keep: o.keep}
	if cmd.Flags().Changed("expect") {
		d.Expect = engine.ExpectHead(o.expect)
	}
	if o.branch != "" {
		if err := checkBranch(o.branch); err != nil {
			return d, err
		}
	}
	var err error
	if d.Labels, err = parseLabels(o.labels); err != nil {
		return d, err
	}
	for _, name := range o.blobs {
		id, err := engine.ParseBlobID(name)
		if err != nil {
			return d, err
		}
		d.Blobs = append(d.Blobs, id)
	}
	if file, ok := strings.CutPrefix(o.meta, "@"); ok {
		d.Meta, err = readInput(file, in)
	} else if o.meta != "" {
		d.Meta = []byte(o.meta)
	}
	if err != nil {
		return d, err
	}
	d.Channels, err = readChannels(channels, in)
	return d, err
}

func readChannels(args []string, in io.Reader) (changes []engine.Change, err error) {
	stdin := false
	for _, arg := range args {
		name, file, ok := strings.Cut(arg, "=")
		name, kind, typed := strings.Cut(name, ":")
		if !ok || name == "" || file == "" || typed && kind == "" {
			return nil, usagef("%q: want CHANNEL=FILE or CHANNEL:TYPE=FILE", arg)
		}
		if file == "-" && stdin {
			return nil, usagef("standard input can be only one channel")
		}
		stdin = stdin || file == "-"
		if !typed && strings.EqualFold(filepath.Ext(file), ".json") {
			kind = "json"
		}
		c := engine.Change{Name: name, Type: kind}
		if c.Data, err = readInput(file, in); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// readInput reads a file, or standard input if that is its name.
func readInput(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		return os.ReadFile(file)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	return data, nil
}

func (a *app) save(ctx context.Context, t thread, d engine.Draft, parent string) error {
	if parent != "" {
		cp, err := find(ctx, t, parent)
		if err != nil {
			return err
		}
		d.Parent = cp.ID
	}
	cp, err := t.Save(ctx, d)
	if err != nil {
		return err
	}
	if a.json {
		return a.emit(viewOf(cp))
	}
	return a.printf("%s\n%s\n", a.headline(cp), printable(cp.ID))
}
