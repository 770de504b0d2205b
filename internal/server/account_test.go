package server

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
)

// fill lets other callers hold all but so many bytes of the budget, until the function that it
// returns is called.
func (b *bed) fill(free int64) (empty func()) {
	b.t.Helper()
	l := b.Server.limits.Load()
	var accounts []*account
	for i, left := 0, l.InFlightBytes-free-b.gate.bytes.Load(); left > 0; i++ {
		of, err := b.gate.enter(l, fmt.Sprint("other-", i))
		must(b.t, err)
		a := b.gate.newAccount(l, of, 1)
		part := min(left, l.InFlightBytes/2)
		must(b.t, a.take(part))
		left -= part
		accounts = append(accounts, a)
	}
	return func() {
		for i, a := range accounts {
			a.close()
			b.gate.leave(fmt.Sprint("other-", i))
		}
	}
}

// settled waits until nothing is under way, and nothing is paid for.
func (b *bed) settled() {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); b.gate.bytes.Load() != 0 || b.InFlight() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d bytes are paid for and %d requests under way, though nothing is", b.gate.bytes.Load(), b.InFlight())
		}
	}
}

// TestEveryMethodPays calls every method when there is nothing left of the budget: none is served.
func TestEveryMethodPays(t *testing.T) {
	b := newBed(t, Limits{InFlightBytes: 8 << 20})
	names := begun(t, b.checkpoints(""), plainNames())
	b.settled()
	empty := b.fill(0)
	called := map[string]bool{}
	for _, e := range examples(names) {
		if called[e.procedure] {
			continue
		}
		called[e.procedure] = true
		r, err := inProto.request(t.Context(), e.procedure, inProto.body(methods()[e.procedure], e.messages))
		must(t, err)
		o, err := inProto.call(b.http2Client(""), r)
		must(t, err)
		if o.code != "resource_exhausted" {
			t.Errorf("%s: %s %s", e.procedure, o.code, o.message)
		}
	}
	if len(called) != len(methods()) {
		t.Errorf("%d of %d methods were called", len(called), len(methods()))
	}
	empty()
	b.settled()
}

// TestWhatIsRestoredIsPaidFor asks in little for much, in every way that there is, when the budget
// has no room for it: it is refused, and served as soon as there is.
func TestWhatIsRestoredIsPaidFor(t *testing.T) {
	const size = 1 << 20
	b := newBed(t, Limits{InFlightBytes: 32 * size, MaxMessage: 4 * size})
	c := b.checkpoints("")
	first := mustSave(t, c, ref("t"), draft(strings.Repeat("large ", size/6)))
	more := draft("")
	more.Meta = proto.String(`"` + strings.Repeat("meta ", size/6) + `"`)
	more.Labels = &ckptdv1.Labels{Labels: map[string]string{"a": "b"}}
	more.Channels = []*ckptdv1.Change{{Name: "x", Content: &ckptdv1.Change_Text{Text: strings.Repeat("other ", size/6)}}}
	second := mustSave(t, c, ref("t"), more)
	_, err := c.PutWrites(t.Context(), connect.NewRequest(&ckptdv1.PutWritesRequest{Ref: ref("t"), CheckpointId: first.GetId(), Task: "task",
		Writes: []*ckptdv1.Write{{Channel: "x", Content: &ckptdv1.Write_Text{Text: strings.Repeat("large ", size/6)}}}}))
	must(t, err)
	one, two := &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: first.GetId()}}, &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: second.GetId()}}
	seed := 0 // makes each change another one
	ways := map[string]func(c ckptdv1.CheckpointServiceClient) error{
		"load": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t"), Which: two}))
			return err
		},
		"load of one channel": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t"), Which: one, Channels: []string{"x"}}))
			return err
		},
		"load of the newest": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.LoadNewest(t.Context(), connect.NewRequest(&ckptdv1.LoadNewestRequest{Tenant: "acme", User: "alice"}))
			return err
		},
		"list": func(c ckptdv1.CheckpointServiceClient) error {
			stream, err := c.List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("t"), Data: true}))
			for err == nil && stream.Receive() {
			}
			return orElse(err, stream.Err)
		},
		"list by id": func(c ckptdv1.CheckpointServiceClient) error {
			return listByID(t, c, &ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Data: true})
		},
		"list by id with writes": func(c ckptdv1.CheckpointServiceClient) error {
			return listByID(t, c, &ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Id: first.GetId(), Writes: true})
		},
		"list by metadata": func(c ckptdv1.CheckpointServiceClient) error {
			return listByID(t, c, &ckptdv1.ListByIDRequest{Tenant: "acme", User: "alice", Meta: "{}"})
		},
		"tree": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.GetTree(t.Context(), connect.NewRequest(&ckptdv1.GetTreeRequest{Ref: ref("t")}))
			return err
		},
		"diff": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.Diff(t.Context(), connect.NewRequest(&ckptdv1.DiffRequest{Ref: ref("t"), From: one, To: two}))
			return err
		},
		"writes": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.ListWrites(t.Context(), connect.NewRequest(&ckptdv1.ListWritesRequest{Ref: ref("t"), CheckpointId: first.GetId()}))
			return err
		},
		"labels": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.SetLabels(t.Context(), connect.NewRequest(&ckptdv1.SetLabelsRequest{Ref: ref("t"), Which: one, Labels: map[string]string{"n": fmt.Sprint(seed)}}))
			return err
		},
		"fork": func(c ckptdv1.CheckpointServiceClient) error {
			_, err := c.Fork(t.Context(), connect.NewRequest(&ckptdv1.ForkRequest{Ref: ref("t"), From: two, Branch: fmt.Sprint("b", seed)}))
			return err
		},
		"save that keeps a state": func(c ckptdv1.CheckpointServiceClient) error {
			d := draft("")
			d.Keep, d.Parent, d.Channels = true, first.GetId(), nil
			_, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: d}))
			return err
		},
	}
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		way := ways[name]
		for _, when := range []string{"in memory", "on disk"} {
			if when == "on disk" {
				b.stop()
				b.start()
			}
			b.settled()
			if when == "in memory" && (name == "labels" || name == "save that keeps a state" || name == "fork") {
				continue // what is in memory is not read
			}
			seed++
			empty := b.fill(size / 2)
			err := way(b.checkpoints(""))
			if connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("%s, %s: %v with no room for it", name, when, err)
			}
			empty()
			if err := way(b.checkpoints("")); err != nil {
				t.Errorf("%s, %s: %v with room for it", name, when, err)
			}
			b.settled()
		}
	}
}

