package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
)

var draft = engine.Draft{Step: 1, Channels: []engine.Change{{Name: "n", Data: []byte("1")}}}

func TestRetriesWhatWasNotDone(t *testing.T) {
	w := newWorld(t, Options{Attempts: 4, Backoff: time.Millisecond})
	busy := &wire.RetryError{Err: wire.ErrOverloaded, What: "saves", After: 3 * time.Second}
	for _, tt := range []struct {
		name  string
		err   error
		calls int64 // that fail
		want  error
	}{
		{"overloaded at first", busy, 3, nil},
		{"shutting down", &wire.RetryError{Err: wire.ErrShuttingDown, After: time.Second}, 1, nil},
		{"overloaded for good", busy, 99, ErrOverloaded},
		{"unavailable", engine.ErrUnavailable, 2, nil},
		{"no space", engine.ErrNoSpace, 99, engine.ErrNoSpace},
		{"denied", wire.ErrDenied, 99, ErrDenied},
		{"conflict", &engine.ConflictError{HeadSeq: 3, HeadID: "x"}, 99, engine.ErrConflict},
	} {
		w.faults(func(n int64) (f fault) {
			if n <= tt.calls {
				f.err = tt.err
			}
			return f
		})
		_, err := w.Thread(place(tt.name)).Save(t.Context(), draft)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		wants, calls := tt.calls+1, w.calls.Load()
		if tt.calls == 99 {
			wants = 1
			if tt.want == ErrOverloaded {
				wants = 4
			}
		}
		if calls != wants {
			t.Errorf("%s: %d calls, want %d", tt.name, calls, wants)
		}
		if after, ok := errors.AsType[*wire.RetryError](tt.err); ok {
			for _, d := range w.pauses() {
				if d < after.After || d > after.After+8*time.Millisecond {
					t.Errorf("%s: waits %v, was asked to wait %v", tt.name, d, after.After)
				}
			}
		}
	}
}

// Waits are random, grow, and have a bound.
func TestBackoff(t *testing.T) {
	w := newWorld(t, Options{Attempts: 200, Backoff: 10 * time.Millisecond, MaxBackoff: time.Second})
	w.faults(func(int64) fault { return fault{err: engine.ErrUnavailable} })
	w.Thread(place("t")).Load(t.Context(), engine.Latest)
	ds := w.pauses()
	if len(ds) != 199 {
		t.Fatalf("%d waits", len(ds))
	}
	for i, d := range ds {
		if most := min(time.Second, 10*time.Millisecond<<min(i, 10)); d >= most {
			t.Errorf("wait %d is %v, at most %v wanted", i, d, most)
		}
	}
	late := ds[20:]
	if lo, hi := slices.Min(late), slices.Max(late); lo > 200*time.Millisecond || hi < 800*time.Millisecond {
		t.Errorf("waits between %v and %v: no jitter", lo, hi)
	}
}

func TestLostAnswer(t *testing.T) { overBoth(t, Options{Attempts: 3}, checkLostAnswer) }

