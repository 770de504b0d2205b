package server

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/access"
)

// drain reads a stream of pages, and returns its items and the last token.
func drain[M any, T any](t *testing.T, stream *connect.ServerStreamForClient[M], err error, items func(*M) []T, token func(*M) string) (all []T, last string) {
	t.Helper()
	must(t, err)
	for stream.Receive() {
		all, last = append(all, items(stream.Msg())...), token(stream.Msg())
	}
	must(t, stream.Err())
	return all, last
}

// pagesOf reads a listing page by page and checks that the pages together are the whole, each item
// once and in order.
func pagesOf[T any](t *testing.T, name func(T) string, read func(size uint32, token string) ([]T, string)) []string {
	t.Helper()
	names := func(items []T) (out []string) {
		for _, i := range items {
			out = append(out, name(i))
		}
		return out
	}
	whole, token := read(0, "")
	if token != "" {
		t.Errorf("the whole listing ends with token %q", token)
	}
	want := names(whole)
	for _, size := range []uint32{1, 3, 64, 100} {
		var got []string
		for token := ""; ; {
			var page []T
			page, token = read(size, token)
			if len(page) > int(size) {
				t.Fatalf("a page of %d has %d items", size, len(page))
			}
			if got = append(got, names(page)...); token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q\nat once: %q", size, got, want)
		}
	}
	return want
}

func TestListPages(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	var ids []string
	for i := range 150 {
		ids = append(ids, mustSave(t, c, ref("t"), draft(fmt.Sprint("state ", i))).GetId())
	}
	again := draft("another state 40")
	again.Id = "replaced"
	ids = append(ids, mustSave(t, c, ref("t"), again).GetId())
	mustSave(t, c, ref("t"), draft("last"))
	again.Channels[0].Content = &ckptdv1.Change_Text{Text: "replaced"}
	mustSave(t, c, ref("t"), again)
	list := func(o *ckptdv1.ListRequest) func(uint32, string) ([]*ckptdv1.Checkpoint, string) {
		return func(size uint32, token string) ([]*ckptdv1.Checkpoint, string) {
			o.PageSize, o.PageToken = size, token
			stream, err := c.List(t.Context(), connect.NewRequest(o))
			return drain(t, stream, err, (*ckptdv1.ListResponse).GetCheckpoints, (*ckptdv1.ListResponse).GetNextPageToken)
		}
	}
	all := pagesOf(t, (*ckptdv1.Checkpoint).GetId, list(&ckptdv1.ListRequest{Ref: ref("t")}))
	if len(all) != 152 || all[1] != "replaced" || all[151] != ids[0] {
		t.Errorf("%d checkpoints, %q … %q", len(all), all[:2], all[len(all)-1])
	}
	data := pagesOf(t, func(cp *ckptdv1.Checkpoint) string { return cp.GetId() + " " + cp.GetChannels()[0].GetText() },
		list(&ckptdv1.ListRequest{Ref: ref("t"), From: ids[9], Data: true, Text: true}))
	if len(data) != 10 || data[9] != ids[0]+" state 0" {
		t.Errorf("ancestors: %q", data)
	}
	_, token := list(&ckptdv1.ListRequest{Ref: ref("t")})(5, "")
	stream, err := c.List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("other"), PageToken: token}))
	must(t, err)
	for stream.Receive() {
	}
	wantCode(t, stream.Err(), connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID)
	_, err = b.threads("").Delete(t.Context(), connect.NewRequest(&ckptdv1.DeleteRequest{Ref: ref("t")}))
	must(t, err)
	again.Id = ids[100]
	for i := range 3 { // the place that the token names is there again, in another thread
		mustSave(t, c, ref("t"), draft(fmt.Sprint(i)))
	}
	stream, err = c.List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("t"), PageToken: token}))
	must(t, err)
	for stream.Receive() {
		if len(stream.Msg().GetCheckpoints()) > 0 {
			t.Errorf("the listing of a deleted thread goes on with %v", stream.Msg())
		}
	}
	if stream.Err() == nil {
		t.Errorf("the listing of a deleted thread goes on")
	}
}

