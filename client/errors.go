package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

// Errors that only a server has. With the first two nothing was done.
var (
	ErrOverloaded      = wire.ErrOverloaded
	ErrShuttingDown    = wire.ErrShuttingDown
	ErrUnauthenticated = wire.ErrUnauthenticated
	ErrDenied          = wire.ErrDenied
)

// Errors of migration jobs. Package migrate has those of migration sets and steps.
var (
	ErrNoJob      = wire.ErrNoJob      // no job has this id
	ErrJobBusy    = wire.ErrJobBusy    // another job of the tenant is running
	ErrJobState   = wire.ErrJobState   // the job is in the wrong state for the call
	ErrJobStopped = wire.ErrJobStopped // too many states failed
	ErrJobRefused = wire.ErrJobRefused // states would fail; nothing was written
)

// ErrUnreachable says that the server gave no answer and that nothing was changed. It matches
// engine.ErrUnavailable.
var ErrUnreachable error = unreachable{}

type unreachable struct{}

func (unreachable) Error() string        { return "server is unreachable" }
func (unreachable) Is(target error) bool { return target == engine.ErrUnavailable }

// How the contract handles a request whose answer is lost. Between these two are idempotent
// requests.
const (
	reads = ckptdv1.Retry_RETRY_READ  // it changes nothing
	never = ckptdv1.Retry_RETRY_NEVER // it would be something else when it is done twice
)

// mayRepeat looks a request up in the contract. An unknown request is not repeated.
func (s *Store) mayRepeat(request any) ckptdv1.Retry {
	if m, ok := request.(proto.Message); ok {
		if method := s.api.Asked(m); method != nil {
			return method.RetryFor(m)
		}
	}
	return never
}

// errEnough ends a stream whose consumer has left.
var errEnough = errors.New("enough")

// failure is the result of a failed attempt.
type failure struct {
	err   error
	again bool          // another attempt may help and does no harm
	after time.Duration // how long the server asks to wait
}

// judge decides how to handle the error of an attempt. ctx is the context of the caller.
func (s *Store) judge(ctx context.Context, may ckptdv1.Retry, err error) failure {
	conn, broken := errors.AsType[*connError](err)
	packed, rpc := errors.AsType[*connect.Error](err)
	switch {
	case err == errEnough:
		return failure{err: err}
	case s.life.Err() != nil && (broken || rpc && !connect.IsWireError(err)):
		return failure{err: s.unanswered(may, broken && !conn.sent, engine.ErrClosed)}
	case ctx.Err() != nil && (broken || rpc && !connect.IsWireError(err)):
		return failure{err: s.unanswered(may, broken && !conn.sent, ctx.Err())}
	case broken && !conn.sent:
		_, refused := errors.AsType[*tls.CertificateVerificationError](conn.err)
		return failure{err: fmt.Errorf("%w: %s: %w", ErrUnreachable, s.addr, conn.err), again: !refused}
	case broken || timedOut(packed):
		return failure{err: s.unanswered(may, false, fmt.Errorf("%s: %w", s.addr, err)), again: may != never}
	case rpc && !connect.IsWireError(err):
		return s.foreign(may, packed)
	}
	err = wire.UnpackError(err)
	if wait, ok := errors.AsType[*wire.RetryError](err); ok {
		return failure{err, true, min(max(wait.After, 0), maxAsked)}
	}
	switch { // by the server: the caller's context has not ended
	case errors.Is(err, context.Canceled):
		return failure{err: s.unanswered(may, false, fmt.Errorf("%s: the server canceled the request", s.addr)), again: may != never}
	case errors.Is(err, context.DeadlineExceeded):
		return failure{err: s.unanswered(may, false, fmt.Errorf("%s: the request took longer than the server allows: %w", s.addr, err)), again: may != never}
	}
	again := errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrNoSpace) || errors.Is(err, engine.ErrAmbiguous)
	return failure{err: err, again: again && may != never}
}

// maxAsked limits the wait that a server can ask for.
const maxAsked = 30 * time.Second

// unanswered is the error of a call that had no answer because of why.
func (s *Store) unanswered(may ckptdv1.Retry, unsent bool, why error) error {
	switch {
	case may != reads && !unsent:
		return fmt.Errorf("%w: no answer: %w", engine.ErrAmbiguous, why)
	case errors.Is(why, engine.ErrClosed) || errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded):
		return why
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, why)
}

// timedOut reports whether Options.Timeout ended an attempt.
func timedOut(err *connect.Error) bool {
	return err != nil && !connect.IsWireError(err) && (err.Code() == connect.CodeDeadlineExceeded || err.Code() == connect.CodeCanceled)
}

// foreign judges an error that did not come from a ckptd server, but from a proxy, another program,
// or the local library.
func (s *Store) foreign(may ckptdv1.Retry, err *connect.Error) failure {
	switch {
	case strings.HasPrefix(err.Message(), "marshal message"):
		return failure{err: fmt.Errorf("%w: a name, a label or the metadata is not UTF-8", engine.ErrInvalid)}
	case err.Code() == connect.CodeUnauthenticated, err.Code() == connect.CodePermissionDenied:
		return failure{err: wire.UnpackError(err)}
	case err.Code() == connect.CodeUnavailable:
		return failure{err: s.unanswered(may, false, fmt.Errorf("%s: %s", s.addr, err.Message())), again: may != never}
	}
	return failure{err: fmt.Errorf("%w: %s is not a ckptd server: %s", ErrUnreachable, s.addr, err.Message())}
}
