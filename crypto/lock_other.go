//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package crypto

import "os"

// lockFile does nothing: where there is no flock, one process at a time may write to a keystore.
func lockFile(*os.File) error { return nil }