// TestQueryPages asks for checkpoints of which many have the same time.
func TestQueryPages(t *testing.T) {
	b := newBed(t, Limits{})
	b.stop()
	var now int64 = 1_700_000_000_000
	b.opts.Now = func() time.Time { return time.UnixMilli(now) }
	b.start()
	c := b.checkpoints("")
	for i := range 90 {
		d := draft(fmt.Sprint(i))
		d.Labels = &ckptdv1.Labels{Labels: map[string]string{"kind": "a"}}
		r := ref(fmt.Sprintf("t%d", i%7))
		r.User, r.Namespace = fmt.Sprintf("u%d", i%3), []string{"", "sub"}[i%2]
		mustSave(t, c, r, d)
		now += int64(i % 40 / 39)
	}
	at := func(cp *ckptdv1.Checkpoint) string {
		r := cp.GetRef()
		return fmt.Sprintf("%d %s %s %s %d", cp.GetTime().AsTime().UnixMilli(), r.GetUser(), r.GetThread(), r.GetNamespace(), cp.GetSeq())
	}
	query := func(token string, q *ckptdv1.QueryRequest) func(uint32, string) ([]*ckptdv1.Checkpoint, string) {
		return func(size uint32, page string) ([]*ckptdv1.Checkpoint, string) {
			q.PageSize, q.PageToken = size, page
			stream, err := b.threads(token).Query(t.Context(), connect.NewRequest(q))
			return drain(t, stream, err, (*ckptdv1.QueryResponse).GetCheckpoints, (*ckptdv1.QueryResponse).GetNextPageToken)
		}
	}
	if got := pagesOf(t, at, query("", &ckptdv1.QueryRequest{Tenant: "acme", WholeTenant: true})); len(got) != 90 {
		t.Errorf("%d checkpoints of the tenant", len(got))
	}
	if got := pagesOf(t, at, query("", &ckptdv1.QueryRequest{Tenant: "acme", User: "u1", Filter: &ckptdv1.Filter{Labels: map[string]string{"kind": "a"}}})); len(got) != 30 {
		t.Errorf("%d checkpoints of u1", len(got))
	}
	limited := b.token(access.Grant{Role: access.Reader, Tenant: "acme", User: "u1", ThreadPrefix: "t4"})
	got := pagesOf(t, at, query(limited, &ckptdv1.QueryRequest{}))
	if len(got) != 5 {
		t.Errorf("with a right to t4 of u1: %q", got)
	}
}

func TestListThreadsPages(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	for i := range 70 {
		mustSave(t, c, ref(fmt.Sprintf("t%02d", i)), draft("x"))
	}
	list := func(token string, o *ckptdv1.ListThreadsRequest) []string {
		return pagesOf(t, func(info *ckptdv1.ThreadInfo) string { return info.GetRef().GetThread() }, func(size uint32, page string) ([]*ckptdv1.ThreadInfo, string) {
			o.PageSize, o.PageToken = size, page
			stream, err := b.threads(token).ListThreads(t.Context(), connect.NewRequest(o))
			return drain(t, stream, err, (*ckptdv1.ListThreadsResponse).GetThreads, (*ckptdv1.ListThreadsResponse).GetNextPageToken)
		})
	}
	if got := list("", &ckptdv1.ListThreadsRequest{Tenant: "acme", User: "alice"}); len(got) != 70 {
		t.Errorf("%d threads", len(got))
	}
	limited := b.token(access.Grant{Role: access.Reader, Tenant: "acme", User: "alice", ThreadPrefix: "t1"})
	if got := list(limited, &ckptdv1.ListThreadsRequest{}); len(got) != 10 || got[0] != "t10" {
		t.Errorf("with a right to t1…: %q", got)
	}
	if got := list(limited, &ckptdv1.ListThreadsRequest{Prefix: "t2"}); len(got) != 0 {
		t.Errorf("of others: %q", got)
	}
	if got := list("", &ckptdv1.ListThreadsRequest{Tenant: "acme", User: "alice", ByActivity: true}); len(got) != 70 || slices.Compare(got[:1], got[69:]) < 0 {
		t.Errorf("by activity: %q", got)
	}
	if got := list(limited, &ckptdv1.ListThreadsRequest{ByActivity: true, Status: "running"}); len(got) != 10 || got[0] < got[9] {
		t.Errorf("by activity, with a right to t1…: %q", got)
	}
}

