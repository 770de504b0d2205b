package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

func (a *app) pruneCmd() *cobra.Command {
	var o upkeep.PruneOptions
	var olderThan string
	var all bool
	cmd := &cobra.Command{
		Use:   "prune THREAD...",
		Short: "Remove old checkpoints from threads",
		Long: `Prune removes the checkpoints that none of --keep-last, --older-than and --keep-labelled keeps. It
always keeps branch heads and checkpoints labelled pin. A removed checkpoint that others are encoded
against stays on disk, hidden, until gc finds that nothing needs it. With --erase, prune re-encodes
the remaining checkpoints and leaves no trace of the removed ones in the files.`,
		Example: "  ckptd prune THREAD --keep-last 10 --older-than 30d --keep-labelled --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == !all {
				return usagef("no threads given: name them or use --all")
			}
			if o.KeepLast < 0 {
				return usagef("--keep-last %d is negative", o.KeepLast)
			}
			if olderThan != "" {
				var err error
				if o.OlderThan, err = parseAge(olderThan); err != nil {
					return err
				}
			}
			if o.KeepLast == 0 && o.OlderThan == 0 {
				return usagef("no limit given: set --keep-last or --older-than (to remove whole threads, use ckptd delete)")
			}
			return a.with(cmd.Context(), false, func(s store) error { return a.prune(cmd.Context(), s, args, all, o) })
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "all threads of the user")
	f.IntVar(&o.KeepLast, "keep-last", 0, "keep the newest `N` checkpoints")
	f.BoolVar(&o.ByID, "by-id", false, "the newest checkpoints are those with the greatest ids, instead of the latest saves")
	f.StringVar(&olderThan, "older-than", "", "remove only checkpoints older than `AGE`: 90m, 24h, 30d, 2w")
	f.BoolVar(&o.KeepLabelled, "keep-labelled", false, "keep labelled checkpoints")
	f.BoolVar(&o.DryRun, "dry-run", false, "list what would be removed, without removing it")
	f.BoolVar(&o.Erase, "erase", false, "erase all traces of the removed checkpoints from the files")
	return cmd
}

// pruneView is the report on a thread as --json prints it.
type pruneView struct {
	Thread     string          `json:"thread"`
	DryRun     bool            `json:"dry_run"`
	Removed    []pruneItemView `json:"removed"`
	Kept       int             `json:"kept"`
	Ghosts     int             `json:"ghosts"`
	FreedBytes int64           `json:"freed_bytes"`
	Namespaces []string        `json:"namespaces,omitempty"` // removed with the checkpoints that they hung on
}

type pruneItemView struct {
	Namespace string `json:"namespace,omitempty"`
	ID        string `json:"id"`
	Seq       uint64 `json:"seq"`
	Bytes     int64  `json:"bytes"`
}

func (a *app) prune(ctx context.Context, s store, names []string, all bool, o upkeep.PruneOptions) error {
	if all {
		for info, err := range s.User(a.tenant, a.user).Threads(ctx, engine.ThreadOptions{}) {
			if err != nil {
				return err
			}
			names = append(names, info.Ref.Thread)
		}
	}
	bar := newProgress(int64(len(names)), "pruning", false)
	defer bar.end()
	for _, name := range names {
		r, err := s.Thread(a.thread(name)).Prune(ctx, o)
		if err != nil {
			return fmt.Errorf("pruning thread %q: %w", name, err)
		}
		bar.add(1)
		bar.clear()
		if err := a.pruned(name, r, o.DryRun); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) pruned(name string, r *upkeep.PruneReport, dryRun bool) error {
	if a.json {
		v := pruneView{Thread: name, DryRun: dryRun, Removed: []pruneItemView{}, Kept: r.Kept, Ghosts: r.Ghosts, FreedBytes: r.FreedBytes, Namespaces: r.Namespaces}
		for _, item := range r.Removed {
			v.Removed = append(v.Removed, pruneItemView{item.Namespace, item.ID, item.Seq, item.Bytes})
		}
		return a.emit(v)
	}
	did := "removed"
	if dryRun {
		did = "would remove"
		for _, item := range r.Removed {
			a.printf("  @%-5d %9s  %s\n", item.Seq, size(item.Bytes), printable(item.ID))
		}
	}
	line := fmt.Sprintf("%s: %s %s, %s freed, %d kept", printable(name), did, count(len(r.Removed), "checkpoint"), size(r.FreedBytes), r.Kept)
	if r.Compacted {
		line += "; erased from the files"
	}
	if n := len(r.Namespaces); n > 0 {
		line += fmt.Sprintf("; %s %s with them", did, count(n, "namespace"))
	}
	if r.Ghosts > 0 {
		line += fmt.Sprintf("; %d kept on disk, hidden, as a base for others", r.Ghosts)
	}
	return a.printf("%s\n", line)
}
