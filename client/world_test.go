package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wire"
)

// world is a store behind as much of a server as the tests of the client need, on a Unix socket,
// and a client of it.
type world struct {
	*Store
	t      testing.TB
	engine *engine.Store
	socket string
	http   *httptest.Server
	secure bool

	conns  atomic.Int64 // accepted
	calls  atomic.Int64
	in     atomic.Int64 // bytes of requests that were read
	out    atomic.Int64 // bytes of answers
	paused []time.Duration

	mu    sync.Mutex
	fault func(call int64) fault
}

// fault is what befalls a call.
type fault struct {
	err     error // is the answer, and nothing is done
	drop    bool  // the connection breaks before the answer, and all is done
	cut     int64 // if not 0: the connection breaks after so many bytes of the answer
	silence bool  // no answer comes until the client goes away
}

func newWorld(t testing.TB, o Options) *world {
	t.Helper()
	return makeWorld(t, o, false, nil)
}

// newHookedWorld is newWorld with hooks on what is saved and loaded.
func newHookedWorld(t testing.TB, h hook.Hooks) *world {
	t.Helper()
	return makeWorld(t, Options{}, false, h)
}

// overBoth runs a test over HTTP/1.1 on a Unix socket, and over HTTP/2 with TLS.
func overBoth(t *testing.T, o Options, f func(*testing.T, *world)) {
	t.Run("http1", func(t *testing.T) { f(t, makeWorld(t, o, false, nil)) })
	t.Run("http2", func(t *testing.T) { f(t, makeWorld(t, o, true, nil)) })
}

func makeWorld(t testing.TB, o Options, secure bool, h hook.Hooks) *world {
	t.Helper()
	root, err := crypto.GenerateRootKey()
	if err != nil {
		t.Fatal(err)
	}
	st, err := engine.Open(context.Background(), mem.Open(), engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true, Hooks: h})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ckptd") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, engine: st, socket: filepath.Join(dir, "s"), secure: secure}
	w.start()
	t.Cleanup(func() {
		w.Store.Close()
		w.http.CloseClientConnections()
		w.http.Close()
		st.Close()
		os.RemoveAll(dir)
	})
	w.Store = w.dial(o)
	return w
}

func (w *world) dial(o Options) *Store {
	w.t.Helper()
	addr := "unix:" + w.socket
	if w.secure {
		addr, o.TLS = w.http.URL, &tls.Config{RootCAs: x509.NewCertPool()}
		o.TLS.RootCAs.AddCert(w.http.Certificate())
	}
	c, err := Dial(addr, o)
	if err != nil {
		w.t.Fatal(err)
	}
	c.pause = func(ctx context.Context, d time.Duration) error {
		w.mu.Lock()
		w.paused = append(w.paused, d)
		w.mu.Unlock()
		return ctx.Err()
	}
	return c
}

func (w *world) start() {
	mux := http.NewServeMux()
	mux.Handle(ckptdv1.NewCheckpointServiceHandler(&checkpoints{w: w}))
	mux.Handle(ckptdv1.NewThreadServiceHandler(&threads{w: w}))
	mux.Handle(ckptdv1.NewBlobServiceHandler(&blobs{w: w}))
	mux.Handle(ckptdv1.NewAdminServiceHandler(&admin{}))
	w.http = httptest.NewUnstartedServer(w.faulty(mux))
	w.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			w.conns.Add(1)
		}
	}
	if w.secure {
		w.http.EnableHTTP2 = true
		w.http.StartTLS()
		return
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.http.Listener.Close()
	w.http.Listener = l
	w.http.Start()
}

// faults lets f say what befalls each call, counted from 1.
func (w *world) faults(f func(call int64) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls.Store(0)
	w.paused, w.fault = nil, f
}

// pauses returns how long the client wanted to wait, since the faults were set.
func (w *world) pauses() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused
}

func (w *world) faulty(next http.Handler) http.Handler {
	errs := connect.NewErrorWriter()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		var f fault
		if n := w.calls.Add(1); w.fault != nil {
			f = w.fault(n)
		}
		w.mu.Unlock()
		if w.secure != (r.ProtoMajor == 2) {
			w.t.Errorf("a request over %s", r.Proto)
		}
		w.in.Add(max(r.ContentLength, 0))
		switch {
		case f.err != nil:
			errs.Write(rw, r, wire.PackError(f.err))
		case f.silence:
			io.Copy(io.Discard, r.Body) // only then the end of the connection is seen
			<-r.Context().Done()
		case f.drop:
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(&countedWriter{ResponseWriter: rw, w: w, cut: f.cut}, r)
		}
	})
}

// countedWriter counts what is written, and breaks the connection after cut bytes.
type countedWriter struct {
	http.ResponseWriter
	w   *world
	cut int64
	n   int64
}