func checkLostAnswer(t *testing.T, w *world) {
	ctx := t.Context()
	lose := func(n int64) fault { return fault{drop: n <= 2} }
	th := w.Thread(place("t"))

	w.faults(lose)
	cp, err := th.Save(ctx, draft)
	if err != nil || cp.Seq != 1 || w.calls.Load() != 3 {
		t.Fatalf("a save with two lost answers: %v, %+v, %d calls", err, cp, w.calls.Load())
	}
	w.faults(nil)
	if cp, err := th.Load(ctx, engine.Latest); err != nil || cp.Seq != 1 {
		t.Errorf("a save that was repeated: %v, %+v", err, cp)
	}
	// A condition on the head that the save itself has moved does not make the repeated one fail.
	w.faults(lose)
	next := draft
	next.Expect = engine.ExpectHead(1)
	if cp, err := th.Save(ctx, next); err != nil || cp.Seq != 2 {
		t.Errorf("a save with a condition: %v, %+v", err, cp)
	}

	w.faults(lose)
	if _, err := th.Load(ctx, engine.Latest); err != nil {
		t.Errorf("a load: %v", err)
	}
	w.faults(func(int64) fault { return fault{drop: true} })
	if _, err := th.Load(ctx, engine.Latest); !errors.Is(err, ErrUnreachable) || errors.Is(err, engine.ErrAmbiguous) {
		t.Errorf("a load with no answer at all: %v", err)
	}
	if _, err := th.Save(ctx, draft); !errors.Is(err, engine.ErrAmbiguous) {
		t.Errorf("a save with no answer at all: %v", err)
	}

	// What stops the repetition tells nothing of the attempt before.
	for _, then := range []error{&wire.RetryError{Err: wire.ErrOverloaded}, engine.ErrUnavailable, wire.ErrDenied} {
		w.faults(func(n int64) fault {
			if n == 1 {
				return fault{drop: true}
			}
			return fault{err: then}
		})
		if _, err := th.Save(ctx, draft); !errors.Is(err, engine.ErrAmbiguous) || errors.Is(err, then) {
			t.Errorf("a lost answer and then %v: %v", then, err)
		}
	}
	w.faults(func(n int64) fault {
		if n == 1 {
			return fault{drop: true}
		}
		return fault{err: &engine.ConflictError{HeadSeq: 9}}
	})
	if _, err := th.Save(ctx, draft); !errors.Is(err, engine.ErrConflict) || errors.Is(err, engine.ErrAmbiguous) {
		t.Errorf("a lost answer of a save that was not made: %v", err)
	}

	w.faults(lose)
	if _, err := th.Delete(ctx); !errors.Is(err, engine.ErrAmbiguous) || w.calls.Load() != 1 {
		t.Errorf("a deletion with a lost answer: %v after %d calls", err, w.calls.Load())
	}
	theirs := w.dial(Options{EngineIDs: true})
	defer theirs.Close()
	w.faults(lose)
	if _, err := theirs.Thread(place("e")).Save(ctx, draft); !errors.Is(err, engine.ErrAmbiguous) || w.calls.Load() != 1 {
		t.Errorf("a save with the engine's id and a lost answer: %v after %d calls", err, w.calls.Load())
	}
	named := draft
	named.ID = "mine"
	w.faults(lose)
	if cp, err := theirs.Thread(place("e")).Save(ctx, named); err != nil || cp.ID != "mine" {
		t.Errorf("a save with an id of the caller's: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	w := newWorld(t, Options{Attempts: 3})
	w.http.CloseClientConnections()
	w.http.Close()
	_, err := w.Thread(place("t")).Save(t.Context(), draft)
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrAmbiguous) || len(w.pauses()) != 2 {
		t.Errorf("without a server: %v after %d waits", err, len(w.pauses()))
	}
	if !strings.Contains(err.Error(), "unix:"+w.socket) {
		t.Errorf("the error does not say where: %v", err)
	}
	w.pause = func(context.Context, time.Duration) error {
		w.start()
		return nil
	}
	if _, err := w.Thread(place("t")).Save(t.Context(), draft); err != nil {
		t.Errorf("a server that comes up meanwhile: %v", err)
	}
}

// What is no ckptd server is told from one that is away.
func TestForeign(t *testing.T) {
	page := httptest.NewServer(nil) // 404
	defer page.Close()
	safe := httptest.NewUnstartedServer(nil)
	safe.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of the handshake
	safe.StartTLS()
	defer safe.Close()
	for addr, conf := range map[string]*tls.Config{page.URL: nil, safe.URL: nil} {
		c, err := Dial(addr, Options{TLS: conf})
		if err != nil {
			t.Fatal(err)
		}
		c.pause = func(context.Context, time.Duration) error {
			t.Errorf("%s: repeated", addr)
			return nil
		}
		if _, err := c.Thread(place("t")).Save(t.Context(), draft); !errors.Is(err, ErrUnreachable) || errors.Is(err, engine.ErrAmbiguous) {
			t.Errorf("%s: %v", addr, err)
		}
		c.Close()
	}
}

func TestContext(t *testing.T) {
	overBoth(t, Options{Timeout: 50 * time.Millisecond, Attempts: 3}, checkContext)
}

func checkContext(t *testing.T, w *world) {
	th := w.Thread(place("t"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := th.Save(ended, draft); !errors.Is(err, context.Canceled) || errors.Is(err, engine.ErrAmbiguous) || w.calls.Load() != 0 {
		t.Errorf("with a context that has ended: %v after %d calls", err, w.calls.Load())
	}

	w.faults(func(n int64) fault { return fault{silence: n == 1} })
	if _, err := th.Save(t.Context(), draft); err != nil || w.calls.Load() != 2 {
		t.Errorf("one attempt without an answer: %v after %d calls", err, w.calls.Load())
	}

	w.o.Timeout = 0
	w.faults(func(int64) fault { return fault{silence: true} })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := th.Save(ctx, draft); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, engine.ErrAmbiguous) {
		t.Errorf("a save whose context ended: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := th.Load(ctx, engine.Latest); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, engine.ErrAmbiguous) {
		t.Errorf("a load whose context ended: %v", err)
	}

	// What would be waited past the deadline is not waited for.
	w.faults(func(int64) fault { return fault{err: &wire.RetryError{Err: wire.ErrOverloaded, After: time.Minute}} })
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := th.Load(ctx, engine.Latest); !errors.Is(err, ErrOverloaded) || len(w.pauses()) != 0 {
		t.Errorf("a wait past the deadline: %v, %v", err, w.pauses())
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, Options{})
	ended := make(chan error)
	go func() {
		for _, err := range w.Watch(context.Background(), engine.WatchScope{Tenant: "acme", Began: true}, "") {
			ended <- err
		}
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w.Store.Close()
	if err := <-ended; !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a watch of a closed client: %v", err)
	}
	if _, err := w.Thread(place("t")).Save(t.Context(), draft); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a save of a closed client: %v", err)
	}
}

// Callers at once find connections that others have used.
func TestConnectionsAreReused(t *testing.T) {
	w := newWorld(t, Options{})
	const callers, rounds = 256, 8
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for range rounds {
				w.Thread(place("t")).Load(t.Context(), engine.Latest)
			}
		})
	}
	done.Wait()
	if n := w.conns.Load(); n > callers+16 {
		t.Errorf("%d connections for %d callers", n, callers)
	}
}

func TestDial(t *testing.T) {
	for addr, ok := range map[string]bool{
		"unix:/run/ckptd.sock": true, "unix:///run/ckptd.sock": true, "http://localhost:7420": true, "https://[::1]:7420/": true,
		"": false, "unix:": false, "localhost:7420": false, "ftp://x": false, "http://": false, "http://x/path": false, "http://u:p@x": false,
	} {
		if _, err := Dial(addr, Options{}); (err == nil) != ok || err != nil && !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%q: %v", addr, err)
		}
	}
	if _, err := Dial("http://x", Options{Timeout: -1}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a negative timeout: %v", err)
	}
}

func TestIDs(t *testing.T) {
	var c idClock
	now := time.Now()
	last := ""
	for i := range 10_000 {
		if i%3 == 0 {
			now = now.Add(-time.Millisecond) // a clock that goes back
		} else {
			now = now.Add(time.Microsecond)
		}
		id := c.next(now)
		if len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) || id <= last {
			t.Fatalf("id %s after %s", id, last)
		}
		last = id
	}
}
