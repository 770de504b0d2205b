package main

import (
	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) forkCmd() *cobra.Command {
	var branch string
	cmd := &cobra.Command{
		Use:   "fork THREAD CHECKPOINT NAME",
		Short: "Start a new branch at a checkpoint",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 && branch == "" {
				branch = args[2]
			} else if len(args) == 3 || branch == "" {
				return usagef("name the branch once, as the last argument or with --branch")
			}
			if err := checkBranch(branch); err != nil {
				return err
			}
			return a.with(cmd.Context(), false, func(s store) error {
				t := s.Thread(a.thread(args[0]))
				from, err := find(cmd.Context(), t, args[1])
				if err != nil {
					return err
				}
				cp, err := t.Fork(cmd.Context(), engine.AtSeq(from.Seq), branch)
				if err != nil {
					return err
				}
				if a.json {
					return a.emit(viewOf(cp))
				}
				return a.printf("branch %s starts at %s\n", printable(branch), a.headline(cp))
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	cmd.Flags().StringVar(&branch, "branch", "", "`name` of the new branch")
	return cmd
}
