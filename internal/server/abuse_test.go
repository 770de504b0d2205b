package server

import (
	"bytes"
	"compress/gzip"
	"connectrpc.com/connect"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// TestBombs sends little bodies that inflate to far more than a message may be.
func TestBombs(t *testing.T) {
	b := newFuzzBed(t)
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	must(t, err)
	for range 256 {
		_, err := z.Write(make([]byte, 1<<20))
		must(t, err)
	}
	must(t, z.Close())
	for name, procedure := range map[string]string{"message": ckptdv1.CheckpointServiceSaveProcedure, "stream": ckptdv1.BlobServicePutBlobProcedure} {
		for _, d := range []dialect{inGzip, inGRPC, inGRPCWeb} {
			body := bomb.Bytes()
			if d != inGzip || name == "stream" {
				body = envelope(1, body)
			}
			r, err := d.request(t.Context(), procedure, body)
			must(t, err)
			r.Header.Set("Grpc-Encoding", "gzip")
			before := allocated()
			o := b.send(t, d, r, func() string { return fmt.Sprintf("dialect %d, a bomb in a %s", d, name) })
			if n := allocated() - before; o.code != "resource_exhausted" || n > 16*fuzzMessage {
				t.Errorf("dialect %d: a bomb in a %s ends with %s: %s; %d MiB allocated", d, name, o.code, o.message, n>>20)
			}
		}
	}
	b.intact(t)
}

// TestInflatedBytesCount holds saves under way, each of which came in little and takes much memory:
// it is the memory that is bounded.
func TestInflatedBytesCount(t *testing.T) {
	const size, budget, callers = 1 << 20, 8 << 20, 64
	for _, d := range []dialect{inGzip, inGRPC} {
		b, slow := newSlowBed(t, Limits{MaxMessage: 2 * size, InFlightBytes: budget})
		client := b.http2Client("")
		d0 := draft(strings.Repeat("x", size))
		mustSave(t, b.checkpoints(""), ref("t"), draft("x")) // makes the user
		slow.slow.Store(true)
		var wg sync.WaitGroup
		codes := make(chan string, callers)
		for i := range callers {
			wg.Go(func() {
				m := &ckptdv1.SaveRequest{Ref: ref(fmt.Sprint("t", i)), Draft: d0}
				text, err := proto.Marshal(m)
				must(t, err)
				body := gzipped(text)
				if d == inGRPC {
					body = envelope(1, body)
				}
				r, err := d.request(t.Context(), ckptdv1.CheckpointServiceSaveProcedure, body)
				must(t, err)
				r.Header.Set("Grpc-Encoding", "gzip")
				if d == inGRPC {
					r.ContentLength = -1
				}
				o, err := d.call(client, r)
				must(t, err)
				codes <- o.code
			})
		}
		refused := 0
		for refused < callers-budget/size {
			select {
			case code := <-codes:
				if code != "resource_exhausted" {
					t.Fatalf("dialect %d: a save ends with %s", d, code)
				}
				refused++
			case <-time.After(2 * time.Minute):
				t.Fatalf("dialect %d: of %d saves of %d MiB only %d are refused with a budget of %d MiB", d, callers, size>>20, refused, budget>>20)
			}
		}
		slow.slow.Store(false)
		close(slow.gate)
		wg.Wait()
		close(codes)
		saved := 0
		for code := range codes {
			if code == "ok" {
				saved++
			}
		}
		if saved == 0 {
			t.Errorf("dialect %d: none was saved", d)
		}
		if n := b.gate.bytes.Load(); n != 0 {
			t.Errorf("dialect %d: %d bytes are under way though nothing is", d, n)
		}
	}
}

// TestManyWithoutLength makes requests at the same time that do not say how long they are, as gRPC
// does: it is no reason to count each as the largest there can be.
func TestManyWithoutLength(t *testing.T) {
	const callers = 200
	b, slow := newSlowBed(t, Limits{})
	client := b.http2Client("")
	mustSave(t, b.checkpoints(""), ref("t"), draft("x"))
	slow.slow.Store(true)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			procedure := ckptdv1.CheckpointServiceSaveProcedure
			body := inGRPC.body(methods()[procedure], one(&ckptdv1.SaveRequest{Ref: ref(fmt.Sprint("t", i)), Draft: draft("x")}))
			r, err := inGRPC.request(t.Context(), procedure, body)
			must(t, err)
			r.ContentLength = -1
			if o, err := inGRPC.call(client, r); err != nil || o.code != "ok" {
				t.Errorf("save %d: %v, %+v", i, err, o)
			}
		})
	}
	for range callers { // all are under way
		select {
		case <-slow.began:
		case <-time.After(5 * time.Second):
		}
		if t.Failed() {
			break
		}
	}
	slow.slow.Store(false)
	close(slow.gate)
	wg.Wait()
}

