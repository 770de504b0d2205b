package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"
)

// poolSize is the number of idle connections to keep, so that as many parallel callers find one.
const poolSize = 512

const dialTimeout = 5 * time.Second

// transport makes HTTP requests, and marks errors of connections as such.
type transport struct {
	rt interface {
		http.RoundTripper
		CloseIdleConnections()
	}
}

// newTransport returns a transport to any host or, if it is named, to a Unix socket. It speaks
// HTTP/1.1 with one connection per call in flight: on one machine that is quicker than sharing one.
// Only with TLS, where connections are dear, does it take HTTP/2 if the server offers it.
func newTransport(socket string, conf *tls.Config) *transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	rt := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if socket != "" {
				network, addr = "unix", socket
			}
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &connError{err, false}
			}
			return c, nil
		},
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConns:        poolSize,
		MaxIdleConnsPerHost: poolSize,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
		ReadBufferSize:      16 << 10,
		WriteBufferSize:     16 << 10,
	}
	if socket != "" {
		rt.Proxy = nil
	}
	if conf != nil {
		rt.TLSClientConfig = conf.Clone()
	}
	if socket != "" {
		return &transport{&local{Transport: rt, socket: socket, dialer: *dialer}}
	}
	return &transport{rt}
}

// connError is a failure of a connection. Nothing reached the server unless it was sent.
type connError struct {
	err  error
	sent bool
}

func (e *connError) Error() string { return e.err.Error() }
func (e *connError) Unwrap() error { return e.err }

// connFailed marks an error. It never lets io.EOF through, which the layers above take for a proper
// end.
func connFailed(err error) error {
	if _, ok := errors.AsType[*connError](err); ok {
		return err
	}
	if errors.Is(err, io.EOF) {
		return &connError{io.ErrUnexpectedEOF, true}
	}
	_, refused := errors.AsType[*tls.CertificateVerificationError](err)
	return &connError{err, !refused}
}

// Do makes a request, as a part of the trace that the context is in. Redirections are not followed:
// they would carry the token along.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	propagation.TraceContext{}.Inject(req.Context(), propagation.HeaderCarrier(req.Header))
	res, err := t.rt.RoundTrip(req)
	if err != nil {
		return nil, connFailed(err)
	}
	res.Body = &body{res.Body}
	return res, nil
}

// body marks errors in reading the body of an answer.
type body struct{ io.ReadCloser }

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = connFailed(err)
	}
	return n, err
}
