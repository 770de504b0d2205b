//go:build !linux

package badger

import "os"

func preallocate(f *os.File, size int64) error { return zeroFill(f, size) }
