package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/report"
	"github.com/ckptd/ckptd/bench/result"
)

func reportCommand() *cobra.Command {
	var form, out, into string
	cmd := &cobra.Command{
		Use:   "report FILE",
		Short: "Print the results of a run in another format",
		Long: `Print the results of a run in another format. FILE is the results.json of bench run. The formats are text for a
terminal, markdown, lines for benchstat, and html, a self-contained page with plots.

--into writes Markdown into an existing file, replacing the text between the lines
  ` + figuresBegin + `
  ` + figuresEnd,
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
			switch {
			case into != "":
				return writeInto(into, run)
			case out == "":
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
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this file")
	cmd.Flags().StringVar(&into, "into", "", "write Markdown into this file, between its marker lines")
	cmd.MarkFlagsMutuallyExclusive("into", "form")
	cmd.MarkFlagsMutuallyExclusive("into", "output")
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

// The lines in a document that enclose the figures of a run.
const (
	figuresBegin = "<!-- figures: begin -->"
	figuresEnd   = "<!-- figures: end -->"
)

// writeInto replaces the figures of a document.
func writeInto(path string, run *result.Run) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := bytes.Cut(text, []byte(figuresBegin+"\n"))
	_, after, ends := bytes.Cut(rest, []byte(figuresEnd+"\n"))
	if !begins || !ends {
		return fmt.Errorf("%s: lacks the lines %s and %s, between which the figures go", path, figuresBegin, figuresEnd)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(figuresBegin + "\n")
	if err := report.Markdown(&b, run); err != nil {
		return err
	}
	b.WriteString(figuresEnd + "\n")
	b.Write(after)
	return os.WriteFile(path, b.Bytes(), 0o644)
}
