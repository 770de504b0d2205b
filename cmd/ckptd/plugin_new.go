package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ckptd/ckptd/plugins/scaffold"
)

// writingPlugins are the commands for authors of plugins. They need neither a store nor a server.
func (a *app) writingPlugins() []*cobra.Command {
	return []*cobra.Command{a.pluginNewCmd(), a.pluginBuildCmd(), a.pluginTestCmd(), a.pluginRunCmd(), a.pluginInspectCmd(),
		a.pluginKeygenCmd(), a.pluginSignCmd(), a.pluginVerifyCmd()}
}

func (a *app) pluginNewCmd() *cobra.Command {
	var language, dir string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Create a project for a new plugin",
		Long: `New creates the directory NAME with a small working plugin: its source, its manifest plugin.toml, and
fixtures that specify its behavior. Next, run ckptd plugin build, ckptd plugin test and ckptd plugin
install.`,
		Example: `  ckptd plugin new --lang go mail
  cd mail && ckptd plugin build && ckptd plugin test`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				dir = args[0]
			}
			files, err := scaffold.New(dir, args[0], language)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s %w", dir, errExists)
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.emit(map[string]any{"name": args[0], "language": language, "directory": dir, "files": files})
			}
			for _, f := range files {
				if !strings.HasPrefix(f, "pdk/") {
					a.printf("%s\n", printable(dir+"/"+f))
				} else if f == "pdk/go.mod" {
					a.printf("%s  %s\n", printable(dir+"/pdk/"), a.paint.dim("the kit for Go plugins"))
				}
			}
			next := "ckptd plugin build"
			if language == "assemblyscript" {
				next = "npm install, then " + next
			}
			a.note("created %s: run %s and ckptd plugin test in it", dir, next)
			return nil
		},
	}
	cmd.Flags().StringVar(&language, "lang", "go", "`language`: "+strings.Join(scaffold.Languages(), ", "))
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` to create (default: NAME)")
	return cmd
}
