package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
)

// fuzzBed is a server that is asked for anything. Whatever that is, it answers soon with an error
// that it means, allocates little, loses nothing that it acknowledged, and what it stores is sound.
type fuzzBed struct {
	*bed
	client   *http.Client
	saver    ckptdv1.CheckpointServiceClient
	panicked atomic.Bool
	asked    int
	kept     *ckptdv1.Checkpoint
	names    exampleNames
}

const fuzzMessage = 1 << 20 // the limit of a message

// fuzzAllocs bounds what one request may allocate: a message several times over, and what goes on
// beside it.
const fuzzAllocs = 64 << 20

func newFuzzBed(t testing.TB) *fuzzBed {
	f := &fuzzBed{bed: newBed(t, Limits{MaxMessage: fuzzMessage})}
	f.stop()
	f.more = func(o *Options) { o.Log = slog.New(listenFor{slog.DiscardHandler, "a handler panicked", &f.panicked}) }
	f.start()
	f.client, f.saver = f.http2Client(""), f.checkpoints("") // what follows may run in a fuzz target, where the bed's own t is dead
	r := &ckptdv1.Ref{Tenant: "kept", User: "kept", Thread: "kept"}
	f.kept = mustSave(t, f.saver, r, draft("kept"))
	f.seed(t)
	return f
}

// listenFor notes when something is logged.
type listenFor struct {
	slog.Handler
	message string
	heard   *atomic.Bool
}

func (l listenFor) Enabled(context.Context, slog.Level) bool { return true }
func (l listenFor) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l listenFor) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.message {
		l.heard.Store(true)
	}
	return nil
}

