package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/migrate"
	"github.com/ckptd/ckptd/plugins/bundle"
)

// example is a call of the API: the messages of its request, one but for uploads.
type example struct {
	procedure string
	messages  []proto.Message
}

// exampleNames are what the examples name and carry: tests that look for them afterwards choose odd
// ones.
type exampleNames struct {
	tenant, user, thread, namespace, id, run, branch, channel, state, label, value, meta, status, task, note string

	version uint64 // of the channel in the first save, which only the server can tell: see begun
}

func plainNames() exampleNames {
	return exampleNames{tenant: "acme", user: "alice", thread: "run-1", namespace: "sub", id: "cp-1", run: "r-7", branch: "wip", channel: "messages",
		state: `["hello"]`, label: "kind", value: "test", meta: `{"source":"loop"}`, status: "paused", task: "task-1", note: "for tests"}
}

// examples has at least one call of every method, in an order in which nearly all succeed on an
// empty store.
func examples(n exampleNames) []example {
	at := func(thread, namespace string) *ckptdv1.Ref {
		return &ckptdv1.Ref{Tenant: n.tenant, User: n.user, Thread: thread, Namespace: namespace}
	}
	here := at(n.thread, "")
	which := &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: n.id}}
	filter := &ckptdv1.Filter{Labels: map[string]string{n.label: n.value}, Status: n.status, RunId: n.run, MinStep: proto.Int64(-3), Since: timestamppb.New(time.Unix(1, 0))}
	whole := &ckptdv1.Draft{Id: n.id, Step: 3, Status: n.status, SchemaVersion: 2, RunId: n.run, Branch: n.branch, ExpectHead: proto.Uint64(0),
		Kind: n.value, Labels: &ckptdv1.Labels{Labels: map[string]string{n.label: n.value}}, Meta: proto.String(n.meta), Ttl: durationpb.New(time.Hour), Blobs: &ckptdv1.Blobs{},
		Channels: []*ckptdv1.Change{{Name: n.channel, Type: "json", Content: &ckptdv1.Change_Text{Text: n.state}}, {Name: "raw", Content: &ckptdv1.Change_Data{Data: []byte(n.state)}}}}
	splice := &ckptdv1.Draft{Keep: true, Channels: []*ckptdv1.Change{{Name: n.channel, Content: &ckptdv1.Change_Splice{
		Splice: &ckptdv1.Splice{Base: n.version, Prefix: 1, Suffix: 1, Content: &ckptdv1.Splice_Data{Data: []byte(n.state)}}}}}}
	splices := &ckptdv1.Draft{Keep: true, Parent: n.id, Channels: []*ckptdv1.Change{{Name: n.channel, Content: &ckptdv1.Change_Splices{
		Splices: &ckptdv1.Splices{Base: n.version, Replace: []*ckptdv1.Replace{{To: 1, Content: &ckptdv1.Replace_Text{Text: n.state}}, {From: 1, To: 2}}}}}}}
	plain := func() *ckptdv1.Draft {
		return &ckptdv1.Draft{Channels: []*ckptdv1.Change{{Name: n.channel, Content: &ckptdv1.Change_Data{Data: []byte(n.state)}}}}
	}
	grant := []*ckptdv1.Grant{{Role: "reader", Tenant: n.tenant, User: n.user, ThreadPrefix: n.thread, Expires: timestamppb.New(time.Now().Add(time.Hour))}}
	upper := plugin("upper", n.note, wasmtest.Upper())
	digest := upper.Digest()
	return []example{
		{ckptdv1.AdminServiceCreateUserProcedure, one(&ckptdv1.CreateUserRequest{Tenant: n.tenant, User: n.user})},
		{ckptdv1.CheckpointServiceSaveProcedure, one(&ckptdv1.SaveRequest{Ref: here, Draft: whole})},
		{ckptdv1.CheckpointServiceSaveProcedure, one(&ckptdv1.SaveRequest{Ref: here, Draft: splice})},
		{ckptdv1.CheckpointServiceSaveProcedure, one(&ckptdv1.SaveRequest{Ref: here, Draft: splices})},
		{ckptdv1.CheckpointServiceSaveProcedure, one(&ckptdv1.SaveRequest{Ref: at(n.thread, n.namespace), Draft: plain()})},
		{ckptdv1.CheckpointServiceSaveBatchProcedure, one(&ckptdv1.SaveBatchRequest{Saves: []*ckptdv1.SaveRequest{{Ref: here, Draft: plain()}, {Ref: at(n.thread+"-2", ""), Draft: plain()}}})},
		{ckptdv1.CheckpointServiceLoadProcedure, one(&ckptdv1.LoadRequest{Ref: here, Which: which, Text: true, Writes: true, Channels: []string{n.channel},
			Have: []*ckptdv1.Have{{Channel: n.channel, Sha256: make([]byte, 32)}}})},
		{ckptdv1.CheckpointServiceLoadNewestProcedure, one(&ckptdv1.LoadNewestRequest{Tenant: n.tenant, User: n.user, Text: true})},
		{ckptdv1.CheckpointServiceListProcedure, one(&ckptdv1.ListRequest{Ref: here, Data: true, Text: true, PageSize: 2})},
		{ckptdv1.CheckpointServiceListProcedure, one(&ckptdv1.ListRequest{Ref: here, Filter: filter, Branch: n.branch})},
		{ckptdv1.CheckpointServiceListByIDProcedure, one(&ckptdv1.ListByIDRequest{Tenant: n.tenant, User: n.user, Thread: n.thread, Namespace: &n.namespace, Meta: "{}",
			Filter: &ckptdv1.Filter{Labels: map[string]string{n.label: n.value}}, Data: true, Channels: []string{n.channel}, Writes: true, Text: true, PageSize: 1})},
		{ckptdv1.CheckpointServiceListByIDProcedure, one(&ckptdv1.ListByIDRequest{Tenant: n.tenant, User: n.user, Id: n.id, Before: n.id + "-"})},
		{ckptdv1.CheckpointServiceGetTreeProcedure, one(&ckptdv1.GetTreeRequest{Ref: here})},
		{ckptdv1.CheckpointServiceDiffProcedure, one(&ckptdv1.DiffRequest{Ref: here, From: which})},
		{ckptdv1.CheckpointServiceForkProcedure, one(&ckptdv1.ForkRequest{Ref: here, From: which, Branch: n.branch + "-2"})},
		{ckptdv1.CheckpointServiceListBranchesProcedure, one(&ckptdv1.ListBranchesRequest{Ref: here})},
		{ckptdv1.CheckpointServiceSetBranchProcedure, one(&ckptdv1.SetBranchRequest{Ref: here, Branch: n.branch + "-2", To: which})},
		{ckptdv1.CheckpointServiceDeleteBranchProcedure, one(&ckptdv1.DeleteBranchRequest{Ref: here, Branch: n.branch + "-2"})},
		{ckptdv1.CheckpointServiceSetLabelsProcedure, one(&ckptdv1.SetLabelsRequest{Ref: here, Which: which, Labels: map[string]string{n.label: n.value}})},
		{ckptdv1.CheckpointServicePutWritesProcedure, one(&ckptdv1.PutWritesRequest{Ref: here, CheckpointId: n.id, Task: n.task, Path: n.task,
			Writes: []*ckptdv1.Write{{Index: -1, Channel: n.channel, Type: "json", Content: &ckptdv1.Write_Text{Text: n.state}}}})},
		{ckptdv1.CheckpointServiceListWritesProcedure, one(&ckptdv1.ListWritesRequest{Ref: here, CheckpointId: n.id, Text: true})},

		{ckptdv1.ThreadServiceListThreadsProcedure, one(&ckptdv1.ListThreadsRequest{Tenant: n.tenant, User: n.user, Prefix: n.thread, Count: true, PageSize: 1})},
		{ckptdv1.ThreadServiceListNamespacesProcedure, one(&ckptdv1.ListNamespacesRequest{Ref: here})},
		{ckptdv1.ThreadServiceQueryProcedure, one(&ckptdv1.QueryRequest{Tenant: n.tenant, User: n.user, Filter: filter, PageSize: 1})},
		{ckptdv1.ThreadServiceQueryProcedure, one(&ckptdv1.QueryRequest{Tenant: n.tenant, WholeTenant: true})},
		{ckptdv1.ThreadServiceWatchProcedure, one(&ckptdv1.WatchRequest{Tenant: n.tenant, User: n.user, Thread: n.thread, Since: timestamppb.New(time.Unix(1, 0)), Heartbeat: durationpb.New(time.Second)})},
		{ckptdv1.ThreadServiceCopyProcedure, one(&ckptdv1.CopyRequest{Ref: here, To: n.thread + "-3"})},

		{ckptdv1.BlobServicePutBlobProcedure, []proto.Message{&ckptdv1.PutBlobRequest{Tenant: n.tenant, User: n.user, Data: []byte(n.state)}, &ckptdv1.PutBlobRequest{Data: []byte(n.state)}}},
		{ckptdv1.BlobServiceGetBlobProcedure, one(&ckptdv1.GetBlobRequest{Tenant: n.tenant, User: n.user, Id: strings.Repeat("ab", 32)})},
		{ckptdv1.BlobServiceStatBlobProcedure, one(&ckptdv1.StatBlobRequest{Tenant: n.tenant, User: n.user, Id: strings.Repeat("ab", 32)})},

		{ckptdv1.AdminServiceSetRetentionProcedure, one(&ckptdv1.SetRetentionRequest{Tenant: n.tenant, Policy: &ckptdv1.RetentionPolicy{KeepLast: 1000, OlderThan: durationpb.New(time.Hour)}})},
		{ckptdv1.AdminServiceGetRetentionProcedure, one(&ckptdv1.GetRetentionRequest{Tenant: n.tenant})},
		{ckptdv1.AdminServiceCollectGarbageProcedure, one(&ckptdv1.CollectGarbageRequest{Tenant: n.tenant, User: n.user, Grace: durationpb.New(time.Hour)})},
		{ckptdv1.AdminServiceVerifyProcedure, one(&ckptdv1.VerifyRequest{Tenant: n.tenant, User: n.user, Thread: n.thread, Deep: true})},
		{ckptdv1.AdminServiceGetStatsProcedure, one(&ckptdv1.GetStatsRequest{Tenant: n.tenant, User: n.user})},
		{ckptdv1.AdminServiceListTenantsProcedure, one(&ckptdv1.ListTenantsRequest{})},
		{ckptdv1.AdminServiceListUsersProcedure, one(&ckptdv1.ListUsersRequest{Tenant: n.tenant})},
		{ckptdv1.AdminServiceCreateTokenProcedure, one(&ckptdv1.CreateTokenRequest{Note: n.note, Grants: grant})},
		{ckptdv1.AdminServiceListTokensProcedure, one(&ckptdv1.ListTokensRequest{})},
		{ckptdv1.AdminServiceRevokeTokenProcedure, one(&ckptdv1.RevokeTokenRequest{Id: "0123abcd"})},
		{ckptdv1.AdminServiceReadAuditProcedure, one(&ckptdv1.ReadAuditRequest{})},
		{ckptdv1.AdminServiceGetStatusProcedure, one(&ckptdv1.GetStatusRequest{})},
		{ckptdv1.AdminServiceWhoAmIProcedure, one(&ckptdv1.WhoAmIRequest{})},

		{ckptdv1.PluginServiceInstallPluginProcedure, one(&ckptdv1.InstallPluginRequest{Tenant: n.tenant, Builtin: "redact",
			Bindings: []*ckptdv1.PluginBinding{{Tenants: []string{n.tenant}, ThreadPrefixes: []string{n.thread + "-redacted"}, Config: "{}"}}})},
		{ckptdv1.PluginServiceInstallPluginProcedure, one(&ckptdv1.InstallPluginRequest{Archive: upper.Archive(), Digest: digest[:], Disabled: true,
			Bindings: []*ckptdv1.PluginBinding{{Tenants: []string{n.tenant}, ThreadPrefixes: []string{n.thread}, Order: proto.Int32(7), Config: `{"x":"` + n.state[2:7] + `"}`}}})},
		{ckptdv1.PluginServiceGetPluginProcedure, one(&ckptdv1.GetPluginRequest{Name: "upper"})},
		{ckptdv1.PluginServiceListPluginsProcedure, one(&ckptdv1.ListPluginsRequest{Tenant: n.tenant})},
		{ckptdv1.PluginServiceGetPluginProcedure, one(&ckptdv1.GetPluginRequest{Tenant: n.tenant, Name: "redact"})},
		{ckptdv1.PluginServiceSetPluginEnabledProcedure, one(&ckptdv1.SetPluginEnabledRequest{Tenant: n.tenant, Name: "redact", Enabled: true})},
		{ckptdv1.PluginServiceRollbackPluginProcedure, one(&ckptdv1.RollbackPluginRequest{Tenant: n.tenant, Name: n.note, Version: n.note})},
		{ckptdv1.PluginServiceRemovePluginProcedure, one(&ckptdv1.RemovePluginRequest{Tenant: n.tenant, Name: "redact"})},
		{ckptdv1.PluginServiceTrustKeyProcedure, one(&ckptdv1.TrustKeyRequest{PublicKey: bytes.Repeat([]byte{7}, 32), Note: n.note})},
		{ckptdv1.PluginServiceListKeysProcedure, one(&ckptdv1.ListKeysRequest{})},
		{ckptdv1.PluginServiceUntrustKeyProcedure, one(&ckptdv1.UntrustKeyRequest{Id: n.note})},

		{ckptdv1.MigrationServiceInstallMigrationSetsProcedure, one(&ckptdv1.InstallMigrationSetsRequest{Tenant: n.tenant, Files: setFiles(n.note)})},
		{ckptdv1.MigrationServiceInstallMigrationSetsProcedure, one(&ckptdv1.InstallMigrationSetsRequest{Files: setFiles("support")})},
		{ckptdv1.MigrationServiceListMigrationSetsProcedure, one(&ckptdv1.ListMigrationSetsRequest{Tenant: n.tenant})},
		{ckptdv1.MigrationServiceGetMigrationStatusProcedure, one(&ckptdv1.GetMigrationStatusRequest{Tenant: n.tenant, Spec: &ckptdv1.MigrationSpec{User: n.user}})},
		{ckptdv1.MigrationServicePlanMigrationProcedure, one(&ckptdv1.PlanMigrationRequest{Tenant: n.tenant, Spec: &ckptdv1.MigrationSpec{Kind: n.note, To: 2}})},
		{ckptdv1.MigrationServiceStartMigrationJobProcedure, one(&ckptdv1.StartMigrationJobRequest{Tenant: n.tenant, Action: ckptdv1.MigrationAction_MIGRATION_ACTION_DRY_RUN,
			Spec: &ckptdv1.MigrationSpec{User: n.user}, Pace: &ckptdv1.MigrationPace{Workers: 1, MaxErrorRate: 0.5}})},
		{ckptdv1.MigrationServiceListMigrationJobsProcedure, one(&ckptdv1.ListMigrationJobsRequest{Tenant: n.tenant})},
		{ckptdv1.MigrationServiceGetMigrationJobProcedure, one(&ckptdv1.GetMigrationJobRequest{Tenant: n.tenant, Id: n.note})},
		{ckptdv1.MigrationServiceWatchMigrationJobProcedure, one(&ckptdv1.WatchMigrationJobRequest{Tenant: n.tenant, Id: n.note})},
		{ckptdv1.MigrationServiceCancelMigrationJobProcedure, one(&ckptdv1.CancelMigrationJobRequest{Tenant: n.tenant, Id: n.note})},
		{ckptdv1.MigrationServiceRemoveMigrationSetProcedure, one(&ckptdv1.RemoveMigrationSetRequest{Tenant: n.tenant, Kind: n.note})},

		{ckptdv1.ThreadServicePruneProcedure, one(&ckptdv1.PruneRequest{Ref: here, KeepLast: 2, KeepLabelled: true, DryRun: true})},
		{ckptdv1.ThreadServiceDeleteRunProcedure, one(&ckptdv1.DeleteRunRequest{Tenant: n.tenant, User: n.user, RunId: n.run + "-other"})},
		{ckptdv1.ThreadServiceDeleteProcedure, one(&ckptdv1.DeleteRequest{Ref: at(n.thread+"-2", "")})},
	}
}

