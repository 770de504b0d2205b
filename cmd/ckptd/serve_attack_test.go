//go:build unix

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
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
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

const (
	attackBudget = "128MiB" // --in-flight-bytes
	attackMemory = 1 << 30  // bounds the daemon's memory at its most
	attackState  = 24 << 20 // bytes of a state that is asked for in little
	bigState     = 64 << 20 // of one that takes more than the budget to load
	bombSize     = 60 << 20 // of a message, unpacked
	addressBomb  = 8 << 20  // of one in an address, which is short
	attackFor    = time.Second
)

// attacked is a daemon with a large state, and callers who have a token: one for the state, one for
// nothing of it, and one of another tenant, who calls all the time and is honest.
type attacked struct {
	*served
	reader, writer, stranger, honest string
	first, second                    *engine.Checkpoint
}

func newAttacked(t *testing.T) *attacked {
	d := &attacked{served: newServed(t, "--listen", "127.0.0.1:0", "--in-flight-bytes", attackBudget, "--in-flight-per-tenant", "600")}
	d.start()
	token := func(role, tenant string) string {
		res, err := d.admin().CreateToken(t.Context(), connect.NewRequest(&ckptdv1.CreateTokenRequest{Grants: []*ckptdv1.Grant{{Role: role, Tenant: tenant, User: "alice"}}}))
		must(t, err)
		return res.Msg.GetSecret()
	}
	d.reader, d.writer, d.stranger, d.honest = token("reader", "acme"), token("writer", "acme"), token("reader", "nobody"), token("writer", "honest")
	random := make([]byte, attackState)
	chacha := rand.NewChaCha8([32]byte{1})
	chacha.Read(random)
	c := d.client(client.Options{})
	var err error
	d.first, err = c.Thread(d.ref("state")).Save(t.Context(), engine.Draft{Channels: []engine.Change{{Name: "c", Data: random}}})
	must(t, err)
	d.second, err = c.Thread(d.ref("state")).Save(t.Context(), engine.Draft{Channels: []engine.Change{{Name: "c", Data: append([]byte("x"), random[1:]...)}}})
	must(t, err)
	for i := range bigState / (16 << 20) {
		name := fmt.Sprint("c", i)
		_, err := c.Thread(d.ref("big")).Save(t.Context(), engine.Draft{Keep: i > 0, Channels: []engine.Change{{Name: name, Data: bytes.Repeat([]byte(name), 8<<20)}}})
		must(t, err)
	}
	return d
}

func (d *attacked) ref(thread string) engine.Ref {
	return engine.Ref{Tenant: "acme", User: "alice", Thread: thread}
}

func (d *attacked) admin() ckptdv1.AdminServiceClient {
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.path("s"))
	}}}
	return ckptdv1.NewAdminServiceClient(c, "http://ckptd")
}

