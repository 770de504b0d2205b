// Package durable writes files that survive a crash.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// WriteFile replaces a file by one with this content that only its owner can read, and returns once
// that is durable. After a crash there is the old file or the new one, and perhaps PATH.new, which
// the next call replaces. Only one call at a time may write a path. If the path is a link, it stays
// one, and its target is replaced. Anything but a regular file is not replaced: ErrNotRegular.
func WriteFile(path string, content []byte) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// target is where the links at a path lead, which may be nothing yet.
func target(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil
		case err != nil:
			return "", err
		case info.Mode().IsRegular():
			return path, nil
		case info.Mode().Type() != fs.ModeSymlink:
			return "", fmt.Errorf("%s %w", path, ErrNotRegular)
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", &fs.PathError{Op: "readlink", Path: path, Err: syscall.ELOOP}
}

const maxLinks = 40

// SyncPath makes the name of a directory durable, and the names of those above it: the process that
// created them, as with os.MkdirAll, may have been killed since.
func SyncPath(dir string) error {
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		err := SyncDir(parent)
		if err != nil && !errors.Is(err, fs.ErrPermission) { // a process that cannot read it created nothing in it
			return err
		}
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there, their changes are journalled
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems cannot sync directories, and say so thus
	}
	return errors.Join(err, d.Close())
}
