package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/wire"
)

// call is what is known of a request before its message is read.
type call struct {
	caller      *access.Caller
	credentials access.Credentials
	procedure   string
	began       time.Time
	paid        int64  // bytes of its answer
	exports     bool   // states leave the store in bulk
	about       string // what else than its target the request is about, for the audit log
	finished    bool   // it was counted, recorded and logged
	// visible says which threads the caller may see of what the request is about; nil is all of them.
	visible func(thread string) bool
}

// method is what the call may be named in logs: callers may make up any path.
func (c *call) method() string {
	if _, ok := access.RuleFor(c.procedure); ok {
		return c.procedure
	}
	return "unknown"
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// visibleTo returns which threads of a listing the caller may see.
func visibleTo(ctx context.Context) func(thread string) bool {
	if c := callOf(ctx); c != nil && c.visible != nil {
		return c.visible
	}
	return func(string) bool { return true }
}

// front turns away what cannot be a request, has no valid credentials or is beyond a limit, before its message is read.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{procedure: r.URL.Path, began: time.Now()}
		err := s.admit(w, r, c, next)
		if err == nil {
			if !c.finished { // its message could not be read, so nobody has looked at it
				s.metrics.RequestDone(c.procedure, connect.CodeInvalidArgument.String(), time.Since(c.began))
			}
			return
		}
		if writeErr := s.errors.Write(w, r, s.finish(r.Context(), c, nil, err)); writeErr != nil {
			http.Error(w, "the request is none of Connect, gRPC or gRPC-Web", http.StatusUnsupportedMediaType)
		}
	})
}

// open reports whether a method is for everybody: health and reflection tell nothing of what is stored.
func open(procedure string) bool { return !strings.HasPrefix(procedure, "/ckptd.v1.") }

// admit serves a request, or returns why it is turned away.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, c *call, next http.Handler) error {
	if s.Draining() && !open(c.procedure) {
		return s.shuttingDown()
	}
	l := s.limits.Load()
	if open(c.procedure) {
		c.finished = true
	} else {
		c.credentials = access.Credentials{Authorization: r.Header.Get("Authorization"), TLS: r.TLS, PeerUID: peerUID(r.Context())}
		var err error
		if c.caller, err = s.access.Load().Authenticate(r.Context(), c.credentials); err != nil {
			return err
		}
		if err := s.gate.paced(l, c.caller.Name); err != nil {
			return err
		}
	}
	// The time to send a request and to take its answer is bounded piece by piece, so that a large one has the time it
	// needs and a caller that stalls does not hold its place.
	control := http.NewResponseController(w)
	if !open(c.procedure) && !streamsUp(c.procedure) && r.ContentLength > int64(l.MaxMessage) {
		w.Header().Set("Connection", "close")
		return tooLarge(r.ContentLength, l)
	}
	body := &pacedBody{ReadCloser: r.Body, gate: &s.gate, limits: l, answer: w.Header(), control: control}
	if endless(c.procedure) {
		if err := s.gate.enterStream(l); err != nil {
			return err
		}
		defer s.gate.leaveStream()
	} else {
		body.paid = foreseen(r, l)
		if err := s.gate.enter(l, body.paid); err != nil {
			return err
		}
		defer s.gate.leave()
	}
	defer func() { s.gate.refund(body.paid + c.paid) }()
	s.metrics.RequestBegan()
	defer s.metrics.RequestEnded()
	r.Body = body
	next.ServeHTTP(&pacedWriter{w, control, l.StallTimeout}, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	return nil
}

// streamsUp reports whether the body of a request holds any number of messages.
func streamsUp(procedure string) bool { return procedure == ckptdv1.BlobServicePutBlobProcedure }

func tooLarge(size int64, l *Limits) error {
	return &engine.LimitError{What: "the request", Size: size, Most: int64(l.MaxMessage)}
}

// foreseen is how many bytes the message of a request will have: what it says or, if it is compressed, the most that it
// may become. Without a word on it, it is paid for as it comes.
func foreseen(r *http.Request, l *Limits) int64 {
	for _, header := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		if e := r.Header.Get(header); e != "" && e != "identity" {
			return int64(l.MaxMessage)
		}
	}
	return min(max(r.ContentLength, 0), int64(l.MaxMessage))
}

// pacedBody gives each read of a request so much time, and takes from the budget what was not foreseen.
type pacedBody struct {
	io.ReadCloser
	gate       *gate
	limits     *Limits
	answer     http.Header
	control    *http.ResponseController
	read, paid int64 // bytes
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.control.SetReadDeadline(time.Now().Add(b.limits.StallTimeout)) // where it is not supported there is none
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > b.paid && b.paid < int64(b.limits.MaxMessage) { // of a stream, no more is held at a time
		more := min(b.read, int64(b.limits.MaxMessage)) - b.paid
		if err := b.gate.pay(b.limits, more); err != nil {
			return 0, wire.PackError(err)
		}
		b.paid += more
	}
	switch {
	case err == io.EOF:
		b.control.SetReadDeadline(time.Time{}) // it would end a stream that is answered for longer than that
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.answer.Set("Connection", "close") // nobody waits for the rest
		err = fmt.Errorf("the rest of the request did not come in time: %w", os.ErrDeadlineExceeded)
	case err != nil:
		err = connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("reading the request: %w", err))
	}
	return n, err
}

// pacedWriter gives each write of an answer so much time.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(w.stall))
	return w.ResponseWriter.Write(p)
}

func (w *pacedWriter) Flush() {
	w.control.SetWriteDeadline(time.Now().Add(w.stall))
	w.control.Flush()
}

func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// typeName is what may be logged of a panic: its text could quote a state.
func typeName(p any) string { return fmt.Sprintf("%T", p) }
