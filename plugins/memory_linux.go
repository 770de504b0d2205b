package plugins

import (
	"errors"
	"syscall"
)

const (
	mapNoReserve  = syscall.MAP_NORESERVE
	dontDump      = 16 // MADV_DONTDUMP, missing from package syscall
	populateWrite = 23 // MADV_POPULATE_WRITE, since Linux 5.14
)

// hide keeps the memory of guests, which holds user data, out of core dumps. Where that is
// impossible, the limit on core files has to do.
func hide(b []byte) { _ = syscall.Madvise(b, dontDump) }

// populate makes the pages present now. Otherwise each page is a fault in the middle of native
// code, which Go's garbage collector has to wait for: 32,768 faults in a row, at 4 µs each on the
// measuring machine, take 130 ms. It also makes the budget count memory that is really in use.
func populate(b []byte) error {
	err := syscall.Madvise(b, populateWrite)
	if errors.Is(err, syscall.EINVAL) {
		return nil // older kernels lack it
	}
	return err
}