func (c *countedWriter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func (c *countedWriter) Write(p []byte) (int, error) {
	if c.cut > 0 && c.n+int64(len(p)) > c.cut {
		c.ResponseWriter.Write(p[:c.cut-c.n])
		c.Flush()
		panic(http.ErrAbortHandler)
	}
	c.n += int64(len(p))
	c.w.out.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// The handlers do what those of the daemon do, in the shortest way. Lists come in small pages.
const pageSize = 3

type checkpoints struct {
	ckptdv1.UnimplementedCheckpointServiceHandler
	w *world
}

func (h *checkpoints) thread(m interface{ GetRef() *ckptdv1.Ref }) *engine.Thread {
	return h.w.engine.Thread(wire.UnpackRef(m.GetRef()))
}

func (h *checkpoints) save(ctx context.Context, m *ckptdv1.SaveRequest) (*ckptdv1.Checkpoint, error) {
	d, err := wire.UnpackDraft(m.GetDraft())
	if err != nil {
		return nil, err
	}
	cp, err := h.thread(m).Save(ctx, d)
	if err != nil {
		return nil, err
	}
	return wire.PackCheckpoint(cp, wire.All), nil
}

func (h *checkpoints) Save(ctx context.Context, req *connect.Request[ckptdv1.SaveRequest]) (*connect.Response[ckptdv1.SaveResponse], error) {
	cp, err := h.save(ctx, req.Msg)
	if err != nil {
		return nil, wire.PackError(err)
	}
	return connect.NewResponse(&ckptdv1.SaveResponse{Checkpoint: cp}), nil
}

func (h *checkpoints) SaveBatch(ctx context.Context, req *connect.Request[ckptdv1.SaveBatchRequest]) (*connect.Response[ckptdv1.SaveBatchResponse], error) {
	res := &ckptdv1.SaveBatchResponse{}
	for _, m := range req.Msg.GetSaves() {
		if cp, err := h.save(ctx, m); err != nil {
			res.Results = append(res.Results, &ckptdv1.SaveResult{Result: &ckptdv1.SaveResult_Error{Error: wire.PackSaveError(err)}})
		} else {
			res.Results = append(res.Results, &ckptdv1.SaveResult{Result: &ckptdv1.SaveResult_Checkpoint{Checkpoint: cp}})
		}
	}
	return connect.NewResponse(res), nil
}

func (h *checkpoints) Load(ctx context.Context, req *connect.Request[ckptdv1.LoadRequest]) (*connect.Response[ckptdv1.LoadResponse], error) {
	m := req.Msg
	o := engine.LoadOptions{HeadersOnly: m.GetHeadersOnly()}
	if len(m.GetChannels()) > 0 {
		o.Channels = m.GetChannels()
	}
	cp, err := h.thread(m).Load(ctx, wire.UnpackWhich(m.GetWhich()), o)
	if err != nil {
		return nil, wire.PackError(err)
	}
	packed := wire.PackCheckpoint(cp, wire.All)
	for i, ch := range cp.Channels {
		for _, have := range m.GetHave() {
			if have.GetChannel() == ch.Name && ch.Data != nil && sha256.Sum256(ch.Data) == [32]byte(have.GetSha256()) {
				packed.Channels[i].Content = &ckptdv1.Channel_Unchanged{Unchanged: true}
			}
		}
	}
	return connect.NewResponse(&ckptdv1.LoadResponse{Checkpoint: packed}), nil
}

func (h *checkpoints) List(ctx context.Context, req *connect.Request[ckptdv1.ListRequest], stream *connect.ServerStream[ckptdv1.ListResponse]) error {
	m := req.Msg
	o := engine.HistoryOptions{Before: m.GetPageToken(), Limit: int(m.GetPageSize()), Data: m.GetData(), Filter: wire.UnpackFilter(m.GetFilter())}
	res := &ckptdv1.ListResponse{}
	for cp, err := range h.thread(m).History(ctx, o) {
		if err != nil {
			return wire.PackError(err)
		}
		res.Checkpoints = append(res.Checkpoints, wire.PackCheckpoint(cp, wire.All))
		if len(res.Checkpoints) == pageSize {
			res.NextPageToken = cp.ID
			if err := stream.Send(res); err != nil {
				return err
			}
			res = &ckptdv1.ListResponse{}
		}
	}
	return stream.Send(res)
}

type threads struct {
	ckptdv1.UnimplementedThreadServiceHandler
	w *world
}

func (h *threads) ListThreads(ctx context.Context, req *connect.Request[ckptdv1.ListThreadsRequest], stream *connect.ServerStream[ckptdv1.ListThreadsResponse]) error {
	m := req.Msg
	o := engine.ThreadOptions{Prefix: m.GetPrefix(), Status: m.GetStatus(), Count: m.GetCount(), After: max(m.GetAfter(), m.GetPageToken()),
		ByActivity: m.GetByActivity(), ActiveAt: wire.UnpackTime(m.GetActiveAt())}
	res := &ckptdv1.ListThreadsResponse{}
	for info, err := range h.w.engine.User(m.GetTenant(), m.GetUser()).Threads(ctx, o) {
		if err != nil {
			return wire.PackError(err)
		}
		res.Threads = append(res.Threads, wire.PackThreadInfo(&info))
		if len(res.Threads) == pageSize {
			res.NextPageToken = info.Ref.Thread
			if err := stream.Send(res); err != nil {
				return err
			}
			res = &ckptdv1.ListThreadsResponse{}
		}
	}
	return stream.Send(res)
}

func (h *threads) Delete(ctx context.Context, req *connect.Request[ckptdv1.DeleteRequest]) (*connect.Response[ckptdv1.DeleteResponse], error) {
	generation, err := h.w.engine.Thread(wire.UnpackRef(req.Msg.GetRef())).Delete(ctx)
	return connect.NewResponse(&ckptdv1.DeleteResponse{Generation: generation}), wire.PackError(err)
}

func (h *threads) Watch(ctx context.Context, req *connect.Request[ckptdv1.WatchRequest], stream *connect.ServerStream[ckptdv1.WatchResponse]) error {
	m := req.Msg
	scope := engine.WatchScope{Tenant: m.GetTenant(), User: m.GetUser(), Thread: m.GetThread(), Began: true}
	for e, err := range h.w.engine.Watch(ctx, scope, engine.Cursor(m.GetCursor())) {
		if err != nil {
			return wire.PackError(err)
		}
		res := &ckptdv1.WatchResponse{Cursor: string(e.Cursor)}
		if e.Seq != 0 {
			res.Event = wire.PackEvent(&e)
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
	return nil
}

type blobs struct {
	ckptdv1.UnimplementedBlobServiceHandler
	w *world
}

// upstream reads the data of an upload.
type upstream struct {
	stream *connect.ClientStream[ckptdv1.PutBlobRequest]
	rest   []byte
}

func (u *upstream) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		if !u.stream.Receive() {
			return 0, cmp.Or(u.stream.Err(), io.EOF)
		}
		u.rest = u.stream.Msg().GetData()
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

func (h *blobs) PutBlob(ctx context.Context, stream *connect.ClientStream[ckptdv1.PutBlobRequest]) (*connect.Response[ckptdv1.PutBlobResponse], error) {
	stream.Receive()
	m := stream.Msg()
	id, size, err := h.w.engine.User(m.GetTenant(), m.GetUser()).PutBlob(ctx, &upstream{stream: stream})
	return connect.NewResponse(&ckptdv1.PutBlobResponse{Id: id.String(), Size: size}), wire.PackError(err)
}

type downstream struct {
	stream *connect.ServerStream[ckptdv1.GetBlobResponse]
}

func (d downstream) Write(p []byte) (int, error) {
	return len(p), d.stream.Send(&ckptdv1.GetBlobResponse{Data: p})
}

func (h *blobs) GetBlob(ctx context.Context, req *connect.Request[ckptdv1.GetBlobRequest], stream *connect.ServerStream[ckptdv1.GetBlobResponse]) error {
	id, err := engine.ParseBlobID(req.Msg.GetId())
	if err == nil {
		_, err = h.w.engine.User(req.Msg.GetTenant(), req.Msg.GetUser()).GetBlob(ctx, id, downstream{stream})
	}
	return wire.PackError(err)
}

// admin makes reports, and then says what was wrong.
type admin struct {
	ckptdv1.UnimplementedAdminServiceHandler
}

func (*admin) CollectGarbage(_ context.Context, req *connect.Request[ckptdv1.CollectGarbageRequest], stream *connect.ServerStream[ckptdv1.CollectGarbageResponse]) error {
	stream.Send(&ckptdv1.CollectGarbageResponse{Stage: "parts"})
	stream.Send(&ckptdv1.CollectGarbageResponse{Report: &ckptdv1.GarbageReport{Users: 7}})
	return wire.PackError(fmt.Errorf("user bob: %w", engine.ErrKeyMissing))
}

func (*admin) Verify(_ context.Context, req *connect.Request[ckptdv1.VerifyRequest], stream *connect.ServerStream[ckptdv1.VerifyResponse]) error {
	stream.Send(&ckptdv1.VerifyResponse{Done: 1, Total: 2})
	return stream.Send(&ckptdv1.VerifyResponse{Report: &ckptdv1.VerifyReport{Users: 7}})
}

// place returns a ref for a test.
func place(thread string) engine.Ref {
	return engine.Ref{Tenant: "acme", User: "alice", Thread: thread}
}

// fill saves n checkpoints to a thread, past the server.
func (w *world) fill(thread string, n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		cp, err := w.engine.Thread(place(thread)).Save(context.Background(), engine.Draft{Step: int64(i), Channels: []engine.Change{{Name: "n", Data: []byte(strconv.Itoa(i))}}})
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, cp.ID)
	}
	return ids
}

func random(n int) []byte {
	b := make([]byte, n/2)
	rand.Read(b)
	return []byte(hex.EncodeToString(b))
}
