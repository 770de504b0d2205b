package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/access"
)

// matrix is a server with the same things in four places, where nobody is known without a token.
type matrix struct {
	*bed
	blobs   map[string]string
	clients map[string]*http.Client
	number  int
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{bed: newBed(t, Limits{}), blobs: map[string]string{}, clients: map[string]*http.Client{}}
	who, err := access.New(m.Server.store.Upkeep(), access.Options{Tokens: m.bed.tokens})
	must(t, err)
	m.SetAccess(who)
	for _, x := range []place{{"acme", "alice", ""}, {"acme", "bob", ""}, {"umbrella", "alice", ""}} {
		id, _, err := m.Server.store.User(x.tenant, x.user).PutBlob(t.Context(), strings.NewReader("a blob"))
		must(t, err)
		m.blobs[blobOf(x)] = id.String()
	}
	return m
}

// prepare makes what a request about a place needs, whatever was done there before.
func (m *matrix) prepare(x place, request proto.Message) {
	m.number++
	if r, ok := request.(*ckptdv1.RevokeTokenRequest); ok {
		token, _, err := m.bed.tokens.Create("", []access.Grant{{Role: access.Reader, Tenant: x.tenant, User: x.user, ThreadPrefix: x.thread}}, time.Now())
		must(m.t, err)
		r.Id = token.ID
	}
	m.preparePlugins(request)
	m.prepareMigrations(request)
	for _, thread := range []string{x.thread, "mine-1"} {
		m.prepareThread(place{x.tenant, x.user, thread})
	}
}

// preparePlugins makes the plugin that a request is about, with a version to roll back to, or the
// key.
func (m *matrix) preparePlugins(request proto.Message) {
	tenant := ""
	switch r := request.(type) {
	case *ckptdv1.GetPluginRequest:
		tenant = r.GetTenant()
	case *ckptdv1.SetPluginEnabledRequest:
		tenant = r.GetTenant()
	case *ckptdv1.RollbackPluginRequest:
		tenant = r.GetTenant()
	case *ckptdv1.RemovePluginRequest:
		tenant = r.GetTenant()
	case *ckptdv1.UntrustKeyRequest:
		if keys, err := m.Server.plugins.TrustedKeys(m.t.Context()); err == nil && len(keys) > 0 {
			r.Id = keys[0].GetId()
			return
		}
		key, err := m.Server.plugins.TrustKey(m.t.Context(), make([]byte, 32), "")
		must(m.t, err)
		r.Id = key.GetId()
		return
	default:
		return
	}
	if p, err := m.Server.plugins.Plugin(m.t.Context(), tenant, "redact"); err == nil && len(p.GetVersions()) > 1 && p.GetVersions()[0].GetActive() {
		return
	}
	for _, prefix := range []string{"before-", "now-"} {
		_, err := m.Server.plugins.InstallPlugin(m.t.Context(), &ckptdv1.InstallPluginRequest{Tenant: tenant, Builtin: "redact",
			Bindings: []*ckptdv1.PluginBinding{{ThreadPrefixes: []string{prefix}}}})
		must(m.t, err)
	}
}

// prepareMigrations makes the set that is removed, or the job that a request is about.
func (m *matrix) prepareMigrations(request proto.Message) {
	tenant := ""
	switch r := request.(type) {
	case *ckptdv1.RemoveMigrationSetRequest:
		_, err := m.Server.migrator.Install(m.t.Context(), &ckptdv1.InstallMigrationSetsRequest{Tenant: r.GetTenant(), Files: setFiles("support")})
		must(m.t, err)
		return
	case *ckptdv1.GetMigrationJobRequest:
		tenant = r.GetTenant()
	case *ckptdv1.WatchMigrationJobRequest:
		tenant = r.GetTenant()
	case *ckptdv1.CancelMigrationJobRequest:
		tenant = r.GetTenant()
	default:
		return
	}
	job, err := m.Server.migrator.Start(&ckptdv1.StartMigrationJobRequest{Tenant: tenant, Action: ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN, Spec: &ckptdv1.MigrationSpec{User: "alice"}})
	must(m.t, err)
	must(m.t, m.Server.migrator.Watch(m.t.Context(), tenant, job.GetId(), time.Second, func(*ckptdv1.MigrationJob) error { return nil }))
	fields := request.ProtoReflect().Descriptor().Fields()
	request.ProtoReflect().Set(fields.ByName("id"), protoreflect.ValueOfString(job.GetId()))
}

