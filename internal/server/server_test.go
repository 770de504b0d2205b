package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/google/go-cmp/cmp"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/access"
)

func TestSaveAndLoad(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	first := mustSave(t, c, ref("t"), draft("one"))
	second := mustSave(t, c, ref("t"), &ckptdv1.Draft{Keep: true, Step: 2, Channels: []*ckptdv1.Change{{Name: "x", Content: &ckptdv1.Change_Splice{
		Splice: &ckptdv1.Splice{Base: first.GetChannels()[0].GetVersion(), Prefix: 2, Content: &ckptdv1.Splice_Text{Text: "ce"}}}}}})
	for _, tt := range []struct {
		which *ckptdv1.Which
		want  string
		id    string
	}{
		{nil, "once", second.GetId()},
		{&ckptdv1.Which{Which: &ckptdv1.Which_Seq{Seq: 1}}, "one", first.GetId()},
		{&ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: first.GetId()}}, "one", first.GetId()},
		{&ckptdv1.Which{Which: &ckptdv1.Which_Before{Before: second.GetId()}}, "one", first.GetId()},
	} {
		res, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t"), Which: tt.which}))
		must(t, err)
		cp := res.Msg.GetCheckpoint()
		if string(cp.GetChannels()[0].GetData()) != tt.want || cp.GetId() != tt.id {
			t.Errorf("%v loads %s: %q", tt.which, cp.GetId(), cp.GetChannels()[0].GetData())
		}
	}
}

// TestHave loads a state that the caller has but for one channel: only that one comes.
func TestHave(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	r := rand.New(rand.NewPCG(1, 2))
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(r.Uint32())
	}
	d := draft("small")
	d.Channels = append(d.Channels, &ckptdv1.Change{Name: "large", Content: &ckptdv1.Change_Data{Data: large}})
	mustSave(t, c, ref("t"), d)
	sum, other := sha256.Sum256(large), sha256.Sum256([]byte("other"))
	res, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t"), Have: []*ckptdv1.Have{{Channel: "large", Sha256: sum[:]}, {Channel: "x", Sha256: other[:]}}}))
	must(t, err)
	chans := res.Msg.GetCheckpoint().GetChannels()
	if !chans[0].GetUnchanged() || chans[0].GetData() != nil || chans[0].GetSize() != 1<<20 || string(chans[1].GetData()) != "small" {
		t.Errorf("channels are %v", chans)
	}
	if n := proto.Size(res.Msg); n > 2000 {
		t.Errorf("the answer is %d bytes", n)
	}
	_, err = c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t"), Have: []*ckptdv1.Have{{Channel: "x", Sha256: sum[:31]}}}))
	wantCode(t, err, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID)
}

// TestErrors asks for every kind of refusal that a save can meet.
func TestErrors(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	head := mustSave(t, c, ref("t"), draft("one"))
	for name, tt := range map[string]struct {
		change func(*ckptdv1.Draft)
		code   connect.Code
		reason ckptdv1.Reason
	}{
		"conflict":       {func(d *ckptdv1.Draft) { d.ExpectHead = proto.Uint64(0) }, connect.CodeAborted, ckptdv1.Reason_REASON_CONFLICT},
		"unknown parent": {func(d *ckptdv1.Draft) { d.Parent = "nobody" }, connect.CodeFailedPrecondition, ckptdv1.Reason_REASON_UNKNOWN_PARENT},
		"generation":     {func(d *ckptdv1.Draft) { d.Generation = 7 }, connect.CodeFailedPrecondition, ckptdv1.Reason_REASON_GENERATION},
		"need full": {func(d *ckptdv1.Draft) {
			d.Channels[0].Content = &ckptdv1.Change_Splice{Splice: &ckptdv1.Splice{Base: 99}}
		}, connect.CodeFailedPrecondition, ckptdv1.Reason_REASON_NEED_FULL},
		"a splice that lies": {func(d *ckptdv1.Draft) {
			d.Channels[0].Content = &ckptdv1.Change_Splice{Splice: &ckptdv1.Splice{Base: head.GetChannels()[0].GetVersion(), Prefix: 1 << 62, Suffix: 1 << 62}}
		}, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID},
		"splices that lie": {func(d *ckptdv1.Draft) {
			d.Channels[0].Content = &ckptdv1.Change_Splices{Splices: &ckptdv1.Splices{Base: head.GetChannels()[0].GetVersion(),
				Replace: []*ckptdv1.Replace{{From: 1 << 62, To: 1 << 63}}}}
		}, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID},
		"splices without a base": {func(d *ckptdv1.Draft) {
			d.Channels[0].Content = &ckptdv1.Change_Splices{Splices: &ckptdv1.Splices{}}
		}, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID},
		"too many splices": {func(d *ckptdv1.Draft) {
			d.Channels[0].Content = &ckptdv1.Change_Splices{Splices: &ckptdv1.Splices{Base: head.GetChannels()[0].GetVersion(),
				Replace: slices.Repeat([]*ckptdv1.Replace{{}}, 1025)}}
		}, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID},
		"no content": {func(d *ckptdv1.Draft) { d.Channels[0].Content = nil }, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID},
		"metadata":   {func(d *ckptdv1.Draft) { d.Meta = proto.String("{") }, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_INVALID},
		"a blob":     {func(d *ckptdv1.Draft) { d.Blobs = &ckptdv1.Blobs{Ids: []string{strings.Repeat("ab", 32)}} }, connect.CodeNotFound, ckptdv1.Reason_REASON_NOT_FOUND},
	} {
		t.Run(name, func(t *testing.T) {
			d := draft("two")
			tt.change(d)
			_, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: d}))
			wantCode(t, err, tt.code, tt.reason)
		})
	}
	res, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t")}))
	must(t, err)
	if res.Msg.GetCheckpoint().GetSeq() != 1 {
		t.Errorf("a refused save has left seq %d", res.Msg.GetCheckpoint().GetSeq())
	}
}

