package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TraceOptions say where traces go, and which.
type TraceOptions struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP; without a path it is that of
	// OTLP, /v1/traces. "" uses OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT.
	// Other OpenTelemetry variables, such as those for headers and certificates of the collector,
	// apply as well.
	Endpoint string
	// Ratio is the share of requests without a trace of their own that are traced, from 0 to 1.
	// Those that come with one are traced if that is.
	Ratio   float64
	Version string       // of the program
	Log     *slog.Logger // is called when traces do not arrive; can be nil
}

// NewTracer makes an interceptor that traces the requests to a server, each as a child of the span
// in its traceparent. Without an endpoint the interceptor is nil. The returned function sends the
// remaining spans, until its context ends. Requests never wait for the collector: spans that it
// does not accept in time are dropped.
//
// A span has the method, the protocol and the RPC code, and nothing about the target of the
// request.
func NewTracer(ctx context.Context, o TraceOptions) (connect.Interceptor, func(context.Context) error, error) {
	endpoint, err := o.endpoint()
	if err != nil {
		return nil, nil, fmt.Errorf("setting up traces: %w", err)
	}
	if endpoint == "" {
		return nil, func(context.Context) error { return nil }, nil
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) {
		return nil, nil, fmt.Errorf("setting up traces: the ratio %v is not between 0 and 1", o.Ratio)
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("setting up traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "ckptd"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv()) // last, so that OTEL_SERVICE_NAME outweighs
	if err != nil {
		return nil, nil, fmt.Errorf("setting up traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithoutPanicRecording(),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Ratio))),
		sdktrace.WithBatcher(&patient{SpanExporter: exporter, log: o.Log}))
	return &tracer{provider.Tracer("github.com/ckptd/ckptd"), newNames()}, provider.Shutdown, nil
}

// endpoint is the URL that traces go to, "" for none.
func (o *TraceOptions) endpoint() (string, error) {
	given, base := o.Endpoint, true
	if given == "" {
		given, base = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), false
	}
	if given == "" {
		given, base = os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), true
	}
	if given == "" {
		return "", nil
	}
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("the endpoint is not a URL such as http://127.0.0.1:4318") // it is not quoted: it may hold a password
	}
	if base && (o.Endpoint == "" || strings.Trim(u.Path, "/") == "") {
		u = u.JoinPath("v1", "traces")
	}
	return u.String(), nil
}

// patient hides errors of the collector from the library, which would write them to standard error.
type patient struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	said time.Time
}

const sayAgain = time.Minute

func (p *patient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := p.SpanExporter.ExportSpans(ctx, spans)
	if err == nil || p.log == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.said) >= sayAgain {
		p.said = time.Now()
		p.log.WarnContext(ctx, "traces do not arrive", "error", err)
	}
	return nil
}

// tracer makes a span of every request to a handler.
type tracer struct {
	trace.Tracer
	names names
}

func (t *tracer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, span := t.begin(ctx, req.Spec(), req.Peer(), req.Header())
		defer span.End()
		res, err := next(ctx, req)
		t.outcome(span, err)
		return res, err
	}
}

func (t *tracer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, span := t.begin(ctx, conn.Spec(), conn.Peer(), conn.RequestHeader())
		defer span.End()
		err := next(ctx, conn)
		t.outcome(span, err)
		return err
	}
}

func (t *tracer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// begin starts the span of a request. Of a trace that comes with it only the ids and flags count:
// its state is text that others made up.
func (t *tracer) begin(ctx context.Context, spec connect.Spec, peer connect.Peer, header http.Header) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	if sc := trace.SpanContextFromContext(ctx); sc.IsRemote() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc.WithTraceState(trace.TraceState{}))
	}
	method := t.names.method(spec.Procedure)
	system := "grpc"
	if peer.Protocol == connect.ProtocolConnect {
		system = "connectrpc"
	}
	return t.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("rpc.system.name", system), attribute.String("rpc.method", method)))
}

// outcome notes how a request ended, without the text of its error.
func (t *tracer) outcome(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	span.SetAttributes(attribute.String("rpc.response.status_code", code))
	if ownFault(code) {
		span.SetAttributes(attribute.String("error.type", code))
		span.SetStatus(codes.Error, "")
	}
}