// known puts the id of a blob in its place.
func (m *matrix) known(request proto.Message) proto.Message {
	if id := request.ProtoReflect().Descriptor().Fields().ByName("id"); id != nil {
		if known := m.blobs[request.ProtoReflect().Get(id).String()]; known != "" {
			request.ProtoReflect().Set(id, protoreflect.ValueOfString(known))
		}
	}
	return request
}

func (m *matrix) prepareThread(x place) {
	thread := m.Server.store.Thread(engine.Ref{Tenant: x.tenant, User: x.user, Thread: x.thread})
	if _, err := thread.Load(m.t.Context(), engine.AtSeq(1), engine.LoadOptions{HeadersOnly: true}); err != nil {
		_, err := thread.Delete(m.t.Context()) // what a prune has left
		if !errors.Is(err, engine.ErrNotFound) {
			must(m.t, err)
		}
		_, err = thread.Save(m.t.Context(), engine.Draft{Channels: []engine.Change{{Name: "x", Data: []byte("first")}}})
		must(m.t, err)
	}
	must(m.t, thread.SetBranch(m.t.Context(), "gone", engine.AtSeq(1)))
}

// client returns the one client for a token.
func (m *matrix) client(token string) *http.Client {
	if m.clients[token] == nil {
		m.clients[token] = m.httpClient(token)
	}
	return m.clients[token]
}

// TestAuthorization asks everything of everybody: every method × role × grant and place of the
// table, and besides with a token that has expired and without any.
func TestAuthorization(t *testing.T) {
	m := newMatrix(t)
	mine, other, bob, umbrella := place{"acme", "alice", "mine-1"}, place{"acme", "alice", "other-1"}, place{"acme", "bob", "mine-1"}, place{"umbrella", "alice", "mine-1"}
	for _, c := range []struct {
		name  string
		grant access.Grant // without its role
		about place
		want  func(right) string
	}{
		{"own", access.Grant{Tenant: "acme", User: "alice"}, mine, func(r right) string { return r.own }},
		{"mine", access.Grant{Tenant: "acme", User: "alice", ThreadPrefix: "mine-"}, mine, func(r right) string { return r.mine }},
		{"outside", access.Grant{Tenant: "acme", User: "alice", ThreadPrefix: "mine-"}, other, func(r right) string { return r.outside }},
		{"user", access.Grant{Tenant: "acme", User: "alice"}, bob, func(r right) string { return r.user }},
		{"tenant", access.Grant{Tenant: "acme", User: "alice"}, umbrella, func(r right) string { return r.tenant }},
		{"team", access.Grant{Tenant: "acme", User: "*"}, mine, func(r right) string { return r.team }},
		{"store", access.Grant{Tenant: "*", User: "*"}, mine, func(r right) string { return r.store }},
		{"expired", access.Grant{Tenant: "*", User: "*", Expires: time.Now().Add(-time.Hour)}, mine, func(right) string { return "uuuuu" }},
	} {
		for i, role := range roles {
			c.grant.Role = role
			_, token, err := m.bed.tokens.Create("", []access.Grant{c.grant}, time.Now().Add(-2*time.Hour))
			must(t, err)
			for _, r := range rights() {
				if got, want := m.answer(token, r, c.about), c.want(r)[i:i+1]; got != want {
					t.Errorf("%s, with a grant for %s of role %s: %s, want %s", r.name, c.name, role, got, want)
				}
			}
		}
	}
	for _, token := range []string{"", "ckptd_unknown", "eyJhbGciOiJub25lIn0.e30."} {
		for _, r := range rights() {
			if got := m.answer(token, r, mine); got != "u" {
				t.Errorf("%s, with the token %q: %s", r.name, token, got)
			}
		}
	}
}

// answer makes a request and returns the letter for what comes back.
func (m *matrix) answer(token string, r right, x place) string {
	m.t.Helper()
	request := m.known(r.ask(x, m.number))
	m.prepare(x, request)
	got := m.raw(token, method(m.t, r.name), request)
	switch code := got.code(m.t); code {
	case "":
		return "+"
	case "permission_denied":
		return "d"
	case "not_found":
		return "n"
	case "unauthenticated":
		return "u"
	default:
		m.t.Errorf("%s about %v: %s %s", r.name, x, code, got.body)
		return code
	}
}

