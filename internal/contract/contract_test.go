package contract

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/contract/contracttest"
)

func newMessage(d protoreflect.MessageDescriptor) proto.Message { return dynamicpb.NewMessage(d) }

// TestRulesOfTheAPI looks at what nothing else would notice in the .proto files.
func TestRulesOfTheAPI(t *testing.T) {
	named := map[ckptdv1.Reason]bool{}
	for _, m := range API.Methods() {
		for _, r := range m.GetReasons() {
			named[r] = true
			if by(r) != 0 {
				t.Errorf("%s names %v, which needs no naming", m.Procedure, r)
			}
		}
		if API.Method(m.Procedure) != m || API.Asked(newMessage(m.input)) != m {
			t.Errorf("%s is not found", m.Procedure)
		}
	}
	for n, name := range ckptdv1.Reason_name {
		if r := ckptdv1.Reason(n); n != 0 && by(r) == 0 && !named[r] {
			t.Errorf("no method answers %s", name)
		}
	}
	if API.Method("/ckptd.v1.AdminService/Nothing") != nil || API.Asked(&ckptdv1.Ref{}) != nil {
		t.Error("a method that does not exist is found")
	}
}

func by(r ckptdv1.Reason) ckptdv1.AnsweredBy {
	value := r.Descriptor().Values().ByNumber(r.Number())
	a, _ := proto.GetExtension(value.Options(), ckptdv1.E_AnsweredBy).(ckptdv1.AnsweredBy)
	return a
}

// TestRequestsDecide looks at what a rule makes of fields of a request.
func TestRequestsDecide(t *testing.T) {
	const read, inspect = ckptdv1.Permission_PERMISSION_READ, ckptdv1.Permission_PERMISSION_INSPECT
	for _, tt := range []struct {
		request proto.Message
		needs   ckptdv1.Permission
		exports bool
	}{
		{&ckptdv1.LoadRequest{}, read, false},
		{&ckptdv1.LoadRequest{Channels: []string{"a"}}, read, false},
		{&ckptdv1.LoadRequest{Export: true}, read, true},
		{&ckptdv1.LoadRequest{HeadersOnly: true}, inspect, false},
		{&ckptdv1.LoadRequest{HeadersOnly: true, Export: true}, inspect, false},
		{&ckptdv1.LoadRequest{HeadersOnly: true, Writes: true}, read, false},
		{&ckptdv1.LoadRequest{HeadersOnly: true, History: []string{"a"}}, read, false},
		{&ckptdv1.LoadRequest{HeadersOnly: true, Export: true, History: []string{"a"}}, read, true},
		{&ckptdv1.LoadRequest{HeadersOnly: true, Export: true, Writes: true}, read, true},
		{&ckptdv1.LoadNewestRequest{}, read, false},
		{&ckptdv1.LoadNewestRequest{HeadersOnly: true}, inspect, false},
		{&ckptdv1.ListRequest{}, inspect, false},
		{&ckptdv1.ListRequest{Data: true}, read, true},
		{&ckptdv1.DiffRequest{}, read, false},
		{&ckptdv1.GetTreeRequest{}, inspect, false},
	} {
		m := API.Asked(tt.request)
		if m.NeedsFor(tt.request) != tt.needs || m.Exports(tt.request) != tt.exports {
			t.Errorf("%s %v: %v, exports: %v", m.Name, tt.request, m.NeedsFor(tt.request), m.Exports(tt.request))
		}
	}
	if m := API.Asked(&ckptdv1.WatchRequest{}); !m.AnyUser(&ckptdv1.WatchRequest{}) || m.AnyUser(&ckptdv1.WatchRequest{Thread: "t"}) {
		t.Error("a watch needs a user just if it names a thread")
	}
	if m := API.Asked(&ckptdv1.QueryRequest{}); m.WholeTenant(&ckptdv1.QueryRequest{}) || !m.WholeTenant(&ckptdv1.QueryRequest{WholeTenant: true}) {
		t.Error("a query is about the whole tenant just if it says so")
	}
}

func TestRetryOfRequests(t *testing.T) {
	const repeat, never = ckptdv1.Retry_RETRY_REPEAT, ckptdv1.Retry_RETRY_NEVER
	save := func(id string) *ckptdv1.SaveRequest { return &ckptdv1.SaveRequest{Draft: &ckptdv1.Draft{Id: id}} }
	for _, tt := range []struct {
		request proto.Message
		want    ckptdv1.Retry
	}{
		{save("a"), repeat},
		{save(""), never},
		{&ckptdv1.SaveRequest{}, never},
		{&ckptdv1.SaveBatchRequest{Saves: []*ckptdv1.SaveRequest{save("a"), save("b")}}, repeat},
		{&ckptdv1.SaveBatchRequest{Saves: []*ckptdv1.SaveRequest{save("a"), save("")}}, never},
		{&ckptdv1.LoadRequest{}, ckptdv1.Retry_RETRY_READ},
		{&ckptdv1.SetLabelsRequest{}, repeat},
		{&ckptdv1.DeleteRequest{}, never},
	} {
		if got := API.Asked(tt.request).RetryFor(tt.request); got != tt.want {
			t.Errorf("%T %v: %v, want %v", tt.request, tt.request, got, tt.want)
		}
	}
}

