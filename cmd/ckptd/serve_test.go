//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

// served is a ckptd serve in a process of its own, that can be started again and again on one
// store.
type served struct {
	t    *testing.T
	dir  string
	args []string   // beside those that name the store and the socket
	env  []string   // beside that of the tests
	pass []*os.File // become file descriptors 3 and up

	cmd       *exec.Cmd
	out, errs *lockedBuffer
	ended     chan struct{}
}

// newServed returns a daemon that has not started yet, and is killed in the end if it still runs.
func newServed(t *testing.T, args ...string) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptd") // t.TempDir may be too long for a socket
	must(t, err)
	d := &served{t: t, dir: dir, args: args}
	t.Cleanup(func() {
		if d.cmd != nil {
			d.kill()
		}
		if t.Failed() && d.errs != nil {
			t.Logf("the daemon says:\n%s", lastLines(d.errs.String(), 20))
		}
		os.RemoveAll(dir)
	})
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lockedBuffer takes the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (d *served) path(name string) string { return filepath.Join(d.dir, name) }

// launch starts the process and waits for nothing.
func (d *served) launch() {
	d.t.Helper()
	args := append([]string{"serve", "--data", d.path("data"), "--socket", d.path("s"), "--admin-socket", d.path("a")}, d.args...)
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "none")
	}
	d.cmd = exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, "ckptd"}, args...)...) // the shell becomes the daemon
	d.cmd.Env, d.cmd.ExtraFiles = append(os.Environ(), d.env...), d.pass
	d.out, d.errs = &lockedBuffer{}, &lockedBuffer{}
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.errs
	must(d.t, d.cmd.Start())
	d.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(d.cmd, d.ended)
}

// start starts the process and waits until it serves.
func (d *served) start() {
	d.t.Helper()
	d.launch()
	d.await("the greeting", func() bool { return strings.Contains(d.out.String(), "serves ") })
}

// await waits until something is so, and fails if the process ends before.
func (d *served) await(what string, so func() bool) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-d.ended:
			d.t.Fatalf("waiting for %s: the daemon has ended: %s", what, d.errs)
		default:
		}
		if time.Now().After(end) {
			d.t.Fatalf("waiting for %s: it does not come", what)
		}
	}
}

func (d *served) signal(s syscall.Signal) {
	d.t.Helper()
	must(d.t, d.cmd.Process.Signal(s))
}

// stop ends the process in good order.
func (d *served) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	if code := d.exitCode(20 * time.Second); code != exitOK {
		d.t.Fatalf("the daemon ended with %d: %s", code, d.errs)
	}
}

// kill ends the process at once.
func (d *served) kill() {
	d.cmd.Process.Kill()
	<-d.ended
}

// exitCode waits for the end.
func (d *served) exitCode(most time.Duration) int {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(most):
		d.t.Fatalf("the daemon has not ended after %v", most)
	}
	return d.cmd.ProcessState.ExitCode()
}

// hangup sends SIGHUP and waits for what the daemon says to it.
func (d *served) hangup(answer string) {
	d.t.Helper()
	before := strings.Count(d.errs.String(), answer)
	d.signal(syscall.SIGHUP)
	d.await("the answer to SIGHUP", func() bool { return strings.Count(d.errs.String(), answer) > before })
}

const (
	reloaded  = `"msg":"reloaded"`
	keptAsWas = "settings not yet reloaded are unchanged"
)

// client returns a client of the socket.
func (d *served) client(o client.Options) *client.Store {
	d.t.Helper()
	c, err := client.Dial("unix:"+d.path("s"), o)
	must(d.t, err)
	d.t.Cleanup(func() { c.Close() })
	return c
}

// run runs another command on the store of the daemon, which must not run, and returns what it
// prints.
func (d *served) run(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(commandPath(d.t), append([]string{"--data", d.path("data")}, args...)...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		d.t.Fatalf("ckptd %s: %v: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	must(d.t, err)
	return string(out)
}

// memory returns the resident memory of the process now, and at its most, in bytes; 0 where the
// system does not tell.
func (d *served) memory() (now, most int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	value := func(name string) int64 {
		_, rest, _ := strings.Cut(string(text), name+":")
		kB, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
		return kB << 10
	}
	return value("VmRSS"), value("VmHWM")
}

// ask gets a page of the admin socket.
func (d *served) ask(page string) string {
	d.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.path("a"))
	}}}
	res, err := c.Get("http://ckptd" + page)
	must(d.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(d.t, err)
	return string(body)
}

func threadOf(i int) engine.Ref {
	return engine.Ref{Tenant: "acme", User: fmt.Sprint("user-", i%8), Thread: fmt.Sprint("thread-", i)}
}

func textDraft(text string) engine.Draft {
	return engine.Draft{Channels: []engine.Change{{Name: "state", Data: []byte(text)}}}
}

