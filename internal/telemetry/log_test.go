package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func TestNewLogger(t *testing.T) {
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0xab, 15: 1}, SpanID: trace.SpanID{7: 1}}))
	const id = "ab000000000000000000000000000001"

	var out bytes.Buffer
	log, err := NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.DebugContext(ctx, "below the level")
	log.With("method", "Save").InfoContext(ctx, "a request\nended")
	log.Warn("without a trace")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("two records are %d lines:\n%s", len(lines), out.String())
	}
	var first map[string]string
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if first["msg"] != "a request\nended" || first["level"] != "INFO" || first["method"] != "Save" || first["trace_id"] != id {
		t.Errorf("logged %s", lines[0])
	}
	if strings.Contains(lines[1], "trace_id") {
		t.Errorf("logged %s", lines[1])
	}

	out.Reset()
	if log, err = NewLogger(&out, "debug", "text"); err != nil {
		t.Fatal(err)
	}
	log.DebugContext(ctx, "here")
	if got := out.String(); !strings.Contains(got, "level=DEBUG msg=here trace_id="+id+"\n") {
		t.Errorf("logged %s", got)
	}
}

func TestNewLoggerRefuses(t *testing.T) {
	for _, tt := range []struct{ level, format, want string }{
		{"loud", "json", `unknown log level "loud": want debug, info, warn or error`},
		{"", "json", `unknown log level "": want debug, info, warn or error`},
		{"info", "xml", `unknown log format "xml": want json or text`},
	} {
		if _, err := NewLogger(&bytes.Buffer{}, tt.level, tt.format); err == nil || err.Error() != tt.want {
			t.Errorf("level %q, format %q: %v", tt.level, tt.format, err)
		}
	}
}
