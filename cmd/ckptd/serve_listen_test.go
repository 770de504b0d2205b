//go:build unix

package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
)

// TestServeUntilUnused: a daemon that nobody uses ends by itself, as at SIGTERM.
func TestServeUntilUnused(t *testing.T) {
	t.Parallel()
	t.Run("nobody connects", func(t *testing.T) {
		t.Parallel()
		d := newServed(t, "--until-unused", "300ms")
		d.start()
		ended(t, d)
	})
	t.Run("the last one leaves", func(t *testing.T) {
		t.Parallel()
		d := newServed(t, "--until-unused", "1s")
		d.start()
		first, err := client.Dial("unix:"+d.path("s"), client.Options{})
		must(t, err)
		cp, err := first.Thread(threadOf(1)).Save(t.Context(), textDraft("kept"))
		must(t, err)
		idle, err := net.Dial("unix", d.path("s")) // which never asks anything
		must(t, err)
		must(t, first.Close())
		d.ask("/metrics") // does not count
		select {
		case <-d.ended:
			t.Fatal("the daemon ended while a connection was open")
		case <-time.After(3 * time.Second):
		}
		must(t, idle.Close())
		ended(t, d)
		if shown := d.run("show", "--tenant", "acme", "--user", threadOf(1).User, threadOf(1).Thread, "--channel", "state", "--raw"); shown != "kept" {
			t.Errorf("the store has %q after the end of the daemon, want what was saved as %s", shown, cp.ID)
		}
	})
}

// ended waits until a daemon has ended because it was unused.
func ended(t *testing.T, d *served) {
	t.Helper()
	if code := d.exitCode(20 * time.Second); code != exitOK {
		t.Fatalf("the daemon ended with %d: %s", code, d.errs)
	}
	if !strings.Contains(d.errs.String(), `"msg":"shutting down","reason":"no connection has been open for `) {
		t.Errorf("the log does not have the reason of the end: %s", d.errs)
	}
	if _, err := net.Dial("unix", d.path("s")); err == nil {
		t.Error("the socket is still served")
	}
}

// TestServeAddressInUse: an address that is taken is named, and is not an error of its own kind.
func TestServeAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for flag, want := range map[string]string{"--listen": "ckptd: listening on ", "--metrics": "ckptd: metrics: listening on "} {
		d := newServed(t, flag, taken)
		d.launch()
		if code := d.exitCode(20 * time.Second); code != exitUnavailable {
			t.Errorf("%s: exit code %d, want %d", flag, code, exitUnavailable)
		}
		want += taken + ": the address is in use: stop the program that listens there, or choose another address\n"
		if got := d.errs.String(); got != want {
			t.Errorf("%s: the daemon says %q, want %q", flag, got, want)
		}
	}
}

// TestServeCompressLocal: the configuration can have answers compressed on a socket.
func TestServeCompressLocal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--compress-local"}} {
		d := newServed(t, args...)
		d.start()
		_, err := d.client(client.Options{}).Thread(threadOf(1)).Save(t.Context(), textDraft(strings.Repeat("state ", 1000)))
		must(t, err)
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.path("s"))
		}}}
		body := `{"ref":{"tenant":"acme","user":"` + threadOf(1).User + `","thread":"` + threadOf(1).Thread + `"}}`
		r, err := http.NewRequest(http.MethodPost, "http://ckptd/ckptd.v1.CheckpointService/Load", strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept-Encoding", "gzip")
		res, err := c.Do(r)
		must(t, err)
		res.Body.Close()
		if got, want := res.Header.Get("Content-Encoding") == "gzip", len(args) > 0; res.StatusCode != 200 || got != want {
			t.Errorf("%v: %s, compressed %v, want %v", args, res.Status, got, want)
		}
	}
}