// TestRetryAnswersAsTheFirst repeats saves with an id, before and after a restart and after others.
func TestRetryAnswersAsTheFirst(t *testing.T) {
	b := newBed(t, Limits{})
	c := b.checkpoints("")
	mustSave(t, c, ref("t"), draft("zero"))
	d := draft("one")
	d.Id, d.Step, d.Labels, d.Meta, d.ExpectHead = "mine", 7, &ckptdv1.Labels{Labels: map[string]string{"a": "b"}}, proto.String(`{"n": 1.0}`), proto.Uint64(1)
	first := mustSave(t, c, ref("t"), d)
	again := func(when string) {
		t.Helper()
		if diff := cmp.Diff(first, mustSave(t, b.checkpoints(""), ref("t"), d), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	again("at once")
	mustSave(t, c, ref("t"), draft("two"))
	again("after another save")
	b.stop()
	b.start()
	again("after a restart")
	seqs := 0
	stream, err := b.checkpoints("").List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("t")}))
	must(t, err)
	for stream.Receive() {
		seqs += len(stream.Msg().GetCheckpoints())
	}
	if seqs != 3 || stream.Err() != nil {
		t.Errorf("%d checkpoints, %v", seqs, stream.Err())
	}
}

func TestSaveBatch(t *testing.T) {
	b := newBed(t, Limits{})
	token := b.token(access.Grant{Role: access.Writer, Tenant: "acme", User: "alice", ThreadPrefix: "mine-"})
	var saves []*ckptdv1.SaveRequest
	for i := range 60 {
		saves = append(saves, &ckptdv1.SaveRequest{Ref: ref(fmt.Sprintf("mine-%d", i%20)), Draft: draft(fmt.Sprint(i))})
	}
	bad := draft("bad")
	bad.Parent = "nobody"
	saves = append(saves, &ckptdv1.SaveRequest{Ref: ref("mine-0"), Draft: bad}, &ckptdv1.SaveRequest{Ref: ref("others"), Draft: draft("x")})
	res, err := b.checkpoints(token).SaveBatch(t.Context(), connect.NewRequest(&ckptdv1.SaveBatchRequest{Saves: saves}))
	must(t, err)
	results := res.Msg.GetResults()
	for i := range 60 {
		if cp := results[i].GetCheckpoint(); cp.GetSeq() != uint64(i/20)+1 || cp.GetRef().GetThread() != fmt.Sprintf("mine-%d", i%20) {
			t.Errorf("save %d: %v", i, results[i])
		}
	}
	if e := results[60].GetError(); e.GetDetail().GetReason() != ckptdv1.Reason_REASON_UNKNOWN_PARENT || e.GetCode() != "failed_precondition" {
		t.Errorf("a bad save: %v", results[60])
	}
	if e := results[61].GetError(); e.GetDetail().GetReason() != ckptdv1.Reason_REASON_NOT_FOUND {
		t.Errorf("a save without the right to it: %v", results[61])
	}
}

