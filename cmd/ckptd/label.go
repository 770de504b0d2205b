package main

import (
	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) labelCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "label THREAD CHECKPOINT KEY=VALUE...",
		Short: "Set or remove labels of a checkpoint",
		Long: `Label sets labels of a checkpoint without changing its other labels or its id; KEY= removes a label.
A checkpoint with the label pin is never pruned.`,
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			labels, err := parseLabels(args[2:])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), false, func(s store) error {
				t := s.Thread(a.thread(args[0]))
				cp, err := find(cmd.Context(), t, args[1])
				if err != nil {
					return err
				}
				if cp, err = t.SetLabels(cmd.Context(), engine.AtSeq(cp.Seq), labels); err != nil {
					return err
				}
				if a.json {
					return a.emit(viewOf(cp))
				}
				return a.printf("%s\n", a.headline(cp))
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
}
