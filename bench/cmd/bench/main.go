// Command bench compares ckptd with its alternatives on the user's own hardware. Each command is in
// a file of its name.
//
// It needs Linux for its measurements of processes. Figures go to standard output, progress to
// standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/bench/run"
)

func main() {
	run.Main() // this program also serves as the worker that runs a rival
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Compare ckptd with other ways to store checkpoints",
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	cmd.AddCommand(runCommand(), listCommand(), profileCommand(), compareCommand(), reportCommand())
	return cmd
}

// inputOf parses NAME=FILE, or FILE alone, whose name is then its base name without the extension.
func inputOf(text string) run.Input {
	if text == "" {
		return run.Input{}
	}
	name, path, ok := strings.Cut(text, "=")
	if !ok {
		path = text
		name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return run.Input{Name: name, Path: path}
}
