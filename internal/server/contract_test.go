package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/contract/contracttest"
)

// touched is a server whose API has a method more, of which it knows nothing but the rule.
type touched struct {
	*bed
	reached   chan struct{} // has one for each request that came through
	endless   bool
	tokenUser string
}

func serveAnother(t *testing.T, rule string, l Limits) *touched {
	service, err := contracttest.Another(rule)
	must(t, err)
	table, err := contract.Read(service)
	must(t, err)
	x := &touched{newBed(t, l), make(chan struct{}, 10), table.Method(contracttest.Procedure).GetEndless(), "alice"}
	x.api = table
	d := service.Methods().ByName("Touch")
	mux := http.NewServeMux()
	mux.Handle(contracttest.Procedure, x.handler(d))
	x.http.Handler = x.front(mux)
	return x
}

// handler is what the program has besides the rule: what the method does.
func (x *touched) handler(d protoreflect.MethodDescriptor) http.Handler {
	type asked = *connect.Request[dynamicpb.Message]
	options := []connect.HandlerOption{connect.WithSchema(d), connect.WithInterceptors(&guard{x.Server}),
		connect.WithReadMaxBytes(int(x.Server.limits.Load().most(contracttest.Procedure, x.api.Method(contracttest.Procedure)))),
		connect.WithRequestInitializer(func(_ connect.Spec, m any) error {
			*m.(*dynamicpb.Message) = *dynamicpb.NewMessage(d.Input())
			return nil
		})}
	if d.IsStreamingServer() {
		return connect.NewServerStreamHandler(contracttest.Procedure, func(context.Context, asked, *connect.ServerStream[dynamicpb.Message]) error {
			x.reached <- struct{}{}
			return nil
		}, options...)
	}
	return connect.NewUnaryHandler(contracttest.Procedure, func(context.Context, asked) (*connect.Response[dynamicpb.Message], error) {
		x.reached <- struct{}{}
		return connect.NewResponse(dynamicpb.NewMessage(d.Output())), nil
	}, options...)
}