// TestEveryOperationIsReachable names the method that serves each operation of the engine, so that
// a new one is not forgotten.
func TestEveryOperationIsReachable(t *testing.T) {
	reached := map[reflect.Type]map[string]string{
		reflect.TypeFor[*engine.Thread](): {"Save": "Save", "Load": "Load", "History": "List", "Tree": "GetTree", "Diff": "Diff", "Fork": "Fork",
			"Branches": "ListBranches", "SetBranch": "SetBranch", "DeleteBranch": "DeleteBranch", "SetLabels": "SetLabels", "PutWrites": "PutWrites",
			"Writes": "ListWrites", "Namespaces": "ListNamespaces", "Copy": "Copy", "Delete": "Delete", "Ref": "", "Upkeep": ""},
		reflect.TypeFor[upkeep.Thread[*engine.Checkpoint]](): {"Prune": "Prune",
			"MigrateHead": "StartMigrationJob", "UndoHead": "StartMigrationJob", "MigrateHistory": "StartMigrationJob", "RestoreHistory": "StartMigrationJob",
			"DropHistory": "StartMigrationJob", "KeepsHistory": "StartMigrationJob"},
		reflect.TypeFor[*engine.User](): {"Latest": "LoadNewest", "Threads": "ListThreads", "Query": "Query", "ListByID": "ListByID", "PutBlob": "PutBlob",
			"GetBlob": "GetBlob", "StatBlob": "StatBlob", "Upkeep": ""},
		reflect.TypeFor[upkeep.User]():   {"DeleteRun": "DeleteRun", "GC": "CollectGarbage", "Create": "CreateUser"},
		reflect.TypeFor[*engine.Store](): {"QueryTenant": "Query", "Watch": "Watch", "Thread": "", "User": "", "Close": "", "Upkeep": ""},
		reflect.TypeFor[upkeep.Store](): {"Verify": "Verify", "Stats": "GetStats", "GC": "CollectGarbage",
			"Retention": "GetRetention", "SetRetention": "SetRetention", "Tenants": "ListTenants", "Users": "ListUsers", "CacheStats": "GetStatus", "DiskBytes": "GetStatus",
			"SealSidecar": "", "OpenSidecar": "", "Pseudonym": ""}, // the host's own
	}
	handlers := []any{checkpoints{}, threads{}, blobs{}, admin{}, migrations{}}
	for typ, operations := range reached {
		for i := range typ.NumMethod() {
			name := typ.Method(i).Name
			method, known := operations[name]
			served := slices.ContainsFunc(handlers, func(h any) bool { _, ok := reflect.TypeOf(h).MethodByName(method); return ok })
			if !known || method != "" && !served {
				t.Errorf("no method of the API serves %v.%s", typ, name)
			}
		}
	}
}

