//go:build !linux

package torture

func syscallsRound(r *round) { r.skip("strace is Linux's") }