// slowBackend takes its time for a commit, and tells when one begins.
type slowBackend struct {
	backend.Backend
	began chan struct{}
	gate  chan struct{}
	slow  atomic.Bool
}

func (s *slowBackend) Commit(ctx context.Context, batch backend.Batch) error {
	if s.slow.Load() {
		s.began <- struct{}{}
		<-s.gate
	}
	return s.Backend.Commit(ctx, batch)
}

func newSlowBed(t *testing.T, l Limits) (*bed, *slowBackend) {
	b := newBed(t, l)
	b.stop()
	slow := &slowBackend{Backend: b.be, began: make(chan struct{}, 1000), gate: make(chan struct{})}
	b.be = slow
	b.start()
	return b, slow
}

// TestInFlight fills the server and is turned away, with nothing done and a word on when to come
// again.
func TestInFlight(t *testing.T) {
	for name, tt := range map[string]struct {
		limits Limits
		what   string
	}{
		"requests": {Limits{InFlight: 2}, "requests under way"},
		"tenant":   {Limits{InFlightPerTenant: 2}, "requests under way for the tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			b, slow := newSlowBed(t, tt.limits)
			c := b.checkpoints("")
			mustSave(t, c, ref("a"), draft("x"))
			mustSave(t, c, ref("b"), draft("x"))
			slow.slow.Store(true)
			var wg sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				wg.Go(func() { mustSave(t, c, ref(name), draft("y")) })
				<-slow.began
			}
			_, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("c"), Draft: draft("x")}))
			wantCode(t, err, connect.CodeResourceExhausted, ckptdv1.Reason_REASON_OVERLOADED)
			if e, _ := errors.AsType[*connect.Error](err); e.Meta().Get("Retry-After") == "" || !strings.Contains(e.Message(), tt.what) {
				t.Errorf("%v, %v", e, e.Meta())
			}
			slow.slow.Store(false)
			close(slow.gate)
			wg.Wait()
			_, err = c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("c")}))
			wantCode(t, err, connect.CodeNotFound, ckptdv1.Reason_REASON_NOT_FOUND)
			mustSave(t, c, ref("c"), draft("x"))
		})
	}
}

func TestRate(t *testing.T) {
	b := newBed(t, Limits{Rate: 0.001, Burst: 3})
	mine, others := b.checkpoints(""), b.checkpoints(b.token(access.Everything()))
	for range 3 {
		mustSave(t, mine, ref("t"), draft("x"))
	}
	_, err := mine.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft("x")}))
	wantCode(t, err, connect.CodeResourceExhausted, ckptdv1.Reason_REASON_OVERLOADED)
	mustSave(t, others, ref("t"), draft("x"))
	must(t, b.SetLimits(Limits{}))
	mustSave(t, mine, ref("t"), draft("x"))
}

func TestMessageSize(t *testing.T) {
	b := newBed(t, Limits{MaxMessage: 10_000})
	c := b.checkpoints("")
	_, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft(strings.Repeat("x", 20_000))}))
	wantCode(t, err, connect.CodeInvalidArgument, ckptdv1.Reason_REASON_TOO_LARGE)
	mustSave(t, c, ref("t"), draft(strings.Repeat("x", 5000)))
}

// TestShutdownFinishes begins to shut down while a save is under way: that one is answered, and new
// ones are turned away.
func TestShutdownFinishes(t *testing.T) {
	b, slow := newSlowBed(t, Limits{})
	c := b.checkpoints("")
	mustSave(t, c, ref("t"), draft("x"))
	watch, err := b.threads("").Watch(t.Context(), connect.NewRequest(&ckptdv1.WatchRequest{Tenant: "acme"}))
	must(t, err)
	if !watch.Receive() {
		t.Fatal(watch.Err())
	}
	slow.slow.Store(true)
	saved := make(chan *ckptdv1.Checkpoint)
	go func() { saved <- mustSave(t, c, ref("t"), draft("y")) }()
	<-slow.began
	down := make(chan error)
	go func() { down <- b.Shutdown(context.Background()) }()
	if watch.Receive() || connect.CodeOf(watch.Err()) != connect.CodeUnavailable {
		t.Errorf("the watch ends with %v", watch.Err())
	}
	select {
	case err := <-down:
		t.Fatalf("the server is down (%v) though a save is under way", err)
	case <-time.After(20 * time.Millisecond):
	}
	slow.slow.Store(false)
	close(slow.gate)
	if cp := <-saved; cp.GetSeq() != 2 {
		t.Errorf("saved %v", cp)
	}
	must(t, <-down)
	if _, err := c.Save(t.Context(), connect.NewRequest(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft("z")})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("after the shutdown: %v", err)
	}
}

