package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// local makes requests on a Unix socket, in the goroutine of the caller: it writes the request and
// waits for the answer itself. http.Transport hands both to goroutines of the connection, and
// waking those takes longer than the request. It leaves bodies of unknown length, which may be sent
// while the answer arrives, to an http.Transport.
type local struct {
	*http.Transport
	socket string
	dialer net.Dialer

	mu   sync.Mutex
	idle []*localConn // used last at the end
}

const (
	localBuffer = 16 << 10
	// localIdle is the time that an idle connection is kept: shorter than on servers, so that few
	// are found closed.
	localIdle = 60 * time.Second
)

// localConn is a connection with at most one request in flight.
type localConn struct {
	net.Conn
	l    *local
	r    *bufio.Reader
	w    *bufio.Writer
	used time.Time
}

func (l *local) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.ContentLength <= 0 {
		return l.Transport.RoundTrip(req)
	}
	c, err := l.conn(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &connError{err, false}
	}
	return c.roundTrip(req)
}

// conn returns an idle connection that is still open, or a new one.
func (l *local) conn(ctx context.Context) (*localConn, error) {
	for {
		l.mu.Lock()
		var c *localConn
		if n := len(l.idle); n > 0 {
			c, l.idle = l.idle[n-1], l.idle[:n-1]
		}
		l.mu.Unlock()
		if c == nil {
			break
		}
		if time.Since(c.used) < localIdle && alive(c.Conn) {
			return c, nil
		}
		c.Close()
	}
	conn, err := l.dialer.DialContext(ctx, "unix", l.socket)
	if err != nil {
		return nil, err
	}
	return &localConn{Conn: conn, l: l, r: bufio.NewReaderSize(conn, localBuffer), w: bufio.NewWriterSize(conn, localBuffer)}, nil
}

func (l *local) put(c *localConn) {
	c.used = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) == poolSize {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

// CloseIdleConnections closes the connections that no request is using.
func (l *local) CloseIdleConnections() {
	l.Transport.CloseIdleConnections()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.idle {
		c.Close()
	}
	l.idle = nil
}

// roundTrip makes a request. The connection is its own until the body of the answer was read to its
// end, or closed.
func (c *localConn) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) // in the past: wakes any waiter
	}
	fail := func(err error) (*http.Response, error) {
		stop()
		c.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, connFailed(err)
	}
	err := req.Write(c.w) // closes the body
	if err == nil {
		err = c.w.Flush()
	}
	if err != nil {
		return fail(err)
	}
	res, err := http.ReadResponse(c.r, req)
	if err != nil {
		return fail(err)
	}
	res.Body = &localBody{ReadCloser: res.Body, c: c, ctx: ctx, stop: stop, reusable: !res.Close && !req.Close}
	return res, nil
}

// localBody is the body of an answer. It gives the connection back.
type localBody struct {
	io.ReadCloser
	c        *localConn
	ctx      context.Context
	stop     func() bool
	reusable bool
	ended    bool
}

func (b *localBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.end(b.reusable)
	case err != nil:
		b.end(false)
		if b.ctx.Err() != nil {
			err = b.ctx.Err()
		}
	}
	return n, err
}

func (b *localBody) Close() error {
	b.end(false) // the rest of the answer is too long to be worth reading
	return nil
}

func (b *localBody) end(reusable bool) {
	if b.ended {
		return
	}
	b.ended = true
	if b.stop() && reusable && b.c.r.Buffered() == 0 {
		b.c.l.put(b.c)
		return
	}
	b.c.Close()
}
