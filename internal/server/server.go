// Package server is the daemon: the wire API over a store, with access control, limits and an
// orderly end. A request flows one way: connection → credentials → admission → authorization →
// engine → answer.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/jobs"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/internal/pluginset"
	"github.com/ckptd/ckptd/internal/telemetry"
	"github.com/ckptd/ckptd/internal/wire"
)

// Options configure a server. Store, Access and Tokens are required.
type Options struct {
	Store   *engine.Store
	Access  *access.Authenticator
	Tokens  *access.Tokens
	Plugins *pluginset.Set // the hooks of the store; nil: none can be installed
	// Migrator runs migration jobs; nil: there are none. Its creator closes it, after the server.
	Migrator *jobs.Runner
	Audit    *audit.Log         // nil: denials, exports and administration are not recorded
	Metrics  *telemetry.Metrics // nil: nothing is counted
	Trace    connect.Interceptor
	Log      *slog.Logger // nil: nothing is logged
	Limits   Limits
	Version  string
	TLS      *tls.Config // for listeners that want TLS
	// CompressLocal also compresses answers to callers on this machine that accept it.
	CompressLocal bool
}

// Server serves a store until it is shut down. It does not close the store.
type Server struct {
	api      *contract.Table
	store    *engine.Store
	access   atomic.Pointer[access.Authenticator]
	tokens   *access.Tokens
	plugins  *pluginset.Set
	migrator *jobs.Runner
	audit    *audit.Log
	metrics  *telemetry.Metrics
	log      *slog.Logger
	version  string
	started  time.Time

	limits atomic.Pointer[Limits]
	gate   gate
	open   openCalls
	unused unused
	health *grpchealth.StaticChecker
	errors *connect.ErrorWriter
	http   *http.Server

	draining  chan struct{} // closed when the server begins to shut down
	drainOnce sync.Once
	failed    chan error // has the error after which the store takes no more writes
}

// New makes a server that is ready to serve.
func New(o Options) (*Server, error) {
	if o.Store == nil || o.Access == nil || o.Tokens == nil {
		return nil, errors.New("creating a server: it needs a store, an authenticator and tokens")
	}
	if o.Plugins == nil {
		o.Plugins = pluginset.New(pluginset.Options{})
	}
	if o.Migrator == nil {
		o.Migrator = jobs.New(jobs.Options{Store: o.Store})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = telemetry.NewMetrics(telemetry.MetricsOptions{})
	}
	s := &Server{api: contract.API, store: o.Store, tokens: o.Tokens, plugins: o.Plugins, migrator: o.Migrator, audit: o.Audit, metrics: o.Metrics, log: o.Log, version: o.Version,
		started: time.Now(), draining: make(chan struct{}), failed: make(chan error, 1)}
	if err := s.SetLimits(o.Limits); err != nil {
		return nil, err
	}
	s.access.Store(o.Access)
	s.gate.tenants = map[string]int{}
	s.gate.callers = map[string]*share{}
	s.gate.rates = map[string]*callerRate{}
	l := s.limits.Load()
	s.health = grpchealth.NewStaticChecker(services()...)
	s.http = &http.Server{
		Handler:           s.front(s.handler(&o, l)),
		TLSConfig:         o.TLS,
		ConnContext:       s.connContext,
		ReadHeaderTimeout: l.HeaderTimeout,
		IdleTimeout:       l.IdleTimeout,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(droppedNames{o.Log.Handler()}, slog.LevelDebug),
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: l.StreamsPerConnection},
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s, nil
}

// droppedNames drops the messages of net/http about connections: they quote addresses and data from
// peers.
type droppedNames struct{ slog.Handler }

func (d droppedNames) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, "a connection ended with an error", r.PC)
	return d.Handler.Handle(ctx, clean)
}

// compressFrom is the size in bytes from which answers are compressed for callers that accept it.
const compressFrom = 1 << 10

// handler serves all methods. It does not compress answers to callers on this machine: gzip takes
// some 25 ms for 1 MB, which a socket moves in less than 1 ms, and most HTTP libraries accept gzip
// unasked.
func (s *Server) handler(o *Options, l *Limits) http.Handler {
	far := s.routes(o.Trace, l, compressFrom)
	if o.CompressLocal {
		return far
	}
	near := s.routes(o.Trace, l, math.MaxInt)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local(r) {
			near.ServeHTTP(w, r)
		} else {
			far.ServeHTTP(w, r)
		}
	})
}