// TestServeShutdown ends the daemon while clients save: each save that is made is answered. A
// request that crosses the end of its connection on the way is not made, though its client cannot
// know that.
func TestServeShutdown(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	d.start()
	c := d.client(client.Options{Attempts: 1})
	var wg sync.WaitGroup
	acked := make([][]string, 16)
	for i := range acked {
		wg.Go(func() {
			for n := 0; ; n++ {
				cp, err := c.Thread(threadOf(i)).Save(t.Context(), textDraft(fmt.Sprint("state ", n)))
				if err != nil {
					if !errors.Is(err, client.ErrShuttingDown) && !errors.Is(err, client.ErrUnreachable) && !errors.Is(err, engine.ErrAmbiguous) {
						t.Errorf("a save during the shutdown: %v", err)
					}
					return
				}
				acked[i] = append(acked[i], cp.ID)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	d.stop()
	wg.Wait()
	s := openStore(t, d.path("data"))
	defer s.Close()
	for i := range acked {
		var stored []string
		for cp, err := range s.Thread(threadOf(i)).History(t.Context(), engine.HistoryOptions{}) {
			must(t, err)
			stored = append(stored, cp.ID)
		}
		slices.Reverse(stored)
		if !slices.Equal(stored, acked[i]) {
			t.Errorf("thread %d: %d saves were acknowledged, %d are there", i, len(acked[i]), len(stored))
		}
	}
}

// TestServeSecondSignal ends the daemon while an upload does not go on: it waits for that, unless
// it is told again.
func TestServeSecondSignal(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	d.start()
	stalled, err := net.Dial("unix", d.path("s"))
	must(t, err)
	defer stalled.Close()
	fmt.Fprintf(stalled, "POST /ckptd.v1.CheckpointService/Save HTTP/1.1\r\nHost: ckptd\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	c := d.client(client.Options{})
	d.await("the upload", func() bool {
		s, err := c.Status(t.Context())
		must(t, err)
		return s.GetInFlight() == 2 // and this
	})
	d.signal(syscall.SIGTERM)
	d.await("the shutdown", func() bool { return strings.Contains(d.errs.String(), "shutting down") })
	select {
	case <-d.ended:
		t.Error("it has not waited for what is under way")
	case <-time.After(300 * time.Millisecond):
	}
	d.signal(syscall.SIGTERM)
	if code := d.exitCode(5 * time.Second); code != exitOK {
		t.Errorf("it ended with %d: %s", code, d.errs)
	}
}

// TestServeSockets starts daemons where there is something at the place of the socket.
func TestServeSockets(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	d.start()
	d.kill()
	if _, err := os.Lstat(d.path("s")); err != nil {
		t.Fatalf("the kill has left no socket to be replaced: %v", err)
	}
	d.start()
	c := d.client(client.Options{})
	_, err := c.Thread(threadOf(1)).Save(t.Context(), textDraft("x"))
	must(t, err)

	second := newServed(t, "--socket", d.path("s"))
	second.launch()
	if code := second.exitCode(10 * time.Second); code == exitOK || !strings.Contains(second.errs.String(), "another server is listening there") {
		t.Errorf("a second daemon on the same socket ended with %d: %s", code, second.errs)
	}
	if _, err := os.Stat(second.path("data")); !os.IsNotExist(err) {
		t.Errorf("it has made a store before: %v", err)
	}
	_, err = c.Thread(threadOf(1)).Save(t.Context(), textDraft("y")) // the first one is where it was
	must(t, err)

	third := newServed(t)
	must(t, os.WriteFile(third.path("s"), []byte("precious"), 0o600))
	third.launch()
	if code := third.exitCode(10 * time.Second); code == exitOK || !strings.Contains(third.errs.String(), "another file is in the way") {
		t.Errorf("a daemon in place of a file ended with %d: %s", code, third.errs)
	}
	if text, err := os.ReadFile(third.path("s")); err != nil || string(text) != "precious" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// TestServeReload changes what can be changed while the daemon runs, and then spoils the
// configuration.
func TestServeReload(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	config := d.path("ckptd.toml")
	configure := func(text string) { must(t, os.WriteFile(config, []byte(text), 0o600)) }
	d.args = []string{"--config", config}
	configure("owner-is-admin = true\n")
	d.start()
	owner := d.client(client.Options{Attempts: 1})
	saves := func() (err error) {
		for range 3 {
			_, e := owner.Thread(threadOf(1)).Save(t.Context(), textDraft("x"))
			err = errors.Join(err, e)
		}
		return err
	}
	must(t, saves())

	configure("owner-is-admin = true\nrate = 0.001\nburst = 1\n")
	d.hangup(reloaded)
	if err := saves(); !errors.Is(err, client.ErrOverloaded) {
		t.Errorf("beyond the rate of the new configuration: %v", err)
	}
	for _, bad := range []string{"owner-is-admin = true\nrate = \n", "rat = 5\n", "rate = -1\n", "in-flight = \"many\"\n", "[[peer]]\nuid = 1\nname = \"x\"\n"} {
		configure(bad)
		d.hangup(keptAsWas)
		if err := saves(); !errors.Is(err, client.ErrOverloaded) {
			t.Errorf("%q is refused, and the limit is gone: %v", bad, err)
		}
	}
	must(t, os.Remove(config))
	d.hangup(keptAsWas)
	configure("owner-is-admin = true\n")
	d.hangup(reloaded)
	must(t, saves())

	// Tokens that were put back from a copy: one made since is unknown, one taken back since is
	// known.
	made, kept, err := owner.CreateToken(t.Context(), "kept", client.Grant{Role: "reader", Tenant: "acme", User: "*"})
	must(t, err)
	copied, err := os.ReadFile(d.path("data.tokens"))
	must(t, err)
	_, err = owner.RevokeToken(t.Context(), made.ID, false)
	must(t, err)
	_, late, err := owner.CreateToken(t.Context(), "late", client.Grant{Role: "reader", Tenant: "acme", User: "*"})
	must(t, err)
	known := func(token string) bool {
		_, _, err := d.client(client.Options{Token: token, Attempts: 1}).WhoAmI(t.Context())
		return err == nil
	}
	if known(kept) || !known(late) {
		t.Error("a token is not taken back, or not made, at once")
	}
	must(t, os.WriteFile(d.path("data.tokens"), copied, 0o600))
	d.hangup(reloaded)
	if !known(kept) || known(late) {
		t.Error("the tokens were not read again")
	}

	// The audit log after it was rotated.
	must(t, os.Rename(d.path("data.audit.jsonl"), d.path("old.jsonl")))
	d.hangup(reloaded)
	_, _, err = owner.CreateToken(t.Context(), "x", client.Grant{Role: "reader", Tenant: "acme", User: "*"})
	must(t, err)
	if info, err := os.Stat(d.path("data.audit.jsonl")); err != nil || info.Size() == 0 {
		t.Errorf("nothing is in the audit log that takes the place of the one moved away: %v", err)
	}
	d.stop()
}

// TestServeSystemd starts the daemon as systemd does: with sockets that are open already, and a
// place to tell how it is.
func TestServeSystemd(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	unix, err := net.Listen("unix", d.path("given"))
	must(t, err)
	for _, l := range []net.Listener{tcp, unix} {
		f, err := l.(interface{ File() (*os.File, error) }).File()
		must(t, err)
		d.pass = append(d.pass, f)
		defer f.Close()
		defer l.Close()
	}
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d.path("notify"), Net: "unixgram"})
	must(t, err)
	defer notices.Close()
	d.env = []string{"LISTEN_FDS=2", "NOTIFY_SOCKET=" + d.path("notify"), "WATCHDOG_USEC=200000"}
	next := func() string {
		t.Helper()
		buf := make([]byte, 4096)
		for {
			notices.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := notices.Read(buf)
			must(t, err)
			if s := string(buf[:n]); s != "WATCHDOG=1" {
				return s
			}
		}
	}
	d.start()
	if got := next(); got != "READY=1" {
		t.Errorf("it says %q, want that it is ready", got)
	}
	for _, address := range []string{"unix:" + d.path("given"), "http://" + tcp.Addr().String()} {
		c, err := client.Dial(address, client.Options{Attempts: 1})
		must(t, err)
		_, _, err = c.WhoAmI(t.Context())
		if strings.HasPrefix(address, "http") && errors.Is(err, client.ErrUnauthenticated) { // who has no uid needs a token
			err = nil
		}
		must(t, err)
		must(t, c.Close())
	}
	if _, err := os.Lstat(d.path("s")); !os.IsNotExist(err) {
		t.Error("it listens on a socket of its own beside those it was given")
	}
	d.signal(syscall.SIGHUP)
	if got := next(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("it says %q, want that it reloads", got)
	}
	if got := next(); got != "READY=1" {
		t.Errorf("it says %q, want that it is ready again", got)
	}
	buf := make([]byte, 4096)
	notices.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := notices.Read(buf); err != nil || string(buf[:n]) != "WATCHDOG=1" {
		t.Errorf("it says %q, want a sign of life: %v", buf[:n], err)
	}
	d.signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Errorf("it says %q, want that it stops", got)
	}
	if code := d.exitCode(10 * time.Second); code != exitOK {
		t.Errorf("it ended with %d: %s", code, d.errs)
	}
}

// TestServeAdminSocket asks for what is told to the owner alone.
func TestServeAdminSocket(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	d.start()
	c := d.client(client.Options{})
	_, err := c.Thread(threadOf(1)).Save(t.Context(), textDraft("x"))
	must(t, err)
	if metrics := d.ask("/metrics"); !strings.Contains(metrics, `ckptd_`) || strings.Contains(metrics, "thread-1") || strings.Contains(metrics, "acme") {
		t.Errorf("the metrics are %s", lastLines(metrics, 10))
	}
	if d.ask("/healthz") != "ok\n" || d.ask("/readyz") != "ok\n" {
		t.Error("it does not say that it serves")
	}
	if info, err := os.Stat(d.path("a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(d.path("s")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket of the API has mode %v, %v", info.Mode(), err)
	}
	if runtime.GOOS == "linux" {
		if now, most := d.memory(); now <= 0 || most < now {
			t.Errorf("the memory is %d of %d", now, most)
		}
	}
	for line := range strings.Lines(d.errs.String()) {
		if strings.HasPrefix(line, "ckptd: ") {
			continue // said to people
		}
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is no line of JSON", line)
		}
	}
}
