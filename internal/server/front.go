package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/wire"
)

// call has the properties of a request that are known before its message is read.
type call struct {
	caller      *access.Caller
	credentials access.Credentials
	procedure   string
	rule        *contract.Method // nil for open methods and unknown ones
	began       time.Time
	body        *pacedBody
	account     *account // nil for open methods
	exports     bool     // states leave the store in bulk
	about       string   // other subjects of the request than its target, for the audit log
	finished    bool     // it was counted, recorded and logged
	// visible reports whether the caller may see a thread within the target; nil means all of them.
	visible func(thread string) bool
}

// method is the name of the call in logs: callers can make up any path.
func (c *call) method() string {
	if c.rule != nil {
		return c.procedure
	}
	return "unknown"
}

// endless reports whether the call lasts until its caller ends it.
func (c *call) endless() bool { return c.rule != nil && c.rule.GetEndless() }

// audited reports whether the call goes to the audit log also when it is allowed.
func (c *call) audited() bool { return c.rule != nil && c.rule.GetAudited() }

// uploads reports whether the body of the request holds any number of messages.
func (c *call) uploads() bool { return c.rule != nil && c.rule.Uploads }

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// shownTo returns the details that the caller may see of a checkpoint, given that it may see the
// headers. Metadata requires the right to read the thread. The number of stored bytes requires the
// right to read all threads of the user, because it is smaller if another of them has the same
// bytes.
func shownTo(ctx context.Context, ref engine.Ref, text bool) wire.Shown {
	shown := wire.Shown{Text: text}
	if c := callOf(ctx); c != nil {
		now := time.Now()
		shown.Meta = c.caller.May(access.Read, ref.Tenant, ref.User, ref.Thread, now)
		shown.Stored = c.caller.May(access.Read, ref.Tenant, ref.User, "", now)
	}
	return shown
}

// visibleTo returns which threads of a listing the caller may see.
func visibleTo(ctx context.Context) func(thread string) bool {
	if c := callOf(ctx); c != nil && c.visible != nil {
		return c.visible
	}
	return func(string) bool { return true }
}

// front refuses malformed requests and those without valid credentials or over a limit, before
// reading their messages.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{procedure: r.URL.Path, rule: s.api.Method(r.URL.Path), began: time.Now()}
		err := s.admit(w, r, c, next)
		if err == nil {
			if !c.finished { // its message could not be read, so it was not authorized
				s.metrics.RequestDone(c.procedure, connect.CodeInvalidArgument.String(), time.Since(c.began))
			}
			return
		}
		if writeErr := s.errors.Write(w, r, s.finish(r.Context(), c, nil, err)); writeErr != nil {
			http.Error(w, "the request is not Connect, gRPC or gRPC-Web", http.StatusUnsupportedMediaType)
		}
	})
}

// open reports whether a method is for everybody: health and reflection reveal nothing about stored
// data.
func open(procedure string) bool {
	return !strings.HasPrefix(procedure, "/"+string(contract.Package)+".")
}

// admit serves a request, or returns the reason for refusing it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, c *call, next http.Handler) error {
	if s.Draining() && !open(c.procedure) {
		return s.shuttingDown()
	}
	l := s.limits.Load()
	// The time to send a request and to take its answer is bounded piece by piece, so that a large
	// one has the time it needs and a caller that stalls does not hold its place; that for a
	// message of a request also in sum.
	control := http.NewResponseController(w)
	c.body = &pacedBody{ReadCloser: r.Body, limits: l, most: l.most(c.procedure, c.rule), answer: w.Header(), control: control, until: c.began.Add(l.ReadTimeout)}
	if open(c.procedure) {
		c.finished = true
		s.open.enter(c.body)
		defer s.open.leave(c.body)
	} else {
		if !c.uploads() && r.ContentLength > c.body.most {
			w.Header().Set("Connection", "close")
			return tooLarge(r.ContentLength, c.body.most)
		}
		leave, err := s.enter(r, c, l)
		if err != nil {
			return err
		}
		defer leave()
	}
	s.metrics.RequestBegan()
	defer s.metrics.RequestEnded()
	r.Body = c.body
	next.ServeHTTP(&pacedWriter{w, control, l.StallTimeout}, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	return nil
}

