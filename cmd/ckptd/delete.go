package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) deleteCmd() *cobra.Command {
	var run string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete THREAD...",
		Short: "Delete threads, a namespace of them, or all checkpoints of a run",
		Long: `Delete deletes threads with all their checkpoints, branches and namespaces or, with --namespace, only
that namespace of each thread. A thread that holds nothing else is deleted with it. On a terminal
delete asks for confirmation; elsewhere it requires --yes.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if given := cmd.Flags().Changed("run"); given == (len(args) > 0) || given && run == "" {
				return usagef("nothing to delete: name threads, or a run with --run")
			}
			return a.with(cmd.Context(), false, func(s store) error {
				if run != "" {
					return a.deleteRun(cmd.Context(), s, run, yes)
				}
				return a.deleteThreads(cmd.Context(), s, args, yes)
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	cmd.Flags().StringVar(&run, "run", "", "delete the checkpoints of run `ID` in all threads of the user")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// deletion is the result of delete in JSON.
type deletion struct {
	Thread     string `json:"thread,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Generation uint64 `json:"generation,omitempty"` // of the thread or namespace that could be begun with this name now
	Run        string `json:"run,omitempty"`
	Removed    int    `json:"removed,omitempty"`
}

func (a *app) deleteThreads(ctx context.Context, s store, names []string, yes bool) error {
	for _, name := range names {
		// All must be there before any goes.
		head, err := find(ctx, s.Thread(a.thread(name)), "")
		if err != nil {
			return err
		}
		if !yes {
			a.note("thread %s: %s", printable(name), a.headline(head))
		}
	}
	what := count(len(names), "thread")
	if a.namespace != "" {
		what = fmt.Sprintf("namespace %s of %s", printable(a.namespace), what)
	}
	if err := a.confirm(yes, "delete "+what+" for good"); err != nil {
		return err
	}
	for _, name := range names {
		generation, err := s.Thread(a.thread(name)).Delete(ctx)
		if err != nil {
			return err
		}
		switch {
		case a.json:
			err = a.emit(deletion{Thread: name, Namespace: a.namespace, Generation: generation})
		case a.namespace != "":
			err = a.printf("deleted namespace %s of thread %s\n", printable(a.namespace), printable(name))
		default:
			err = a.printf("deleted thread %s\n", printable(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) deleteRun(ctx context.Context, s store, run string, yes bool) error {
	if err := a.confirm(yes, fmt.Sprintf("delete all checkpoints of run %q for good", run)); err != nil {
		return err
	}
	n, lost, err := s.User(a.tenant, a.user).DeleteRun(ctx, run)
	if err != nil {
		return err
	}
	for _, l := range lost {
		a.note("thread %s: checkpoint %s lost the history of %s", printable(l.Thread), printable(l.ID), printable(strings.Join(l.Channels, ", ")))
	}
	if n == 0 && len(lost) == 0 {
		return fmt.Errorf("checkpoints of run %q: %w", run, engine.ErrNotFound)
	}
	if a.json {
		return a.emit(deletion{Run: run, Removed: n})
	}
	return a.printf("deleted %s of run %s\n", count(n, "checkpoint"), printable(run))
}

// confirm asks for confirmation on a terminal. Without one, --yes is required.
func (a *app) confirm(yes bool, what string) error {
	if yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return usagef("this would %s: confirm with --yes", what)
	}
	fmt.Fprintf(a.errOut, "%s? [y/N] ", what)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errDeclined
	}
	return nil
}