// routes serves all methods, and compresses answers of at least compressFrom bytes for callers that
// accept it.
func (s *Server) routes(trace connect.Interceptor, l *Limits, compressFrom int) http.Handler {
	interceptors := []connect.Interceptor{&guard{s}}
	if trace != nil {
		interceptors = append([]connect.Interceptor{trace}, interceptors...)
	}
	options := []connect.HandlerOption{connect.WithInterceptors(interceptors...),
		connect.WithCompressMinBytes(compressFrom), connect.WithRecover(s.recovered), withCodecs(),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			return []connect.HandlerOption{connect.WithReadMaxBytes(int(l.most(spec.Procedure, s.api.Method(spec.Procedure))))}
		})}
	s.errors = connect.NewErrorWriter(options...)
	mux := http.NewServeMux()
	names := services()
	mux.Handle(ckptdv1.NewCheckpointServiceHandler(checkpoints{s}, options...))
	mux.Handle(ckptdv1.NewThreadServiceHandler(threads{s}, options...))
	mux.Handle(ckptdv1.NewBlobServiceHandler(blobs{s}, options...))
	mux.Handle(ckptdv1.NewAdminServiceHandler(admin{s}, options...))
	mux.Handle(ckptdv1.NewPluginServiceHandler(plugins{s}, options...))
	mux.Handle(ckptdv1.NewMigrationServiceHandler(migrations{s}, options...))
	small := connect.WithHandlerOptions(connect.WithReadMaxBytes(openMessage), connect.WithCodec(countedProto{}))
	mux.Handle(grpchealth.NewHandler(s.health, small))
	reflector := grpcreflect.NewStaticReflector(append(names, grpchealth.HealthV1ServiceName)...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, small))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, small))
	return mux
}

// services are the names of the services of the API.
func services() (names []string) {
	for _, service := range contract.Services() {
		names = append(names, string(service.FullName()))
	}
	return names
}

// recovered answers a request whose handler panicked. The process continues: a handler holds no
// part of the store.
func (s *Server) recovered(ctx context.Context, spec connect.Spec, _ http.Header, p any) error {
	err, elsewhere := p.(*panics.Error) // in a goroutine of the handler's
	if !elsewhere {
		err = &panics.Error{Value: p, Stack: string(debug.Stack())}
	}
	s.logPanic(ctx, spec.Procedure, err)
	return connect.NewError(connect.CodeInternal, errors.New("internal error: see the server's log"))
}

// logPanic logs an error if it is a panic, by its type: its text could quote a state.
func (s *Server) logPanic(ctx context.Context, procedure string, err error) {
	if e, ok := errors.AsType[*panics.Error](err); ok {
		s.log.ErrorContext(ctx, "a handler panicked", "method", procedure, "panic", typeName(e.Value), "stack", e.Stack)
	}
}

// Serve accepts connections on a listener until the server is shut down, which is not an error.
func (s *Server) Serve(l net.Listener, withTLS bool) error {
	l = &listener{l, s}
	var err error
	if withTLS {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Failed yields an error as soon as the store accepts no more writes: the process should exit and
// reopen the store.
func (s *Server) Failed() <-chan error { return s.failed }

// Shutdown stops the server gracefully: it refuses new requests and watches with SHUTTING_DOWN and
// completes those in flight. When ctx ends it cuts off the rest and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drainOnce.Do(func() {
		for _, name := range append(services(), "") {
			s.health.SetStatus(name, grpchealth.StatusNotServing)
		}
		close(s.draining)
	})
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

// SetAccess changes the access rules, for new requests and for open watches.
func (s *Server) SetAccess(a *access.Authenticator) { s.access.Store(a) }

// InFlight is the number of requests in flight, without watches.
func (s *Server) InFlight() int { return int(s.gate.inFlight.Load()) }

// Draining reports whether the server has begun to shut down.
func (s *Server) Draining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

func (s *Server) shuttingDown() error {
	return &wire.RetryError{Err: wire.ErrShuttingDown, After: time.Second}
}
