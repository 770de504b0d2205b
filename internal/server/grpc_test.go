package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/certtest"
)

// viaGRPC runs a test with the stock client of gRPC: over the Unix socket, as its owner, and over
// TLS, with a token.
func viaGRPC(t *testing.T, test func(t *testing.T, b *bed, c *grpc.ClientConn)) {
	t.Run("socket", func(t *testing.T) {
		b := newBed(t, Limits{})
		test(t, b, dialGRPC(t, "unix:"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials())))
	})
	t.Run("tls", func(t *testing.T) {
		authority := certtest.NewAuthority(t)
		b := newBed(t, Limits{})
		b.stop()
		b.more = func(o *Options) { o.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Pair(t, "localhost")}} }
		b.start()
		address := b.serveTLS()
		token := b.token(access.Everything())
		test(t, b, dialGRPC(t, address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: authority.Pool})), grpc.WithPerRPCCredentials(grpcToken(token))))
	})
}

func dialGRPC(t *testing.T, address string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, o...)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// serveTLS serves on another listener until the bed stops, and returns its address.
func (b *bed) serveTLS() string {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b.t, err)
	go b.Serve(l, true)
	return l.Addr().String()
}

// grpcToken is a bearer token as gRPC sends it.
type grpcToken string

func (g grpcToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(g)}, nil
}
func (grpcToken) RequireTransportSecurity() bool { return true }

func TestGRPC(t *testing.T) {
	viaGRPC(t, func(t *testing.T, b *bed, c *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var saved ckptdv1.SaveResponse
		must(t, c.Invoke(ctx, ckptdv1.CheckpointServiceSaveProcedure, &ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft("one")}, &saved))
		var compressed ckptdv1.SaveResponse
		long := strings.Repeat("a state that is worth compressing. ", 1000)
		must(t, c.Invoke(ctx, ckptdv1.CheckpointServiceSaveProcedure, &ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft(long)}, &compressed, grpc.UseCompressor(gzip.Name)))
		var loaded ckptdv1.LoadResponse
		must(t, c.Invoke(ctx, ckptdv1.CheckpointServiceLoadProcedure, &ckptdv1.LoadRequest{Ref: ref("t")}, &loaded))
		if cp := loaded.GetCheckpoint(); cp.GetSeq() != 2 || cp.GetId() != compressed.GetCheckpoint().GetId() || string(cp.GetChannels()[0].GetData()) != long {
			t.Errorf("loaded %v", cp)
		}

		listed := receiveGRPC[ckptdv1.ListResponse](t, openGRPC(t, ctx, c, ckptdv1.CheckpointServiceListProcedure, &ckptdv1.ListRequest{Ref: ref("t")}))
		if len(listed) != 1 || len(listed[0].GetCheckpoints()) != 2 || listed[0].GetCheckpoints()[1].GetId() != saved.GetCheckpoint().GetId() {
			t.Errorf("listed %v", listed)
		}

		watch := openGRPC(t, ctx, c, ckptdv1.ThreadServiceWatchProcedure, &ckptdv1.WatchRequest{Tenant: "acme", User: "alice"})
		var began, event ckptdv1.WatchResponse
		must(t, watch.RecvMsg(&began))
		third := mustSave(t, b.checkpoints(""), ref("t"), draft("three"))
		must(t, watch.RecvMsg(&event))
		if event.GetEvent().GetId() != third.GetId() {
			t.Errorf("the watch tells of %v", &event)
		}

		put, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, ckptdv1.BlobServicePutBlobProcedure)
		must(t, err)
		content := bytes.Repeat([]byte("blob. "), 100_000)
		for at := 0; at < len(content); at += 250_000 {
			must(t, put.SendMsg(&ckptdv1.PutBlobRequest{Tenant: "acme", User: "alice", Data: content[at:min(at+250_000, len(content))]}))
		}
		must(t, put.CloseSend())
		var blob ckptdv1.PutBlobResponse
		must(t, put.RecvMsg(&blob))
		var got []byte
		for _, m := range receiveGRPC[ckptdv1.GetBlobResponse](t, openGRPC(t, ctx, c, ckptdv1.BlobServiceGetBlobProcedure, &ckptdv1.GetBlobRequest{Tenant: "acme", User: "alice", Id: blob.GetId()})) {
			got = append(got, m.GetData()...)
		}
		if blob.GetSize() != int64(len(content)) || !bytes.Equal(got, content) {
			t.Errorf("put %d bytes, got %d back", blob.GetSize(), len(got))
		}
	})
}

