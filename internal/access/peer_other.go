//go:build !linux && !darwin

package access

import "net"

// PeerUID returns UnknownUID: this platform does not report it.
func PeerUID(net.Conn) int { return UnknownUID }
