package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) listCmd() *cobra.Command {
	var o engine.ListByIDOptions
	var namespace, meta string
	cmd := &cobra.Command{
		Use:   "list [THREAD]",
		Short: "List checkpoints by id, greatest first",
		Long: `List shows the checkpoints of a thread, or of all threads of the user, in all namespaces, in the
order of their ids: bytewise, the greatest first. That is the order in which LangGraph goes by its
checkpoints. (ckptd log shows one namespace in the order of saves.)`,
		Example: `  ckptd list THREAD --namespace "" --meta '{"source": "loop"}' -n 10`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Limit < 0 {
				return usagef("--limit %d is negative", o.Limit)
			}
			if len(args) == 1 {
				o.Thread = args[0]
			}
			if cmd.Flags().Changed("namespace") {
				o.Namespace = &namespace
			}
			o.Meta = []byte(meta)
			return a.with(cmd.Context(), false, func(s store) error { return a.list(cmd.Context(), s, o) })
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.StringVar(&namespace, "namespace", "", "only namespace `NAME`; \"\" is the thread's own")
	f.StringVar(&o.ID, "id", "", "only checkpoints with this `ID`")
	f.StringVar(&o.Before, "before", "", "only ids smaller than `ID`, which need not exist")
	f.StringVar(&meta, "meta", "", "only checkpoints whose metadata contains this JSON `OBJECT`")
	f.IntVarP(&o.Limit, "limit", "n", 0, "show at most `N` checkpoints")
	return cmd
}

func (a *app) list(ctx context.Context, s store, o engine.ListByIDOptions) error {
	n := 0
	for e, err := range s.User(a.tenant, a.user).ListByID(ctx, o) {
		if err != nil {
			return err
		}
		n++
		cp := e.Checkpoint
		if a.json {
			err = a.emit(viewOf(cp))
		} else {
			name := printable(cp.Ref.Thread)
			if cp.Ref.Namespace != "" {
				name += "  " + printable(cp.Ref.Namespace)
			}
			err = a.printf("%s  %s  %s\n", printable(cp.ID), name, a.headline(cp))
		}
		if err != nil {
			return err
		}
	}
	if n == 0 && !a.json {
		a.note("no checkpoints match")
	}
	return nil
}
