// Command ckptd is the command line of the checkpoint store: it imports agent runs, shows, rewinds
// and branches their histories, and looks after the store. Every command is in a file of its own
// name; all of them reach the store through open.go and end with an exit code of exit.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/plugins/worker"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "plugin-worker" { // a process that ckptd starts to run plugins in
		os.Exit(worker.Main(os.Stdin, os.Stdout))
	}
	os.Exit(run())
}

// run runs the command line and returns the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	// Without a handler, writing into a pipe that nobody reads would kill the process: commands
	// that write to the store must complete.
	signal.Ignore(syscall.SIGPIPE)
	a := newApp()
	cmd, err := a.root().ExecuteContextC(ctx)
	if flushed := a.out.Flush(); err == nil && flushed != nil {
		err = outputError{flushed}
	}
	if err != nil && !a.running {
		err = usagef("%s%w", nameOf(cmd), err)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	code, line := explain(err)
	if code == exitUsage && cmd != nil {
		line += ": see " + cmd.CommandPath() + " --help"
	}
	if line != "" {
		fmt.Fprintln(os.Stderr, "ckptd: "+line)
	}
	return code
}

// nameOf returns the name of a command and a colon, nothing for the root.
func nameOf(cmd *cobra.Command) string {
	if _, name, ok := strings.Cut(cmd.CommandPath(), " "); ok {
		return name + ": "
	}
	return ""
}

// root returns the command with all its subcommands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ckptd",
		Short: "Encrypted save games for AI agents",
		Long: `ckptd stores the state of an AI agent after every step, encrypted, and restores any of them: to
resume, to rewind, to branch, or to prove the course of a run.

A thread is one conversation or task; a checkpoint is its state after a step. A CHECKPOINT argument is one of
  head          the newest checkpoint
  NAME          the head of a branch
  ID            a checkpoint id, or its first 8 or more characters
  @12           the checkpoint with seq 12
each optionally followed by ~3 for its third ancestor; ~3 alone means head~3.

With --server, a command works on the store of a server (ckptd serve), with the rights of the token
in --token-file or CKPTD_TOKEN, of the certificate in --tls-cert, or of the user at the other end of
the Unix socket.

With --json, a command prints JSON: one object, or one object per line if there can be several.
Environment variables set the global flags: CKPTD_KEY_FILE sets --key-file. CKPTD_KEY holds a root
key itself, in the form of the line in a key file. DATA in a default is the path given with --data.`,
		Args:    cobra.ArbitraryArgs,
		Version: buildVersion(),

		SuggestionsMinimumDistance: 2,

		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(a.choose(cmd.Flags()), a.prepare()); err != nil {
				return err
			}
			a.running = true // errors from here on are not mistakes in the command line
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf(", did you mean %s", near[0])
			}
			return usagef("unknown command %q%s", args[0], hint)
		},
	}
	root.SetOut(a.out)
	root.SetErr(os.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainNumber(err) })
	root.CompletionOptions.HiddenDefaultCmd = false
	a.flags(root.PersistentFlags())
	root.AddCommand(a.saveCmd(), a.importCmd(), a.exportCmd(), a.threadsCmd(), a.usersCmd(), a.logCmd(), a.listCmd(), a.showCmd(), a.diffCmd(), a.forkCmd(), a.copyCmd(),
		a.branchCmd(), a.labelCmd(), a.queryCmd(), a.watchCmd(), a.blobCmd(), a.deleteCmd(), a.pruneCmd(), a.retentionCmd(), a.gcCmd(), a.verifyCmd(), a.doctorCmd(), a.statsCmd(),
		a.serveCmd(), a.tokenCmd(), a.auditCmd(), a.topCmd(), a.demoCmd(), a.demoAgentCmd(), a.newPluginCommand(), a.redactCmd(), a.migrateCmd(), a.versionCmd(), a.whoamiCmd(), exitCodesTopic())
	return root
}
