// Package hostile holds no product code: its tests are the hostile suite. Every row is a plugin, built from bytes, that
// tries to hurt the host; each is run in a process of its own, with plugins in that process and in workers, under a watchdog
// that stands outside.
//
// What every row asserts: the host survives, the error is of the right kind, nothing comes out, memory stays bounded, and
// the next call works. Rows of runaway guests also assert when they were stopped, and that the garbage collector was not.
// What a store keeps after such plugins is tested in internal/hostile.
package hostile
