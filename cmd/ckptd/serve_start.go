package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/durable"
	"github.com/ckptd/ckptd/internal/jobs"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/pluginset"
	"github.com/ckptd/ckptd/internal/server"
	"github.com/ckptd/ckptd/internal/telemetry"
)

// running is a daemon with all that it holds open.
type running struct {
	server    *server.Server
	store     *engine.Store
	tokens    *access.Tokens
	plugins   *pluginset.Set
	migrator  *jobs.Runner
	sets      *migration.Sets
	audit     *audit.Log // nil for none
	log       *slog.Logger
	metrics   *telemetry.Metrics
	keys      *keyPair // nil without TLS
	listeners []listening
	admin     []*http.Server // metrics and profiles, each on its listener
	adminOn   []net.Listener
	trace     connect.Interceptor // nil for none
	stopTrace func(context.Context) error

	fixed      fixedFlags
	firstToken string // file of the token that was made on this first start
}

// listening is a listener of the API.
type listening struct {
	net.Listener
	tls bool
}

func (a *app) start(ctx context.Context, o *serveOptions) (r *running, err error) {
	r = &running{stopTrace: func(context.Context) error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.log, err = telemetry.NewLogger(a.errOut, o.logLevel, o.logFormat); err != nil {
		return r, usageError{err}
	}
	r.metrics = telemetry.NewMetrics(telemetry.MetricsOptions{Version: buildVersion()})
	// Check the configuration first: a mistake in an address should not create a store.
	if _, err := access.New(onPaper{}, o.access); err != nil {
		return r, usagef("%s: %w", cmp.Or(o.config, "the configuration"), err)
	}
	trace, stop, err := telemetry.NewTracer(ctx, telemetry.TraceOptions{Endpoint: o.otlp, Ratio: o.traceRatio, Version: buildVersion(), Log: r.log})
	if err != nil {
		return r, usageError{err}
	}
	r.trace, r.stopTrace = trace, stop
	if err := r.listen(o); err != nil {
		return r, err
	}
	fresh, err := missingOrEmpty(a.data)
	if err != nil {
		return r, fmt.Errorf("opening the store: %w", err)
	}
	a.backend = badger.Options{Observe: r.metrics.ObserveGroup}
	a.pluginOptions = o.plugins
	a.pluginOptions.Log, a.pluginOptions.Metrics = r.log, r.metrics
	if r.store, err = a.open(ctx, true); err != nil {
		return r, err
	}
	r.plugins = a.plugins
	if err := r.plugins.Start(ctx); err != nil { // now, and not when the first save needs them
		return r, err
	}
	if err := r.startMigrations(ctx, a); err != nil {
		return r, err
	}
	if r.tokens, err = access.OpenTokens(o.tokensFile, r.store.Upkeep()); err != nil {
		return r, err
	}
	if fresh {
		if err := r.makeFirstToken(a, a.base+".token"); err != nil {
			return r, err
		}
	}
	if o.auditLog != "" {
		if r.audit, err = audit.Open(o.auditLog); err != nil {
			return r, err
		}
	}
	return r, r.makeServer(o)
}

// startMigrations reads the installed sets, and resumes the jobs that were running. A set that
// cannot be read must not keep the daemon from serving: its states are served as saved.
func (r *running) startMigrations(ctx context.Context, a *app) error {
	r.sets = a.migrations.sets
	if _, err := r.sets.Known(ctx); err != nil {
		r.log.Warn("some installed migrations cannot be read: states that need them are not migrated")
	}
	r.migrator = jobs.New(jobs.Options{Store: r.store, Dir: a.base + ".migrations", Sets: r.sets, Find: a.migrations.find, Log: r.log})
	return r.migrator.Resume()
}

func (r *running) makeServer(o *serveOptions) error {
	who, err := r.authenticator(o)
	if err != nil {
		return fmt.Errorf("reading the access rules: %w", err)
	}
	so := server.Options{Store: r.store, Access: who, Tokens: r.tokens, Plugins: r.plugins, Migrator: r.migrator, Audit: r.audit, Metrics: r.metrics, Trace: r.trace, Log: r.log,
		Limits: o.limits, Version: buildVersion(), CompressLocal: o.compress}
	if r.keys != nil {
		so.TLS = r.keys.config()
	}
	if r.server, err = server.New(so); err != nil {
		return usageError{err}
	}
	r.metrics.ObserveStore(r.store.Upkeep())
	return nil
}

// onPaper replaces a store when only the form of a configuration is checked.
type onPaper struct{}

func (onPaper) SealSidecar(dst []byte, _ string, _ []byte) ([]byte, error) { return dst, nil }
func (onPaper) OpenSidecar(string, []byte) ([]byte, error)                 { return nil, nil }
func (onPaper) Pseudonym(string, ...string) string                         { return "" }

// authenticator grants access by the tokens and the configuration.
func (r *running) authenticator(o *serveOptions) (*access.Authenticator, error) {
	options := o.access
	options.Tokens = r.tokens
	return access.New(r.store.Upkeep(), options)
}

// makeFirstToken creates a token for the default user of commands and writes it to a file, because
// printed text ends up in logs.
func (r *running) makeFirstToken(a *app, path string) error {
	grant := access.Grant{Role: access.Writer, Tenant: a.tenant, User: a.user}
	_, secret, err := r.tokens.Create("first token", []access.Grant{grant}, time.Now())
	if err == nil {
		err = durable.WriteFile(path, []byte(secret+"\n"))
	}
	if err != nil {
		return fmt.Errorf("creating the first token: %w", err)
	}
	r.firstToken = path
	return nil
}

// serveAll serves on all sockets. The returned channel gets an error if one of them fails.
func (r *running) serveAll() <-chan error {
	failed := make(chan error, len(r.listeners)+len(r.admin))
	for _, l := range r.listeners {
		go func() {
			if err := r.server.Serve(l.Listener, l.tls); err != nil {
				failed <- err
			}
		}()
	}
	for i, s := range r.admin {
		go func() {
			if err := s.Serve(r.adminOn[i]); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
	}
	return failed
}

// close closes everything that is open, the store last.
func (r *running) close() error {
	var errs []error
	for _, l := range r.listeners {
		l.Close()
	}
	for i, s := range r.admin {
		s.Close()
		r.adminOn[i].Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs = append(errs, r.stopTrace(ctx))
	if r.audit != nil {
		errs = append(errs, r.audit.Close())
	}
	if r.migrator != nil {
		r.migrator.Close()
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.plugins != nil {
		errs = append(errs, r.plugins.Close())
	}
	return errors.Join(errs...)
}

// reload reads the settings again that can change while the daemon runs: limits, access rules,
// tokens, certificates, and the path of the audit log.
func (a *app) reload(r *running, given map[string][]string) error {
	var o serveOptions
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fresh := newApp()
	fresh.flags(f)
	o.flags(f)
	for name, values := range given {
		if err := setValues(f, name, values); err != nil {
			return err
		}
	}
	if err := fresh.configure(f, &o); err != nil {
		return err
	}
	if changed := r.fixed.changed(f); len(changed) > 0 {
		r.log.Warn("these changes need a restart", "changed", changed)
	}
	if err := r.tokens.Reload(); err != nil {
		return err
	}
	who, err := r.authenticator(&o)
	if err != nil {
		return fmt.Errorf("reading the access rules: %w", err)
	}
	if r.keys != nil {
		if err := r.keys.load(); err != nil {
			return err
		}
	}
	if err := r.plugins.Reload(context.Background()); err != nil {
		return err
	}
	if _, err := r.sets.List(context.Background()); err != nil {
		return err
	}
	if r.audit != nil {
		if err := r.audit.Reopen(); err != nil {
			return err
		}
	}
	if err := r.server.SetLimits(o.limits); err != nil {
		return err
	}
	r.server.SetAccess(who)
	return nil
}

// ready reports why the daemon cannot serve.
func (r *running) ready() error {
	if r.server == nil {
		return errors.New("starting")
	}
	if r.server.Draining() {
		return errors.New("shutting down")
	}
	return nil
}