// TestOpenServicesAreBounded sends much to those services that anybody may call.
func TestOpenServicesAreBounded(t *testing.T) {
	b := newFuzzBed(t)
	for _, procedure := range []string{"/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"} {
		r, err := inGRPC.request(t.Context(), ckptdv1.CheckpointServiceSaveProcedure, envelope(0, append([]byte{0x0a, 0x80, 0x80, 0x80, 0x10}, make([]byte, 32<<20)...)))
		must(t, err)
		r.URL.Path = procedure
		before := allocated()
		o, err := inGRPC.call(b.client, r)
		must(t, err)
		if n := allocated() - before; o.code != "resource_exhausted" || n > 48<<20 { // 32 of them are ours
			t.Errorf("%s: ends with %s: %s; %d MiB allocated", procedure, o.code, o.message, n>>20)
		}
	}
}

// rawSeeds are requests by HTTP/1.1 as they stand on the wire, most of them with something wrong.
func rawSeeds() []string {
	body := string(inJSON.body(methods()[ckptdv1.CheckpointServiceSaveProcedure], examples(plainNames())[1].messages))
	post := func(headers, body string) string {
		return "POST " + ckptdv1.CheckpointServiceSaveProcedure + " HTTP/1.1\r\nHost: ckptd\r\n" + headers + "\r\n" + body
	}
	kind := "Content-Type: application/json\r\n"
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	chunked := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s), s) }
	return []string{
		post(kind+length(len(body)), body),
		post(kind+length(len(body)+100), body),
		post(kind+length(len(body)-3), body),
		post(kind+"Content-Length: 99999999999\r\n", body),
		post(kind+"Content-Length: -1\r\n", body),
		post(kind+length(len(body))+length(2), body),
		post(kind+length(5)+"Transfer-Encoding: chunked\r\n", chunked(body)),
		post(kind+"Transfer-Encoding: chunked\r\n", chunked(body)),
		post(kind+"Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n"+body),
		post(kind+"Transfer-Encoding: chunked\r\n", "5\r\n"+body),
		post(kind+"Transfer-Encoding: gzip, chunked\r\n", chunked(body)),
		post(kind+"Content-Encoding: gzip\r\n"+length(len(body)), body),
		post(length(len(body)), body),
		post(kind+"Connect-Timeout-Ms: 1\r\n"+length(len(body)), body),
		post(kind+"Expect: 100-continue\r\n"+length(len(body)), body),
		post(strings.Repeat("X-Many: 1\r\n", 2000)+kind+length(len(body)), body),
		post("X-Long: "+strings.Repeat("x", 100_000)+"\r\n"+kind+length(len(body)), body),
		post("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"+kind+length(len(body)), body),
		"GET " + ckptdv1.CheckpointServiceSaveProcedure + " HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"GET " + ckptdv1.CheckpointServiceLoadProcedure + "?connect=v1&encoding=json&message=%7b%7d HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"GET " + ckptdv1.CheckpointServiceLoadProcedure + "?connect=v1&encoding=proto&compression=gzip&base64=1&message=AAAA HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"GET " + ckptdv1.CheckpointServiceLoadProcedure + "?connect=v9&encoding=%ff&message=%zz HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"PUT /ckptd.v1.CheckpointService/Save HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"POST /ckptd.v1.CheckpointService/Nothing HTTP/1.1\r\nHost: ckptd\r\nContent-Length: 0\r\n\r\n",
		"POST /ckptd.v1./../%2e%2e/ HTTP/1.1\r\nHost: ckptd\r\nContent-Length: 0\r\n\r\n",
		"POST * HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"CONNECT ckptd:443 HTTP/1.1\r\nHost: ckptd\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\r\n\r\n", "\x16\x03\x01\x00\xa5\x01\x00", "GET", "",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x01\x05\x00\x00\x00\x01" + strings.Repeat("x", 100),
	}
}

