package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/certtest"
	"github.com/ckptd/ckptd/internal/telemetry"
)

// markers are texts that stand nowhere else, by what they are given as.
type markers map[string]string

// mark returns a marker for something.
func (m markers) mark(what string) string {
	if m[what] == "" {
		m[what] = "zq" + strings.ToLower(rand.Text())[:10] + "é"
	}
	return m[what]
}

// ascii is mark for what goes into a header.
func (m markers) ascii(what string) string {
	if m[what] == "" {
		m[what] = "zq" + strings.ToLower(rand.Text())[:12]
	}
	return m[what]
}

// found returns what is in a text, in any of the forms that a text can have.
func (m markers) found(text []byte) (found []string) {
	lower := bytes.ToLower(text)
	for what, marker := range m {
		for form, want := range forms(marker) {
			if bytes.Contains(text, []byte(want)) || strings.HasPrefix(form, "hex") && bytes.Contains(lower, []byte(want)) {
				found = append(found, what+" "+form)
			}
		}
	}
	slices.Sort(found)
	return found
}

func forms(marker string) map[string]string {
	quoted, _ := json.Marshal(marker)
	f := map[string]string{"raw": marker, "hex": hex.EncodeToString([]byte(marker)), "escaped for a URL": url.QueryEscape(marker), "escaped for a path": url.PathEscape(marker),
		"quoted": strings.Trim(string(quoted), `"`), "quoted by Go": strings.Trim(fmt.Sprintf("%+q", marker), `"`)}
	for before := range 3 { // base64 depends on where in a longer text it begins
		padded := append(make([]byte, before), marker...)
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64 for URLs": base64.RawURLEncoding} {
			text := enc.EncodeToString(padded)
			// What its neighbours have a part in is left off.
			f[fmt.Sprintf("%s, %d bytes in", name, before)] = text[(before*8+5)/6 : len(text)-1]
		}
	}
	return f
}

// sinks are all the places that a server writes to but the store.
type sinks struct {
	logs, traces lockedBuffer
	metrics      *telemetry.Metrics
	audit        string
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.Buffer.Bytes())
}

func (s *sinks) texts(t *testing.T) map[string][]byte {
	t.Helper()
	pages := &bytes.Buffer{}
	for _, h := range []http.Handler{telemetry.AdminHandler(s.metrics, func() error { return nil }), telemetry.MetricsHandler(s.metrics)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		pages.Write(w.Body.Bytes())
	}
	auditLog, err := os.ReadFile(s.audit)
	must(t, err)
	return map[string][]byte{"logs": s.logs.Bytes(), "traces": s.traces.Bytes(), "metrics": pages.Bytes(), "audit log": auditLog}
}

// newWatchedBed is a server with everything on that writes something somewhere.
func newWatchedBed(t *testing.T) (*bed, *sinks, *faultyReads) {
	s := &sinks{metrics: telemetry.NewMetrics(telemetry.MetricsOptions{Version: "test"})}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.traces.Write(body)
		r.Header.Write(&s.traces)
	}))
	t.Cleanup(collector.Close)
	trace, stop, err := telemetry.NewTracer(t.Context(), telemetry.TraceOptions{Endpoint: collector.URL, Ratio: 1, Version: "test"})
	must(t, err)
	log, err := telemetry.NewLogger(&s.logs, "debug", "json")
	must(t, err)
	b := newBed(t, Limits{MaxMessage: 1 << 20})
	b.stop()
	reads := &faultyReads{Backend: b.be}
	b.be = reads
	t.Cleanup(func() { must(t, stop(context.Background())) })
	s.audit = filepath.Join(b.dir, "audit")
	b.more = func(o *Options) { o.Log, o.Trace, o.Metrics = log, trace, s.metrics }
	b.start()
	s.metrics.ObserveStore(b.store.Upkeep())
	return b, s, reads
}

// faultyReads fails, or panics, when it is read from, in words that it should not use.
type faultyReads struct {
	backend.Backend
	fails, panics atomic.Pointer[string]
}

func (f *faultyReads) trip() error {
	if text := f.panics.Load(); text != nil {
		panic(*text)
	}
	if text := f.fails.Load(); text != nil {
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, *text)
	}
	return nil
}

func (f *faultyReads) Get(ctx context.Context, keys ...[]byte) ([]backend.Entry, error) {
	if err := f.trip(); err != nil {
		return nil, err
	}
	return f.Backend.Get(ctx, keys...)
}

func (f *faultyReads) Scan(ctx context.Context, r backend.Range) ([]backend.Entry, []byte, error) {
	if err := f.trip(); err != nil {
		return nil, nil, err
	}
	return f.Backend.Scan(ctx, r)
}