// TestStalledCaller sends half a request and then nothing: its place becomes free.
func TestStalledCaller(t *testing.T) {
	b := newBed(t, Limits{StallTimeout: 50 * time.Millisecond, InFlight: 1})
	stalled, err := net.Dial("unix", b.socket)
	must(t, err)
	defer stalled.Close()
	fmt.Fprintf(stalled, "POST %s HTTP/1.1\r\nHost: ckptd\r\nContent-Type: application/proto\r\nContent-Length: 1000\r\n\r\nhalf", ckptdv1.CheckpointServiceSaveProcedure)
	stalled.SetReadDeadline(time.Now().Add(10 * time.Second))
	if answer, err := io.ReadAll(stalled); err != nil || !bytes.Contains(answer, []byte("did not arrive in time")) {
		t.Errorf("the stalled connection: %q, %v", answer, err)
	}
	mustSave(t, b.checkpoints(""), ref("t"), draft("x"))
}

// TestRevokedTokenEndsItsWatch takes a token back while a watch runs on it.
func TestRevokedTokenEndsItsWatch(t *testing.T) {
	b := newBed(t, Limits{})
	secret := b.token(access.Grant{Role: access.Reader, Tenant: "acme", User: "alice"})
	watch, err := b.threads(secret).Watch(t.Context(), connect.NewRequest(&ckptdv1.WatchRequest{}))
	must(t, err)
	if !watch.Receive() || watch.Msg().GetEvent() != nil || watch.Msg().GetCursor() == "" {
		t.Fatalf("the watch begins with %v, %v", watch.Msg(), watch.Err())
	}
	c := b.checkpoints("")
	saved := mustSave(t, c, ref("t"), draft("x"))
	if !watch.Receive() || watch.Msg().GetEvent().GetId() != saved.GetId() {
		t.Fatalf("then comes %v, %v", watch.Msg(), watch.Err())
	}
	_, err = b.tokens.Revoke(b.tokens.List()[0].ID, false)
	must(t, err)
	mustSave(t, c, ref("t"), draft("y"))
	if watch.Receive() {
		t.Errorf("an event behind the revocation: %v", watch.Msg())
	}
	wantCode(t, watch.Err(), connect.CodeUnauthenticated, ckptdv1.Reason_REASON_UNAUTHENTICATED)
}

func TestBlobs(t *testing.T) {
	b := newBed(t, Limits{})
	c := ckptdv1.NewBlobServiceClient(b.httpClient(""), baseURL)
	content := bytes.Repeat([]byte("blob of some size. "), 50_000)
	put := c.PutBlob(t.Context())
	for at := 0; at < len(content); at += 100_000 {
		must(t, put.Send(&ckptdv1.PutBlobRequest{Tenant: "acme", User: "alice", Data: content[at:min(at+100_000, len(content))]}))
	}
	stored, err := put.CloseAndReceive()
	must(t, err)
	stream, err := c.GetBlob(t.Context(), connect.NewRequest(&ckptdv1.GetBlobRequest{Tenant: "acme", User: "alice", Id: stored.Msg.GetId()}))
	must(t, err)
	var got []byte
	for stream.Receive() {
		got = append(got, stream.Msg().GetData()...)
	}
	if stream.Err() != nil || !bytes.Equal(got, content) || stored.Msg.GetSize() != int64(len(content)) {
		t.Errorf("%d bytes of %d, %v", len(got), len(content), stream.Err())
	}
	_, err = c.StatBlob(t.Context(), connect.NewRequest(&ckptdv1.StatBlobRequest{Tenant: "acme", User: "bob", Id: stored.Msg.GetId()}))
	wantCode(t, err, connect.CodeNotFound, ckptdv1.Reason_REASON_NOT_FOUND)
}