// setFiles is a set with a step from version 1 to 2, which says so in the state.
func setFiles(kind string) []*ckptdv1.MigrationFile {
	return []*ckptdv1.MigrationFile{
		{Path: migrate.FolderOf(kind) + "/0002_say.jq", Data: []byte(`.channels.x.version = 2`)},
		{Path: migrate.FolderOf(kind) + "/0002_say.down.jq", Data: []byte(`del(.channels.x.version)`)},
	}
}

// plugin returns a plugin that runs before saves.
func plugin(name, description string, module []byte) *bundle.Bundle {
	b, err := bundle.Load([]bundle.File{{Path: "x.wasm", Data: module}, {Path: bundle.ManifestFile, Data: fmt.Appendf(nil,
		"name = %q\nversion = \"1.0.0\"\ndescription = %q\nabi = 1\nwasm = \"x.wasm\"\n[[hooks]]\nstage = \"pre_save\"\n", name, description)}})
	if err != nil {
		panic(err)
	}
	return b
}

// begun makes the first save of the examples, and returns the names with what it told. It can be
// made again.
func begun(t testing.TB, c ckptdv1.CheckpointServiceClient, n exampleNames) exampleNames {
	t.Helper()
	for _, e := range examples(n) {
		if m, ok := e.messages[0].(*ckptdv1.SaveRequest); ok {
			n.version = mustSave(t, c, m.GetRef(), m.GetDraft()).GetChannels()[0].GetVersion()
			return n
		}
	}
	panic("no example saves")
}

