//go:build unix

package pluginset

import "syscall"

// noCoreDumps keeps a crash from writing unredacted data to disk. It applies to the whole process
// and its children.
func noCoreDumps() error { return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
