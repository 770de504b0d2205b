package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionView{Version: "unknown", Format: 1, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = info.Main.Version
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			if a.json {
				return a.emit(v)
			}
			return a.printf("ckptd %s, storage format %d, %s %s/%s\n", v.Version, v.Format, v.Go, v.OS, v.Arch)
		},
	}
}

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Format   int    `json:"format"` // docs/format.md
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}
