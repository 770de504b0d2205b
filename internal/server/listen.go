package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/ckptd/ckptd/internal/access"
)

// listener counts connections, and finds out the peers of local ones. A connection over the limit
// is closed at once: its caller sees that no request was made.
type listener struct {
	net.Listener
	s *Server
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.s.gate.connections.Add(1) > int64(l.s.limits.Load().Connections) {
			l.s.gate.connections.Add(-1)
			l.s.metrics.Rejected("connections")
			c.Close()
			continue
		}
		l.s.unused.opened()
		l.s.metrics.ConnectionOpened()
		return &conn{Conn: c, s: l.s, peer: access.PeerUID(c)}, nil
	}
}

type conn struct {
	net.Conn
	s    *Server
	peer int // uid of the process at the other end, -1 if that is not known
	once sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.s.gate.connections.Add(-1)
		c.s.metrics.ConnectionClosed()
		c.s.unused.closed()
	})
	return c.Conn.Close()
}

type peerKey struct{}

func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if c, ok := c.(*conn); ok && c.peer >= 0 {
		return context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}

// peerUID is the uid of the process at the other end of the connection of a request, -1 if that is
// not known.
func peerUID(ctx context.Context) int {
	if uid, ok := ctx.Value(peerKey{}).(int); ok {
		return uid
	}
	return -1
}

// local reports whether a request came over a Unix socket or a loopback address.
func local(r *http.Request) bool {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "unix" {
		return true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}
