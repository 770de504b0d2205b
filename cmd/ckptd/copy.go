package main

import (
	"github.com/spf13/cobra"
)

func (a *app) copyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "copy THREAD TO",
		Short: "Copy a thread and its whole history to a new thread",
		Long: `Copy copies a thread with all its checkpoints, branches and namespaces to a new thread TO of the same
user. TO must not exist. Checkpoints keep their ids, seqs and times.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), false, func(s store) error {
				if err := s.Thread(a.thread(args[0])).Copy(cmd.Context(), a.thread(args[1])); err != nil {
					return err
				}
				if a.json {
					return a.emit(map[string]string{"thread": args[0], "copy": args[1]})
				}
				return a.printf("copied thread %s to %s\n", printable(args[0]), printable(args[1]))
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
}