// TestAnotherMethod adds a method to the contract. All that is known of it comes from its rule.
func TestAnotherMethod(t *testing.T) {
	service, err := contracttest.Another(`needs: PERMISSION_MANAGE on: SCOPE_THREAD also: "other" audited: true endless: true
		without_content: PERMISSION_INSPECT content: {unset: "brief"} exports: {set: "brief"}
		retry: RETRY_SAME_ID id: "id" reasons: [REASON_CONFLICT, REASON_NO_JOB]`)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Read(service)
	if err != nil {
		t.Fatal(err)
	}
	m := table.Method(contracttest.Procedure)
	if m == nil || !m.GetAudited() || !m.GetEndless() || m.Uploads || m.GetOn() != ckptdv1.Scope_SCOPE_THREAD {
		t.Fatalf("%+v", m)
	}
	request := dynamicpb.NewMessage(m.input)
	set := func(name string, v protoreflect.Value) {
		request.Set(m.input.Fields().ByName(protoreflect.Name(name)), v)
	}
	set("other", protoreflect.ValueOfString("t2"))
	if m.NeedsFor(request) != ckptdv1.Permission_PERMISSION_MANAGE || m.Exports(request) || m.RetryFor(request) != ckptdv1.Retry_RETRY_NEVER {
		t.Error("a request with content and no id is taken for another")
	}
	if thread, ok := m.Also(request); !ok || thread != "t2" {
		t.Errorf("the other thread is %q", thread)
	}
	set("brief", protoreflect.ValueOfBool(true))
	set("id", protoreflect.ValueOfString("x"))
	if m.NeedsFor(request) != ckptdv1.Permission_PERMISSION_INSPECT || !m.Exports(request) || m.RetryFor(request) != ckptdv1.Retry_RETRY_REPEAT {
		t.Error("a brief request with an id is taken for another")
	}
	for reason, want := range map[ckptdv1.Reason]bool{ckptdv1.Reason_REASON_CONFLICT: true, ckptdv1.Reason_REASON_DENIED: true,
		ckptdv1.Reason_REASON_AMBIGUOUS: true, ckptdv1.Reason_REASON_NEED_FULL: false} {
		if m.MayAnswer(reason) != want {
			t.Errorf("it may answer %v: %v", reason, !want)
		}
	}
	want := "| Touch | manage without `brief`, else inspect | the thread and the one in `other` | repeat with `id` | every call | watch | CONFLICT, NO_JOB |\n"
	if got := methodTable(table, service); !strings.HasSuffix(got, want) {
		t.Errorf("the table of docs/api.md would be\n%s", got)
	}
}

// TestBadRules adds methods that the contract must not have.
func TestBadRules(t *testing.T) {
	const read, thread, never = "needs: PERMISSION_READ ", "on: SCOPE_THREAD ", "retry: RETRY_NEVER "
	for _, tt := range [][2]string{
		{"", "Touch has no rule: add option (ckptd.v1.rule) = {needs: … on: … retry: …} in ckptd/v1/thread_service.proto"},
		{thread + never, "add needs: PERMISSION_…"},
		{read + never, "add on: SCOPE_…"},
		{read + thread, "add retry: RETRY_…"},
		{read + "on: SCOPE_NOTHING " + never, "on: SCOPE_NOTHING alone"},
		{read + "on: SCOPE_GRANTS " + never, "SCOPE_GRANTS together"},
		{thread + "needs: PERMISSION_MANAGE " + never, "add audited: true"},
		{read + thread + "retry: RETRY_SAME_ID", "RETRY_SAME_ID and id together"},
		{read + thread + `retry: RETRY_SAME_ID id: "id" without_content: PERMISSION_READ`, "without_content and content together"},
		{read + thread + never + `id: "id"`, "RETRY_SAME_ID and id together"},
		{read + thread + never + "without_content: PERMISSION_INSPECT", "without_content and content together"},
		{read + thread + never + `exports: {set: "nothing"}`, "does not have: nothing"},
		{read + thread + `retry: RETRY_SAME_ID id: "ref.id"`, "does not have: id"},
		{read + thread + `retry: RETRY_SAME_ID id: "id.id"`, "does not have: id.id"},
	} {
		service, err := contracttest.Another(tt[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(service)
		if err == nil || !strings.Contains(err.Error(), tt[1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", tt[0], err, tt[1])
		}
	}
}
