package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) showCmd() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show THREAD [CHECKPOINT]",
		Short: "Show the head state, or the state of a checkpoint",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.raw && a.json {
				return usagef("--raw and --json cannot be used together")
			}
			name, err := o.checkpoint(args[1:])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), false, func(s store) error {
				return a.show(cmd.Context(), s.Thread(a.thread(args[0])), name, o)
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.StringVar(&o.at, "at", "", "show `CHECKPOINT`")
	f.Uint64Var(&o.seq, "seq", 0, "show the checkpoint with seq `N`")
	f.StringVar(&o.branch, "branch", "", "show the head of branch `NAME`")
	f.StringVar(&o.channel, "channel", "", "show only channel `NAME`")
	f.Uint64Var(&o.schema, "schema", 0, "migrate the state in memory to schema version `N`")
	f.BoolVar(&o.down, "down", false, "with --schema, allow reverse steps from a newer version")
	f.BoolVar(&o.raw, "raw", false, "print only the channel's bytes")
	f.BoolVar(&o.header, "header", false, "show only the checkpoint's header, without channels")
	return cmd
}

type showOptions struct {
	at, branch, channel string
	seq, schema         uint64
	raw, header, down   bool
}

// checkpoint returns the one name for the checkpoint that the command line gives in one of four
// ways.
func (o *showOptions) checkpoint(args []string) (string, error) {
	names := args
	if o.at != "" {
		names = append(names, o.at)
	}
	if o.seq != 0 {
		names = append(names, fmt.Sprintf("@%d", o.seq))
	}
	if o.branch != "" {
		names = append(names, o.branch)
	}
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	return "", usagef("the checkpoint is given in %d ways: give it once", len(names))
}

func (a *app) show(ctx context.Context, t thread, name string, o showOptions) error {
	cp, err := find(ctx, t, name)
	if err != nil {
		return err
	}
	if !o.header || o.schema != 0 {
		options := engine.LoadOptions{Schema: o.schema, Down: o.down, HeadersOnly: o.header}
		if o.channel != "" {
			options.Channels = []string{o.channel}
		}
		if cp, err = t.Load(ctx, engine.AtSeq(cp.Seq), options); err != nil {
			return err
		}
	}
	if o.channel != "" {
		ch, ok := cp.Channel(o.channel)
		if !ok {
			return fmt.Errorf("channel %q of @%d: %w", o.channel, cp.Seq, engine.ErrNotFound)
		}
		cp.Channels = []engine.Channel{ch}
	}
	switch {
	case o.raw && len(cp.Channels) != 1:
		return usagef("--raw prints one channel, and @%d has %d: choose one with --channel", cp.Seq, len(cp.Channels))
	case o.raw:
		_, err = a.out.Write(cp.Channels[0].Data)
		return wroteOut(err)
	case a.json:
		return a.emit(viewOf(cp))
	}
	if err := a.showHeader(cp); err != nil {
		return err
	}
	for _, ch := range cp.Channels {
		if err := a.showChannel(ch, o.header); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showHeader(cp *engine.Checkpoint) error {
	line := func(name, value string) {
		if value != "" {
			a.printf("%s %s\n", a.paint.dim(fmt.Sprintf("%-8s", name)), value)
		}
	}
	a.printf("%s  %s\n", a.paint.bold(printable(cp.Ref.Thread)), a.headline(cp))
	line("id", printable(cp.ID))
	if cp.ParentSeq > 0 {
		line("parent", fmt.Sprintf("@%d %s", cp.ParentSeq, printable(cp.Parent)))
	} else {
		line("parent", printable(cp.Parent))
	}
	line("branch", printable(cp.Branch))
	line("run", printable(cp.RunID))
	line("delta", printable(strings.Join(cp.Delta, ", ")))
	line("kind", printable(cp.Kind))
	if cp.SchemaVersion > 0 {
		line("schema", fmt.Sprint(cp.SchemaVersion))
	}
	if m := cp.Migrated; m != nil {
		for i, step := range m.Steps {
			line("migrated", fmt.Sprintf("%d of %d from %d to %d: %s", i+1, len(m.Steps), m.From, m.To, printable(step)))
		}
	}
	for _, b := range cp.Blobs {
		line("blob", b.String())
	}
	for _, h := range cp.Hooks {
		line("hook", fmt.Sprintf("%s %x", printable(h.Name), h.Digest[:6]))
	}
	line("hash", hex.EncodeToString(cp.Hash[:]))
	line("size", fmt.Sprintf("%s, stored in %s; restored from %s", size(cp.Cost.State), stored(cp.Cost), count(cp.Cost.Depth, "record")))
	if len(cp.Meta) > 0 {
		line("meta", printable(cut(string(cp.Meta), 400)))
	}
	return nil
}

// showChannel prints a channel: JSON indented, other text as it is, anything else as a dump of its
// beginning.
func (a *app) showChannel(ch engine.Channel, headerOnly bool) error {
	title := fmt.Sprintf("%s (%s, %s", printable(ch.Name), printable(ch.Type), size(ch.Size))
	if ch.Rewritten {
		title += ", rewritten by hooks"
	}
	title += ")"
	if headerOnly {
		return a.printf("%s %s\n", a.paint.dim(fmt.Sprintf("%-8s", "channel")), title)
	}
	var pretty bytes.Buffer
	text := ""
	const most = 512
	switch {
	case ch.Type == "json" && json.Indent(&pretty, ch.Data, "", "  ") == nil:
		text = printableText(pretty.String())
	case utf8.Valid(ch.Data):
		text = printableText(string(ch.Data))
	case len(ch.Data) > most:
		text = hex.Dump(ch.Data[:most]) + fmt.Sprintf("… %d bytes more, --raw writes them", len(ch.Data)-most)
	default:
		text = hex.Dump(ch.Data)
	}
	return a.printf("\n%s\n%s\n", a.paint.bold(title), text)
}
