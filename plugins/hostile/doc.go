// Package hostile contains no product code: its tests are the hostile suite. Every row is a plugin,
// built from bytes, that tries to harm the host. Each runs in its own process, with plugins both in
// that process and in workers, supervised by an external watchdog.
//
// Every row asserts that the host survives, the error is of the right kind, no output appears,
// memory stays bounded, and the next call works. Rows with runaway guests also assert when they
// were stopped, and that the garbage collector was not held up. The package internal/hostile tests
// the contents of a store after such plugins ran.
package hostile