// TestNothingTelling makes every call in every way, with markers wherever a caller can put a text,
// and looks for them in logs, metrics, traces and the audit log.
func TestNothingTelling(t *testing.T) {
	b, s, reads := newWatchedBed(t)
	m := markers{}
	names := exampleNames{tenant: m.mark("tenant"), user: m.mark("user"), thread: m.mark("thread"), namespace: m.mark("namespace"), id: m.mark("id"), run: m.mark("run"),
		branch: m.mark("branch"), channel: m.mark("channel"), state: m.mark("state"), label: m.mark("label"), value: m.mark("value of a label"),
		meta: `{"x":"` + m.mark("metadata") + `"}`, status: m.mark("status"), task: m.mark("task"), note: m.mark("note of a token")}
	tls := b.strangers(t, m)
	callers := map[string]*http.Client{"owner": b.http2Client(""), "certificate": tls.cert, "nobody": tls.none}
	for who, token := range map[string]string{
		"admin":     m.keep("token", b.token(access.Everything())),
		"reader":    m.keep("token of a reader", b.token(access.Grant{Role: access.Reader, Tenant: names.tenant, User: names.user})),
		"other":     m.keep("token of another", b.token(access.Grant{Role: access.Admin, Tenant: m.mark("another tenant"), User: "*"})),
		"jwt":       m.keep("jwt", tls.jwt),
		"bad jwt":   m.keep("bad jwt", tls.jwt[:len(tls.jwt)-4]+"AAAA"),
		"bad token": "ckptd_" + m.ascii("bad token"),
		"no token":  m.ascii("no token at all"),
	} {
		callers[who] = b.http2Client(token)
	}
	list := examples(begun(t, b.checkpoints(""), names))
	list = append(list, example{ckptdv1.ThreadServiceCopyProcedure, one(&ckptdv1.CopyRequest{Ref: &ckptdv1.Ref{Tenant: names.tenant, User: names.user, Thread: m.mark("a thread that is not there")}, To: "x"})},
		example{ckptdv1.CheckpointServiceSaveProcedure, one(&ckptdv1.SaveRequest{Ref: &ckptdv1.Ref{Tenant: m.mark("a tenant that is not there"), User: m.mark("a user that is not there"), Thread: strings.Repeat(m.mark("a long name"), 500)}, Draft: &ckptdv1.Draft{Parent: m.mark("parent"), Meta: proto.String("{" + m.mark("broken metadata"))}})},
		example{ckptdv1.AdminServiceCreateTokenProcedure, one(&ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: m.mark("role"), Tenant: names.tenant}}})},
		example{ckptdv1.ThreadServiceQueryProcedure, one(&ckptdv1.QueryRequest{Tenant: names.tenant, WholeTenant: true, PageToken: m.mark("page token")})},
		example{ckptdv1.ThreadServiceWatchProcedure, one(&ckptdv1.WatchRequest{Tenant: names.tenant, Cursor: m.mark("cursor")})},
		example{ckptdv1.BlobServiceGetBlobProcedure, one(&ckptdv1.GetBlobRequest{Tenant: names.tenant, User: names.user, Id: m.mark("blob id")})})
	codes := map[string]int{}
	all := func(who string, d dialect, skip ...string) {
		for _, e := range list {
			if slices.Contains(skip, e.procedure) {
				continue
			}
			body := d.body(methods()[e.procedure], e.messages)
			for _, broken := range []bool{false, true} {
				if broken {
					body = append(slices.Clone(body[:len(body)*2/3]), m.mark("broken body")...)
				}
				r, err := d.request(t.Context(), e.procedure, body)
				must(t, err)
				r.Header.Set("User-Agent", m.ascii("user agent"))
				r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
				r.Header.Set("Tracestate", "x="+m.ascii("trace state"))
				r.Header.Set("Baggage", "x="+m.ascii("baggage"))
				r.Header.Set("X-Request-Id", m.ascii("request id"))
				o, err := d.call(callers[who], r)
				must(t, err)
				codes[o.code]++
			}
		}
	}
	for who := range callers {
		all(who, inProto)
	}
	all("owner", inJSON)
	all("admin", inGRPC)
	all("jwt", inGRPCWeb)
	for _, path := range []string{"/ckptd.v1.CheckpointService/" + m.ascii("method"), "/" + m.ascii("path"), "/ckptd.v1." + m.ascii("service") + "/Save",
		ckptdv1.CheckpointServiceLoadProcedure + "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"ref":{"thread":"`+m.mark("thread in a URL")+`"}}`)} {
		for _, who := range []string{"owner", "bad token", "nobody"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, baseURL+path, nil)
			must(t, err)
			for _, method := range []string{http.MethodGet, http.MethodPost, m.ascii("verb")} {
				r.Method = method
				_, err := inJSON.call(callers[who], r)
				must(t, err)
			}
		}
	}
	words := m.mark("words of the backend")
	reads.fails.Store(&words)
	all("owner", inProto, ckptdv1.ThreadServiceWatchProcedure)
	reads.fails.Store(nil)
	codes[b.panics(t, reads, m.mark("words of a panic"))]++

	for _, code := range []string{"ok", "not_found", "unauthenticated", "permission_denied", "invalid_argument", "unavailable", "internal"} {
		if codes[code] == 0 {
			t.Errorf("no call ended with %s, so that it is not known what is said then: %v", code, codes)
		}
	}
	s.awaitTraces(t)
	for sink, text := range s.texts(t) {
		if found := m.found(text); len(found) > 0 {
			t.Errorf("the %s have %q", sink, found)
		}
		if !bytes.Contains(text, []byte("CheckpointService/Save")) {
			t.Errorf("the %s do not even name the method: what was looked at?\n%s", sink, shortened(text))
		}
		for form, said := range forms(m["state"]) {
			control := markers{"state": m["state"]}
			if !slices.Contains(control.found(slices.Concat(text, []byte(" "+said+" "))), "state "+form) {
				t.Errorf("a marker in the %s would not be found %s", sink, form)
			}
		}
	}
}