// seed makes the examples' data anew.
func (f *fuzzBed) seed(t testing.TB) {
	t.Helper()
	for user, err := range f.store.Upkeep().Users(t.Context(), "acme") {
		must(t, err)
		for info, err := range f.store.User("acme", user).Threads(t.Context(), engine.ThreadOptions{}) {
			must(t, err)
			if _, err := f.store.Thread(info.Ref).Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.names = begun(t, f.saver, plainNames())
	for _, e := range examples(f.names) {
		if e.procedure == ckptdv1.CheckpointServiceSaveProcedure {
			f.ask(t, inProto, e.procedure, inProto.body(methods()[e.procedure], e.messages))
		}
	}
}

// ask makes a request and checks its answer.
func (f *fuzzBed) ask(t testing.TB, d dialect, procedure string, body []byte) *outcome {
	t.Helper()
	r, err := d.request(t.Context(), procedure, body)
	must(t, err)
	return f.send(t, d, r, func() string { return fmt.Sprintf("dialect %d, %s, body %q", d, procedure, shortened(body)) })
}

func shortened(b []byte) []byte { return b[:min(len(b), 2000)] }

func (f *fuzzBed) send(t testing.TB, d dialect, r *http.Request, what func() string) *outcome {
	t.Helper()
	if f.asked++; f.asked%2000 == 0 {
		f.seed(t)
	}
	before := allocated()
	o, err := d.call(f.client, r)
	if err != nil {
		t.Fatalf("%s: no answer: %v", what(), err)
	}
	if n := allocated() - before; n > fuzzAllocs {
		t.Errorf("%s: allocated %d MiB", what(), n>>20)
	}
	if !meant(o) {
		t.Errorf("%s: ended with %s: %s", what(), o.code, o.message)
	}
	if f.panicked.Swap(false) {
		t.Errorf("%s: panicked", what())
	}
	return o
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// meant reports whether a call ended as a server ends it on purpose.
func meant(o *outcome) bool {
	switch o.code {
	case "internal", "unknown": // by the letter of gRPC that is what broken framing is called
		return strings.HasPrefix(o.message, "protocol error: ") || strings.HasPrefix(o.message, "corrupt response: ")
	case "data_loss", "unavailable", "http 500", "http 501", "http 502", "http 503":
		return false
	}
	return true
}

// intact checks that what was acknowledged first is still there.
func (f *fuzzBed) intact(t testing.TB) {
	t.Helper()
	cp, err := f.store.Thread(engine.Ref{Tenant: "kept", User: "kept", Thread: "kept"}).Load(t.Context(), engine.At(f.kept.GetId()))
	if err != nil || len(cp.Channels) != 1 || string(cp.Channels[0].Data) != "kept" {
		t.Errorf("what was saved first: %v, %v", cp, err)
	}
}

// saved checks that an acknowledged save of whole channels loads as it was sent.
func (f *fuzzBed) saved(t testing.TB, req *ckptdv1.SaveRequest, answer []byte) {
	t.Helper()
	var res ckptdv1.SaveResponse
	must(t, proto.Unmarshal(answer, &res))
	r := res.GetCheckpoint().GetRef()
	ref := engine.Ref{Tenant: r.GetTenant(), User: r.GetUser(), Thread: r.GetThread(), Namespace: r.GetNamespace()}
	cp, err := f.store.Thread(ref).Load(t.Context(), engine.At(res.GetCheckpoint().GetId()))
	if ttl := req.GetDraft().GetTtl().AsDuration(); errors.Is(err, engine.ErrNotFound) && ttl > 0 && ttl < time.Hour {
		return // it has expired
	}
	if err != nil {
		t.Errorf("%v was acknowledged, and loads with %v", req, err)
		return
	}
	for _, c := range req.GetDraft().GetChannels() {
		want := c.GetData()
		switch c.GetContent().(type) {
		case *ckptdv1.Change_Text:
			want = []byte(c.GetText())
		case *ckptdv1.Change_Data:
		default:
			continue
		}
		if got, ok := cp.Channel(c.GetName()); !ok || !bytes.Equal(got.Data, want) {
			t.Errorf("%v was acknowledged, and loads as %q", req, got.Data)
		}
	}
}

// seeds calls add with every example in every dialect.
func (f *fuzzBed) seeds(add func(d dialect, procedure string, body []byte)) {
	for d := range dialects {
		for _, e := range examples(f.names) {
			add(d, e.procedure, d.body(methods()[e.procedure], e.messages))
		}
	}
}

// FuzzHandlers sends any bytes as the body of any method, in any dialect.
func FuzzHandlers(f *testing.F) {
	b := newFuzzBed(f)
	procedures := slices.Sorted(maps.Keys(methods()))
	b.seeds(func(d dialect, procedure string, body []byte) {
		f.Add(uint8(d), uint8(slices.Index(procedures, procedure)), body)
	})
	f.Fuzz(func(t *testing.T, d, procedure uint8, body []byte) {
		b.ask(t, dialect(d)%dialects, procedures[int(procedure)%len(procedures)], body)
		b.intact(t)
	})
}

// TestDamagedRequests sends the examples with bytes changed, cut off, doubled and mixed.
func TestDamagedRequests(t *testing.T) {
	b := newFuzzBed(t)
	r := rand.New(rand.NewPCG(3, 4))
	var bodies [][]byte
	b.seeds(func(_ dialect, _ string, body []byte) { bodies = append(bodies, body) })
	times := rounds(t, 8)
	codes := map[string]int{}
	b.seeds(func(d dialect, procedure string, body []byte) {
		if endless(procedure) {
			return // FuzzCursors
		}
		for range times {
			codes[b.ask(t, d, procedure, damaged(r, body, bodies[r.IntN(len(bodies))])).code]++
		}
	})
	b.intact(t)
	t.Log(codes)
}

// rounds is how often a test of random requests goes over all of them: in campaigns so often that
// CKPTD_LONG requests come together.
func rounds(t *testing.T, usual int) int {
	if v := os.Getenv("CKPTD_LONG"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("CKPTD_LONG: %v", err)
		}
		return max(usual, n/len(examples(plainNames())))
	}
	if testing.Short() {
		return max(1, usual/4)
	}
	return usual
}

// damaged is a body with something wrong.
func damaged(r *rand.Rand, body, other []byte) []byte {
	body = slices.Clone(body)
	for range 1 + r.IntN(3) {
		at := 0
		if len(body) > 0 {
			at = r.IntN(len(body))
		}
		switch r.IntN(7) {
		case 0:
			body = body[:at]
		case 1:
			body = slices.Insert(body, at, other[:min(len(other), r.IntN(50))]...)
		case 2: // a length or a number that is huge
			body = slices.Insert(body, at, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
		case 3:
			body = append(body, body[at:]...)
		case 4:
			body = slices.Concat(body[:at], other)
		default:
			if len(body) > 0 {
				body[at] ^= 1 << r.IntN(8)
			}
		}
	}
	return body
}

// TestExtremeRequests sends well-formed requests with values that nobody would expect: numbers at
// their ends, texts that are long or odd, lists and maps with thousands of entries, times out of
// range, splices whose lengths lie.
func TestExtremeRequests(t *testing.T) {
	b := newFuzzBed(t)
	r := rand.New(rand.NewPCG(5, 6))
	times := rounds(t, 30)
	codes := map[string]int{}
	for _, e := range examples(b.names) {
		if endless(e.procedure) {
			continue // FuzzCursors
		}
		m := methods()[e.procedure]
		for range times {
			messages := make([]proto.Message, len(e.messages))
			for i := range messages {
				messages[i] = proto.Clone(e.messages[i])
				extreme(r, messages[i].ProtoReflect())
			}
			if proto.Size(messages[0]) > fuzzMessage {
				continue
			}
			d := inProto
			if _, err := protojson.Marshal(messages[0]); err == nil && r.IntN(3) == 0 {
				d = inJSON // where what goes back must be good JSON too
			}
			o := b.ask(t, d, e.procedure, d.body(m, messages))
			if req, ok := messages[0].(*ckptdv1.SaveRequest); ok && o.code == "ok" && d == inProto {
				b.saved(t, req, o.answer)
			}
			codes[o.code]++
		}
		for d := range dialects { // and what is stored now can be read in all of them
			b.ask(t, d, e.procedure, d.body(m, e.messages))
		}
	}
	b.intact(t)
	t.Log(codes)
	if codes["ok"] == 0 || codes["invalid_argument"] == 0 {
		t.Error("the values are not extreme in a way that tells something")
	}
}

// TestLyingSplices saves splices that keep more than there is, up to the ends of the numbers, where
// they add up to little again. Those that keep what there is are saved as they say.
func TestLyingSplices(t *testing.T) {
	b := newFuzzBed(t)
	const base = "0123456789"
	first := mustSave(t, b.checkpoints(""), ref("splices"), draft(base))
	lengths := []uint64{0, 1, 5, 9, 10, 11, math.MaxInt32 - 5, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64 - 5, math.MaxInt64, 1 << 63, math.MaxUint64 - 9, math.MaxUint64}
	for _, prefix := range lengths {
		for _, suffix := range lengths {
			for _, data := range []string{"", "new", base + base} {
				d := &ckptdv1.Draft{Keep: true, Parent: first.GetId(), Channels: []*ckptdv1.Change{{Name: "x", Content: &ckptdv1.Change_Splice{
					Splice: &ckptdv1.Splice{Base: first.GetChannels()[0].GetVersion(), Prefix: prefix, Suffix: suffix, Content: &ckptdv1.Splice_Data{Data: []byte(data)}}}}}}
				procedure := ckptdv1.CheckpointServiceSaveProcedure
				o := b.ask(t, inProto, procedure, inProto.body(methods()[procedure], one(&ckptdv1.SaveRequest{Ref: ref("splices"), Draft: d})))
				if prefix > 10 || suffix > 10 || prefix+suffix > 10 {
					if o.code != "invalid_argument" {
						t.Errorf("keeping %d and %d of 10 bytes ends with %s: %s", prefix, suffix, o.code, o.message)
					}
					continue
				}
				want := draft(base[:prefix] + data + base[10-suffix:])
				if o.code != "ok" {
					t.Errorf("keeping %d and %d of 10 bytes ends with %s: %s", prefix, suffix, o.code, o.message)
				} else {
					b.saved(t, &ckptdv1.SaveRequest{Draft: want}, o.answer)
				}
			}
		}
	}
}

// extreme gives one or two fields of a message, or of one in it, another value.
func extreme(r *rand.Rand, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if fields.Len() == 0 {
		return
	}
	for range 1 + r.IntN(2) {
		fd := fields.Get(r.IntN(fields.Len()))
		switch {
		case fd.IsMap():
			entries := m.Mutable(fd).Map()
			for range 1 << r.IntN(12) {
				entries.Set(protoreflect.ValueOfString(oddText(r)).MapKey(), protoreflect.ValueOfString(oddText(r)))
			}
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range 1 << r.IntN(12) {
				if fd.Message() != nil {
					list.AppendMutable()
				} else {
					list.Append(extremeValue(r, fd))
				}
			}
			if fd.Message() != nil {
				extreme(r, list.Get(r.IntN(list.Len())).Message())
			}
		case fd.Message() != nil:
			extreme(r, m.Mutable(fd).Message())
		default:
			m.Set(fd, extremeValue(r, fd))
		}
	}
}

func extremeValue(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	number := []uint64{0, 1, 2, math.MaxInt8, math.MaxUint8 + 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64, 1 << 63, math.MaxUint64, 253402300800, 1<<40 | 1}[r.IntN(13)]
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(oddText(r))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(bytes.Repeat([]byte{byte(r.Uint32())}, 1<<r.IntN(19)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(number%2 == 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(number))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(number)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 0.5, -1, 1e300, math.NaN(), math.Inf(1)}[r.IntN(6)])
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(number)))
	}
	panic("a field of a kind that there was not before: " + fd.Kind().String())
}

