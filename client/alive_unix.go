//go:build unix

package client

import (
	"net"
	"syscall"
)

// alive reports whether an idle connection is still open at the other end, as far as is known here.
func alive(c net.Conn) bool {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = err == syscall.EAGAIN // there is nothing to read, not even the end
	})
	return err == nil && open
}
