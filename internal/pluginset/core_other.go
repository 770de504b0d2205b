//go:build !unix

package pluginset

func noCoreDumps() error { return nil }