func one(m proto.Message) []proto.Message { return []proto.Message{m} }

// methods are the methods of the API by their procedures.
func methods() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	for _, service := range contract.Services() {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			all[fmt.Sprintf("/%s/%s", service.FullName(), m.Name())] = m
		}
	}
	return all
}

func endless(procedure string) bool {
	m := contract.API.Method(procedure)
	return m != nil && m.GetEndless()
}

func TestExamplesAreComplete(t *testing.T) {
	used := map[string]bool{}
	for _, e := range examples(plainNames()) {
		used[e.procedure] = true
	}
	for procedure := range methods() {
		if !used[procedure] {
			t.Errorf("no example of %s", procedure)
		}
	}
}

// dialect is one of the ways to say a call over HTTP.
type dialect int

const (
	inJSON dialect = iota
	inProto
	inGzip
	inGRPC
	inGRPCWeb
	dialects
)

// streams reports whether a method is anything else than one message for another.
func streams(m protoreflect.MethodDescriptor) bool {
	return m.IsStreamingClient() || m.IsStreamingServer()
}

// contentType is what the requests of a method are called.
func (d dialect) contentType(m protoreflect.MethodDescriptor) string {
	kind := map[dialect]string{inJSON: "json", inProto: "proto", inGzip: "proto", inGRPC: "grpc+proto", inGRPCWeb: "grpc-web+proto"}[d]
	if d <= inGzip && streams(m) {
		kind = "connect+" + kind
	}
	return "application/" + kind
}

