package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/rival"
	"github.com/ckptd/ckptd/bench/workload"
)

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the workloads and the rivals", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(out, "WORKLOAD\tBYTES\tWHAT IT IS")
			for _, w := range workload.All() {
				fmt.Fprintf(out, "%s\t%d\t%s\n", w.Name, w.Size, w.What)
			}
			fmt.Fprintln(out, "\nRIVAL\tINSTALLED\tWHAT IT IS")
			for _, r := range rival.All() {
				installed := "yes"
				if r.Installed != nil {
					if _, err := r.Installed(); err != nil {
						installed = "no"
					}
				}
				fmt.Fprintf(out, "%s\t%s\t%s\n", r.Name, installed, r.What)
			}
			return out.Flush()
		},
	}
}
