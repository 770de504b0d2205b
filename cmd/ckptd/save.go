package main

import (
	"context"
	"errors"
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
		Short: "Save files as a checkpoint",
		Long: `Save adds a checkpoint to a thread and returns once it is durable. Each CHANNEL=FILE sets a channel;
- is standard input. CHANNEL:TYPE=FILE sets its type; otherwise FILE.json is json and any other file
bytes. The channels are the whole state or, with --keep, changes to the parent's. The parent is the
newest checkpoint, on any branch, unless --parent or --branch says otherwise.

With --expect, the save fails with exit code 4 unless the newest checkpoint has that seq. Saving the
same content under the same --id again changes nothing; other content replaces that checkpoint, which
the command reports.`,
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
	f.BoolVar(&o.keep, "keep", false, "keep the parent's channels that are not given")
	f.Uint64Var(&o.expect, "expect", 0, "save only if the head has seq `N` (0: if the thread is empty)")
	f.StringVar(&o.id, "id", "", "checkpoint `ID` (default: a new one); replaces the checkpoint that has it")
	f.StringVar(&o.parent, "parent", "", "parent `CHECKPOINT` (default: the head)")
	f.StringVar(&o.branch, "branch", "", "extend branch `NAME`, creating it if needed")
	f.Int64Var(&o.step, "step", 0, "step number `N`")
	f.StringVar(&o.status, "status", "", "`STATUS`: any text, usually "+statusList+" (default running)")
	f.StringVar(&o.kind, "kind", "", "`KIND` of the thread: the agent that produced it (default: the parent's)")
	f.Uint64Var(&o.schema, "schema", 0, "schema version `N` of the state")
	f.StringVar(&o.run, "run", "", "run `ID`")
	f.StringArrayVar(&o.labels, "label", nil, "add the label `KEY=VALUE` (repeatable)")
	f.StringVar(&o.meta, "meta", "", "metadata as `JSON`, or @FILE to read it from FILE")
	f.StringArrayVar(&o.blobs, "blob", nil, "blob `ID` that the checkpoint refers to (repeatable)")
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
		return engine.Draft{}, usagef("no CHANNEL=FILE is given, so the state would be empty: add one, or --keep the parent's channels")
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
			return nil, usagef("standard input can be used for one channel only")
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
	var before *engine.Checkpoint
	if d.ID != "" {
		var err error
		before, err = t.Load(ctx, engine.At(d.ID), engine.LoadOptions{HeadersOnly: true})
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
	}
	newBranch := false
	if d.Branch != "" {
		_, err := t.Load(ctx, engine.HeadOf(d.Branch), engine.LoadOptions{HeadersOnly: true})
		newBranch = errors.Is(err, engine.ErrNotFound)
	}
	cp, err := t.Save(ctx, d)
	if e, ok := errors.AsType[*engine.ConflictError](err); ok && d.Expect != (engine.Expect{}) {
		return fmt.Errorf("%w: --expect %d would match it", err, e.HeadSeq)
	}
	if err != nil {
		return err
	}
	v := savedView{checkpointView: viewOf(cp)}
	if before != nil && before.Seq != cp.Seq { // a replacement gets a seq of its own
		v.Replaced = before.Seq
		a.note("replaced @%d, which had this id and other content", v.Replaced)
	}
	if newBranch { // which a mistyped name makes, too
		a.note("created branch %s", printable(d.Branch))
	}
	if a.json {
		return a.emit(v)
	}
	return a.printf("%s\n%s\n", a.headline(cp), printable(cp.ID))
}

// savedView is a saved checkpoint as --json prints it.
type savedView struct {
	checkpointView
	Replaced uint64 `json:"replaced,omitempty"` // seq of the checkpoint whose id it took over
}
