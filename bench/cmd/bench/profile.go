package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/run"
)

func profileCommand() *cobra.Command {
	var (
		args       run.ProfileArgs
		input, out string
	)
	cmd := &cobra.Command{
		Use:   "profile WORKLOAD",
		Short: "Profile the saves of a workload",
		Long: `Save a workload for a while, and write profiles of CPU time (cpu.pprof), of allocations (allocs.pprof),
and of waiting (block.pprof, mutex.pprof). "go tool pprof -http : FILE" shows a profile as a graph, a flame
graph, or annotated source.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			args.Workload, args.Input = names[0], inputOf(input)
			return profile(cmd, args, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&args.Rival, "rival", result.Ckptd, "rival to profile")
	f.IntVar(&args.Writers, "writers", 64, "number of concurrent writers")
	f.IntVar(&args.Size, "size", 0, "bytes of a state (0: the workload's default)")
	f.Float64Var(&args.Seconds, "seconds", 10, "duration in seconds")
	f.BoolVar(&args.Loads, "loads", false, "profile loads of the newest states instead")
	f.Int64Var(&args.Cache, "cache", 256<<20, "ckptd's cache in bytes")
	f.Uint64Var(&args.Seed, "seed", 1, "seed of the workload")
	f.StringVar(&input, "input", "", "a workload of real runs: NAME=FILE")
	f.StringVar(&out, "out", "out", "output folder for the profiles")
	f.StringVar(&args.Dir, "dir", os.Getenv("CKPTD_BENCH_DIR"), "parent folder of the store ($CKPTD_BENCH_DIR)")
	return cmd
}

func profile(cmd *cobra.Command, args run.ProfileArgs, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("making the folder of the profiles: %w", err)
	}
	profiled, err := run.Profile(args)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: %s, %d writers\n", args.Workload, args.Rival, args.Writers)
	fmt.Fprintf(w, "%d operations in %.1f s, %.1f µs of CPU time and %.0f allocations each\n",
		profiled.Operations, profiled.Seconds, profiled.CPU*1e6, profiled.Allocs)
	for _, p := range profiled.Profiles {
		file := filepath.Join(out, p.Name+".pprof")
		if err := os.WriteFile(file, p.Data, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(w, "go tool pprof -http : %s\n", file)
	}
	return nil
}