func oddText(r *rand.Rand) string {
	odd := []string{"", "*", "acme", "alice", "run-1", "cp-1", "\x00", "a\nb", "../../etc/passwd", "\u202e\ufeff", "ÿ", `{"a":1e999}`, `[[[[[[[[[[]`, "%s%n", "none"}
	switch r.IntN(4) {
	case 0:
		return strings.Repeat(odd[r.IntN(len(odd))], 1<<r.IntN(17)/8+1)
	case 1:
		return fmt.Sprint(r.Uint64())
	}
	return odd[r.IntN(len(odd))]
}

// FuzzHeaders sends a save with any of the headers that mean something.
func FuzzHeaders(f *testing.F) {
	b := newFuzzBed(f)
	e := examples(b.names)[1]
	names := []string{"Authorization", "Content-Type", "Content-Encoding", "Connect-Timeout-Ms", "Connect-Protocol-Version", "Grpc-Timeout", "Grpc-Encoding",
		"Accept-Encoding", "Grpc-Accept-Encoding", "Connect-Accept-Encoding", "Traceparent", "Expect", "Te", "X-Http-Method-Override"}
	values := []string{"", "0", "-1", "1", "99999999999999999999", "1H", "99999999H", "5x", "gzip", "gzip, gzip", "br", "identity", "application/json; charset=utf-16",
		"application/grpc", "application/grpc+json", "application/grpc-web-text", "application/proto\tx", "text/plain", "multipart/form-data; boundary=x", "Bearer ", "Bearer",
		"Bearer ckptd_0000", "Basic YTpi", "Bearer a.b.c", "Bearer " + strings.Repeat("x", 20_000), "00-00000000000000000000000000000000-0000000000000000-00", "100-continue", "\x80\xff"}
	for d := range dialects {
		for i := range names {
			for _, v := range values {
				f.Add(uint8(d), uint8(i), v)
			}
		}
	}
	f.Fuzz(func(t *testing.T, d, name uint8, value string) {
		way := dialect(d) % dialects
		if strings.ContainsFunc(value, unicode.IsControl) {
			t.Skip("net/http does not send it")
		}
		r, err := way.request(t.Context(), e.procedure, way.body(methods()[e.procedure], e.messages))
		must(t, err)
		header := names[int(name)%len(names)]
		r.Header.Set(header, value)
		b.send(t, way, r, func() string { return fmt.Sprintf("dialect %d, %s: %q", way, header, value) })
		b.intact(t)
	})
}

