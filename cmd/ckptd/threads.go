package main

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine"
)

func (a *app) threadsCmd() *cobra.Command {
	var o engine.ThreadOptions
	var recent int
	cmd := &cobra.Command{
		Use:   "threads",
		Short: "List the threads of a user",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if recent < 0 {
				return usagef("--recent %d is negative", recent)
			}
			return a.with(cmd.Context(), false, func(s store) error { return a.threads(cmd.Context(), s, o, recent) })
		},
	}
	cmd.Flags().StringVar(&o.Prefix, "prefix", "", "only threads whose names begin with `TEXT`")
	cmd.Flags().StringVar(&o.Status, "status", "", "only threads whose head has this `STATUS`")
	cmd.Flags().IntVar(&recent, "recent", 0, "only the `N` most recently active threads, newest first (to the hour)")
	cmd.Flags().BoolVar(&o.Count, "count", false, "count the checkpoints of each thread")
	return cmd
}

// threadView is a thread as --json prints it.
type threadView struct {
	Thread      string            `json:"thread"`
	Generation  uint64            `json:"generation"`
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"`
	Head        string            `json:"head"`
	HeadSeq     uint64            `json:"head_seq"`
	Step        int64             `json:"step"`
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels,omitempty"`
	Checkpoints int               `json:"checkpoints,omitempty"`
}

// threads lists threads sorted by name or, if recent is not 0, that many of the most recently
// active ones.
func (a *app) threads(ctx context.Context, s store, o engine.ThreadOptions, recent int) error {
	var all []engine.ThreadInfo
	wide := len("THREAD")
	o.ByActivity = recent > 0
	for info, err := range s.User(a.tenant, a.user).Threads(ctx, o) {
		if err != nil {
			return err
		}
		all = append(all, info)
		wide = max(wide, utf8.RuneCountInString(printable(info.Ref.Thread)))
		if len(all) == recent {
			break
		}
	}
	if recent == 0 {
		slices.SortFunc(all, func(x, y engine.ThreadInfo) int { return byNumber(x.Ref.Thread, y.Ref.Thread) })
	}
	if len(all) > 0 && !a.json {
		counts := ""
		if o.Count {
			counts = "  CHECKPOINTS"
		}
		a.printf("%s\n", a.paint.dim(pad("THREAD", wide)+"  STATUS       STEP"+counts+"  UPDATED"))
	}
	for _, t := range all {
		if a.json {
			v := threadView{Thread: t.Ref.Thread, Generation: t.Generation, Created: t.Created.UTC(), Updated: t.Updated.UTC(),
				Head: t.HeadID, HeadSeq: t.HeadSeq, Step: t.Step, Status: t.Status, Labels: t.Labels, Checkpoints: t.Checkpoints}
			if err := a.emit(v); err != nil {
				return err
			}
			continue
		}
		a.printf("%s  %s %6d", pad(printable(t.Ref.Thread), wide), a.paint.status(pad(printable(t.Status), 10)), t.Step)
		if o.Count {
			a.printf("  %11d", t.Checkpoints)
		}
		line := "  " + t.Updated.Local().Format("2006-01-02 15:04:05")
		if l := labelText(t.Labels); l != "" {
			line += "  " + l
		}
		if err := a.printf("%s\n", line); err != nil {
			return err
		}
	}
	if len(all) == 0 && !a.json {
		a.note("user %s of tenant %s has no threads", printable(a.user), printable(a.tenant))
	}
	return nil
}

// pad fills s up with blanks to n characters.
func pad(s string, n int) string {
	for len := utf8.RuneCountInString(s); len < n; len++ {
		s += " "
	}
	return s
}