// raw opens a connection of its own and writes a request, whole or not. It is closed when the
// attack is over.
func (d *attacked) raw(ctx context.Context, network, request string, body []byte) (net.Conn, error) {
	at := d.path("s")
	if network == "tcp" {
		at = strings.TrimPrefix(d.address(), "http://")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	_, err = c.Write(append([]byte(request), body...))
	return c, err
}

// post is the head of a request.
func post(procedure, kind, token string, length int, more ...string) string {
	if token != "" {
		more = append(more, "Authorization: Bearer "+token)
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: ckptd\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n", procedure, kind, length,
		strings.Join(append(more, ""), "\r\n"))
}

func zipped(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(text)
	z.Close()
	return b.Bytes()
}

// together calls f so often at a time.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// attacks are what has taken a daemon down or locked others out. They end with ctx, or before.
func (d *attacked) attacks() map[string]func(ctx context.Context) {
	gzipHeader := "Content-Encoding: gzip"
	health := "/grpc.health.v1.Health/Check"
	reflection := "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	hold := func(ctx context.Context, network string, n int, head string) {
		for range n {
			d.raw(ctx, network, head, []byte("x"))
		}
		<-ctx.Done()
	}
	return map[string]func(context.Context){
		"half a compressed request, without a token": func(ctx context.Context) {
			hold(ctx, "tcp", 200, post(health, "application/json", "", 1000, gzipHeader))
		},
		"half a compressed request, with a token": func(ctx context.Context) {
			hold(ctx, "unix", 200, post(ckptdv1.CheckpointServiceSaveProcedure, "application/proto", d.writer, 1000, gzipHeader))
		},
		"half a large request, with a token": func(ctx context.Context) {
			hold(ctx, "unix", 200, post(ckptdv1.CheckpointServiceSaveProcedure, "application/proto", d.writer, 60<<20))
		},
		"streams of one connection, without a token": func(ctx context.Context) { d.holdStreams(ctx, "tcp", reflection, "", 1024) },
		"streams of one connection, with a token": func(ctx context.Context) {
			d.holdStreams(ctx, "unix", ckptdv1.BlobServicePutBlobProcedure, d.writer, 1024)
		},
		"compressed addresses": func(ctx context.Context) {
			message := `{"ref":{"thread":"x"},"channels":["` + strings.Repeat("A", addressBomb) + `"]}`
			query := url.Values{"connect": {"v1"}, "encoding": {"json"}, "compression": {"gzip"}, "base64": {"1"},
				"message": {base64.RawURLEncoding.EncodeToString(zipped([]byte(message)))}}
			request := fmt.Sprintf("GET %s?%s HTTP/1.1\r\nHost: ckptd\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", ckptdv1.CheckpointServiceLoadProcedure, query.Encode(), d.stranger)
			together(150, func(int) { d.answered(ctx, request, nil) })
		},
		"compressed messages": func(ctx context.Context) {
			m, _ := proto.Marshal(&ckptdv1.LoadRequest{Ref: &ckptdv1.Ref{Tenant: "nobody", User: "alice", Thread: "x"}, Channels: []string{strings.Repeat("A", bombSize)}})
			body := zipped(m)
			request := post(ckptdv1.CheckpointServiceLoadProcedure, "application/proto", d.stranger, len(body), gzipHeader, "Connection: close")
			together(30, func(int) { d.answered(ctx, request, body) })
		},
		"watches with fields that nobody knows": func(ctx context.Context) {
			m, _ := proto.Marshal(&ckptdv1.WatchRequest{Tenant: "acme", User: "alice"})
			m = protowire.AppendBytes(protowire.AppendTag(m, 100, protowire.BytesType), make([]byte, bombSize))
			body := zipped(m)
			body = append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(body))), body...)
			hold(ctx, "unix", 60, post(ckptdv1.ThreadServiceWatchProcedure, "application/connect+proto", d.reader, len(body), "Connect-Content-Encoding: gzip")+string(body))
		},
		"comparisons": func(ctx context.Context) {
			m, _ := proto.Marshal(&ckptdv1.DiffRequest{Ref: &ckptdv1.Ref{Tenant: "acme", User: "alice", Thread: "state"},
				From: &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: d.first.ID}}, To: &ckptdv1.Which{Which: &ckptdv1.Which_Id{Id: d.second.ID}}})
			request := post(ckptdv1.CheckpointServiceDiffProcedure, "application/proto", d.reader, len(m), "Connection: close")
			together(60, func(int) { d.answered(ctx, request, m) })
		},
		"loads": func(ctx context.Context) {
			m, _ := proto.Marshal(&ckptdv1.LoadRequest{Ref: &ckptdv1.Ref{Tenant: "acme", User: "alice", Thread: "state"}})
			request := post(ckptdv1.CheckpointServiceLoadProcedure, "application/proto", d.reader, len(m), "Connection: close")
			together(60, func(int) { d.answered(ctx, request, m) })
		},
		"loads that nobody reads": func(ctx context.Context) {
			m, _ := proto.Marshal(&ckptdv1.LoadRequest{Ref: &ckptdv1.Ref{Tenant: "acme", User: "alice", Thread: "state"}})
			hold(ctx, "unix", 60, post(ckptdv1.CheckpointServiceLoadProcedure, "application/proto", d.reader, len(m))+string(m))
		},
		"a state that takes more than the budget": func(ctx context.Context) {
			c, err := client.Dial("unix:"+d.path("s"), client.Options{Token: d.reader})
			if err != nil {
				return
			}
			defer c.Close()
			cp, err := c.Thread(d.ref("big")).Load(context.Background(), engine.Latest)
			if err != nil || cp.Cost.State != bigState {
				d.t.Errorf("the largest state loads with %v", err)
			}
		},
		"batches of one tenant": func(ctx context.Context) {
			batch := &ckptdv1.SaveBatchRequest{}
			for i := range 40 {
				batch.Saves = append(batch.Saves, &ckptdv1.SaveRequest{Ref: &ckptdv1.Ref{Tenant: "acme", User: "alice", Thread: fmt.Sprint("batch-", i)},
					Draft: &ckptdv1.Draft{Channels: []*ckptdv1.Change{{Name: "c", Content: &ckptdv1.Change_Data{Data: make([]byte, 20_000)}}}}})
			}
			m, _ := proto.Marshal(batch)
			request := post(ckptdv1.CheckpointServiceSaveBatchProcedure, "application/proto", d.writer, len(m), "Connection: close")
			together(100, func(int) { d.answered(ctx, request, m) })
		},
	}
}

