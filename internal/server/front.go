package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ckptd/ckptd/internal/access"
)

// call is what is known of a request before its message is read.
type call struct {
	caller      *access.Caller
	credentials access.Credentials
	procedure   string
	exports     bool // the states of a whole history
	// visible says which threads the caller may see of what the request is about; nil is all of them.
	visible func(thread string) bool
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

// front turns away what cannot be a request, has no valid credentials or is beyond a limit, before its body is read.
// Health and reflection are open: they tell nothing of what is stored.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/ckptd.v1.") {
			next.ServeHTTP(w, r)
			return
		}
		began := time.Now()
		c := &call{procedure: r.URL.Path}
		if err := s.admit(w, r, c, next); err != nil {
			err = s.finish(r.Context(), c, nil, began, err)
			if writeErr := s.errors.Write(w, r, err); writeErr != nil {
				http.Error(w, "the request is not one of Connect, gRPC or gRPC-Web", http.StatusUnsupportedMediaType)
			}
		}
	})
}

// admit serves a request, or returns why it is turned away.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, c *call, next http.Handler) error {
	if s.Draining() {
		return s.shuttingDown()
	}
	c.credentials = access.Credentials{Authorization: r.Header.Get("Authorization"), TLS: r.TLS, PeerUID: peerUID(r.Context())}
	var err error
	if c.caller, err = s.access.Load().Authenticate(r.Context(), c.credentials); err != nil {
		return err
	}
	l := s.limits.Load()
	if err := s.gate.paced(l, c.caller.Name); err != nil {
		return err
	}
	if endless(c.procedure) {
		if err := s.gate.enterStream(l); err != nil {
			return err
		}
		defer s.gate.leaveStream()
	} else {
		size := r.ContentLength
		if size < 0 || size > int64(l.MaxMessage) {
			size = int64(l.MaxMessage) // not known: what it may become
		}
		if err := s.gate.enter(l, size); err != nil {
			return err
		}
		defer s.gate.leave(size)
	}
	s.metrics.RequestBegan()
	defer s.metrics.RequestEnded()
	control := http.NewResponseController(w)
	// The time to send a request and to take its answer is bounded piece by piece, so that a large one has the time it
	// needs and a caller that stalls does not hold its place.
	r.Body = &pacedBody{r.Body, w.Header(), control, l.StallTimeout}
	next.ServeHTTP(&pacedWriter{w, control, l.StallTimeout}, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	return nil
}

// pacedBody gives each read of a request so much time.
type pacedBody struct {
	io.ReadCloser
	answer  http.Header
	control *http.ResponseController
	stall   time.Duration
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.control.SetReadDeadline(time.Now().Add(b.stall)) // where it is not supported there is none
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.control.SetReadDeadline(time.Time{}) // it would end a stream that is answered for longer than that
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.answer.Set("Connection", "close") // nobody waits for the rest
		err = fmt.Errorf("the rest of the request did not come in time: %w", os.ErrDeadlineExceeded)
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

func stack() string { return string(debug.Stack()) }