// FuzzPageTokens goes on with listings where no token of the server's leads: with any text, and
// with a token that is whole but for the position in it.
func FuzzPageTokens(f *testing.F) {
	b := newFuzzBed(f)
	listings := []proto.Message{
		&ckptdv1.ListRequest{Ref: ref("run-1")},
		&ckptdv1.QueryRequest{Tenant: "acme", User: "alice"},
		&ckptdv1.QueryRequest{Tenant: "acme", WholeTenant: true},
		&ckptdv1.ListThreadsRequest{Tenant: "acme", User: "alice"},
	}
	procedures := []string{ckptdv1.CheckpointServiceListProcedure, ckptdv1.ThreadServiceQueryProcedure, ckptdv1.ThreadServiceQueryProcedure, ckptdv1.ThreadServiceListThreadsProcedure}
	for i := range listings {
		for _, at := range []position{{}, {ID: "cp-1", Seq: 1, Generation: 1}, {ID: strings.Repeat("x", 5000)}, {Seq: math.MaxUint64, Generation: math.MaxUint64, Time: math.MaxInt64},
			{Time: math.MinInt64}, {Time: 1}, {Ref: engine.Ref{Tenant: "kept", User: "kept", Thread: "kept"}, ID: "x", Time: 5}} {
			text, err := json.Marshal(at)
			must(f, err)
			f.Add(uint8(i), true, string(text))
		}
		for _, text := range []string{"", "x", "AQ", "AQAAAAAAAAAA", strings.Repeat("A", 8000), strings.Repeat("A", 9000), "é", "AQ==", `{"Seq":-1}`, `{"Time":1e30}`, "null", "[]", `{"Ref":null}`} {
			f.Add(uint8(i), false, text)
			f.Add(uint8(i), true, text)
		}
	}
	f.Fuzz(func(t *testing.T, listing uint8, whole bool, text string) {
		i := int(listing) % len(listings)
		m := proto.Clone(listings[i])
		p, err := newPages(m, func(proto.Message) {})
		must(t, err)
		if whole {
			text = base64.RawURLEncoding.EncodeToString(append(slices.Clone(p.head), text...))
		}
		field := m.ProtoReflect().Descriptor().Fields().ByName("page_token")
		m.ProtoReflect().Set(field, protoreflect.ValueOfString(strings.ToValidUTF8(text, "?")))
		if o := b.ask(t, inProto, procedures[i], inProto.body(methods()[procedures[i]], one(m))); bytes.Contains(o.raw, []byte("kept")) {
			t.Errorf("the token %q of %v leads to what others have", text, listings[i])
		}
	})
}

