package plugins

import (
	"errors"
	"syscall"
)

const (
	mapNoReserve  = syscall.MAP_NORESERVE
	dontDump      = 16 // MADV_DONTDUMP, which package syscall lacks
	populateWrite = 23 // MADV_POPULATE_WRITE, of Linux 5.14
)

// hide keeps the memory of guests, which holds what users store, out of core dumps. Where that is not possible, the
// limit on core files is what does it.
func hide(b []byte) { _ = syscall.Madvise(b, dontDump) }

// populate makes the pages present now. Otherwise each is a fault in the middle of native code, which the collector of
// the Go runtime has to wait for: 32,768 faults in a row, 4 µs each on the machine of the measurements, are 130 ms. And
// what the budget counts is then what is really used.
func populate(b []byte) error {
	err := syscall.Madvise(b, populateWrite)
	if errors.Is(err, syscall.EINVAL) {
		return nil // an older kernel
	}
	return err
}
