package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// Errors that only a server has. The client exports them.
var (
	ErrOverloaded      = errors.New("server is overloaded")
	ErrShuttingDown    = errors.New("server is shutting down")
	ErrUnauthenticated = errors.New("no valid credentials")
	ErrDenied          = errors.New("not permitted")
)

// RetryError says that nothing was done, and when to try again. It matches Err, which is
// ErrOverloaded or ErrShuttingDown.
type RetryError struct {
	Err   error
	What  string // is at its limit; "" for a server that shuts down
	After time.Duration
}

func (e *RetryError) Error() string {
	if e.What == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v: %s; try again in %v", e.Err, e.What, e.After)
}
func (e *RetryError) Unwrap() error { return e.Err }

// Row is a row of the one table of errors on the wire. docs/api.md prints it.
type Row struct {
	Err    error
	Reason ckptdv1.Reason
	Code   connect.Code
}

// Table has a row for every error that callers branch on. The first that an error matches counts.
func Table() []Row {
	return []Row{
		{ErrUnauthenticated, ckptdv1.Reason_REASON_UNAUTHENTICATED, connect.CodeUnauthenticated},
		{ErrDenied, ckptdv1.Reason_REASON_DENIED, connect.CodePermissionDenied},
		{ErrOverloaded, ckptdv1.Reason_REASON_OVERLOADED, connect.CodeResourceExhausted},
		{ErrShuttingDown, ckptdv1.Reason_REASON_SHUTTING_DOWN, connect.CodeUnavailable},
		// A step may be that of a plugin, whose error it matches too.
		{ErrNoJob, ckptdv1.Reason_REASON_NO_JOB, connect.CodeNotFound},
		{ErrJobBusy, ckptdv1.Reason_REASON_MIGRATION_BUSY, connect.CodeAborted},
		{ErrJobState, ckptdv1.Reason_REASON_MIGRATION_STATE, connect.CodeFailedPrecondition},
		{ErrJobStopped, ckptdv1.Reason_REASON_MIGRATION_STOPPED, connect.CodeFailedPrecondition},
		{ErrJobRefused, ckptdv1.Reason_REASON_MIGRATION_REFUSED, connect.CodeFailedPrecondition},
		{engine.ErrSchemaTooNew, ckptdv1.Reason_REASON_SCHEMA_TOO_NEW, connect.CodeFailedPrecondition},
		{engine.ErrNoMigration, ckptdv1.Reason_REASON_NO_MIGRATION, connect.CodeFailedPrecondition},
		{engine.ErrMigration, ckptdv1.Reason_REASON_MIGRATION_FAILED, connect.CodeFailedPrecondition},
		{migrate.ErrInvalid, ckptdv1.Reason_REASON_MIGRATION_INVALID, connect.CodeInvalidArgument},
		{hook.ErrRejected, ckptdv1.Reason_REASON_PLUGIN_REJECTED, connect.CodeFailedPrecondition},
		{hook.ErrFailed, ckptdv1.Reason_REASON_PLUGIN_FAILED, connect.CodeFailedPrecondition},
		{hook.ErrFuel, ckptdv1.Reason_REASON_PLUGIN_FAILED, connect.CodeFailedPrecondition},
		{hook.ErrTimeout, ckptdv1.Reason_REASON_PLUGIN_FAILED, connect.CodeFailedPrecondition},
		{hook.ErrTrap, ckptdv1.Reason_REASON_PLUGIN_FAILED, connect.CodeFailedPrecondition},
		{hook.ErrLimit, ckptdv1.Reason_REASON_PLUGIN_FAILED, connect.CodeFailedPrecondition},
		{hook.ErrUnavailable, ckptdv1.Reason_REASON_PLUGIN_UNAVAILABLE, connect.CodeUnavailable},
		{hook.ErrInvalid, ckptdv1.Reason_REASON_PLUGIN_INVALID, connect.CodeInvalidArgument},
		{engine.ErrRejected, ckptdv1.Reason_REASON_PLUGIN_FAILED, connect.CodeFailedPrecondition}, // no details
		{engine.ErrNeedFull, ckptdv1.Reason_REASON_NEED_FULL, connect.CodeFailedPrecondition},
		{errBranchExists, ckptdv1.Reason_REASON_BRANCH_EXISTS, connect.CodeAlreadyExists},
		{engine.ErrConflict, ckptdv1.Reason_REASON_CONFLICT, connect.CodeAborted},
		{engine.ErrUnknownParent, ckptdv1.Reason_REASON_UNKNOWN_PARENT, connect.CodeFailedPrecondition},
		{engine.ErrGeneration, ckptdv1.Reason_REASON_GENERATION, connect.CodeFailedPrecondition},
		{engine.ErrExhausted, ckptdv1.Reason_REASON_EXHAUSTED, connect.CodeOutOfRange},
		{engine.ErrTooLarge, ckptdv1.Reason_REASON_TOO_LARGE, connect.CodeInvalidArgument},
		{engine.ErrKeyDestroyed, ckptdv1.Reason_REASON_KEY_DESTROYED, connect.CodeFailedPrecondition},
		{engine.ErrKeyMissing, ckptdv1.Reason_REASON_KEY_MISSING, connect.CodeFailedPrecondition},
		{engine.ErrCorrupt, ckptdv1.Reason_REASON_CORRUPT, connect.CodeDataLoss},
		{engine.ErrNoSpace, ckptdv1.Reason_REASON_NO_SPACE, connect.CodeResourceExhausted},
		{engine.ErrAmbiguous, ckptdv1.Reason_REASON_AMBIGUOUS, connect.CodeUnknown},
		{engine.ErrUnavailable, ckptdv1.Reason_REASON_UNAVAILABLE, connect.CodeUnavailable},
		{engine.ErrNewerFormat, ckptdv1.Reason_REASON_NEWER_FORMAT, connect.CodeFailedPrecondition},
		{engine.ErrClosed, ckptdv1.Reason_REASON_SHUTTING_DOWN, connect.CodeUnavailable},
		{engine.ErrInvalid, ckptdv1.Reason_REASON_INVALID, connect.CodeInvalidArgument},
		{engine.ErrNotFound, ckptdv1.Reason_REASON_NOT_FOUND, connect.CodeNotFound},
	}
}

