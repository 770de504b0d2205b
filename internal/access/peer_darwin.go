package access

import (
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID returns the uid of the process that made a connection to a Unix socket, as it was then,
// or UnknownUID.
func PeerUID(conn net.Conn) int {
	uid := UnknownUID
	control(conn, func(fd uintptr) {
		if cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}
