package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// TestClosedIdleConnection saves, lets the server close the idle connection, and saves again in a
// way that is never repeated: the closed connection must be noticed before the request is on it.
func TestClosedIdleConnection(t *testing.T) {
	w := newWorld(t, Options{EngineIDs: true, Attempts: 1})
	for i := range 20 {
		if _, err := w.Thread(place("t")).Save(t.Context(), engine.Draft{Step: int64(i)}); err != nil {
			t.Fatal(err)
		}
		w.http.CloseClientConnections()
	}
	if n := w.conns.Load(); n != 20 {
		t.Errorf("%d connections", n)
	}
}

// TestLocalRequests makes requests on a socket by themselves and compares what comes with what an
// http.Transport gets.
func TestLocalRequests(t *testing.T) {
	w := newWorld(t, Options{})
	w.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/flushed":
			fmt.Fprintf(w, "%s %d ", r.Method, len(body))
			w.(http.Flusher).Flush()
			fmt.Fprint(w, strings.Repeat("x", 100_000))
		case "/close":
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, "bye")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		default:
			fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("X-Test"), body)
		}
	})
	l := w.Store.http.rt.(*local)
	conns := w.conns.Load()
	for _, path := range []string{"/", "/flushed", "/empty", "/", "/close", "/"} {
		for _, body := range []string{"", "hello", strings.Repeat("long ", 20_000)} {
			var got [2]string
			for i, rt := range []http.RoundTripper{l, l.Transport} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Test", "yes")
				res, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				text, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				res.Body.Close()
				got[i] = fmt.Sprint(res.StatusCode, string(text))
			}
			if got[0] != got[1] {
				t.Errorf("%s with %d bytes: %.60q, an http.Transport gets %.60q", path, len(body), got[0], got[1])
			}
		}
	}
	if n := w.conns.Load() - conns; n > 12 { // a new one for each of the two after "/close"
		t.Errorf("%d connections", n)
	}
}

// TestLocalIsCancelled ends the context of a request before its answer, and of one whose answer has
// begun.
func TestLocalIsCancelled(t *testing.T) {
	w := newWorld(t, Options{})
	begun := make(chan struct{})
	w.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			fmt.Fprint(w, "begun")
			w.(http.Flusher).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
	})
	before := runtime.NumGoroutine()
	for _, path := range []string{"/", "/begun"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-begun; cancel() }()
		res, err := w.Store.http.rt.RoundTrip(req)
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s ends with %v", path, err)
		}
	}
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}
