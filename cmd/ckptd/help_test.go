package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write testdata/help.txt")

// TestHelpTexts keeps the help of every command and flag in one file, so that it can be read as a
// whole.
func TestHelpTexts(t *testing.T) {
	for _, env := range os.Environ() {
		if name, _, _ := strings.Cut(env, "="); strings.HasPrefix(name, "CKPTD_") {
			t.Setenv(name, "") // it would become the default of a flag
		}
	}
	var b strings.Builder
	writeHelp(&b, newApp().root())
	path := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s is out of date: make generate", path)
	}
}

// writeHelp writes the help of a command, without inherited flags, and of its subcommands.
func writeHelp(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "## %s\n\n%s\n", cmd.CommandPath(), cmd.Short)
	if cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", cmd.Long)
	}
	if cmd.Runnable() {
		fmt.Fprintf(b, "\nUsage: %s\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", cmd.Example)
	}
	var flags strings.Builder
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&flags, "  --%s", f.Name)
		if name != "" {
			fmt.Fprintf(&flags, " %s", name)
		}
		fmt.Fprintf(&flags, ": %s", usage)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			fmt.Fprintf(&flags, " (default %s)", f.DefValue)
		}
		flags.WriteString("\n")
	})
	if flags.Len() > 0 {
		fmt.Fprintf(b, "\n%s", flags.String())
	}
	b.WriteString("\n")
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			writeHelp(b, sub)
		}
	}
}