// TestJSON saves and loads as curl does.
func TestJSON(t *testing.T) {
	b := newBed(t, Limits{})
	post := func(method, body string) string {
		t.Helper()
		res, err := b.httpClient("").Post(baseURL+method, "application/json", strings.NewReader(body))
		must(t, err)
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		must(t, err)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", res.Status, answer)
		}
		return string(answer)
	}
	post(ckptdv1.CheckpointServiceSaveProcedure, `{"ref":{"tenant":"acme","user":"alice","thread":"t"},"draft":{"channels":[{"name":"state","type":"json","text":"{\"n\":1}"}]}}`)
	if answer := post(ckptdv1.CheckpointServiceLoadProcedure, `{"ref":{"tenant":"acme","user":"alice","thread":"t"},"text":true}`); !strings.Contains(answer, `"text":"{\"n\":1}"`) {
		t.Errorf("the answer is %s", answer)
	}
	for _, wrong := range []string{`{"ref":{"tenant":"acme","user":"alice","thread":"t"},"draft":{"expectHed":"7"}}`, `{"ref":{"thread":"t"}`, ``} {
		res, err := b.httpClient("").Post(baseURL+ckptdv1.CheckpointServiceSaveProcedure, "application/json; charset=utf-8", strings.NewReader(wrong))
		must(t, err)
		answer, err := io.ReadAll(res.Body)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), "JSON") {
			t.Errorf("%s: %s %s", wrong, res.Status, answer)
		}
	}
}

// TestBytesUnderWay fills the budget for messages with one that does not come to its end: another
// is turned away, whether it says how long it is or not.
func TestBytesUnderWay(t *testing.T) {
	b := newBed(t, Limits{InFlightBytes: 10_000, MaxMessage: 9000})
	half, err := net.Dial("unix", b.socket)
	must(t, err)
	fmt.Fprintf(half, "POST %s HTTP/1.1\r\nHost: ckptd\r\nContent-Type: application/proto\r\nContent-Length: 8000\r\n\r\n", ckptdv1.CheckpointServiceSaveProcedure)
	for b.gate.bytes.Load() != 6250 { // no more of one request counts
		time.Sleep(time.Millisecond)
	}
	message, err := proto.Marshal(&ckptdv1.SaveRequest{Ref: ref("t"), Draft: draft(strings.Repeat("x", 6000))})
	must(t, err)
	post := func(body io.Reader) int {
		t.Helper()
		res, err := b.httpClient("").Post(baseURL+ckptdv1.CheckpointServiceSaveProcedure, "application/proto", body)
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	if status := post(bytes.NewReader(message)); status != http.StatusTooManyRequests {
		t.Errorf("with a length: %d", status)
	}
	if status := post(io.MultiReader(bytes.NewReader(message))); status != http.StatusTooManyRequests { // in chunks
		t.Errorf("without a length: %d", status)
	}
	half.Close()
	for b.gate.bytes.Load() != 0 {
		time.Sleep(time.Millisecond)
	}
	if status := post(io.MultiReader(bytes.NewReader(message))); status != http.StatusOK {
		t.Errorf("when there is room again: %d", status)
	}
}

// TestAnswersAreWithinTheBudget loads a large state while another answer fills the budget for
// messages: it is turned away, and everything is given back.
func TestAnswersAreWithinTheBudget(t *testing.T) {
	b := newBed(t, Limits{InFlightBytes: 8 << 20})
	c := b.checkpoints("")
	for range 3 {
		mustSave(t, c, ref("t"), draft(strings.Repeat("large ", 400_000)))
	}
	load := func() error {
		_, err := c.Load(t.Context(), connect.NewRequest(&ckptdv1.LoadRequest{Ref: ref("t")}))
		return err
	}
	list := func() error {
		stream, err := c.List(t.Context(), connect.NewRequest(&ckptdv1.ListRequest{Ref: ref("t"), Data: true}))
		for err == nil && stream.Receive() {
		}
		return errors.Join(err, stream.Err())
	}
	limits := b.Server.limits.Load()
	other, err := b.gate.enter(limits, "another caller")
	must(t, err)
	answer := b.gate.newAccount(limits, other, 1)
	must(t, answer.take(5<<20)) // which its caller is slow to read
	for _, read := range []func() error{load, list} {
		wantCode(t, read(), connect.CodeResourceExhausted, ckptdv1.Reason_REASON_OVERLOADED)
	}
	answer.close()
	b.gate.leave("another caller")
	for _, read := range []func() error{load, list} {
		must(t, read())
	}
	for b.gate.bytes.Load() != 0 {
		time.Sleep(time.Millisecond) // the last request may not have ended quite yet
	}
}