// answered makes a request and reads its answer to the end, or to that of ctx.
func (d *attacked) answered(ctx context.Context, request string, body []byte) {
	c, err := d.raw(ctx, "unix", request, body)
	if err != nil {
		return
	}
	defer c.Close()
	io.Copy(io.Discard, c)
}

// holdStreams opens streams of one HTTP/2 connection after the other, and sends nothing but the
// beginning of a message.
func (d *attacked) holdStreams(ctx context.Context, network, procedure, token string, n int) {
	at, protocols := d.path("s"), new(http.Protocols)
	if network == "tcp" {
		at = strings.TrimPrefix(d.address(), "http://")
	}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}}
	defer transport.CloseIdleConnections()
	together(n, func(int) {
		body, begins := io.Pipe()
		stop := context.AfterFunc(ctx, func() { begins.CloseWithError(errors.New("over")) })
		defer stop()
		go begins.Write([]byte{0})
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ckptd"+procedure, body)
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if res, err := transport.RoundTrip(r); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
}

// honestly saves, loads and asks for the health until ctx ends. It returns how long each call took;
// each of them succeeds.
func (d *attacked) honestly(ctx context.Context, during string) (took []time.Duration) {
	c := d.client(client.Options{Token: d.honest})
	thread := c.Thread(engine.Ref{Tenant: "honest", User: "alice", Thread: "t"})
	health := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	call := func(what string, f func() error) {
		began := time.Now()
		if err := f(); err != nil {
			d.t.Errorf("%s: an honest %s: %v", during, what, err)
		}
		took = append(took, time.Since(began))
	}
	for i := 0; ctx.Err() == nil && !d.t.Failed(); i++ {
		call("save", func() error {
			_, err := thread.Save(d.t.Context(), engine.Draft{Channels: []engine.Change{{Name: "n", Data: fmt.Append(nil, i)}}})
			return err
		})
		call("load", func() error {
			_, err := thread.Load(d.t.Context(), engine.Latest)
			return err
		})
		call("question for the health", func() (err error) {
			for range 3 { // as many as a probe is allowed by default: under a flood of questions the oldest are cut off
				if err = d.healthy(health); err == nil {
					return nil
				}
			}
			return err
		})
		time.Sleep(time.Millisecond)
	}
	return took
}

// healthy asks for the health of the daemon.
func (d *attacked) healthy(c *http.Client) error {
	res, err := c.Post(d.address()+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader("{}"))
	if err == nil {
		err = res.Body.Close()
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return err
}

// TestServeAttacks takes a daemon with a small budget under every attack that has worked once,
// beside a caller who wants little. It stays alive, its memory is bounded, and each honest call is
// answered.
func TestServeAttacks(t *testing.T) {
	d := newAttacked(t)
	d.kill() // what saving took is not the attacks'
	d.start()
	attacks := d.attacks()
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		ctx, cancel := context.WithTimeout(t.Context(), attackFor)
		honest := make(chan []time.Duration)
		go func() { honest <- d.honestly(ctx, name) }()
		attacks[name](ctx)
		cancel()
		took := <-honest
		slices.Sort(took)
		now, most := d.memory()
		t.Logf("%-45s %4d honest calls, median %v, p99 %v, at most %v; memory %d MiB, at its most %d MiB", name, len(took), took[len(took)/2].Round(time.Microsecond),
			took[len(took)*99/100].Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond), now>>20, most>>20)
		if most > attackMemory && !raceEnabled {
			t.Errorf("%s: the memory was %d MiB, at most %d are allowed", name, most>>20, int64(attackMemory)>>20)
		}
		if t.Failed() {
			break
		}
	}
	select {
	case <-d.ended:
		t.Error("the daemon has ended")
	default:
		d.stop()
	}
}
