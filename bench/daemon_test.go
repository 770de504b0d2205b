package bench

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

// daemon is a `ckptd serve` process on a Unix socket.
type daemon struct {
	*client.Store
	socket string
	cmd    *exec.Cmd
	log    bytes.Buffer // kept out of the results
}

// startDaemon starts a daemon on a new store in dir and stops it at the end of the benchmark.
func startDaemon(b *testing.B, dir string, o client.Options, args ...string) *daemon {
	b.Helper()
	d := &daemon{socket: filepath.Join(dir, "data.sock")}
	d.cmd = exec.Command(buildCommand(b), append([]string{"serve", "--data", filepath.Join(dir, "data"), "--listen", "none"}, args...)...)
	d.cmd.Stderr = &d.log
	out, err := d.cmd.StdoutPipe()
	check(b, err)
	check(b, d.cmd.Start())
	b.Cleanup(func() { d.stop(b) })
	greeting, err := bufio.NewReader(out).ReadString('\n') // printed once the socket is open
	check(b, err)
	if !strings.Contains(greeting, "serves") {
		b.Fatalf("the daemon says %q", greeting)
	}
	go io.Copy(io.Discard, out)
	d.Store, err = client.Dial("unix:"+d.socket, o)
	check(b, err)
	return d
}

func (d *daemon) stop(b *testing.B) {
	d.Close()
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		b.Errorf("the daemon ended with %v\n%s", err, d.log.String())
	}
}

func (d *daemon) agent(n int) *agent { return &agent{thread: d.Thread(threadRef(n))} }

// BenchmarkDaemonOneClient: one client saves 1 kB splices of a 100 kB thread through a daemon on a
// Unix socket, and the same embedded, both durably, in turns of 50. The ratio is the median over
// the rounds.
func BenchmarkDaemonOneClient(b *testing.B) {
	const turn = 50
	for _, ids := range []struct {
		name   string
		engine bool
	}{{"client", false}, {"engine", true}} {
		b.Run("ids="+ids.name, func(b *testing.B) {
			words := newSpeaker(6)
			pool := words.messages(1024)
			served := startDaemon(b, benchDir(b), client.Options{EngineIDs: ids.engine}).agent(1)
			st := newStore(b, benchDir(b), 0)
			embedded := newAgent(st, 1)
			state := stateOf(words.messages(steadyMessages))
			check(b, served.begin(slices.Clone(state)))
			check(b, embedded.begin(slices.Clone(state)))
			n := 0
			round := func(a *agent) float64 { // p50 of a turn in µs
				took := make([]time.Duration, turn)
				for i := range took {
					n++
					took[i] = timed(b, func() error { return a.replaceSpliced(pool[n%len(pool)]) })
				}
				return us(p50(took))
			}
			var daemon, engine, ratios []float64
			for b.Loop() {
				s, e := round(served), round(embedded)
				daemon, engine, ratios = append(daemon, s), append(engine, e), append(ratios, s/e)
			}
			report(b, map[string]float64{"daemon-p50-µs": p50(daemon), "embedded-p50-µs": p50(engine), "daemon/embedded": p50(ratios)})
			check(b, st.Close())
		})
	}
}

// BenchmarkDaemon64: 64 clients save 1 kB splices of 256 threads of 100 kB through a daemon on a
// Unix socket, durably, and 64 writers do the same embedded, in turns of 0.5 s. Client and daemon
// share the machine.
func BenchmarkDaemon64(b *testing.B) {
	const (
		clients = 64
		threads = 256
		turn    = 500 * time.Millisecond
	)
	for _, ids := range []struct {
		name   string
		engine bool
	}{{"client", false}, {"engine", true}} {
		b.Run("ids="+ids.name, func(b *testing.B) {
			pool := newSpeaker(7).messages(4096)
			d := startDaemon(b, benchDir(b), client.Options{EngineIDs: ids.engine}, "--cache", "256MiB")
			st := newStore(b, benchDir(b), 256<<20)
			served, embedded := make([]*agent, threads), make([]*agent, threads)
			for i := range threads {
				state := stateOf(newSpeaker(uint64(100 + i)).messages(steadyMessages))
				served[i], embedded[i] = d.agent(i), newAgent(st, i)
				check(b, served[i].begin(slices.Clone(state)))
				check(b, embedded[i].begin(slices.Clone(state)))
			}
			var mu sync.Mutex
			var took []time.Duration
			round := func(agents []*agent, timed bool) float64 {
				return rate(b, clients, turn, func(w, call int) error {
					began := time.Now()
					err := agents[w+clients*(call%(threads/clients))].replaceSpliced(pool[(w*31+call)%len(pool)])
					if timed {
						mu.Lock()
						took = append(took, time.Since(began))
						mu.Unlock()
					}
					return err
				})
			}
			var daemon, engine []float64
			for b.Loop() {
				daemon, engine = append(daemon, round(served, true)), append(engine, round(embedded, false))
			}
			slices.Sort(took)
			report(b, map[string]float64{"daemon-saves/s": p50(daemon), "embedded-saves/s": p50(engine), "daemon-p50-ms": ms(took[len(took)/2]),
				"daemon-p99-ms": ms(took[len(took)*99/100])})
			check(b, st.Close())
		})
	}
}

// BenchmarkDaemonLoadKnown: a load of the newest 1 MB state by a caller that already has it, and
// the bytes on the wire in both directions, counted by a proxy in front of the daemon.
func BenchmarkDaemonLoadKnown(b *testing.B) {
	ctx := context.Background()
	dir := benchDir(b)
	d := startDaemon(b, dir, client.Options{})
	a := d.agent(1)
	words := newSpeaker(8)
	check(b, a.begin(stateOf(words.messages(10*steadyMessages))))
	proxy := newCounter(b, filepath.Join(dir, "proxy.sock"), d.socket)
	c, err := client.Dial("unix:"+proxy.path, client.Options{})
	check(b, err)
	thread := c.Thread(threadRef(1))
	full, err := thread.Load(ctx, engine.Latest)
	check(b, err)
	whole := proxy.bytes.Swap(0)
	for b.Loop() {
		cp, err := thread.LoadHave(ctx, engine.Latest, full.Channels)
		check(b, err)
		if string(cp.Channels[0].Data) != string(full.Channels[0].Data) {
			b.Fatal("the state is another one")
		}
	}
	b.ReportMetric(float64(proxy.bytes.Load())/float64(b.N), "wire-B")
	b.ReportMetric(float64(whole), "whole-wire-B")
	check(b, c.Close())
}

// counter proxies connections and counts the bytes in both directions.
type counter struct {
	path  string
	bytes atomic.Int64
}

func newCounter(b *testing.B, path, to string) *counter {
	b.Helper()
	c := &counter{path: path}
	l, err := net.Listen("unix", path)
	check(b, err)
	b.Cleanup(func() { l.Close() })
	pass := func(dst, src net.Conn) {
		defer dst.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			c.bytes.Add(int64(n))
			if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				near.Close()
				continue
			}
			go pass(far, near)
			go pass(near, far)
		}
	}()
	return c
}