// enter finds out whose request it is, and gives it a place and an account; leave ends both.
func (s *Server) enter(r *http.Request, c *call, l *Limits) (leave func(), err error) {
	c.credentials = access.Credentials{Authorization: r.Header.Get("Authorization"), TLS: r.TLS, PeerUID: peerUID(r.Context())}
	if c.caller, err = s.access.Load().Authenticate(r.Context(), c.credentials); err != nil {
		return nil, err
	}
	caller := c.caller.Name // of a watch it may be another one later
	if err := s.gate.paced(l, caller); err != nil {
		return nil, err
	}
	enter, gone := s.gate.enter, s.gate.leave
	if c.endless() {
		enter, gone = s.gate.enterStream, s.gate.leaveStream
	}
	of, err := enter(l, caller)
	if err != nil {
		return nil, err
	}
	c.account = s.gate.newAccount(l, of, 1)
	leave = func() {
		c.account.close()
		gone(caller)
	}
	if err := c.body.foresee(r, c.account); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func tooLarge(size, most int64) error {
	return &engine.LimitError{What: "the request", Size: size, Most: most}
}

const (
	// openMessage bounds the messages to services that are open to everybody: they carry a name,
	// and answers quote it.
	openMessage = 4 << 10
	// endlessMessage bounds those that begin a watch: they carry names and a cursor, and are there
	// as long as the watch.
	endlessMessage = 16 << 10
)

// most is the maximum size of a message to a method.
func (l *Limits) most(procedure string, rule *contract.Method) int64 {
	switch {
	case open(procedure):
		return openMessage
	case rule != nil && rule.GetEndless():
		return min(endlessMessage, int64(l.MaxMessage))
	}
	return int64(l.MaxMessage)
}

// inflation is the largest ratio by which gzip can expand data.
const inflation = 1032

// compressed reports whether messages of a request may be compressed.
func compressed(r *http.Request) bool {
	said := []string{r.Header.Get("Content-Encoding"), r.Header.Get("Grpc-Encoding"), r.Header.Get("Connect-Content-Encoding")}
	if r.Method == http.MethodGet {
		said = append(said, r.URL.Query()["compression"]...)
	}
	return slices.ContainsFunc(said, func(encoding string) bool { return encoding != "" && encoding != "identity" })
}

// pacedBody limits the time for each read of a request and for a whole message, and pays for the
// bytes that it reads.
type pacedBody struct {
	io.ReadCloser
	account *account // nil if nothing is paid for
	limits  *Limits
	most    int64 // bytes of a message
	grows   int64 // the most that one byte can expand to
	answer  http.Header
	control *http.ResponseController
	until   time.Time // a message must have come
	cut     atomic.Bool

	read, paid int64 // bytes of this message
}

// foresee pays in advance for the length that a request declares. Without one, bytes are paid for
// as they arrive. A message in the URL is there already.
func (b *pacedBody) foresee(r *http.Request, a *account) error {
	b.account, b.grows = a, 1
	if compressed(r) {
		b.grows = inflation
	}
	size := max(r.ContentLength, 1) // a place is not free
	if r.Method == http.MethodGet {
		size = int64(len(r.URL.RawQuery))
	}
	return b.pay(size)
}

// pay pays for size bytes of the message in total, including those paid for before.
func (b *pacedBody) pay(size int64) error {
	more := min(min(size, b.most)*b.grows, b.most) - b.paid // a header can declare any number
	if b.account == nil || more <= 0 {
		return nil
	}
	b.paid += more
	return b.account.take(more)
}

// decoded notes that a message was read and takes size bytes now. Another can follow.
func (b *pacedBody) decoded(size int64) {
	if less := b.paid - size; less > 0 {
		b.account.give(less)
		b.paid = size
	}
	b.read, b.until = 0, time.Now().Add(b.limits.ReadTimeout)
}

func (b *pacedBody) Read(p []byte) (int, error) {
	due := time.Now().Add(b.limits.StallTimeout)
	if b.until.Before(due) {
		due = b.until
	}
	b.control.SetReadDeadline(due) // where it is not supported there is none
	if b.cut.Load() {
		b.control.SetReadDeadline(time.Now())
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if err := b.pay(b.read); err != nil {
		return 0, wire.PackError(err)
	}
	switch {
	case err == io.EOF:
		b.control.SetReadDeadline(time.Time{}) // it would end a stream that is answered for longer than that
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.answer.Set("Connection", "close") // nobody waits for the rest
		err = fmt.Errorf("the rest of the request did not arrive in time: %w", os.ErrDeadlineExceeded)
	case err != nil:
		err = connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("reading the request: %w", err))
	}
	return n, err
}

// openPlaces is the maximum number of in-flight requests to open methods.
const openPlaces = 64

// openCalls are the requests to open methods. They take nothing from the budget, and none is
// refused: instead the oldest is cut off, so that a caller that occupies all slots cannot keep
// others from checking the server's health.
type openCalls struct {
	mu     sync.Mutex
	bodies []*pacedBody // the oldest first
}

func (o *openCalls) enter(b *pacedBody) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bodies = append(o.bodies, b); len(o.bodies) > openPlaces {
		oldest := o.bodies[0]
		o.bodies = slices.Delete(o.bodies, 0, 1)
		oldest.cut.Store(true)
		oldest.control.SetReadDeadline(time.Now())
		oldest.control.SetWriteDeadline(time.Now())
	}
}

func (o *openCalls) leave(b *pacedBody) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.bodies, b); i >= 0 {
		o.bodies = slices.Delete(o.bodies, i, i+1)
	}
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

// typeName is the only detail of a panic that is safe to log: its text could quote a state.
func typeName(p any) string { return fmt.Sprintf("%T", p) }