func listByID(t *testing.T, c ckptdv1.CheckpointServiceClient, req *ckptdv1.ListByIDRequest) error {
	stream, err := c.ListByID(t.Context(), connect.NewRequest(req))
	for err == nil && stream.Receive() {
	}
	return orElse(err, stream.Err)
}

func orElse(err error, other func() error) error {
	if err != nil {
		return err
	}
	return other()
}

// TestCompressedAddress puts a message that inflates to megabytes into the address of a request,
// where it is no body: it is paid for all the same.
func TestCompressedAddress(t *testing.T) {
	const size = 2 << 20
	b := newBed(t, Limits{InFlightBytes: 16 << 20, MaxMessage: 4 << 20})
	message, err := proto.Marshal(&ckptdv1.LoadRequest{Ref: ref("t"), Channels: []string{strings.Repeat("A", size)}})
	must(t, err)
	query := url.Values{"connect": {"v1"}, "encoding": {"proto"}, "compression": {"gzip"}, "base64": {"1"},
		"message": {base64.RawURLEncoding.EncodeToString(gzipped(message))}}
	get := func() int {
		t.Helper()
		res, err := b.httpClient("").Get(baseURL + ckptdv1.CheckpointServiceLoadProcedure + "?" + query.Encode())
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	if status := get(); status != http.StatusNotFound {
		t.Errorf("with room for it: %d", status)
	}
	b.settled()
	empty := b.fill(size / 2)
	defer empty()
	if status := get(); status != http.StatusTooManyRequests {
		t.Errorf("with no room for it: %d", status)
	}
}

// TestWatchKeepsNothing begins watches with more than they need: nothing of it stays, for as long
// as they last.
func TestWatchKeepsNothing(t *testing.T) {
	b := newBed(t, Limits{})
	unknown := func(size int) *ckptdv1.WatchRequest {
		m := &ckptdv1.WatchRequest{Tenant: "acme"}
		m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 100, protowire.BytesType), make([]byte, size)))
		return m
	}
	stream, err := b.threads("").Watch(t.Context(), connect.NewRequest(unknown(1<<20)))
	for err == nil && stream.Receive() {
		t.Fatal("a watch begins with a megabyte")
	}
	if err := orElse(err, stream.Err); connect.CodeOf(err) != connect.CodeInvalidArgument && connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a request of a megabyte for a watch: %v", err)
	}
	stream, err = b.threads("").Watch(t.Context(), connect.NewRequest(unknown(1000)))
	must(t, err)
	if !stream.Receive() {
		t.Errorf("a request with an unknown field: %v", stream.Err())
	}
	text, err := proto.Marshal(unknown(1000))
	must(t, err)
	m := &ckptdv1.WatchRequest{}
	must(t, countedProto{}.Unmarshal(text, m))
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		t.Error("an unknown field is kept")
	}
}