// openGRPC begins a call that is answered by a stream.
func openGRPC(t *testing.T, ctx context.Context, c *grpc.ClientConn, procedure string, m proto.Message) grpc.ClientStream {
	t.Helper()
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, procedure)
	must(t, err)
	must(t, stream.SendMsg(m))
	must(t, stream.CloseSend())
	return stream
}

// receiveGRPC reads a stream to its end.
func receiveGRPC[M any, P interface {
	*M
	proto.Message
}](t *testing.T, stream grpc.ClientStream) (all []P) {
	t.Helper()
	for {
		m := P(new(M))
		err := stream.RecvMsg(m)
		if err == io.EOF {
			return all
		}
		must(t, err)
		all = append(all, m)
	}
}

// TestGRPCErrors looks for what callers branch on where gRPC has it: in the details of the status.
func TestGRPCErrors(t *testing.T) {
	viaGRPC(t, func(t *testing.T, b *bed, c *grpc.ClientConn) {
		save := func(d *ckptdv1.Draft, o ...grpc.CallOption) error {
			return c.Invoke(t.Context(), ckptdv1.CheckpointServiceSaveProcedure, &ckptdv1.SaveRequest{Ref: ref("t"), Draft: d}, &ckptdv1.SaveResponse{}, o...)
		}
		must(t, save(draft("one")))
		stale, lost := draft("two"), draft("two")
		stale.ExpectHead = proto.Uint64(0)
		lost.Channels[0].Content = &ckptdv1.Change_Splice{Splice: &ckptdv1.Splice{Base: 99}}
		must(t, b.SetLimits(Limits{}))
		for err, want := range map[error]*ckptdv1.ErrorDetail{
			save(stale): {Reason: ckptdv1.Reason_REASON_CONFLICT, HeadSeq: 1},
			save(lost):  {Reason: ckptdv1.Reason_REASON_NEED_FULL, NeedFull: []string{"x"}},
			c.Invoke(t.Context(), ckptdv1.CheckpointServiceLoadProcedure, &ckptdv1.LoadRequest{Ref: ref("none")}, &ckptdv1.LoadResponse{}): {Reason: ckptdv1.Reason_REASON_NOT_FOUND},
		} {
			got := grpcDetail(err)
			if got.GetReason() != want.GetReason() || got.GetHeadSeq() != want.GetHeadSeq() || !slices.Equal(got.GetNeedFull(), want.GetNeedFull()) {
				t.Errorf("%v has the detail %v, want %v", err, got, want)
			}
		}
		must(t, b.SetLimits(Limits{Rate: 0.001, Burst: 1}))
		save(draft("x"))
		var trailer metadata.MD
		err := save(draft("x"), grpc.Trailer(&trailer))
		if d := grpcDetail(err); status.Code(err) != codes.ResourceExhausted || d.GetReason() != ckptdv1.Reason_REASON_OVERLOADED || d.GetRetryAfter() == nil || len(trailer.Get("retry-after")) == 0 {
			t.Errorf("beyond the rate: %v, %v, %v", err, d, trailer)
		}
		must(t, b.SetLimits(Limits{}))
	})
}

func grpcDetail(err error) *ckptdv1.ErrorDetail {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*ckptdv1.ErrorDetail); ok {
			return d
		}
	}
	return nil
}

