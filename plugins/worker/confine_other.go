//go:build !unix

package worker

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

var errUnsupported = errors.New("plugins cannot run in worker processes on " + runtime.GOOS + ": run them in the store's process")

func supported() error { return errUnsupported }

func attributes() *syscall.SysProcAttr { return nil }

func pollable(f *os.File) *os.File { return f }

func widen(*os.File) {}

func confine(int64) ([]string, error) { return nil, errUnsupported }