// FuzzCursors begins watches at any cursor.
func FuzzCursors(f *testing.F) {
	b := newFuzzBed(f)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	stream, err := b.threads("").Watch(ctx, connect.NewRequest(&ckptdv1.WatchRequest{Tenant: "acme"}))
	must(f, err)
	if !stream.Receive() {
		f.Fatal(stream.Err())
	}
	good := stream.Msg().GetCursor()
	for _, s := range []string{good, good[:len(good)/2], good + good, "", "0", "-1", "x", strings.Repeat("9", 5000), "AAAA", "{}"} {
		f.Add(s, int64(0), int32(0))
	}
	for _, seconds := range []int64{math.MinInt64, math.MaxInt64, -1, 253402300800} {
		f.Add("", seconds, int32(math.MaxInt32))
	}
	f.Fuzz(func(t *testing.T, cursor string, seconds int64, nanos int32) {
		// By hand, since the library would not write times out of range.
		m := &ckptdv1.WatchRequest{Tenant: "acme", Cursor: strings.ToValidUTF8(cursor, "?")}
		if seconds != 0 || nanos != 0 {
			since := m.ProtoReflect().Mutable(m.ProtoReflect().Descriptor().Fields().ByName("since")).Message()
			fields := since.Descriptor().Fields()
			since.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(seconds))
			since.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(nanos))
		}
		procedure := ckptdv1.ThreadServiceWatchProcedure
		b.ask(t, inProto, procedure, inProto.body(methods()[procedure], one(m)))
	})
}

// TestTimesOutOfRange stores times that no calendar has, where it is allowed, and reads them back
// as JSON, which has no words for them.
func TestTimesOutOfRange(t *testing.T) {
	b := newFuzzBed(t)
	in := func(d dialect, procedure string, m proto.Message) *outcome {
		return b.ask(t, d, procedure, d.body(methods()[procedure], one(m)))
	}
	accepted := 0
	for _, seconds := range []int64{253402300800, math.MaxInt64, math.MinInt64, -62135596801} {
		at, span := &timestamppb.Timestamp{Seconds: seconds}, &durationpb.Duration{Seconds: seconds}
		for _, o := range []*outcome{
			in(inProto, ckptdv1.AdminServiceCreateTokenProcedure, &ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: "reader", Tenant: "acme", User: "*", Expires: at}}}),
			in(inProto, ckptdv1.AdminServiceSetRetentionProcedure, &ckptdv1.SetRetentionRequest{Tenant: "acme", Policy: &ckptdv1.RetentionPolicy{OlderThan: span}}),
			in(inProto, ckptdv1.CheckpointServiceSaveProcedure, &ckptdv1.SaveRequest{Ref: ref("run-1"), Draft: &ckptdv1.Draft{Keep: true, Ttl: span}}),
			in(inProto, ckptdv1.ThreadServiceQueryProcedure, &ckptdv1.QueryRequest{Tenant: "acme", User: "alice", Filter: &ckptdv1.Filter{Since: at, Until: at}}),
		} {
			if o.code == "ok" {
				accepted++
			}
		}
		for procedure, m := range map[string]proto.Message{
			ckptdv1.AdminServiceListTokensProcedure:     &ckptdv1.ListTokensRequest{},
			ckptdv1.AdminServiceGetRetentionProcedure:   &ckptdv1.GetRetentionRequest{Tenant: "acme"},
			ckptdv1.ThreadServiceListThreadsProcedure:   &ckptdv1.ListThreadsRequest{Tenant: "acme", User: "alice"},
			ckptdv1.CheckpointServiceLoadProcedure:      &ckptdv1.LoadRequest{Ref: ref("run-1")},
			ckptdv1.AdminServiceCollectGarbageProcedure: &ckptdv1.CollectGarbageRequest{Tenant: "acme", DryRun: true, Grace: span},
		} {
			d := inJSON
			if m, ok := m.(*ckptdv1.CollectGarbageRequest); ok && !m.GetGrace().IsValid() {
				d = inProto
			}
			if o := in(d, procedure, m); o.code != "ok" {
				t.Errorf("with %d: %s ends with %s: %s", seconds, procedure, o.code, o.message)
			}
		}
	}
	t.Logf("%d accepted", accepted)
}
