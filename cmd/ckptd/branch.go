package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) branchCmd() *cobra.Command {
	list := func(cmd *cobra.Command, args []string) error {
		return a.with(cmd.Context(), false, func(s store) error {
			return a.branches(cmd.Context(), s.Thread(a.thread(args[0])))
		})
	}
	cmd := &cobra.Command{
		Use:               "branch THREAD",
		Short:             "List, set and delete the branches of a thread",
		Args:              cobra.ExactArgs(1),
		RunE:              list,
		ValidArgsFunction: a.completeThreads,
	}
	cmd.AddCommand(&cobra.Command{
		Use:               "list THREAD",
		Short:             "List the branches of a thread",
		Args:              cobra.ExactArgs(1),
		RunE:              list,
		ValidArgsFunction: a.completeThreads,
	}, &cobra.Command{
		Use:   "set THREAD NAME CHECKPOINT",
		Short: "Point a branch at a checkpoint, creating it if needed",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkBranch(args[1]); err != nil {
				return err
			}
			return a.with(cmd.Context(), false, func(s store) error {
				t := s.Thread(a.thread(args[0]))
				cp, err := find(cmd.Context(), t, args[2])
				if err != nil {
					return err
				}
				if err := t.SetBranch(cmd.Context(), args[1], engine.AtSeq(cp.Seq)); err != nil {
					return err
				}
				if a.json {
					return a.emit(branchView{args[1], cp.ID, cp.Seq})
				}
				return a.printf("branch %s ends at %s\n", printable(args[1]), a.headline(cp))
			})
		},
		ValidArgsFunction: a.completeThreads,
	}, &cobra.Command{
		Use:   "delete THREAD NAME",
		Short: "Delete a branch but keep its checkpoints",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), false, func(s store) error {
				if err := s.Thread(a.thread(args[0])).DeleteBranch(cmd.Context(), args[1]); err != nil {
					return err
				}
				if a.json {
					return a.emit(map[string]string{"deleted": args[1]})
				}
				return a.printf("deleted branch %s; its checkpoints remain\n", printable(args[1]))
			})
		},
		ValidArgsFunction: a.completeThreads,
	})
	return cmd
}

// branchView is a branch as --json prints it.
type branchView struct {
	Name    string `json:"name"`
	Head    string `json:"head"`
	HeadSeq uint64 `json:"head_seq"`
}

func (a *app) branches(ctx context.Context, t thread) error {
	branches, err := t.Branches(ctx)
	if err != nil {
		return err
	}
	for _, b := range branches {
		if a.json {
			err = a.emit(branchView{b.Name, b.HeadID, b.HeadSeq})
		} else {
			err = a.printf("%s  @%d  %s\n", pad(printable(b.Name), 20), b.HeadSeq, printable(b.HeadID))
		}
		if err != nil {
			return err
		}
	}
	if len(branches) == 0 && !a.json {
		a.note("thread %q has no branches", t.Ref().Thread)
	}
	return nil
}
