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
		Short: "Tell what became slower or larger from one run to another",
		Long: `Tell what became slower or larger from one run to another: both are results.json of bench run.

Times and rates are compared as multiples of what the machine itself could do in the same run, such as an fdatasync, not as
they are: a slower disk is no regression, and a quicker one hides none. Bytes and counts are compared as they are.

A figure of ckptd is worse if it costs more by --threshold, and every round of the new run costs more than every round of
the old. What is beyond the threshold but within the noise is unsure. Rivals are the control: they are never flagged.

The exit code is 1 if anything is worse, or the runs cannot be read.`,
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
	cmd.Flags().Float64Var(&threshold, "threshold", 0.1, "by how much a figure must have moved to count, as a fraction")
	cmd.Flags().BoolVar(&all, "all", false, "tell also what is the same")
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
