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
		Short: "Remove old checkpoints of threads",
		Long: `Prune removes the checkpoints that --keep-last, --older-than and --keep-labelled together do not keep. Heads of
branches and checkpoints labelled pin always stay. What others are encoded against stays on disk, out of sight, until
gc finds it unneeded; with --erase the survivors are encoded anew and nothing of the removed is left in the files when
the command ends.`,
		Example: "  ckptd prune THREAD --keep-last 10 --older-than 30d --keep-labelled --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == !all {
				return usagef("say which threads: by name or with --all")
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
				return usagef("say what to keep with --keep-last or --older-than; ckptd delete removes whole threads")
			}
			return a.with(cmd.Context(), false, func(s store) error { return a.prune(cmd.Context(), s, args, all, o) })
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "all threads of the user")
	f.IntVar(&o.KeepLast, "keep-last", 0, "keep the newest `N`")
	f.StringVar(&olderThan, "older-than", "", "remove only what is older than `AGE`: 90m, 24h, 30d, 2w")
	f.BoolVar(&o.KeepLabelled, "keep-labelled", false, "keep checkpoints with labels")
	f.BoolVar(&o.DryRun, "dry-run", false, "list what would be removed and remove nothing")
	f.BoolVar(&o.Erase, "erase", false, "leave nothing of what is removed in the files")
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
}

type pruneItemView struct {
	ID    string `json:"id"`
	Seq   uint64 `json:"seq"`
	Bytes int64  `json:"bytes"`
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
		v := pruneView{Thread: name, DryRun: dryRun, Removed: []pruneItemView{}, Kept: r.Kept, Ghosts: r.Ghosts, FreedBytes: r.FreedBytes}
		for _, item := range r.Removed {
			v.Removed = append(v.Removed, pruneItemView{item.ID, item.Seq, item.Bytes})
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
		line += "; nothing of them is left in the files"
	}
	if r.Ghosts > 0 {
		line += fmt.Sprintf("; %d stay on disk because others stand on them", r.Ghosts)
	}
	return a.printf("%s\n", line)
}
