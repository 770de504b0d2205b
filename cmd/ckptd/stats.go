package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) statsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count threads, checkpoints and bytes of a user",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), false, func(s store) error {
				st, err := s.Stats(cmd.Context(), a.tenant, a.user)
				if err != nil {
					return err
				}
				v := statsView{a.tenant, a.user, int64(st.Threads), int64(st.Checkpoints), st.StateBytes, st.StoredBytes, st.PartBytes,
					int64(st.Keyframes), int64(st.MaxDepth), st.DiskBytes}
				if a.json {
					return a.emit(v)
				}
				return a.stats(v)
			})
		},
	}
}

// statsView is the statistics of a user as --json prints them.
type statsView struct {
	Tenant      string `json:"tenant"`
	User        string `json:"user"`
	Threads     int64  `json:"threads"`
	Checkpoints int64  `json:"checkpoints"`
	StateBytes  int64  `json:"state_bytes"`  // sum over the checkpoints
	StoredBytes int64  `json:"stored_bytes"` // their records
	PartBytes   int64  `json:"part_bytes"`
	Keyframes   int64  `json:"keyframes"`
	MaxDepth    int64  `json:"max_depth"`
	DiskBytes   int64  `json:"disk_bytes"` // of the whole store
}

func (a *app) stats(v statsView) error {
	each, times := int64(0), ""
	if v.Checkpoints > 0 {
		each = (v.StoredBytes + v.PartBytes) / v.Checkpoints
	}
	if stored := v.StoredBytes + v.PartBytes; stored > 0 && v.StateBytes > stored {
		times = fmt.Sprintf(", %.1f times smaller", float64(v.StateBytes)/float64(stored))
	}
	a.printf("threads      %d\n", v.Threads)
	a.printf("checkpoints  %d, %d of them keyframes; the deepest is restored from %s\n", v.Checkpoints, v.Keyframes, count(int(v.MaxDepth), "record"))
	a.printf("states       %s\n", size(v.StateBytes))
	a.printf("stored       %s in records, %s in parts: %d B per checkpoint%s\n", size(v.StoredBytes), size(v.PartBytes), each, times)
	return a.printf("disk         %s for the whole store\n", size(v.DiskBytes))
}
