package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/report"
	"github.com/ckptd/ckptd/bench/result"
)

func compareCommand() *cobra.Command {
	var threshold float64
	var all bool
	cmd := &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "Show figures that became slower or larger between two runs",
		Long: `Show figures that became slower or larger between two runs. OLD and NEW are results.json files of bench run.

Times and rates are compared as multiples of the machine's own limits in the same run, such as the time of an
fdatasync: a slower disk is not a regression, and a faster one does not hide a regression. Bytes and counts are
compared directly.

A figure of ckptd is worse if its cost grew by more than --threshold, and every round of the new run costs more
than every round of the old. A figure beyond the threshold but within the noise is unsure. Rivals are the
control: they are never flagged.

The exit code is 1 if anything is worse, or if a run cannot be read.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(threshold > 0) {
				return errors.New("--threshold: must be above 0; 0.1 is a tenth")
			}
			old, err := readRun(args[0])
			if err != nil {
				return err
			}
			now, err := readRun(args[1])
			if err != nil {
				return err
			}
			c := report.Compare(old, now, threshold)
			return errors.Join(c.Text(cmd.OutOrStdout(), all), c.Err())
		},
	}
	cmd.Flags().Float64Var(&threshold, "threshold", 0.1, "minimum change of a figure that counts, as a fraction")
	cmd.Flags().BoolVar(&all, "all", false, "also show unchanged figures")
	return cmd
}

// readRun reads the results of a run.
func readRun(path string) (*result.Run, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	run, err := result.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}
