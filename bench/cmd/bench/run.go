package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/report"
	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/run"
)

// runOptions are the flags of run that select or change a plan.
type runOptions struct {
	set, input, out, dir string
	rivals, workloads    []string
	parts                []string
	writers              []int
	size                 int
	seconds              float64
	rounds               int
	rate                 float64
	seed                 uint64
	cache                int64
	keepOn               bool
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Measure the rivals side by side",
		Long: `Measure the rivals side by side in a single run: saves per second and their latencies, loads, disk space,
write amplification, CPU time, allocations, memory, and the growth of all of these. Servers are started in
their own folders and stopped again. A rival that is not installed is skipped by name.

The report goes to standard output. results.json, bench.html and bench.txt (for benchstat) go to --out.

With --workload only saves of these workloads are measured, by --writers writers, in states of --size bytes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return measure(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.set, "set", run.Some, "set of measurements: smoke, some or full")
	f.StringVar(&o.input, "input", "", "a workload of real runs: NAME=FILE, in a form that ckptd import reads")
	f.StringSliceVar(&o.rivals, "rival", nil, "measure only these rivals")
	f.StringSliceVar(&o.parts, "part", nil, "measure only these parts of the set: speed, space, growth")
	f.StringSliceVar(&o.workloads, "workload", nil, "measure only saves of these workloads")
	f.IntSliceVar(&o.writers, "writers", []int{1, 64}, "with --workload: number of concurrent writers")
	f.IntVar(&o.size, "size", 0, "with --workload: bytes of a state (0: the workload's default)")
	f.Float64Var(&o.rate, "rate", 0, "with --workload: saves per second in an open loop (0: as fast as possible)")
	f.Float64Var(&o.seconds, "seconds", 0, "length of a turn (0: the set's)")
	f.IntVar(&o.rounds, "rounds", 0, "turns of each rival; results are their medians (0: the set's)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the workloads")
	f.Int64Var(&o.cache, "cache", 256<<20, "ckptd's cache in bytes")
	f.StringVar(&o.out, "out", "out", "output folder for the results")
	f.StringVar(&o.dir, "dir", os.Getenv("CKPTD_BENCH_DIR"), "parent folder of the stores, which should be on a real disk ($CKPTD_BENCH_DIR)")
	f.BoolVar(&o.keepOn, "keep-going", false, "continue without a rival that fails instead of ending the run")
	return cmd
}

func measure(cmd *cobra.Command, o runOptions) error {
	p, err := o.plan()
	if err != nil {
		return err
	}
	p.Command = commandOf(cmd)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the folder of the results: %w", err)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{ReplaceAttr: shortTime}))
	found, err := run.Run(cmd.Context(), p, log, o.keepOn)
	if err != nil {
		return err
	}
	if err := writeAll(o.out, found); err != nil {
		return err
	}
	return report.Text(cmd.OutOrStdout(), found)
}

// plan returns the set's plan as changed by the flags.
func (o runOptions) plan() (run.Plan, error) {
	p, err := run.PlanOf(o.set, inputOf(o.input))
	if err != nil {
		return p, err
	}
	p.Rivals, p.Seed, p.Cache, p.Dir = o.rivals, o.seed, o.cache, o.dir
	if o.seconds > 0 {
		p.Seconds = o.seconds
	}
	if o.rounds > 0 {
		p.Rounds = o.rounds
	}
	if len(o.parts) > 0 {
		p.Set += " in part"
		all := p
		p.Speed, p.Space, p.Growth = nil, nil, nil
		for _, part := range o.parts {
			switch part {
			case result.Speed:
				p.Speed = all.Speed
			case result.Space:
				p.Space = all.Space
			case "growth":
				p.Growth = all.Growth
			default:
				return p, fmt.Errorf("--part: there is no %q: parts are speed, space and growth", part)
			}
		}
	}
	if len(o.workloads) == 0 {
		return p, nil
	}
	p.Set, p.Speed, p.Space, p.Growth = "asked", nil, nil, nil
	for _, name := range o.workloads {
		for _, n := range o.writers {
			if n < 1 {
				return p, errors.New("--writers: there must be one at least")
			}
			p.Speed = append(p.Speed, run.Speed{Workload: name, Size: o.size, Table: result.Durable, Writers: n, Rate: o.rate})
		}
	}
	return p, nil
}

// commandOf returns the command line with the flags that affect the figures, without paths.
func commandOf(cmd *cobra.Command) string {
	text := "bench run"
	for _, name := range []string{"set", "part", "rival", "workload", "writers", "size", "rate", "seconds", "rounds", "seed", "cache"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			text += " --" + name + " " + strings.Trim(f.Value.String(), "[]")
		}
	}
	if in, err := cmd.Flags().GetString("input"); err == nil && in != "" {
		text += " --input " + inputOf(in).Name + "=FILE"
	}
	return text
}

// writeAll writes the results in all forms.
func writeAll(dir string, found *result.Run) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer, *result.Run) error
	}{{"results.json", result.Write}, {"bench.html", report.HTML}, {"bench.txt", report.Benchstat}} {
		file, err := os.Create(filepath.Join(dir, f.name))
		if err != nil {
			return err
		}
		if err := errors.Join(f.write(file, found), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// shortTime shortens times in the log, keeping enough to follow progress.
func shortTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.String(a.Key, a.Value.Time().Format(time.TimeOnly))
	}
	return a
}