// TestOpenServicesTakeNothing holds far more calls of what is open to everybody than there are
// places, half of them compressed and none ever finished: everybody else is served, and so is who
// asks how the server is.
func TestOpenServicesTakeNothing(t *testing.T) {
	b := newBed(t, Limits{InFlight: 4, InFlightBytes: 1 << 20})
	for i := range 3 * openPlaces {
		c, err := net.Dial("unix", b.socket)
		must(t, err)
		defer c.Close()
		procedure, kind := "/grpc.health.v1.Health/Check", "application/json\r\nContent-Encoding: gzip"
		if i%2 == 1 {
			procedure, kind = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "application/grpc-web"
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: ckptd\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\nx", procedure, kind)
	}
	for range 20 {
		mustSave(t, b.checkpoints(""), ref("t"), draft("x"))
		res, err := b.httpClient("").Post(baseURL+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader("{}"))
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("health: %s", res.Status)
		}
	}
	b.open.mu.Lock()
	defer b.open.mu.Unlock()
	if n := len(b.open.bodies); n > openPlaces {
		t.Errorf("%d open calls are under way", n)
	}
}

// dribble posts a body in pieces, each well within the time that a caller may stall, and returns
// how it ended: "" if well.
func (b *bed) dribble(procedure, kind string, pieces [][]byte, pause time.Duration) string {
	b.t.Helper()
	c, err := net.Dial("unix", b.socket)
	must(b.t, err)
	defer c.Close()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: ckptd\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", procedure, kind)
	for _, p := range pieces {
		time.Sleep(pause)
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(p), p); err != nil {
			break // it has answered already
		}
	}
	fmt.Fprint(c, "0\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusOK && err == nil && !bytes.Contains(answer, []byte(`"error"`)) {
		return ""
	}
	return fmt.Sprintf("%s %v %s", res.Status, err, answer)
}

// TestSlowMessage sends a message byte by byte: it comes too late, however steadily. An upload goes
// on for as long as its messages come.
func TestSlowMessage(t *testing.T) {
	b := newBed(t, Limits{ReadTimeout: 500 * time.Millisecond})
	save, err := proto.Marshal(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft(strings.Repeat("x", 200))})
	must(t, err)
	if end := b.dribble(ckptdv1.CheckpointServiceSaveProcedure, "application/proto", bytes.Split(save, nil), 5*time.Millisecond); !strings.Contains(end, "did not arrive in time") {
		t.Errorf("a message that comes byte by byte for a second ends with %q", end)
	}
	var parts [][]byte
	for i := range 10 {
		m := &ckptdv1.PutBlobRequest{Data: []byte("part of a blob ")}
		if i == 0 {
			m.Tenant, m.User = "acme", "alice"
		}
		text, err := proto.Marshal(m)
		must(t, err)
		parts = append(parts, envelope(0, text))
	}
	mustSave(t, b.checkpoints(""), ref("t"), draft("x"))
	if end := b.dribble(ckptdv1.BlobServicePutBlobProcedure, "application/connect+proto", parts, 100*time.Millisecond); end != "" {
		t.Errorf("an upload of a second: %s", end)
	}
	b.settled()
}

// TestLargeStateBesideSmallOnes loads a state that takes more than the whole budget, beside what
// others do, who are served too. Another one of its kind has to wait.
func TestLargeStateBesideSmallOnes(t *testing.T) {
	b := newBed(t, Limits{InFlightBytes: 1 << 20, MaxMessage: 2 << 20})
	c := b.checkpoints("")
	large := mustSave(t, c, ref("large"), draft(strings.Repeat("large ", 1<<17)))
	for range 3 {
		d := draft("")
		d.Keep, d.Channels = true, []*ckptdv1.Change{{Name: fmt.Sprint(large.GetSeq()), Content: &ckptdv1.Change_Text{Text: strings.Repeat("large ", 1<<17)}}}
		large = mustSave(t, c, ref("large"), d)
	}
	b.stop()
	b.start()
	c = b.checkpoints("")
	watch, err := b.threads("").Watch(t.Context(), connect.NewRequest(&ckptdv1.WatchRequest{Tenant: "acme", User: "alice"}))
	must(t, err)
	if !watch.Receive() {
		t.Fatal(watch.Err())
	}
	res, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("large")}))
	must(t, err)
	if n := len(res.Msg.GetCheckpoint().GetChannels()); n != 4 {
		t.Errorf("%d channels", n)
	}
	l := b.Server.limits.Load()
	of, err := b.gate.enter(l, "who loads much")
	must(t, err)
	defer b.gate.leave("who loads much")
	a := b.gate.newAccount(l, of, 1)
	must(t, a.take(100<<20))
	defer a.close()
	mustSave(t, c, ref("small"), draft("x"))
	_, err = c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("large")}))
	wantCode(t, err, connect.CodeResourceExhausted, ckptdv1.Reason_REASON_OVERLOADED)
}