// body is the body of a request.
func (d dialect) body(m protoreflect.MethodDescriptor, messages []proto.Message) []byte {
	var b bytes.Buffer
	for _, message := range messages {
		var text []byte
		var err error
		if d == inJSON {
			text, err = protojson.Marshal(message)
		} else {
			text, err = proto.Marshal(message)
		}
		if err != nil {
			panic(err) // the examples can be said in any way
		}
		flag := byte(0)
		if d == inGzip {
			text, flag = gzipped(text), 1
		}
		if d <= inGzip && !streams(m) {
			return text
		}
		b.Write(envelope(flag, text))
	}
	return b.Bytes()
}

func gzipped(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(text)
	z.Close()
	return b.Bytes()
}

// envelope puts a message into a stream.
func envelope(flag byte, text []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(text))), text...)
}

// request is a call with any body. It lasts 10 s at most, or 50 ms if it would have no end.
func (d dialect) request(ctx context.Context, procedure string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+procedure, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	m := methods()[procedure]
	h := r.Header
	h.Set("Content-Type", d.contentType(m))
	most := 10_000
	if endless(procedure) {
		most = 50
	}
	switch d {
	case inGRPC, inGRPCWeb:
		h.Set("Grpc-Timeout", fmt.Sprintf("%dm", most))
		h.Set("Te", "trailers")
	case inGzip:
		if streams(m) {
			h.Set("Connect-Content-Encoding", "gzip")
		} else {
			h.Set("Content-Encoding", "gzip")
		}
		fallthrough
	default:
		h.Set("Connect-Protocol-Version", "1")
		h.Set("Connect-Timeout-Ms", strconv.Itoa(most))
	}
	return r, nil
}

