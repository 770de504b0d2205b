package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/wire"
)

// finish counts, records and logs the end of a request, and returns its error for the wire. The
// target is nil if the request was refused before its message was read.
func (s *Server) finish(ctx context.Context, c *call, t *target, err error) error {
	c.finished = true
	packed := wire.PackError(err)
	code := "ok"
	if packed != nil {
		code = connect.CodeOf(packed).String()
	}
	s.metrics.RequestDone(c.procedure, code, time.Since(c.began))
	if e, ok := errors.AsType[*wire.RetryError](err); ok && e.What != "" {
		s.metrics.Rejected(e.What)
	}
	_, denied := errors.AsType[*denial](err)
	switch {
	case denied || errors.Is(err, wire.ErrUnauthenticated):
		s.metrics.Denied(c.procedure)
		s.record(c, t, audit.Denied, packed)
	case t != nil && c.exports:
		s.record(c, t, audit.Export, packed)
	case t != nil && c.audited():
		s.record(c, t, audit.Admin, packed)
	}
	s.logPanic(ctx, c.procedure, err)
	s.logEnd(ctx, c, code, err)
	if err != nil && errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrNoSpace) {
		s.suspect(err)
	}
	return packed
}

// logEnd logs a request by its method and caller, without its target.
func (s *Server) logEnd(ctx context.Context, c *call, code string, err error) {
	level, message := slog.LevelDebug, "a request ended"
	switch {
	case errors.Is(err, wire.ErrShuttingDown):
	case errors.Is(err, engine.ErrRejected) && !errors.Is(err, hook.ErrRejected):
		level, message = slog.LevelWarn, "a plugin failed"
	case code == "internal" || code == "data_loss" || code == "unavailable" || code == "unknown":
		level, message = slog.LevelWarn, "a request failed"
	case code == "unauthenticated" || code == "permission_denied":
		level, message = slog.LevelInfo, "a request was denied"
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	caller := "unknown"
	if c.caller != nil {
		caller = c.caller.Name
	}
	attrs := []any{"method", c.method(), "caller", caller, "code", code, "took_ms", float64(time.Since(c.began).Microseconds()) / 1000}
	if level == slog.LevelWarn {
		attrs = append(attrs, "error", cause(err))
		attrs = append(attrs, fault(err)...)
	}
	if e, ok := errors.AsType[*access.RefusedError](err); ok {
		attrs = append(attrs, "why", e.Why)
	}
	if e, ok := errors.AsType[*hook.Error](err); ok && e.Plugin != "" {
		attrs = append(attrs, "plugin", e.Plugin, "failure", wire.PluginKind(e)) // not its reason, which the plugin may have given
	}
	s.log.Log(ctx, level, message, attrs...)
}

// cause describes an error by the sentinels that it matches, and by the description of a damaged
// record, which has no ids. It leaves out the text itself, which can quote names.
func cause(err error) string {
	if e, ok := errors.AsType[*engine.CorruptError](err); ok {
		return engine.ErrCorrupt.Error() + ": " + e.Record
	}
	for _, row := range wire.Table() {
		if errors.Is(err, row.Err) {
			return row.Err.Error()
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the caller went away"
	}
	return typeName(err)
}

// fault names the file and the error of the system behind an error. The server's files are named by
// the operator, or by tokens and digests, never by an id. A link error has two paths, the second
// for the same file.
func fault(err error) []any {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return []any{"op", e.Op, "path", e.Path, "cause", systemError(e.Err)}
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return []any{"op", e.Op, "path", e.New, "cause", systemError(e.Err)}
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return []any{"cause", e.Error()}
	}
	return nil
}

// systemError is the text of an error of the system; any other could quote anything.
func systemError(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return typeName(err)
}

// record writes to the audit log. If that fails, the request has still happened, so the server logs
// the failure and continues.
func (s *Server) record(c *call, t *target, kind audit.Kind, err error) {
	if s.audit == nil {
		return
	}
	e := audit.Entry{Kind: kind, Method: c.method(), Caller: "unknown", About: c.about, Code: "ok"}
	if c.caller != nil {
		e.Caller = c.caller.Name
	}
	if err != nil {
		e.Code = connect.CodeOf(wire.PackError(err)).String()
	}
	if t != nil && t.tenant != "" {
		e.Tenant = s.store.Upkeep().Pseudonym("audit", t.tenant)
		if t.user != "" {
			e.User = s.store.Upkeep().Pseudonym("audit", t.tenant, t.user)
		}
		if t.user != "" && t.thread != "" {
			e.Thread = s.store.Upkeep().Pseudonym("audit", t.tenant, t.user, t.thread)
		}
	}
	if err := s.audit.Append(e); err != nil {
		s.log.Error("writing the audit log failed", "method", c.method(), "error", err)
	}
}

// suspect finds out whether the store has stopped for good, as it does after a write that failed.
func (s *Server) suspect(why error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := s.store.Upkeep().Retention(ctx, "-"); !errors.Is(err, engine.ErrUnavailable) {
		return
	}
	select {
	case s.failed <- why:
	default: // it is known already
	}
}
