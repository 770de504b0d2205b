package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNotRegular means that a path is a folder, a device, a pipe or a socket instead of a regular
// file.
var ErrNotRegular = errors.New("is not a regular file")

// ErrTooLarge is of a file that is larger than it may be.
var ErrTooLarge = errors.New("is too large")

// Open opens a regular file, as os.OpenFile does. It does not wait for anybody at the other end of
// a pipe.
func Open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|nonblock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads a regular file with a limit on its size.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, fmt.Errorf("%s %w: the limit is %d bytes", path, ErrTooLarge, most)
	}
	return b, err
}
