package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/engine/upkeep"
)

func (a *app) verifyCmd() *cobra.Command {
	var deep bool
	var witness string
	cmd := &cobra.Command{
		Use:   "verify [THREAD]",
		Short: "Verify the store or one thread: chains, hashes, counts, indexes",
		Long: `Verify checks the whole store, with all tenants and users, or one thread. With --deep it also restores
every state and compares it with the commitment from when it was saved. Without THREAD it reports data
of users whose keys are not in the keystore, too. It exits with code 5 if it finds problems.

With --witness it compares the progress of the store with the last one recorded in FILE, and updates FILE
if all is well. A directory that was replaced by an older copy is exit code 21, unless it has gone beyond
its old position since. Keep FILE away from the directory and its copies. This needs the directory itself,
so it does not work through --server.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := upkeep.VerifyOptions{Deep: deep}
			if len(args) == 1 {
				o.Tenant, o.User, o.Thread = a.tenant, a.user, args[0]
			}
			if witness != "" && a.server.addr != "" {
				return usagef("--witness needs the directory of the store: omit --server")
			}
			if witness != "" && inside(witness, a.data) {
				return usagef("--witness %s: the file is in %s, and a copy put in its place would replace it", witness, a.data)
			}
			return a.with(cmd.Context(), false, func(s store) error {
				if witness != "" {
					return a.witnessed(cmd.Context(), witness, s, o)
				}
				return a.verify(cmd.Context(), s, o)
			})
		},
		ValidArgsFunction: a.completeThreads,
	}
	cmd.Flags().BoolVar(&deep, "deep", false, "restore every state and compare it with its commitment")
	cmd.Flags().StringVar(&witness, "witness", "", "compare the progress of the store with `FILE`, and update FILE")
	return cmd
}

// verifyView is the report as --json prints it.
type verifyView struct {
	Deep        bool     `json:"deep"`
	Threads     int      `json:"threads"`
	Checkpoints int      `json:"checkpoints"`
	Ghosts      int      `json:"ghosts"`
	Stubs       int      `json:"stubs"`
	Parts       int      `json:"parts"`
	Orphans     int      `json:"orphans"`
	Problems    []string `json:"problems"`
	Seconds     float64  `json:"seconds"`
}

func viewOfReport(r *upkeep.VerifyReport, deep bool, took time.Duration) verifyView {
	v := verifyView{Deep: deep, Threads: r.Threads, Checkpoints: r.Checkpoints, Ghosts: r.Ghosts, Stubs: r.Stubs, Parts: r.Parts,
		Orphans: r.Orphans, Problems: []string{}, Seconds: took.Seconds()}
	for _, p := range r.Problems {
		v.Problems = append(v.Problems, problemText(p))
	}
	return v
}

func (a *app) verify(ctx context.Context, s store, o upkeep.VerifyOptions) error {
	bar := newProgress(-1, "verifying", false)
	o.Progress = func(done, total int) { bar.set(int64(done), int64(total)) }
	start := time.Now()
	r, err := s.Verify(ctx, o)
	bar.end()
	if err != nil {
		return err
	}
	v := viewOfReport(r, o.Deep, time.Since(start))
	if a.json {
		err = a.emit(v)
	} else {
		err = a.verified(v)
	}
	if err == nil && !r.Clean() {
		err = fmt.Errorf("%d %w", len(v.Problems)+r.Unlisted, errProblems)
	}
	return err
}

func (a *app) verified(v verifyView) error {
	for _, p := range v.Problems {
		a.printf("%s %s\n", a.paint.with("31", "problem:"), p)
	}
	how := "every chain, hash and index checked"
	if v.Deep {
		how = "every state restored"
	}
	line := fmt.Sprintf("verified %s, %s in %.1f s: %s", count(v.Threads, "thread"), count(v.Checkpoints, "checkpoint"), v.Seconds, how)
	if v.Orphans > 0 {
		line += fmt.Sprintf("; %s for gc to collect", count(v.Orphans, "orphan"))
	}
	if len(v.Problems) == 0 {
		line += ", no problems"
	}
	return a.printf("%s\n", line)
}

func problemText(p upkeep.Problem) string {
	where := ""
	for _, name := range []string{p.Tenant, p.User, p.Thread, p.Namespace} {
		if name != "" {
			where += name + " "
		}
	}
	return oneLine(where + p.Err.Error())
}
