package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

const (
	marker      = "MARKER" // in everything that must not be told
	parentTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentSpan  = "00f067aa0ba902b7"
)

// receiver is a collector that takes OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	paths []string
	raw   [][]byte
	got   []*spans.ResourceSpans
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var m collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paths, r.raw, r.got = append(r.paths, req.URL.Path), append(r.raw, body), append(r.got, m.ResourceSpans...)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) spans() (all []*spans.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range r.got {
		for _, scope := range resource.ScopeSpans {
			all = append(all, scope.Spans...)
		}
	}
	return all
}

func attributes(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		m[kv.Key] = kv.Value.GetStringValue()
	}
	return m
}

// service answers with errors that name what they were about.
type service struct {
	ckptdv1.UnimplementedCheckpointServiceHandler
}

func (service) Save(_ context.Context, req *connect.Request[ckptdv1.SaveRequest]) (*connect.Response[ckptdv1.SaveResponse], error) {
	res := connect.NewResponse(&ckptdv1.SaveResponse{Checkpoint: &ckptdv1.Checkpoint{Id: req.Msg.GetRef().GetThread()}})
	res.Header().Set("X-Thread", marker)
	return res, nil
}

func (service) Load(context.Context, *connect.Request[ckptdv1.LoadRequest]) (*connect.Response[ckptdv1.LoadResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, errors.New("thread "+marker))
}

func (service) Diff(context.Context, *connect.Request[ckptdv1.DiffRequest]) (*connect.Response[ckptdv1.DiffResponse], error) {
	return nil, connect.NewError(connect.CodeDataLoss, errors.New("thread "+marker))
}

func (service) List(_ context.Context, _ *connect.Request[ckptdv1.ListRequest], s *connect.ServerStream[ckptdv1.ListResponse]) error {
	return s.Send(&ckptdv1.ListResponse{NextPageToken: marker})
}

// serve serves the service, traced, and returns a client that sends markers wherever it can.
func serve(t *testing.T, o TraceOptions) (client ckptdv1.CheckpointServiceClient, stop func(context.Context) error) {
	t.Helper()
	trace, stop, err := NewTracer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(ckptdv1.NewCheckpointServiceHandler(service{}, connect.WithInterceptors(trace)))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return ckptdv1.NewCheckpointServiceClient(s.Client(), s.URL+"/"), stop
}

func ask[M any](m *M, traceparent string) *connect.Request[M] {
	req := connect.NewRequest(m)
	req.Header().Set("Authorization", "Bearer "+marker)
	req.Header().Set("User-Agent", marker)
	req.Header().Set("Tracestate", "vendor="+marker)
	req.Header().Set("Baggage", "user="+marker)
	if traceparent != "" {
		req.Header().Set("Traceparent", traceparent)
	}
	return req
}

