//go:build !linux

package commitlog

import (
	"errors"
	"os"
)

func syncData(f *os.File) error { return f.Sync() }

func forget(*os.File) {}

func allocate(*os.File, int64) error { return errors.ErrUnsupported }