// errBranchExists represents *engine.BranchExistsError, which has no sentinel.
var errBranchExists = errors.New("branch exists")

var table = Table()

// PackError makes the error that a handler returns. A *connect.Error is returned unchanged; an
// error without a row is internal, and its text is not sent to the caller.
func PackError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, engine.ErrAmbiguous): // also if that is so because a context ended
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, errors.New("canceled"))
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("deadline exceeded"))
	}
	row, ok := rowOf(err)
	if !ok {
		return connect.NewError(connect.CodeInternal, errors.New("internal error: see the server's log"))
	}
	message := toUTF8(err.Error())
	if row.Err == engine.ErrNotFound && strings.HasSuffix(message, engine.ErrNotFound.Error()) {
		// The caller must not be able to tell a missing thread or user from one that it must not
		// see. Of a thread that it can see, the missing part is named after this text.
		message = engine.ErrNotFound.Error()
	}
	out := connect.NewError(row.Code, errors.New(message))
	d := detailOf(err, row.Reason)
	if detail, err := connect.NewErrorDetail(d); err == nil {
		out.AddDetail(detail)
	}
	if d.RetryAfter != nil {
		out.Meta().Set("Retry-After", fmt.Sprint(max(1, int64(d.RetryAfter.AsDuration().Round(time.Second).Seconds()))))
	}
	return out
}

func rowOf(err error) (Row, bool) {
	_, branch := errors.AsType[*engine.BranchExistsError](err)
	if PluginUnfit(err) {
		err = hook.ErrInvalid
	}
	for _, row := range table {
		if errors.Is(err, row.Err) || branch && row.Err == errBranchExists {
			return row, true
		}
	}
	return Row{}, false
}

func detailOf(err error, reason ckptdv1.Reason) *ckptdv1.ErrorDetail {
	d := &ckptdv1.ErrorDetail{Reason: reason}
	if e, ok := errors.AsType[*engine.ConflictError](err); ok {
		d.HeadSeq, d.HeadId = e.HeadSeq, e.HeadID
	}
	if e, ok := errors.AsType[*engine.BranchExistsError](err); ok {
		d.Branch, d.HeadSeq = e.Name, e.HeadSeq
	}
	if e, ok := errors.AsType[*engine.NeedFullError](err); ok {
		d.NeedFull = e.Channels
	}
	if e, ok := errors.AsType[*engine.LimitError](err); ok {
		d.What, d.Size, d.Most = e.What, e.Size, e.Most
	}
	if e, ok := errors.AsType[*engine.CorruptError](err); ok {
		d.What = toUTF8(e.Record)
	}
	if e, ok := errors.AsType[*RetryError](err); ok {
		d.What, d.RetryAfter = e.What, durationpb.New(e.After)
	}
	d.Plugin, d.Migration = packPluginError(err), packMigrationError(err)
	return d
}

