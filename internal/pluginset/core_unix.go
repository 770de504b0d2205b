//go:build unix

package pluginset

import "syscall"

// noCoreDumps lets a crash leave nothing behind of what was not redacted yet. It is for the whole process and what that
// starts.
func noCoreDumps() error { return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
