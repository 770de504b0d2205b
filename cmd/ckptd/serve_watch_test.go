//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

// idleMemory is what the daemon may take with idle watchers and threads.
const idleMemory = 400 << 20

// sized is how large a test is: usually, and in campaigns, when CKPTD_LONG is set.
func sized(usual, campaign int) int {
	if os.Getenv("CKPTD_LONG") != "" {
		return campaign
	}
	return usual
}

// makeThreads makes threads with one checkpoint each.
func makeThreads(t *testing.T, c *client.Store, n int) {
	t.Helper()
	for at := 0; at < n; {
		var batch []client.BatchSave
		for ; at < n && len(batch) < 1000; at++ {
			batch = append(batch, client.BatchSave{Ref: threadOf(at), Draft: textDraft(strings.Repeat(fmt.Sprint("state of ", at, ". "), 50))})
		}
		results, err := c.SaveBatch(t.Context(), batch)
		must(t, err)
		for _, r := range results {
			must(t, r.Err)
		}
	}
}

// watcher watches until it is stopped, and has what it heard, as the daemon tells it: the client
// would pass over an event that comes twice.
type watcher struct {
	began chan struct{}
	mu    sync.Mutex
	seqs  []uint64
}

func (d *served) watch(ctx context.Context, wg *sync.WaitGroup, scope *ckptdv1.WatchRequest) *watcher {
	w := &watcher{began: make(chan struct{})}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.path("s"))
	}
	c := ckptdv1.NewThreadServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial}}, "http://ckptd")
	wg.Go(func() {
		stream, err := c.Watch(ctx, connect.NewRequest(scope))
		if err != nil {
			d.t.Errorf("a watch does not begin: %v", err)
			close(w.began)
			return
		}
		defer stream.Close()
		for first := true; stream.Receive(); first = false {
			if first {
				close(w.began)
			}
			if e := stream.Msg().GetEvent(); e != nil {
				w.mu.Lock()
				w.seqs = append(w.seqs, e.GetSeq())
				w.mu.Unlock()
			}
		}
		if ctx.Err() == nil {
			d.t.Errorf("a watch ends with %v", stream.Err())
		}
	})
	return w
}

func (w *watcher) heard() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seqs
}

func scopeOf(r engine.Ref) *ckptdv1.WatchRequest {
	return &ckptdv1.WatchRequest{Tenant: r.Tenant, User: r.User, Thread: r.Thread}
}

// TestServeIdleWatchers has many who watch one thread each, of many more, and nothing happens.
func TestServeIdleWatchers(t *testing.T) {
	watchers, threads := sized(200, 1000), sized(1000, 10_000)
	d := newServed(t)
	d.start()
	c := d.client(client.Options{})
	makeThreads(t, c, threads)
	before, _ := d.memory()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	all := make([]*watcher, watchers)
	for i := range all {
		all[i] = d.watch(ctx, &wg, scopeOf(threadOf(i)))
	}
	for _, w := range all {
		<-w.began
	}
	status, err := c.Status(t.Context())
	must(t, err)
	now, most := d.memory()
	t.Logf("%d watchers, %d threads: memory %d MiB, at its most %d MiB, %d MiB without the watchers; %d goroutines", watchers, threads, now>>20, most>>20, before>>20, status.GetGoroutines())
	if status.GetWatchers() != uint64(watchers) {
		t.Errorf("%d watchers are counted, there are %d", status.GetWatchers(), watchers)
	}
	if most > idleMemory && !raceEnabled {
		t.Errorf("the memory was %d MiB, at most %d are allowed", most>>20, idleMemory>>20)
	}
	cancel()
	wg.Wait()
	d.stop()
}