func TestTheMatrixIsComplete(t *testing.T) {
	covered := map[protoreflect.FullName]bool{}
	for _, r := range rights() {
		covered[method(t, r.name).FullName()] = true
	}
	for _, s := range allServices(t) {
		for i := range s.Methods().Len() {
			if name := s.Methods().Get(i).FullName(); !covered[name] {
				t.Errorf("%s is not in the matrix", name)
			}
		}
	}
}

func allServices(t testing.TB) []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("ckptd.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			all = append(all, f.Services().Get(i))
		}
		return true
	})
	if len(all) == 0 {
		t.Fatal("there are no services")
	}
	return all
}

// method finds a method by the first word of a name.
func method(t testing.TB, name string) protoreflect.MethodDescriptor {
	t.Helper()
	first, _, _ := strings.Cut(name, " ")
	for _, s := range allServices(t) {
		if m := s.Methods().ByName(protoreflect.Name(first)); m != nil {
			return m
		}
	}
	t.Fatalf("there is no method %s", first)
	return nil
}

// rawAnswer is an answer as it came, without its date.
type rawAnswer struct {
	status  int
	headers string
	body    string
}

// raw makes a request in JSON by the Connect protocol. Of a watch it reads the first message.
func (m *matrix) raw(token string, method protoreflect.MethodDescriptor, request proto.Message) rawAnswer {
	m.t.Helper()
	body, err := protojson.Marshal(request)
	must(m.t, err)
	streaming, kind := method.IsStreamingClient() || method.IsStreamingServer(), "application/json"
	if streaming {
		kind = "application/connect+json"
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	url := fmt.Sprintf("%s/%s/%s", baseURL, method.Parent().FullName(), method.Name())
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, url, bytes.NewReader(body))
	must(m.t, err)
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Accept-Encoding", "identity")
	res, err := m.client(token).Do(r)
	must(m.t, err)
	defer res.Body.Close()
	var answer []byte
	if streaming && method.Name() == "Watch" && res.StatusCode == http.StatusOK {
		head := make([]byte, 5)
		_, err = io.ReadFull(res.Body, head)
		must(m.t, err)
		answer = make([]byte, binary.BigEndian.Uint32(head[1:]))
		_, err = io.ReadFull(res.Body, answer)
		answer = append(head, answer...)
	} else {
		answer, err = io.ReadAll(res.Body)
	}
	must(m.t, err)
	res.Header.Del("Date")
	var headers strings.Builder
	must(m.t, res.Header.Write(&headers))
	return rawAnswer{res.StatusCode, headers.String(), string(answer)}
}

// code returns the RPC code of an answer, "" for success. That of a batch is the code of its first
// save.
func (a rawAnswer) code(t testing.TB) string {
	t.Helper()
	type failure struct{ Code string }
	var m struct {
		failure         // of a call
		Error   failure // of a stream, in its last message
		Results []struct{ Error failure }
	}
	last := a.body
	if a.status == http.StatusOK && strings.Contains(a.headers, "application/connect+json") {
		for rest := a.body; rest != ""; {
			size := 5 + int(binary.BigEndian.Uint32([]byte(rest[1:5])))
			last, rest = rest[5:size], rest[size:]
		}
	}
	if err := json.Unmarshal([]byte(last), &m); err != nil {
		t.Fatalf("%d %q: %v", a.status, a.body, err)
	}
	if len(m.Results) > 0 {
		return m.Results[0].Error.Code
	}
	return m.Code + m.Error.Code
}

