package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/audit"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/jobs"
	"github.com/ckptd/ckptd/internal/migration"
	"github.com/ckptd/ckptd/internal/pluginset"
	"github.com/ckptd/ckptd/migrate"
)

// bed is a server on a Unix socket, over data that outlives it.
type bed struct {
	t      testing.TB
	dir    string
	be     backend.Backend
	opts   engine.Options
	limits Limits
	more   func(*Options) // what a test sets beside that, before start

	*Server
	tokens *access.Tokens
	socket string
	served chan error
}

// keepOpen ignores Close, so that the data of a mem backend outlives the store on it.
type keepOpen struct{ backend.Backend }

func (keepOpen) Close() error { return nil }

func newBed(t testing.TB, limits Limits) *bed {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	must(t, err)
	dir, err := os.MkdirTemp("", "ckptd") // t.TempDir may be too long for a socket
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bed{t: t, dir: dir, be: mem.Open(), limits: limits, opts: engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true}}
	b.start()
	t.Cleanup(func() {
		b.stop()
		b.verify()
	})
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bed) start() {
	b.t.Helper()
	plugins := pluginset.New(pluginset.Options{Dir: filepath.Join(b.dir, "plugins")})
	if b.opts.Hooks == nil {
		defer func() { b.opts.Hooks = nil }()
		b.opts.Hooks = plugins
	}
	sets := migration.NewSets(filepath.Join(b.dir, "migrations", "sets"), &migrate.Reader{}, nil)
	b.opts.Migrations = sets.For
	defer func() { b.opts.Migrations = nil }()
	store, err := engine.Open(b.t.Context(), keepOpen{b.be}, b.opts)
	must(b.t, err)
	plugins.Open(store.Upkeep())
	sets.Open(store.Upkeep())
	runner := jobs.New(jobs.Options{Store: store, Dir: filepath.Join(b.dir, "migrations"), Sets: sets, Find: sets.For})
	must(b.t, runner.Resume())
	b.tokens, err = access.OpenTokens(filepath.Join(b.dir, "tokens"), store.Upkeep())
	must(b.t, err)
	who, err := access.New(store.Upkeep(), access.Options{Tokens: b.tokens, OwnerIsAdmin: true})
	must(b.t, err)
	log, err := audit.Open(filepath.Join(b.dir, "audit"))
	must(b.t, err)
	o := Options{Store: store, Access: who, Tokens: b.tokens, Plugins: plugins, Migrator: runner, Audit: log, Limits: b.limits, Version: "test"}
	o.Trace = honest{b.t}
	if b.more != nil {
		b.more(&o)
	}
	b.Server, err = New(o)
	must(b.t, err)
	b.socket = filepath.Join(b.dir, "sock")
	l, err := net.Listen("unix", b.socket)
	must(b.t, err)
	b.served = make(chan error, 1)
	go func() { b.served <- b.Serve(l, false) }()
}

func (b *bed) stop() {
	b.t.Helper()
	if b.Server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Shutdown(ctx); err != nil {
		b.t.Errorf("shutting down: %v", err)
	}
	if err := <-b.served; err != nil {
		b.t.Errorf("serving: %v", err)
	}
	b.migrator.Close()
	must(b.t, errors.Join(b.audit.Close(), b.store.Close()))
	b.Server = nil
}

// honest fails a test in which a method answers a reason that its rule does not name.
type honest struct{ t testing.TB }

func (h honest) look(spec connect.Spec, err error) {
	for _, reason := range reasonsIn(err) {
		if m := contract.API.Method(spec.Procedure); m != nil && !m.MayAnswer(reason) {
			h.t.Errorf("%s answers %v, which its rule does not name: %v", spec.Procedure, reason, err)
		}
	}
}

func (h honest) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		h.look(req.Spec(), err)
		return res, err
	}
}

func (h honest) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (h honest) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		err := next(ctx, conn)
		h.look(conn.Spec(), err)
		return err
	}
}

// reasonsIn are the reasons in an error: one, or none.
func reasonsIn(err error) (reasons []ckptdv1.Reason) {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if m, ok := m.(*ckptdv1.ErrorDetail); ok {
				reasons = append(reasons, m.GetReason())
			}
		}
	}
	return reasons
}

// verify checks what is stored once the server is down.
func (b *bed) verify() {
	if b.t.Failed() {
		return
	}
	store, err := engine.Open(context.Background(), keepOpen{b.be}, b.opts)
	must(b.t, err)
	defer store.Close()
	report, err := store.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{Deep: true})
	if err != nil || !report.Clean() {
		b.t.Errorf("verify: %v, %+v", err, report)
	}
}

// httpClient is a client with a connection pool of its own, which calls as the owner of the socket,
// or with a token.
func (b *bed) httpClient(token string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.socket)
	}
	transport := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 256}
	b.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearer{transport, token}}
}

type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(r)
}

const baseURL = "http://ckptd"

func (b *bed) checkpoints(token string) ckptdv1.CheckpointServiceClient {
	return ckptdv1.NewCheckpointServiceClient(b.httpClient(token), baseURL)
}

func (b *bed) threads(token string) ckptdv1.ThreadServiceClient {
	return ckptdv1.NewThreadServiceClient(b.httpClient(token), baseURL)
}

// token makes a token with grants.
func (b *bed) token(gs ...access.Grant) string {
	b.t.Helper()
	_, secret, err := b.tokens.Create("", gs, time.Now())
	must(b.t, err)
	return secret
}

func ref(thread string) *ckptdv1.Ref {
	return &ckptdv1.Ref{Tenant: "acme", User: "alice", Thread: thread}
}

func draft(text string) *ckptdv1.Draft {
	return &ckptdv1.Draft{Channels: []*ckptdv1.Change{{Name: "x", Content: &ckptdv1.Change_Text{Text: text}}}}
}

func mustSave(t testing.TB, c ckptdv1.CheckpointServiceClient, r *ckptdv1.Ref, d *ckptdv1.Draft) *ckptdv1.Checkpoint {
	t.Helper()
	res, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: r, Draft: d}))
	must(t, err)
	return res.Msg.GetCheckpoint()
}

// wantCode checks an error's RPC code and reason.
func wantCode(t testing.TB, err error, code connect.Code, reason ckptdv1.Reason) {
	t.Helper()
	got := ckptdv1.Reason_REASON_UNSPECIFIED
	for _, reason := range reasonsIn(err) {
		got = reason
	}
	if err == nil || connect.CodeOf(err) != code || got != reason {
		t.Errorf("got %v (%v, %v), want %v, %v", err, connect.CodeOf(err), got, code, reason)
	}
}
