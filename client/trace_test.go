package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/ckptd/ckptd/engine"
)

// TestTraceGoesOn loads in the context of a span: the server is told of it, and of none without.
func TestTraceGoesOn(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("traceparent"))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	c, err := Dial(s.URL, Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	thread := c.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: "t"})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	for _, ctx := range []context.Context{trace.ContextWithSpanContext(t.Context(), span), t.Context()} {
		if _, err := thread.Load(ctx, engine.Latest); err == nil {
			t.Error("a page that is not found is a checkpoint")
		}
	}
	if len(got) != 2 || got[0] != "00-01000000000000000000000000000000-0200000000000000-01" || got[1] != "" {
		t.Errorf("the server is told %q", got)
	}
}