// touch calls the method with a grant, and returns the RPC code of the answer.
func (x *touched) touch(role access.Role, prefix, request string) string {
	x.t.Helper()
	contentType, body := "application/json", []byte(request)
	if x.endless {
		contentType, body = "application/connect+json", envelope(0, body)
	}
	client := x.httpClient(x.token(access.Grant{Role: role, Tenant: "acme", User: x.tokenUser, ThreadPrefix: prefix}))
	res, err := client.Post(baseURL+contracttest.Procedure, contentType, bytes.NewReader(body))
	must(x.t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	must(x.t, err)
	code := "ok"
	if _, failed, ok := bytes.Cut(answer, []byte(`"code":"`)); ok {
		code = string(failed[:bytes.IndexByte(failed, '"')])
	}
	if served := len(x.reached) > 0; served != (code == "ok") {
		x.t.Errorf("%s: %s, served: %v", request, code, served)
	}
	for len(x.reached) > 0 {
		<-x.reached
	}
	return code
}

func (x *touched) audited() string {
	log, err := os.ReadFile(filepath.Join(x.dir, "audit"))
	must(x.t, err)
	return string(bytes.TrimSpace(log))
}

// TestContractOfAnotherMethod serves a method that nobody knows: who may call it, what is recorded
// and what it counts against come from its rule.
func TestContractOfAnotherMethod(t *testing.T) {
	x := serveAnother(t, `needs: PERMISSION_WRITE on: SCOPE_THREAD also: "other" without_content: PERMISSION_INSPECT
		content: {unset: "brief"} exports: {set: "brief"} retry: RETRY_NEVER`, Limits{InFlightPerTenant: 1})
	for _, tt := range []struct {
		role               access.Role
		prefix, body, want string
	}{
		{access.Writer, "", `{"ref": {"thread": "t"}, "other": "u"}`, "ok"},
		{access.Writer, "", `{"ref": {"tenant": "acme", "user": "alice", "thread": "t"}, "other": "u"}`, "ok"},
		{access.Reader, "", `{"ref": {"thread": "t"}, "other": "u"}`, "permission_denied"},
		{access.Reader, "", `{"ref": {"thread": "t"}, "other": "u", "brief": true}`, "ok"},
		{access.Writer, "t", `{"ref": {"thread": "t"}, "other": "t2"}`, "ok"},
		{access.Writer, "t", `{"ref": {"thread": "t"}, "other": "u"}`, "not_found"},
		{access.Writer, "u", `{"ref": {"thread": "t"}, "other": "u"}`, "not_found"},
		{access.Writer, "", `{"other": "u"}`, "invalid_argument"},
		{access.Writer, "", `{"ref": {"user": "bob", "thread": "t"}, "other": "u"}`, "not_found"},
	} {
		if code := x.touch(tt.role, tt.prefix, tt.body); code != tt.want {
			t.Errorf("a %s of %q… asks %s: %s, want %s", tt.role, tt.prefix, tt.body, code, tt.want)
		}
	}
	log := x.audited()
	if denied, exports := strings.Count(log, `"kind":"denied","method":"`+contracttest.Procedure), strings.Count(log, `"kind":"export","method":"`+contracttest.Procedure); denied != 4 || exports != 1 {
		t.Errorf("%d denials and %d exports are recorded:\n%s", denied, exports, log)
	}
	must(t, x.gate.enterTenant(x.Server.limits.Load(), "acme"))
	defer x.gate.leaveTenant("acme")
	if code := x.touch(access.Writer, "", `{"ref": {"thread": "t"}, "other": "u"}`); code != "resource_exhausted" {
		t.Errorf("beyond the limit of its tenant it answers %s", code)
	}
}

// TestContractOfAnotherWatch serves one that goes on without end, and is audited.
func TestContractOfAnotherWatch(t *testing.T) {
	x := serveAnother(t, `needs: PERMISSION_MANAGE on: SCOPE_TENANT audited: true endless: true retry: RETRY_READ`,
		Limits{InFlight: 1, InFlightPerTenant: 1, Streams: 2})
	x.gate.inFlight.Add(1) // all places are taken
	defer x.gate.inFlight.Add(-1)
	must(t, x.gate.enterTenant(x.Server.limits.Load(), "acme"))
	defer x.gate.leaveTenant("acme")
	ask := func(role access.Role, request, want string) {
		t.Helper()
		if code := x.touch(role, "", request); code != want {
			t.Errorf("a %s asks %.60s: %s, want %s", role, request, code, want)
		}
	}
	ask(access.Admin, `{"ref": {"tenant": "acme"}}`, "not_found")                              // the grant is for one user of it
	ask(access.Admin, `{"id": "`+strings.Repeat("x", endlessMessage)+`"}`, "invalid_argument") // too large
	x.tokenUser = "*"
	ask(access.Admin, `{"ref": {"tenant": "acme"}}`, "ok")
	ask(access.Reader, `{"ref": {"tenant": "acme"}}`, "permission_denied")
	if log := x.audited(); strings.Count(log, `"kind":"admin","method":"`+contracttest.Procedure) != 1 {
		t.Errorf("the audit log is\n%s", log)
	}
	x.gate.streams.Add(2)
	defer x.gate.streams.Add(-2)
	ask(access.Admin, `{"ref": {"tenant": "acme"}}`, "resource_exhausted")
}

// A method that the contract does not have is refused to everybody.
func TestContractWithoutRule(t *testing.T) {
	x := serveAnother(t, `needs: PERMISSION_READ on: SCOPE_THREAD retry: RETRY_READ`, Limits{})
	x.api = contract.API
	if code := x.touch(access.Admin, "", `{"ref": {"thread": "t"}}`); code != "permission_denied" {
		t.Errorf("it answers %s", code)
	}
}
