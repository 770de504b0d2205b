package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) queryCmd() *cobra.Command {
	var o queryOptions
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Find checkpoints by label, status, run, step and time",
		Long: `Query finds the checkpoints of a user, or of all users of a tenant, that match all given flags. It
decrypts only matches.`,
		Example: "  ckptd query --whole-tenant --status failed --step 5 --since 24h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := o.query(cmd, time.Now())
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), false, func(s store) error { return a.query(cmd.Context(), s, q, o.tenant) })
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.labels, "label", nil, "with the label `KEY=VALUE` (repeatable)")
	f.StringVar(&o.status, "status", "", "with this `STATUS`: any text, usually "+statusList)
	f.StringVar(&o.run, "run", "", "of run `ID`")
	f.Int64Var(&o.step, "step", 0, "of step `N`")
	f.Int64Var(&o.minStep, "min-step", 0, "of step `N` or later")
	f.Int64Var(&o.maxStep, "max-step", 0, "of step `N` or earlier")
	f.StringVar(&o.since, "since", "", "saved at or after `TIME`: 24h, 30d, 2026-01-31, RFC 3339")
	f.StringVar(&o.until, "until", "", "saved before `TIME`")
	f.IntVarP(&o.limit, "limit", "n", 0, "show at most `N` checkpoints")
	f.BoolVar(&o.tenant, "whole-tenant", false, "of all users of the tenant")
	return cmd
}

type queryOptions struct {
	labels                    []string
	status, run, since, until string
	step, minStep, maxStep    int64
	limit                     int
	tenant                    bool
}

func (o *queryOptions) query(cmd *cobra.Command, now time.Time) (engine.Query, error) {
	var q engine.Query
	var err error
	q.Status, q.RunID, q.Limit = o.status, o.run, o.limit
	given := cmd.Flags().Changed
	if given("step") {
		if given("min-step") || given("max-step") {
			return q, usagef("--step cannot be used with --min-step or --max-step")
		}
		q.MinStep, q.MaxStep = &o.step, &o.step
	}
	if given("min-step") {
		q.MinStep = &o.minStep
	}
	if given("max-step") {
		q.MaxStep = &o.maxStep
	}
	if o.limit < 0 {
		return q, usagef("--limit %d is negative", o.limit)
	}
	if q.Labels, err = parseLabels(o.labels); err != nil {
		return q, err
	}
	if q.Since, err = parseTime(o.since, now); err != nil {
		return q, err
	}
	q.Until, err = parseTime(o.until, now)
	return q, err
}

func (a *app) query(ctx context.Context, s store, q engine.Query, tenant bool) error {
	found := s.User(a.tenant, a.user).Query(ctx, q)
	if tenant {
		found = s.QueryTenant(ctx, a.tenant, q)
	}
	n := 0
	for cp, err := range found {
		if err != nil {
			return err
		}
		n++
		if a.json {
			err = a.emit(viewOf(cp))
		} else {
			name := printable(cp.Ref.Thread)
			if tenant {
				name = printable(cp.Ref.User) + "  " + name
			}
			err = a.printf("%s  %s\n", name, a.headline(cp))
		}
		if err != nil {
			return err
		}
	}
	if n == 0 && !a.json {
		a.note("no checkpoints match")
	}
	if n == 0 && q.Status != "" && !slices.Contains(knownStatuses, q.Status) {
		a.note("%q is not one of the usual statuses: %s", q.Status, statusList)
	}
	return nil
}

// knownStatuses are those with constants; agents can save any other.
var knownStatuses = []string{engine.StatusRunning, engine.StatusSucceeded, engine.StatusFailed, engine.StatusInterrupted,
	engine.StatusCancelled, engine.StatusWaiting}

var statusList = strings.Join(knownStatuses[:len(knownStatuses)-1], ", ") + " or " + knownStatuses[len(knownStatuses)-1]
