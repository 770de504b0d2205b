package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine/upkeep"
)

func (a *app) retentionCmd() *cobra.Command {
	var p upkeep.RetentionPolicy
	var olderThan string
	var clear bool
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show or set a tenant's retention policy",
		Long: `Retention shows the retention policy of a tenant or, with flags, sets it. Gc removes from every thread
the checkpoints that none of --keep-last, --older-than and --keep-labelled keeps. It always keeps
branch heads and checkpoints labelled pin.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			set := given("keep-last") || given("older-than") || given("keep-labelled")
			var err error
			switch {
			case set && clear:
				return usagef("--clear removes the policy: omit the other flags")
			case p.KeepLast < 0:
				return usagef("--keep-last %d is negative", p.KeepLast)
			case olderThan != "":
				if p.OlderThan, err = parseAge(olderThan); err != nil {
					return err
				}
			}
			if set && p.KeepLast == 0 && p.OlderThan == 0 {
				return usagef("the policy keeps everything: set --keep-last or --older-than, or --clear")
			}
			return a.with(cmd.Context(), false, func(s store) error { return a.retention(cmd.Context(), s, p, set || clear) })
		},
	}
	f := cmd.Flags()
	f.IntVar(&p.KeepLast, "keep-last", 0, "keep the newest `N` checkpoints of each thread")
	f.StringVar(&olderThan, "older-than", "", "remove only checkpoints older than `AGE`: 90m, 24h, 30d, 2w")
	f.BoolVar(&p.KeepLabelled, "keep-labelled", false, "keep labelled checkpoints")
	f.BoolVar(&clear, "clear", false, "remove the policy, to keep everything")
	return cmd
}

// retentionView is a policy as --json prints it.
type retentionView struct {
	Tenant       string  `json:"tenant"`
	KeepLast     int     `json:"keep_last"`
	OlderThan    float64 `json:"older_than_seconds"`
	KeepLabelled bool    `json:"keep_labelled"`
}

func (a *app) retention(ctx context.Context, s store, p upkeep.RetentionPolicy, set bool) error {
	var err error
	if set {
		err = s.SetRetention(ctx, a.tenant, p)
	} else {
		p, err = s.Retention(ctx, a.tenant)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.emit(retentionView{a.tenant, p.KeepLast, p.OlderThan.Seconds(), p.KeepLabelled})
	}
	return a.printf("gc keeps %s\n", policyText(p))
}

func policyText(p upkeep.RetentionPolicy) string {
	var kept []string
	if p.KeepLast > 0 {
		kept = append(kept, fmt.Sprintf("the newest %d of each thread", p.KeepLast))
	}
	if p.OlderThan > 0 {
		kept = append(kept, "checkpoints younger than "+ageText(p.OlderThan))
	}
	if len(kept) == 0 {
		return "everything"
	}
	if p.KeepLabelled {
		kept = append(kept, "labelled checkpoints")
	}
	return strings.Join(kept, ", ")
}

// ageText prints a duration as parseAge reads it.
func ageText(d time.Duration) string {
	if day := 24 * time.Hour; d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