// TestOneCallerLeavesRoom lets one caller take what places it gets: others are served.
func TestOneCallerLeavesRoom(t *testing.T) {
	b, slow := newSlowBed(t, Limits{InFlight: 8})
	greedy := b.checkpoints(b.token(access.Grant{Role: access.Writer, Tenant: "acme", User: "alice"}))
	mustSave(t, greedy, ref("t"), draft("x"))
	slow.slow.Store(true)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() { mustSave(t, greedy, ref(fmt.Sprint(i)), draft("x")) })
		<-slow.began
	}
	_, err := greedy.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft("x")}))
	wantCode(t, err, connect.CodeResourceExhausted, ckptdv1.Reason_REASON_OVERLOADED)
	_, err = b.checkpoints("").Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t")}))
	must(t, err)
	close(slow.gate)
	wg.Wait()
}

// TestBatchesCountForTheirTenants sends batches for a tenant that is at its limit: their saves are
// refused, and those for others in them are not.
func TestBatchesCountForTheirTenants(t *testing.T) {
	b, slow := newSlowBed(t, Limits{InFlightPerTenant: 1})
	c := b.checkpoints("")
	mustSave(t, c, ref("t"), draft("x"))
	other := &ckptdv1.Ref{Tenant: "globex", User: "carol", Thread: "t"}
	mustSave(t, c, other, draft("x"))
	slow.slow.Store(true)
	var wg sync.WaitGroup
	batch := func(refs ...*ckptdv1.Ref) []*ckptdv1.SaveResult {
		m := &ckptdv1.SaveBatchRequest{}
		for _, r := range refs {
			m.Saves = append(m.Saves, &ckptdv1.SaveRequest{Ref: r, Draft: draft("y")})
		}
		res, err := c.SaveBatch(t.Context(), connect.NewRequest(m))
		must(t, err)
		return res.Msg.GetResults()
	}
	wg.Go(func() { batch(ref("t")) })
	<-slow.began
	slow.slow.Store(false)
	results := batch(ref("t"), other, ref("u"))
	for i, refused := range []bool{true, false, true} {
		if got := results[i].GetError().GetDetail().GetReason() == ckptdv1.Reason_REASON_OVERLOADED; got != refused {
			t.Errorf("save %d: %v", i, results[i])
		}
	}
	close(slow.gate)
	wg.Wait()
	if r := batch(ref("u")); r[0].GetError() != nil {
		t.Errorf("when the first has ended: %v", r)
	}
}

// TestAccount pays for an answer what the engine has not been paid for, and gives everything back.
func TestAccount(t *testing.T) {
	b := newBed(t, Limits{InFlightBytes: 1000})
	of, err := b.gate.enter(b.Server.limits.Load(), "somebody")
	must(t, err)
	defer b.gate.leave("somebody")
	a := b.gate.newAccount(b.Server.limits.Load(), of, answerCopies)
	paid := func(want int64) {
		t.Helper()
		if got := b.gate.bytes.Load(); got != want {
			t.Errorf("%d bytes are paid for, want %d", got, want)
		}
	}
	must(t, a.Reserve(100))
	paid(300)
	must(t, a.answer(100)) // that is what was restored
	paid(300)
	must(t, a.answer(150))
	paid(400)
	must(t, a.take(10_000)) // no more of one request counts
	paid(625)
	a.Release(100)
	paid(625)
	empty := b.fill(100)
	if err := a.another().answer(60); err == nil {
		t.Error("an answer beyond the budget is paid for")
	}
	empty()
	a.close()
	paid(0)
	if a.take(1) == nil {
		t.Error("a request that is over takes more")
	}
	paid(0)
}
