//go:build !linux

package worker

func escapes() []string { return nil }
