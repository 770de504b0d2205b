//go:build unix

package durable

import "syscall"

const nonblock = syscall.O_NONBLOCK
