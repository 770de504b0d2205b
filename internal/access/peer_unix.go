//go:build linux || darwin

package access

import "net"

// control calls f with the file descriptor of a connection, if that is to a Unix socket.
func control(conn net.Conn, f func(fd uintptr)) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return
	}
	if raw, err := u.SyscallConn(); err == nil {
		raw.Control(f)
	}
}
