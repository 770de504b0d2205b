package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

// watchAttempts is the number of attempts of a watch to reconnect: for about two minutes.
const watchAttempts = 30

func (a *app) watchCmd() *cobra.Command {
	var since, cursor string
	var whole bool
	var limit int
	cmd := &cobra.Command{
		Use:   "watch [THREAD]",
		Short: "Stream checkpoints as they are saved",
		Long: `Watch prints every checkpoint of a thread, a user or a tenant once it is durable, until interrupted.
Use it with --server: while a command has a store open, nothing else can save to it. With --json,
each event has a cursor; --cursor resumes after it without missing an event.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope := engine.WatchScope{Tenant: a.tenant, User: a.user}
			if whole {
				scope.User = ""
			}
			if len(args) == 1 {
				scope.Thread = args[0]
			}
			from := engine.Cursor(cursor)
			switch {
			case whole && len(args) == 1:
				return usagef("--whole-tenant cannot be used with a thread")
			case limit < 0:
				return usagef("--limit %d is negative", limit)
			case since != "" && cursor != "":
				return usagef("--since and --cursor cannot be used together")
			case since != "":
				at, err := parseTime(since, time.Now())
				if err != nil {
					return err
				}
				from = engine.CursorAt(at)
			}
			if err := a.knock(cmd.Context()); err != nil {
				return err
			}
			a.server.attempts = watchAttempts
			return a.with(cmd.Context(), false, func(s store) error { return a.watch(cmd.Context(), s, scope, from, limit) })
		},
		ValidArgsFunction: a.completeThreads,
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "start with checkpoints saved at or after `TIME`: 24h, 30d, 2026-01-31, RFC 3339")
	f.StringVar(&cursor, "cursor", "", "resume after the event with this `CURSOR`")
	f.BoolVar(&whole, "whole-tenant", false, "all users of the tenant")
	f.IntVarP(&limit, "limit", "n", 0, "stop after `N` events")
	return cmd
}

// knock makes sure that the server, if there is one, is there and lets us in, before it is waited
// for with patience.
func (a *app) knock(ctx context.Context) error {
	if a.server.addr == "" {
		return nil
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.WhoAmI(ctx)
	return err
}

// eventView is an event as --json prints it.
type eventView struct {
	Tenant     string        `json:"tenant"`
	User       string        `json:"user"`
	Thread     string        `json:"thread"`
	Namespace  string        `json:"namespace,omitempty"`
	Generation uint64        `json:"generation"`
	ID         string        `json:"id"`
	Seq        uint64        `json:"seq"`
	Time       time.Time     `json:"time"`
	Step       int64         `json:"step"`
	Status     string        `json:"status"`
	Before     string        `json:"before,omitempty"` // status of the parent
	Cursor     engine.Cursor `json:"cursor"`
}

func (a *app) watch(ctx context.Context, s store, scope engine.WatchScope, from engine.Cursor, limit int) error {
	n := 0
	for e, err := range s.Watch(ctx, scope, from) {
		if err != nil {
			return err
		}
		at := time.UnixMilli(e.Time)
		if a.json {
			err = a.emit(eventView{e.Ref.Tenant, e.Ref.User, e.Ref.Thread, e.Ref.Namespace, e.Generation, e.ID, e.Seq, at.UTC(), e.Step, e.Status, e.Before, e.Cursor})
		} else {
			name := printable(e.Ref.Thread)
			if scope.User == "" {
				name = printable(e.Ref.User) + "  " + name
			}
			if e.Ref.Namespace != "" {
				name += "  " + printable(e.Ref.Namespace)
			}
			status := a.paint.status(printable(e.Status))
			if e.Changed() && e.Before != "" {
				status = printable(e.Before) + " → " + status
			}
			err = a.printf("%s  %s  %s  step %d  %s\n", at.Local().Format("2006-01-02 15:04:05"), name, a.paint.bold(fmt.Sprintf("@%d", e.Seq)), e.Step, status)
		}
		if err == nil {
			err = wroteOut(a.out.Flush()) // somebody waits for it
		}
		if n++; err != nil || n == limit {
			return err
		}
	}
	return nil
}