// outcome is how a call ended: with an RPC code, "ok" among them, or "http 415" where the server
// did not get as far.
type outcome struct {
	code, message string
	answer        []byte // the first message, as it came
	retryAfter    string
	raw           []byte // all of the body, and what came beside it
}

// call makes a request and reads all of its answer.
func (d dialect) call(c *http.Client, r *http.Request) (*outcome, error) {
	res, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	o := d.outcome(res, body)
	var beside bytes.Buffer
	res.Header.Write(&beside)
	res.Trailer.Write(&beside)
	o.raw = append(body, beside.Bytes()...)
	return o, nil
}

func (d dialect) outcome(res *http.Response, body []byte) *outcome {
	o := &outcome{code: fmt.Sprint("http ", res.StatusCode), message: string(body), retryAfter: res.Header.Get("Retry-After")}
	kind := res.Header.Get("Content-Type")
	switch {
	case strings.HasPrefix(kind, "application/grpc-web"), strings.HasPrefix(kind, "application/connect+"):
		o.fromStream(body, res.Header)
	case strings.HasPrefix(kind, "application/grpc"):
		o.fromStream(body, res.Header)
		o.grpcStatus(res.Header)
		o.grpcStatus(res.Trailer)
	case res.StatusCode == http.StatusOK:
		o.code, o.answer = "ok", body
	case kind == "application/json":
		o.fromJSON(body)
	}
	return o
}

