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
			v := versionView{Version: buildVersion(), Format: 1, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
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

// buildVersion is the version that this program was built from.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Format   int    `json:"format"` // docs/format.md
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}
