package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine/upkeep"
)

func (a *app) gcCmd() *cobra.Command {
	var o upkeep.GCOptions
	var grace string
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove unreferenced data, expired threads and checkpoints past retention",
		Long: `Gc works on one tenant: it applies the retention policy, deletes expired threads, and removes
records, parts and blobs that no checkpoint needs. It keeps parts younger than --grace, because a
save in progress may be about to refer to them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if grace != "" {
				if o.Grace, err = parseAge(grace); err != nil {
					return err
				}
			}
			return a.with(cmd.Context(), false, func(s store) error { return a.gc(cmd.Context(), s, o) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.DryRun, "dry-run", false, "report what would be removed, without removing it")
	f.BoolVar(&o.Compact, "compact", false, "rewrite the files to reclaim the space of deleted data")
	f.StringVar(&grace, "grace", "", "keep unreferenced parts younger than `AGE`")
	return cmd
}

// gcView is the report as --json prints it.
type gcView struct {
	DryRun       bool  `json:"dry_run"`
	Users        int   `json:"users"`
	Threads      int   `json:"threads"` // that are left
	Expired      int   `json:"expired"`
	Pruned       int   `json:"pruned"`
	Leftovers    int   `json:"leftovers"`
	IndexEntries int   `json:"index_entries"`
	Blobs        int   `json:"blobs"`
	Parts        int   `json:"parts"`
	Bytes        int64 `json:"bytes"`
	Compacted    bool  `json:"compacted"`
}

func (a *app) gc(ctx context.Context, s store, o upkeep.GCOptions) error {
	bar := newProgress(-1, "collecting", false)
	o.Progress = func(p upkeep.GCProgress) { bar.step("collecting " + p.Stage) }
	r, err := s.GC(ctx, a.tenant, o)
	bar.end()
	if err != nil {
		return err
	}
	v := gcView{o.DryRun, r.Users, r.Threads, r.Expired, r.Pruned, r.Leftovers, r.IndexEntries, r.Blobs, r.Parts, r.Bytes, r.Compacted}
	if a.json {
		return a.emit(v)
	}
	did := "collected"
	if v.DryRun {
		did = "would remove"
	}
	line := fmt.Sprintf("%s %s: %s, %s by the retention policy, %s, %s, %s and %s", did, size(v.Bytes), count(v.Expired, "expired thread"),
		count(v.Pruned, "checkpoint"), count(v.Blobs, "blob"), count(v.Parts, "part"), count(v.Leftovers, "leftover key"),
		plural(v.IndexEntries, "dead index entry", "dead index entries"))
	if v.Compacted {
		line += "; files rewritten"
	}
	return a.printf("%s\n%s of %s left\n", line, count(v.Threads, "thread"), count(v.Users, "user"))
}