// keep notes what was made elsewhere as a marker.
func (m markers) keep(what, text string) string {
	m[what] = text
	return text
}

// panics makes a call whose handler panics, and returns its code.
func (b *bed) panics(t *testing.T, reads *faultyReads, words string) string {
	t.Helper()
	reads.panics.Store(&words)
	defer reads.panics.Store(nil)
	procedure := ckptdv1.AdminServiceGetRetentionProcedure
	r, err := inProto.request(t.Context(), procedure, inProto.body(methods()[procedure], one(&ckptdv1.GetRetentionRequest{Tenant: "panic"})))
	must(t, err)
	o, err := inProto.call(b.httpClient(""), r)
	must(t, err)
	if strings.Contains(o.message, words) {
		t.Errorf("the caller is told of a panic: %s", o.message)
	}
	return o.code
}

// awaitTraces waits until the collector has the traces up to that of the last call.
func (s *sinks) awaitTraces(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		have := bytes.Contains(s.traces.Bytes(), []byte("AdminService/GetRetention"))
		if have {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no traces arrive")
		}
	}
}

// strangers are callers who are known by other means than a token of ours.
type strangers struct {
	cert, none *http.Client // by a client certificate, and by nothing
	jwt        string
}

// strangers lets the bed know callers by certificates and by JSON web tokens, whose names are
// markers.
func (b *bed) strangers(t *testing.T, m markers) *strangers {
	t.Helper()
	authority := certtest.NewAuthority(t)
	b.stop()
	more := b.more
	b.more = func(o *Options) {
		more(o)
		o.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Pair(t, "localhost")}, ClientCAs: authority.Pool, ClientAuth: tls.VerifyClientCertIfGiven}
	}
	b.start()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: m.ascii("key id"), Use: "sig"}}})
	must(t, err)
	file := filepath.Join(b.dir, "jwks.json")
	must(t, os.WriteFile(file, set, 0o600))
	issuer := "https://" + m.ascii("issuer") + ".example"
	name := m.ascii("name in a certificate")
	who, err := access.New(b.store.Upkeep(), access.Options{Tokens: b.tokens, OwnerIsAdmin: true, JWT: &access.JWT{Issuer: issuer, KeyFile: file, Audience: "ckptd"},
		Certificates: []access.CertificateRule{{CommonName: name, Grants: []access.Grant{{Role: access.Writer, Tenant: m.mark("tenant"), User: m.mark("user")}}}}})
	must(t, err)
	b.SetAccess(who)

	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", m["key id"]))
	must(t, err)
	claims, err := json.Marshal(map[string]any{"iss": issuer, "aud": "ckptd", "sub": m.mark("subject of a JWT"), "tenant": m.mark("tenant"), "role": "writer", "exp": time.Now().Add(time.Hour).Unix()})
	must(t, err)
	jws, err := signer.Sign(claims)
	must(t, err)
	raw, err := jws.CompactSerialize()
	must(t, err)

	address := b.serveTLS()
	return &strangers{cert: tlsClient(t, address, authority.Pool, authority.Pair(t, name)), none: tlsClient(t, address, authority.Pool), jwt: raw}
}

// tlsClient calls the server at an address whatever the URL says, over TLS.
func tlsClient(t *testing.T, address string, pool *x509.CertPool, certs ...tls.Certificate) *http.Client {
	conf := &tls.Config{RootCAs: pool, Certificates: certs, ServerName: "localhost"}
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: elsewhere{transport, address}}
}

type elsewhere struct {
	http.RoundTripper
	address string
}

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "http" {
		return nil, errors.New("the tests call " + baseURL)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "https", e.address
	return e.RoundTripper.RoundTrip(r)
}