// FuzzWire writes any bytes to the socket. The connection ends soon, and the server goes on.
func FuzzWire(f *testing.F) {
	b := newFuzzBed(f)
	for _, s := range rawSeeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := net.Dial("unix", b.socket)
		must(t, err)
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		before := allocated()
		if bytes.Contains(raw, []byte("PRI * HTTP/2.0")) || bytes.Contains(raw, []byte(ckptdv1.ThreadServiceWatchProcedure)) {
			c.SetDeadline(time.Now().Add(50 * time.Millisecond)) // these go on while we listen
		}
		if _, err := c.Write(raw); err == nil {
			c.(*net.UnixConn).CloseWrite()
		}
		answer, err := io.ReadAll(io.LimitReader(c, 1<<20))
		if netErr, ok := err.(net.Error); ok && netErr.Timeout() && !slices.Contains([]int{'P'}, int(append(raw, 0)[0])) {
			t.Errorf("the connection does not end behind %q; answer %q", shortened(raw), shortened(answer))
		}
		if n := allocated() - before; n > fuzzAllocs {
			t.Errorf("%q allocates %d MiB", shortened(raw), n>>20)
		}
		if bytes.HasPrefix(answer, []byte("HTTP/1.1 5")) && !bytes.Contains(answer, []byte("HTTP/1.1 505")) && !bytes.HasPrefix(answer, []byte("HTTP/1.1 501")) {
			t.Errorf("the answer to %q is %q", shortened(raw), shortened(answer))
		}
		if b.panicked.Swap(false) {
			t.Errorf("%q panicked", shortened(raw))
		}
		b.intact(t)
	})
}

// TestTooManyElements sends requests that are short and would be large in memory. They are refused
// before that.
func TestTooManyElements(t *testing.T) {
	b := newBed(t, Limits{})
	post := func(contentType string, body []byte) string {
		t.Helper()
		res, err := b.httpClient("").Post(baseURL+ckptdv1.CheckpointServiceLoadProcedure, contentType, bytes.NewReader(body))
		must(t, err)
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		must(t, err)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), "fields and values") {
			t.Errorf("%s: %s %.200s", contentType, res.Status, answer)
		}
		return string(answer)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	post("application/proto", bytes.Repeat([]byte{5<<3 | 2, 0}, 4<<20)) // have, and empty
	post("application/json", []byte(`{"have":[`+strings.Repeat("{},", 2<<20)+`{}]}`))
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 200 {
		t.Errorf("%d MB were allocated", mb)
	}
	c := b.checkpoints("")
	mustSave(t, c, ref("t"), draft(strings.Repeat("{[,]}", maxElements))) // content is not counted
	batch := &ckptdv1.SaveBatchRequest{}
	for i := range maxBatchSaves {
		batch.Saves = append(batch.Saves, &ckptdv1.SaveRequest{Ref: ref(fmt.Sprint("t", i%10)), Draft: draft("x")})
	}
	if _, err := c.SaveBatch(t.Context(), connect.NewRequest(batch)); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
}