// TestGRPCManyAtOnce makes as many calls at once as an agent host does, on one connection.
func TestGRPCManyAtOnce(t *testing.T) {
	viaGRPC(t, func(t *testing.T, b *bed, c *grpc.ClientConn) {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for n := range 5 {
					if err := c.Invoke(t.Context(), ckptdv1.CheckpointServiceSaveProcedure, &ckptdv1.SaveRequest{Ref: ref(fmt.Sprint("t", i)), Draft: draft(fmt.Sprint(n))}, &ckptdv1.SaveResponse{}); err != nil {
						t.Errorf("caller %d, save %d: %v", i, n, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestGRPCHealth asks whether the server serves: without credentials, as orchestrators do, and
// while it shuts down.
func TestGRPCHealth(t *testing.T) {
	b := newBed(t, Limits{})
	c := healthpb.NewHealthClient(dialGRPC(t, "unix:"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials())))
	for _, name := range []string{"", ckptdv1.CheckpointServiceName, ckptdv1.ThreadServiceName, ckptdv1.BlobServiceName, ckptdv1.AdminServiceName} {
		if res, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil || res.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, res, err)
		}
	}
	if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that there is not: %v", err)
	}
}

// TestGRPCReflection finds out what there is to call without having the schema.
func TestGRPCReflection(t *testing.T) {
	b := newBed(t, Limits{})
	stream, err := reflectionpb.NewServerReflectionClient(dialGRPC(t, "unix:"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))).ServerReflectionInfo(t.Context())
	must(t, err)
	ask := func(m *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		must(t, stream.Send(m))
		res, err := stream.Recv()
		must(t, err)
		return res
	}
	var names []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{ckptdv1.CheckpointServiceName, ckptdv1.ThreadServiceName, ckptdv1.BlobServiceName, ckptdv1.AdminServiceName, "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
	files := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "ckptd.v1.CheckpointService.Save"}}).GetFileDescriptorResponse().GetFileDescriptorProto()
	var file descriptorpb.FileDescriptorProto
	if len(files) == 0 || proto.Unmarshal(files[0], &file) != nil || file.GetName() != "ckptd/v1/checkpoint_service.proto" {
		t.Errorf("the file of Save is %q in %d files", file.GetName(), len(files))
	}
	must(t, stream.CloseSend())
}

// TestGRPCKeepalive pings as clients do who want to know whether the server is there, also while
// nothing is under way.
func TestGRPCKeepalive(t *testing.T) {
	b := newBed(t, Limits{})
	conn, err := net.Dial("unix", b.socket)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	frames := http2.NewFramer(conn, conn)
	must(t, frames.WriteSettings())
	for i := range byte(20) {
		must(t, frames.WritePing(false, [8]byte{i}))
		for answered := false; !answered; {
			frame, err := frames.ReadFrame()
			must(t, err)
			switch f := frame.(type) {
			case *http2.PingFrame:
				answered = f.IsAck() && f.Data == [8]byte{i}
			case *http2.GoAwayFrame:
				t.Fatalf("the server goes away: %v", f)
			}
		}
	}
}

// TestGRPCWeb makes a unary and a streaming call as browsers do.
func TestGRPCWeb(t *testing.T) {
	b := newBed(t, Limits{})
	c := ckptdv1.NewCheckpointServiceClient(b.httpClient(""), baseURL, connect.WithGRPCWeb())
	saved := mustSave(t, c, ref("t"), draft("one"))
	stream, err := c.List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("t"), Data: true}))
	checkpoints, _ := drain(t, stream, err, (*ckptdv1.ListResponse).GetCheckpoints, (*ckptdv1.ListResponse).GetNextPageToken)
	if len(checkpoints) != 1 || checkpoints[0].GetId() != saved.GetId() || string(checkpoints[0].GetChannels()[0].GetData()) != "one" {
		t.Errorf("listed %v", checkpoints)
	}
	_, err = c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("none")}))
	wantCode(t, err, connect.CodeNotFound, ckptdv1.Reason_REASON_NOT_FOUND)
}