// TestWhatIsDeniedLooksMissing compares answers byte by byte: who has no right to a thread, user or
// tenant cannot tell whether it exists, and who may read is told of a missing one of their own in
// the same words.
func TestWhatIsDeniedLooksMissing(t *testing.T) {
	m := newMatrix(t)
	there, nobody := place{"acme", "bob", "mine-1"}, place{"acme", "nobody", "mine-1"}
	for _, role := range roles {
		whole := m.bed.token(access.Grant{Role: role, Tenant: "acme", User: "alice"})
		some := m.bed.token(access.Grant{Role: role, Tenant: "acme", User: "alice", ThreadPrefix: "mine-"})
		for _, tt := range []struct {
			name   string
			token  string
			letter func(right) string
			there  place
			others []place
		}{
			{"user", whole, func(r right) string { return r.user }, there,
				[]place{{"acme", "bob", "none"}, nobody, {"acme", "nobody", "none"}, {"umbrella", "alice", "mine-1"}, {"nowhere", "alice", "mine-1"}}},
			{"outside", some, func(r right) string { return r.outside }, place{"acme", "alice", "other-1"}, []place{{"acme", "alice", "none"}}},
		} {
			m.prepare(tt.there, &ckptdv1.LoadRequest{})
			for _, r := range rights() {
				if r.name == "RevokeToken" || !strings.HasPrefix(tt.letter(r), "n") {
					continue // there is no token that belongs to a place, and the rest is not denied so
				}
				want := m.raw(tt.token, method(t, r.name), m.known(r.ask(tt.there, 0)))
				if code := want.code(t); code != "not_found" {
					t.Errorf("%s, %s, as %s: %s", r.name, tt.name, role, code)
				}
				for _, x := range tt.others {
					if got := m.raw(tt.token, method(t, r.name), m.known(r.ask(x, 0))); got != want {
						t.Errorf("%s, %s, as %s: %+v\nfor %+v, but %+v\nfor %+v", r.name, tt.name, role, got, x, want, tt.there)
					}
				}
			}
		}
	}

	own := m.bed.token(access.Grant{Role: access.Writer, Tenant: "acme", User: "alice"})
	var alike []string
	for _, r := range rights() {
		if !strings.HasPrefix(r.user, "n") {
			continue
		}
		if _, err := m.Server.store.Thread(engine.Ref{Tenant: "acme", User: "alice", Thread: "none"}).Delete(t.Context()); !errors.Is(err, engine.ErrNotFound) {
			must(t, err)
		}
		denied := m.raw(own, method(t, r.name), m.known(r.ask(there, 0)))
		missing := m.raw(own, method(t, r.name), m.known(r.ask(place{"acme", "alice", "none"}, 0)))
		if missing.code(t) != "not_found" {
			continue // what lists answers with nothing, and what saves begins a thread
		}
		if alike = append(alike, r.name); missing != denied {
			t.Errorf("%s: %+v\nfor what is missing, but %+v\nfor what is denied", r.name, missing, denied)
		}
	}
	for _, name := range []string{"Load", "List", "GetTree", "Diff", "Fork", "SetBranch", "SetLabels", "ListWrites", "ListNamespaces", "Copy", "Delete", "Prune"} {
		if !slices.Contains(alike, name) {
			t.Errorf("%s does not say that a thread is missing", name)
		}
	}
}

// TestListingsLeaveOut lists with a grant for some threads.
func TestListingsLeaveOut(t *testing.T) {
	m := newMatrix(t)
	for _, x := range []place{{"acme", "alice", "mine-1"}, {"acme", "alice", "other-1"}, {"acme", "bob", "mine-1"}, {"acme", "bob", "other-1"}} {
		m.prepareThread(x)
	}
	some := access.Grant{Role: access.Auditor, Tenant: "acme", User: "alice", ThreadPrefix: "mine-"}
	every := access.Grant{Role: access.Auditor, Tenant: "acme", User: "*", ThreadPrefix: "mine-"}
	for _, tt := range []struct {
		name    string
		grant   access.Grant
		method  string
		request proto.Message
		threads int // whose names begin with mine-
	}{
		{"threads", some, "ListThreads", &ckptdv1.ListThreadsRequest{Tenant: "acme", User: "alice"}, 1},
		{"threads, by prefix", some, "ListThreads", &ckptdv1.ListThreadsRequest{Tenant: "acme", User: "alice", Prefix: "other"}, 0},
		{"query", some, "Query", &ckptdv1.QueryRequest{Tenant: "acme", User: "alice"}, 1},
		{"list by id", some, "ListByID", &ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice"}, 1},
		{"list by id, another's content", access.Grant{Role: access.Reader, Tenant: "acme", User: "alice", ThreadPrefix: "mine-"}, "ListByID",
			&ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Data: true, Writes: true, Meta: "{}"}, 0}, // none has metadata
		{"query of a tenant", every, "Query", &ckptdv1.QueryRequest{Tenant: "acme", WholeTenant: true}, 2},
	} {
		got := m.raw(m.bed.token(tt.grant), method(t, tt.method), tt.request)
		if code := got.code(t); code != "" || strings.Contains(got.body, "other") || strings.Count(got.body, `"mine-1"`) != tt.threads {
			t.Errorf("%s: %s %q", tt.name, code, got.body)
		}
	}
}
