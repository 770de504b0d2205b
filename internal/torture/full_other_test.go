//go:build !linux

package torture

func fullRound(r *round) { r.skip("small file systems are made on Linux") }
