// Package client is the Go client of the ckptd daemon. It mirrors packages engine and upkeep: the
// same methods with the same types, and errors that match the same values. It adds retries, resumed
// streams and credentials.
//
// A call is retried, after a wait with jitter, when the server did nothing (it was unreachable,
// overloaded or shutting down), and when an answer was lost and the call is idempotent: reads, and
// saves, which carry an id for that purpose. If the answer is lost for good, the error matches
// engine.ErrAmbiguous if something may have changed, and ErrUnreachable if not. Lists and watches
// resume where their connection broke.
//
// A Store and all its handles are safe for concurrent use.
package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/contract"
)

// Options configure Dial. The zero value works.
type Options struct {
	// Token is a bearer token. Over http:// everyone on the way can read it, so that is for the
	// loopback interface.
	Token string
	// TLS is for https://: root certificates, and a certificate of the client's own. Nil trusts the
	// system's roots.
	TLS *tls.Config

	// Attempts is the maximum number of attempts of a call, and of a stream that receives nothing:
	// 10 by default; 1 disables retries.
	Attempts int
	// Backoff is the longest wait before the second attempt, and doubles with each one up to
	// MaxBackoff. The actual wait is a random part of it, plus the time that the server asked for.
	// The defaults are 50 ms and 5 s.
	Backoff, MaxBackoff time.Duration
	// Timeout bounds every attempt of a call that has one answer; 0 means only the caller's context
	// does.
	Timeout time.Duration
	// Heartbeat is the interval at which the server sends a sign of life in an idle watch: 1 s to
	// 10 min, by default 15 s. After three missed heartbeats the watch reconnects.
	Heartbeat time.Duration

	// Waiting, if not nil, is called before a call is retried, with the reason and the wait, in the
	// goroutine of the caller.
	Waiting func(err error, wait time.Duration)

	// Export says with every load that the state leaves the store, for the audit log of the server.
	Export bool

	// EngineIDs leaves the ids of drafts without one to the engine. Such a save is not repeated
	// when its answer is lost, which is engine.ErrAmbiguous then. Otherwise they get a UUIDv7 here.
	EngineIDs bool
}

func (o Options) complete() (Options, error) {
	for _, d := range []time.Duration{o.Backoff, o.MaxBackoff, o.Timeout, o.Heartbeat, time.Duration(o.Attempts)} {
		if d < 0 {
			return o, fmt.Errorf("%w: client options must not be negative", engine.ErrInvalid)
		}
	}
	set := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
	}
	if o.Attempts == 0 {
		o.Attempts = 10
	}
	set(&o.Backoff, 50*time.Millisecond)
	set(&o.MaxBackoff, max(5*time.Second, o.Backoff))
	set(&o.Heartbeat, 15*time.Second)
	return o, nil
}

// Store is a store behind a server. Its methods are those of engine.Store, and some that only a
// server has.
type Store struct {
	addr    string
	api     *contract.Table
	o       Options
	http    *transport
	life    context.Context // ends with Close
	end     context.CancelFunc
	ids     idClock
	pause   func(ctx context.Context, d time.Duration) error
	threads ckptdv1.ThreadServiceClient
	cps     ckptdv1.CheckpointServiceClient
	blobs   ckptdv1.BlobServiceClient
	admin   ckptdv1.AdminServiceClient
	plugins ckptdv1.PluginServiceClient
	migrate ckptdv1.MigrationServiceClient
}

// Dial returns the store behind a server at unix:PATH, http://HOST:PORT or https://HOST:PORT.
// Nothing is sent yet.
func Dial(addr string, o Options) (*Store, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	base, socket := addr, ""
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if socket = strings.TrimPrefix(path, "//"); socket == "" {
			return nil, fmt.Errorf("%w: server %q: want unix:PATH", engine.ErrInvalid, addr)
		}
		base = "http://localhost"
	} else if u, err := url.Parse(addr); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: server %q: want unix:PATH, http://HOST:PORT or https://HOST:PORT", engine.ErrInvalid, addr)
	}
	t := newTransport(socket, o.TLS)
	plain := connect.WithAcceptCompression("gzip", nil, nil) // states are worth more processor time than bytes nearby
	s := &Store{addr: addr, api: contract.API, o: o, http: t, pause: sleep,
		threads: ckptdv1.NewThreadServiceClient(t, base, plain),
		cps:     ckptdv1.NewCheckpointServiceClient(t, base, plain),
		blobs:   ckptdv1.NewBlobServiceClient(t, base, plain),
		admin:   ckptdv1.NewAdminServiceClient(t, base, plain),
		plugins: ckptdv1.NewPluginServiceClient(t, base, plain),
		migrate: ckptdv1.NewMigrationServiceClient(t, base, plain),
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Addr returns the address that was dialled.
func (s *Store) Addr() string { return s.addr }

// Close ends lists and watches and closes idle connections; operations after it return
// engine.ErrClosed. The store of the server stays open.
func (s *Store) Close() error {
	s.end()
	s.http.rt.CloseIdleConnections()
	return nil
}

// Thread returns the handle of a lineage. Its methods report an invalid ref.
func (s *Store) Thread(ref engine.Ref) *Thread { return &Thread{s, ref} }

// User returns the handle of a user. Its methods report invalid names.
func (s *Store) User(tenant, name string) *User { return &User{s, tenant, name} }
