package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/report"
	"github.com/ckptd/ckptd/bench/result"
)

func reportCommand() *cobra.Command {
	var form, out string
	cmd := &cobra.Command{
		Use:   "report FILE",
		Short: "Tell again what a run found, in the form that is asked for",
		Long: `Tell again what a run found: FILE is results.json of bench run. Forms are text for a terminal, markdown, benchstat's lines,
and html, one page with plots that needs nothing else.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, err := writerOf(form)
			if err != nil {
				return err
			}
			run, err := readRun(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				return write(cmd.OutOrStdout(), run)
			}
			file, err := os.Create(out)
			if err != nil {
				return err
			}
			return errors.Join(write(file, run), file.Close())
		},
	}
	cmd.Flags().StringVar(&form, "form", "text", "text, markdown, benchstat or html")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write into this file")
	return cmd
}

func writerOf(form string) (func(io.Writer, *result.Run) error, error) {
	switch form {
	case "text":
		return report.Text, nil
	case "markdown":
		return report.Markdown, nil
	case "benchstat":
		return report.Benchstat, nil
	case "html":
		return report.HTML, nil
	}
	return nil, fmt.Errorf("--form %q: there are text, markdown, benchstat and html", form)
}