func TestTraces(t *testing.T) {
	r := newReceiver(t)
	client, stop := serve(t, TraceOptions{Endpoint: r.URL, Ratio: 1, Version: "1.2.3"})
	ctx := t.Context()
	parent := "00-" + parentTrace + "-" + parentSpan + "-01"
	ref := &ckptdv1.Ref{Tenant: marker, User: marker, Thread: marker}
	if _, err := client.Save(ctx, ask(&ckptdv1.SaveRequest{Ref: ref}, parent)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Load(ctx, ask(&ckptdv1.LoadRequest{Ref: ref}, "")); connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	if _, err := client.Diff(ctx, ask(&ckptdv1.DiffRequest{Ref: ref}, "")); connect.CodeOf(err) != connect.CodeDataLoss {
		t.Fatal(err)
	}
	list, err := client.List(ctx, ask(&ckptdv1.ListRequest{Ref: ref}, parent))
	if err != nil {
		t.Fatal(err)
	}
	for list.Receive() {
	}
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	if err := stop(ctx); err != nil {
		t.Fatal(err)
	}

	type span struct {
		Trace, Parent string // as in the request; "" for a new trace
		Kind          spans.Span_SpanKind
		Failed        bool
		Attributes    map[string]string
	}
	attrs := func(method, code string) map[string]string {
		return map[string]string{"rpc.system.name": "connectrpc", "rpc.method": "ckptd.v1.CheckpointService/" + method, "rpc.response.status_code": code}
	}
	failed := attrs("Diff", "data_loss")
	failed["error.type"] = "data_loss"
	const server = spans.Span_SPAN_KIND_SERVER
	want := map[string]span{
		"ckptd.v1.CheckpointService/Save": {parentTrace, parentSpan, server, false, attrs("Save", "ok")},
		"ckptd.v1.CheckpointService/Load": {"", "", server, false, attrs("Load", "not_found")},
		"ckptd.v1.CheckpointService/Diff": {"", "", server, true, failed},
		"ckptd.v1.CheckpointService/List": {parentTrace, parentSpan, server, false, attrs("List", "ok")},
	}
	got := map[string]span{}
	for _, s := range r.spans() {
		one := span{hex.EncodeToString(s.TraceId), hex.EncodeToString(s.ParentSpanId), s.Kind, s.GetStatus().GetCode() == spans.Status_STATUS_CODE_ERROR, attributes(s.Attributes)}
		if one.Parent == "" && one.Trace != parentTrace {
			one.Trace = ""
		}
		if s.EndTimeUnixNano <= s.StartTimeUnixNano || len(s.Events)+len(s.Links) > 0 {
			t.Errorf("%s: from %d to %d, events %v, links %v", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, s.Events, s.Links)
		}
		got[s.Name] = one
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	about := attributes(r.got[0].Resource.Attributes)
	if about["service.name"] != "ckptd" || about["service.version"] != "1.2.3" {
		t.Errorf("about the service: %v", about)
	}
	if diff := cmp.Diff("/v1/traces", r.paths[0]); diff != "" {
		t.Error(diff)
	}
	for _, raw := range r.raw {
		if bytes.Contains(raw, []byte(marker)) {
			t.Errorf("the collector was told %q", raw)
		}
	}
}

// Whether a request is traced is decided by who began the trace, and by the ratio only where nobody
// did.
func TestTraceRatio(t *testing.T) {
	r := newReceiver(t)
	client, stop := serve(t, TraceOptions{Endpoint: r.URL, Ratio: 0})
	for _, parent := range []string{"", "00-" + parentTrace + "-" + parentSpan + "-00", "00-" + parentTrace + "-" + parentSpan + "-01", "nonsense"} {
		if _, err := client.Save(t.Context(), ask(&ckptdv1.SaveRequest{}, parent)); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.spans(); len(got) != 1 || hex.EncodeToString(got[0].TraceId) != parentTrace {
		t.Errorf("%d spans, want the one whose parent was sampled", len(got))
	}
}

func TestTraceEndpoint(t *testing.T) {
	for _, tt := range []struct{ flag, traces, base, want string }{
		{"", "", "", ""},
		{"http://127.0.0.1:4318", "", "", "http://127.0.0.1:4318/v1/traces"},
		{"http://127.0.0.1:4318/", "", "", "http://127.0.0.1:4318/v1/traces"},
		{"https://collector/custom", "", "", "https://collector/custom"},
		{"", "https://collector/custom", "https://other", "https://collector/custom"},
		{"", "", "https://collector", "https://collector/v1/traces"},
		{"", "", "https://collector/prefix/", "https://collector/prefix/v1/traces"},
		{"http://flag", "http://traces", "http://base", "http://flag/v1/traces"},
		{"localhost:4318", "", "", "error"},
		{"ftp://collector", "", "", "error"},
		{"http://", "", "", "error"},
		{"http://user:" + marker + "@%", "", "", "error"},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", tt.traces)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tt.base)
		got, err := (&TraceOptions{Endpoint: tt.flag}).endpoint()
		if err != nil {
			if strings.Contains(err.Error(), marker) {
				t.Errorf("the error has the password: %v", err)
			}
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestNewTracer(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	trace, stop, err := NewTracer(t.Context(), TraceOptions{Ratio: 1})
	if trace != nil || err != nil || stop(t.Context()) != nil {
		t.Errorf("without an endpoint: %v, %v", trace, err)
	}
	if _, _, err := NewTracer(t.Context(), TraceOptions{Endpoint: "http://127.0.0.1:1", Ratio: 1.5}); err == nil {
		t.Error("a ratio of 1.5 is accepted")
	}
}

// A collector that refuses is told of in the log, now and then, and hurts nobody else.
func TestCollectorRefuses(t *testing.T) {
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer refuse.Close()
	var out bytes.Buffer
	client, stop := serve(t, TraceOptions{Endpoint: refuse.URL, Ratio: 1, Log: slog.New(slog.NewTextHandler(&out, nil))})
	for range 2000 { // more than a batch
		if _, err := client.Save(t.Context(), ask(&ckptdv1.SaveRequest{}, "")); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "traces do not arrive") {
		t.Errorf("logged %q", got)
	}
}

// What a handler panicked with does not get into its span.
func TestTraceOfPanic(t *testing.T) {
	r := newReceiver(t)
	trace, stop, err := NewTracer(t.Context(), TraceOptions{Endpoint: r.URL, Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		trace.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { panic(marker) })(
			t.Context(), ask(&ckptdv1.SaveRequest{}, ""))
	}()
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.spans(); len(got) != 1 || bytes.Contains(r.raw[0], []byte(marker)) {
		t.Errorf("%d spans: %q", len(got), r.raw)
	}
}
