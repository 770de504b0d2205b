package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger makes a logger that writes a line for every record, with the id of the trace that its
// context belongs to. The level is debug, info, warn or error, the format json or text.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	least, ok := levels[level]
	if !ok {
		return nil, fmt.Errorf("unknown log level %q: want debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: least}
	switch format {
	case "json":
		return slog.New(traced{slog.NewJSONHandler(w, o)}), nil
	case "text":
		return slog.New(traced{slog.NewTextHandler(w, o)}), nil
	}
	return nil, fmt.Errorf("unknown log format %q: want json or text", format)
}

// traced adds the id of the trace to records.
type traced struct{ slog.Handler }

func (t traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }
func (t traced) WithGroup(name string) slog.Handler       { return traced{t.Handler.WithGroup(name)} }