// PackSaveError makes the error of one save of a batch.
func PackSaveError(err error) *ckptdv1.SaveError {
	packed, _ := errors.AsType[*connect.Error](PackError(err))
	return &ckptdv1.SaveError{Code: packed.Code().String(), Message: packed.Message(), Detail: detailIn(packed)}
}

// remoteError is an error with the server's text. It matches the same sentinels as on the server.
type remoteError struct {
	message string
	is      error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

// UnpackError is the inverse of PackError: its result matches the same sentinels and types. Errors
// that do not come from a ckptd server are judged by their code alone.
func UnpackError(err error) error {
	packed, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	if d := detailIn(packed); d != nil {
		return unpackDetail(packed.Message(), d)
	}
	switch packed.Code() {
	case connect.CodeCanceled:
		return &remoteError{packed.Message(), context.Canceled}
	case connect.CodeDeadlineExceeded:
		return &remoteError{packed.Message(), context.DeadlineExceeded}
	case connect.CodeUnavailable:
		return &remoteError{packed.Message(), engine.ErrUnavailable}
	case connect.CodeUnauthenticated:
		return &remoteError{packed.Message(), ErrUnauthenticated}
	case connect.CodePermissionDenied:
		return &remoteError{packed.Message(), ErrDenied}
	case connect.CodeResourceExhausted: // too large for the RPC library
		return &remoteError{packed.Message(), engine.ErrTooLarge}
	case connect.CodeInvalidArgument:
		return &remoteError{packed.Message(), engine.ErrInvalid}
	}
	return packed
}

// UnpackSaveError is the inverse of PackSaveError.
func UnpackSaveError(m *ckptdv1.SaveError) error {
	if m.GetDetail() == nil {
		return errors.New(m.GetMessage())
	}
	return unpackDetail(m.GetMessage(), m.GetDetail())
}

func detailIn(err *connect.Error) *ckptdv1.ErrorDetail {
	for _, d := range err.Details() {
		if m, err := d.Value(); err == nil {
			if d, ok := m.(*ckptdv1.ErrorDetail); ok {
				return d
			}
		}
	}
	return nil
}

func unpackDetail(message string, d *ckptdv1.ErrorDetail) error {
	e := &remoteError{message: message}
	switch d.GetReason() {
	case ckptdv1.Reason_REASON_CONFLICT:
		e.is = &engine.ConflictError{HeadSeq: d.GetHeadSeq(), HeadID: d.GetHeadId()}
	case ckptdv1.Reason_REASON_BRANCH_EXISTS:
		e.is = &engine.BranchExistsError{Name: d.GetBranch(), HeadSeq: d.GetHeadSeq()}
	case ckptdv1.Reason_REASON_NEED_FULL:
		e.is = &engine.NeedFullError{Channels: d.GetNeedFull()}
	case ckptdv1.Reason_REASON_TOO_LARGE:
		e.is = &engine.LimitError{What: d.GetWhat(), Size: d.GetSize(), Most: d.GetMost()}
	case ckptdv1.Reason_REASON_CORRUPT:
		e.is = &engine.CorruptError{Record: d.GetWhat(), Reason: message}
	case ckptdv1.Reason_REASON_OVERLOADED:
		e.is = &RetryError{Err: ErrOverloaded, What: d.GetWhat(), After: d.GetRetryAfter().AsDuration()}
	case ckptdv1.Reason_REASON_SHUTTING_DOWN:
		e.is = &RetryError{Err: ErrShuttingDown, What: d.GetWhat(), After: d.GetRetryAfter().AsDuration()}
	case ckptdv1.Reason_REASON_PLUGIN_REJECTED, ckptdv1.Reason_REASON_PLUGIN_FAILED, ckptdv1.Reason_REASON_PLUGIN_UNAVAILABLE,
		ckptdv1.Reason_REASON_PLUGIN_INVALID:
		e.is = unpackPluginError(d)
	case ckptdv1.Reason_REASON_SCHEMA_TOO_NEW, ckptdv1.Reason_REASON_NO_MIGRATION, ckptdv1.Reason_REASON_MIGRATION_FAILED,
		ckptdv1.Reason_REASON_MIGRATION_REFUSED, ckptdv1.Reason_REASON_MIGRATION_STOPPED:
		e.is = unpackMigrationError(d)
	default:
		for _, row := range table {
			if row.Reason == d.GetReason() {
				e.is = row.Err
				break
			}
		}
	}
	return e
}

// toUTF8 makes a text valid for a message: the engine's errors can quote bytes that are not UTF-8.
func toUTF8(s string) string { return strings.ToValidUTF8(s, "�") }