// TestListByIDPages lists ids of all sorts over threads and namespaces, of which some are the same.
func TestListByIDPages(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	var want []string
	for i := range 120 {
		r, d := ref(fmt.Sprint("t", i%3)), draft(fmt.Sprint(i))
		r.Namespace = []string{"", "a"}[i%2]
		d.Id = []string{"", fmt.Sprint("id", i/12), fmt.Sprintf("1f0%05x-0000-6000-8000-%012x", i*7919%120, 0)}[i/3%3]
		if i%4 == 0 {
			d.Meta = new(string)
			*d.Meta = fmt.Sprintf(`{"n":%d,"of":"%s"}`, i%8, r.GetThread())
		}
		cp := mustSave(t, c, r, d)
		want = append(want, cp.GetId()+" "+r.GetThread()+" "+r.GetNamespace())
		_, err := c.PutWrites(t.Context(), connect.NewRequest(&ckptdv1.PutWritesRequest{Ref: r, CheckpointId: cp.GetId(), Task: "task",
			Writes: []*ckptdv1.Write{{Channel: "w", Content: &ckptdv1.Write_Text{Text: cp.GetId()}}}}))
		must(t, err)
	}
	slices.SortFunc(want, func(a, b string) int {
		idA, restA, _ := strings.Cut(a, " ")
		idB, restB, _ := strings.Cut(b, " ")
		return cmp.Or(strings.Compare(idB, idA), strings.Compare(restA, restB))
	})
	want = slices.Compact(want) // those saved again
	at := func(e *ckptdv1.Entry) string {
		cp := e.GetCheckpoint()
		return cp.GetId() + " " + cp.GetRef().GetThread() + " " + cp.GetRef().GetNamespace()
	}
	list := func(token string, q *ckptdv1.ListByIDRequest) func(uint32, string) ([]*ckptdv1.Entry, string) {
		return func(size uint32, page string) ([]*ckptdv1.Entry, string) {
			q.PageSize, q.PageToken = size, page
			stream, err := b.checkpoints(token).ListByID(t.Context(), connect.NewRequest(q))
			return drain(t, stream, err, (*ckptdv1.ListByIDResponse).GetEntries, (*ckptdv1.ListByIDResponse).GetNextPageToken)
		}
	}
	if got := pagesOf(t, at, list("", &ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice"})); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	whole := &ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Thread: "t1", Data: true, Writes: true, Text: true}
	entries, _ := list("", whole)(0, "")
	for _, e := range entries {
		cp := e.GetCheckpoint()
		if cp.GetChannels()[0].GetText() == "" || len(e.GetWrites()) != 1 || e.GetWrites()[0].GetWrite().GetText() != cp.GetId() {
			t.Errorf("an entry is %v", e)
		}
	}
	_, token := list("", whole)(5, "")
	for _, other := range []*ckptdv1.ListByIDRequest{{Tenant: "acme", User: "alice", Thread: "t2", Data: true, Writes: true, Text: true},
		{Tenant: "acme", User: "alice", Thread: "t1"}} {
		other.PageToken = token
		stream, err := c.ListByID(t.Context(), connect.NewRequest(other))
		must(t, err)
		for stream.Receive() {
			t.Errorf("another list's token: %v", stream.Msg())
		}
		wantCode(t, stream.Err(), connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID)
	}
	for _, meta := range []string{"[]", "1", "{", `{"a":"` + strings.Repeat("x", 64<<10) + `"}`} {
		stream, err := c.ListByID(t.Context(), connect.NewRequest(&ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Meta: meta}))
		must(t, err)
		for stream.Receive() {
		}
		if stream.Err() == nil {
			t.Errorf("metadata %.20q: accepted", meta)
		}
	}
	b.settled()
}

// TestMetadataIsNoOracle filters by metadata that the caller may read in one thread only, though it
// may list all.
func TestMetadataIsNoOracle(t *testing.T) {
	b := newBed(t, Limits{})
	for _, thread := range []string{"mine-1", "other"} {
		d := draft("x")
		d.Meta = new(string)
		*d.Meta = `{"secret":"s"}`
		mustSave(t, b.checkpoints(""), ref(thread), d)
	}
	token := b.token(access.Grant{Role: access.Reader, Tenant: "acme", User: "alice", ThreadPrefix: "mine-"},
		access.Grant{Role: access.Auditor, Tenant: "acme", User: "alice"})
	for meta, want := range map[string]int{"": 2, `{"secret":"s"}`: 1, `{"secret":"t"}`: 0} {
		stream, err := b.checkpoints(token).ListByID(t.Context(), connect.NewRequest(&ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Meta: meta}))
		got, _ := drain(t, stream, err, (*ckptdv1.ListByIDResponse).GetEntries, (*ckptdv1.ListByIDResponse).GetNextPageToken)
		if len(got) != want {
			t.Errorf("%q: %v, want %d", meta, got, want)
		}
		for _, e := range got {
			if cp := e.GetCheckpoint(); cp.GetRef().GetThread() == "other" && cp.GetMeta() != "" {
				t.Errorf("%q: the metadata of another's thread is shown: %v", meta, cp)
			}
		}
	}
	stream, err := b.checkpoints(token).ListByID(t.Context(), connect.NewRequest(&ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Thread: "other", Meta: "{}"}))
	must(t, err)
	for stream.Receive() {
	}
	wantCode(t, stream.Err(), connect.CodePermissionDenied, ckptdv1.Reason_REASON_DENIED)
}