func (o *outcome) fromJSON(text []byte) {
	var e struct{ Code, Message string }
	if json.Unmarshal(text, &e) == nil && e.Code != "" {
		o.code, o.message = e.Code, e.Message
	}
}

func (o *outcome) grpcStatus(h http.Header) {
	if s := h.Get("Grpc-Status"); s != "" {
		n, _ := strconv.Atoi(s)
		o.code = "ok"
		if n != 0 {
			o.code = connect.Code(n).String()
		}
		o.message, _ = url.PathUnescape(h.Get("Grpc-Message"))
		o.retryAfter = max(o.retryAfter, h.Get("Retry-After"))
	}
}

// fromStream reads a body in envelopes, of which the last tells the end.
func (o *outcome) fromStream(body []byte, h http.Header) {
	o.grpcStatus(h) // if there is nothing but headers
	for len(body) >= 5 {
		flag, size := body[0], binary.BigEndian.Uint32(body[1:])
		if uint64(size) > uint64(len(body)-5) {
			return
		}
		text := body[5 : 5+size]
		body = body[5+size:]
		if flag&1 != 0 {
			if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
				text, _ = io.ReadAll(z)
			}
		}
		switch {
		case flag&2 != 0: // Connect
			var end struct {
				Error    json.RawMessage
				Metadata map[string][]string
			}
			if o.code = "ok"; json.Unmarshal(text, &end) == nil && len(end.Error) > 0 {
				o.fromJSON(end.Error)
			}
			if v := end.Metadata["retry-after"]; len(v) > 0 {
				o.retryAfter = v[0]
			}
		case flag&0x80 != 0: // gRPC-Web
			h := http.Header{}
			for line := range strings.SplitSeq(string(text), "\r\n") {
				if name, value, ok := strings.Cut(line, ": "); ok {
					h.Add(name, value)
				}
			}
			o.grpcStatus(h)
		case o.answer == nil:
			o.answer = slices.Clone(text)
		}
	}
}

// http2Client is httpClient over HTTP/2 without TLS, which gRPC needs.
func (b *bed) http2Client(token string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.socket)
	}
	transport := &http.Transport{DialContext: dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	b.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearer{transport, token}}
}

// TestExamplesInEveryDialect makes every call in every dialect, which ends alike in all of them.
func TestExamplesInEveryDialect(t *testing.T) {
	want := map[int]string{}
	for d := range dialects {
		b := newBed(t, Limits{})
		client := b.http2Client("")
		for i, e := range examples(begun(t, b.checkpoints(""), plainNames())) {
			r, err := d.request(t.Context(), e.procedure, d.body(methods()[e.procedure], e.messages))
			must(t, err)
			o, err := d.call(client, r)
			must(t, err)
			if d == 0 {
				want[i] = o.code
			}
			if o.code != want[i] {
				t.Errorf("dialect %d: %s ends with %s: %q, in the first one with %s", d, e.procedure, o.code, o.message, want[i])
			}
			if may := []string{"ok", "not_found", "deadline_exceeded"}; !slices.Contains(may, o.code) {
				t.Errorf("dialect %d: %s ends with %s: %s", d, e.procedure, o.code, o.message)
			}
		}
	}
}
