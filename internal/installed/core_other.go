//go:build !unix

package installed

func noCoreDumps() error { return nil }