// TestServeEventsReachAll saves while many watch, some the thread, some its user, some the tenant:
// each hears of each save once, in order.
func TestServeEventsReachAll(t *testing.T) {
	t.Parallel()
	const saves, each = 100, 20
	d := newServed(t)
	d.start()
	c := d.client(client.Options{})
	ref := threadOf(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var all []*watcher
	for range each {
		all = append(all, d.watch(ctx, &wg, scopeOf(ref)), d.watch(ctx, &wg, &ckptdv1.WatchRequest{Tenant: ref.Tenant, User: ref.User}),
			d.watch(ctx, &wg, &ckptdv1.WatchRequest{Tenant: ref.Tenant}))
	}
	other := d.watch(ctx, &wg, scopeOf(threadOf(2)))
	for _, w := range append(all, other) {
		<-w.began
	}
	for n := range saves {
		_, err := c.Thread(ref).Save(t.Context(), textDraft(fmt.Sprint("state ", n)))
		must(t, err)
	}
	d.await("the events", func() bool {
		for _, w := range all {
			if len(w.heard()) < saves {
				return false
			}
		}
		return true
	})
	time.Sleep(50 * time.Millisecond) // for one too many
	for i, w := range all {
		heard := w.heard()
		for n, seq := range heard {
			if seq != uint64(n+1) {
				t.Errorf("watcher %d: event %d is of seq %d", i, n, seq)
				break
			}
		}
		if len(heard) != saves {
			t.Errorf("watcher %d heard of %d saves, there were %d", i, len(heard), saves)
		}
	}
	if n := len(other.heard()); n != 0 {
		t.Errorf("who watches another thread heard of %d saves", n)
	}
	cancel()
	wg.Wait()
	d.stop()
}

// TestServeConnectsAndDisconnects lets clients come and go, watchers and others, in good order and
// not. Nothing of them stays.
func TestServeConnectsAndDisconnects(t *testing.T) {
	n := sized(2000, 100_000)
	d := newServed(t)
	d.start()
	c := d.client(client.Options{})
	makeThreads(t, c, 64)
	churn := func(n int) {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < n; i += 8 {
					d.comeAndGo(t, i)
				}
			})
		}
		wg.Wait()
	}
	churn(n / 10) // what is made once is made
	before := d.level()
	churn(n)
	after := d.level()
	t.Logf("%d connections came and went: %v before, %v afterwards", n, before, after)
	if after.goroutines > before.goroutines+10 || after.heap > before.heap+before.heap/4+(4<<20) || after.watchers != 0 || after.connections > 2 {
		t.Errorf("before: %v, afterwards: %v", before, after)
	}
	d.stop()
}

// comeAndGo is one of several kinds of visit.
func (d *served) comeAndGo(t *testing.T, i int) {
	conn, err := net.Dial("unix", d.path("s"))
	for errors.Is(err, syscall.EAGAIN) { // so many wait for the daemon already
		time.Sleep(time.Millisecond)
		conn, err = net.Dial("unix", d.path("s"))
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	switch i % 4 {
	case 0: // says nothing
	case 1: // goes in the middle of a request
		fmt.Fprintf(conn, "POST /ckptd.v1.CheckpointService/Save HTTP/1.1\r\nHost: ckptd\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	default: // watches, and goes without a word as soon as the watch has begun
		ref := threadOf(i % 64)
		body := fmt.Sprintf(`{"tenant":%q,"user":%q,"thread":%q}`, ref.Tenant, ref.User, ref.Thread)
		fmt.Fprintf(conn, "POST /ckptd.v1.ThreadService/Watch HTTP/1.1\r\nHost: ckptd\r\nContent-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n\x00\x00\x00\x00%c%s",
			len(body)+5, len(body), body)
		answer := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		size, err := conn.Read(answer)
		if err != nil || !strings.Contains(string(answer[:size]), "200 OK") {
			t.Errorf("a watch begins with %q, %v", answer[:size], err)
		}
	}
}

// level is what a daemon has open when nobody does anything.
type level struct{ goroutines, heap, watchers, connections int64 }

func (l level) String() string {
	return fmt.Sprintf("%d goroutines, %d KiB of heap", l.goroutines, l.heap>>10)
}

// level waits until things are calm, and looks.
func (d *served) level() level {
	d.t.Helper()
	c := d.client(client.Options{})
	d.await("an end of watches", func() bool {
		s, err := c.Status(d.t.Context())
		must(d.t, err)
		return s.GetWatchers() == 0 && s.GetConnections() <= 2 && s.GetInFlight() == 1
	})
	must(d.t, errors.Join(c.Close()))
	d.ask("/debug/pprof/heap?gc=1&debug=1")
	metrics := d.ask("/metrics")
	return level{goroutines: metric(d.t, metrics, "go_goroutines"), heap: metric(d.t, metrics, "go_memstats_heap_alloc_bytes"),
		watchers: metric(d.t, metrics, "ckptd_watchers"), connections: metric(d.t, metrics, "ckptd_connections")}
}

// metric is a number on the page of metrics.
func metric(t testing.TB, page, name string) int64 {
	t.Helper()
	for line := range strings.Lines(page) {
		var value float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err == nil {
				return int64(value)
			}
		}
	}
	t.Fatalf("there is no metric %s:\n%s", name, page)
	return 0
}
