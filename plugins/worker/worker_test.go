package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins"
)

func digest(b []byte) [32]byte { return sha256.Sum256(b) }

// open starts a host whose plugins are fakes. The second result returns the reasons why workers
// were replaced.
func open(t *testing.T, o Options) (*Host, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var reasons []string
	o.Replaced = func(reason string) {
		mu.Lock()
		defer mu.Unlock()
		reasons = append(reasons, reason)
	}
	if o.Command == nil {
		o.Command = []string{"/proc/self/exe", "fake"}
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), reasons...)
	}
}

func load(t *testing.T, h *Host, s plugins.Spec) *Plugin {
	t.Helper()
	pl, err := h.Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// echo asserts that a plugin that outputs its input works.
func echo(t *testing.T, pl *Plugin, payload string) {
	t.Helper()
	r, err := pl.Call(t.Context(), &plugins.Call{Stage: hook.PreSave, Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Output) != payload {
		t.Fatalf("the output has %d bytes, want those of the input, %d", len(r.Output), len(payload))
	}
}

// failure asserts the kind of an error and returns it.
func failure(t *testing.T, err error, kind error, texts ...string) *hook.Error {
	t.Helper()
	var e *hook.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) {
		t.Fatalf("got the error %v, want %v", err, kind)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not have %q", err, text)
		}
	}
	return e
}

func TestCall(t *testing.T) {
	h, replaced := open(t, Options{Processes: 2})
	t.Run("everything arrives", func(t *testing.T) {
		pl := load(t, h, plugins.Spec{Name: "mirror@1", Binary: []byte("wasm"), Config: []byte(`{"a":1}`)})
		at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
		c := &plugins.Call{Stage: hook.Load, Item: "channel messages", Payload: []byte("payload"), Meta: []byte("meta"), Time: at, From: 3, To: 4}
		c.Seed[0], c.PseudonymKey[31] = 1, 2
		r, err := pl.Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		want := &plugins.Result{
			Output: []byte("load|meta|{\"a\":1}|2026-01-02T03:04:05.000000678Z|" + string(c.Seed[:]) + "|" + string(c.PseudonymKey[:]) + "|payload"),
			Fuel:   7, Findings: []hook.Finding{{Rule: "email", Path: "/a", Count: 2, Item: "channel messages"}}, Logs: []plugins.LogLine{{Text: "hello"}},
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Error(diff)
		}
		if pl.Digest() != digest([]byte("wasm")) || !cmp.Equal(pl.Stages(), []hook.Stage{hook.PreSave, hook.Load}) {
			t.Errorf("digest %x, stages %v", pl.Digest(), pl.Stages())
		}
	})
	t.Run("all sizes", func(t *testing.T) {
		pl := load(t, h, plugins.Spec{Name: "echo@1"})
		random := rand.NewChaCha8([32]byte{})
		for _, size := range []int{0, 1, inline - 1, chunk / 16, inline + 1, chunk, chunk + 1, 5*chunk + 17} {
			b := make([]byte, size)
			random.Read(b)
			echo(t, pl, string(b))
		}
	})
	t.Run("unchanged", func(t *testing.T) {
		r, err := load(t, h, plugins.Spec{Name: "unchanged@1"}).Call(t.Context(), &plugins.Call{Payload: []byte("x")})
		if err != nil || !r.Unchanged || r.Output != nil {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("errors", func(t *testing.T) {
		r, err := load(t, h, plugins.Spec{Name: "fails@1"}).Call(t.Context(), &plugins.Call{Stage: hook.PreSave, Item: "channel c"})
		e := failure(t, err, hook.ErrFailed, "fails@1: ", "in pre_save of channel c", "sorry")
		if e.Code != 42 || r.Fuel != 9 || r.Error != "so sorry" {
			t.Errorf("code %d, %+v", e.Code, r)
		}
		_, err = load(t, h, plugins.Spec{Name: "odd@1"}).Call(t.Context(), &plugins.Call{Payload: []byte("s3cret")})
		if failure(t, err, hook.ErrUnavailable); strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error has the payload: %v", err)
		}
		_, err = h.Load(t.Context(), plugins.Spec{Name: "bad@1"})
		failure(t, err, hook.ErrInvalid, "a fake in two lines, \uFFFD")
	})
	t.Run("input over the limit", func(t *testing.T) {
		pl := load(t, h, plugins.Spec{Name: "echo@1", Limits: plugins.Limits{Input: 4}})
		_, err := pl.Call(t.Context(), &plugins.Call{Payload: []byte("12345")})
		failure(t, err, hook.ErrLimit, "5 bytes", "more than the limit of 4")
		echo(t, pl, "1234")
	})
	t.Run("closed", func(t *testing.T) {
		pl := load(t, h, plugins.Spec{Name: "echo@2"})
		if err := pl.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := pl.Call(t.Context(), &plugins.Call{})
		failure(t, err, hook.ErrUnavailable, "closed")
	})
	if reasons := replaced(); len(reasons) > 0 {
		t.Errorf("workers were replaced: %q", reasons)
	}
}

// The parent answers the plugin's questions, and nothing else.
func TestAsk(t *testing.T) {
	h, _ := open(t, Options{Processes: 1})
	spec := plugins.Spec{Name: "blob@1", Capabilities: plugins.Capabilities{PutBlob: true, RedactBuiltin: true}}
	blob := load(t, h, spec)
	large := bytes.Repeat([]byte("b"), 3<<20)
	r, err := blob.Call(t.Context(), &plugins.Call{Payload: large, PutBlob: func(b []byte) ([32]byte, error) { return digest(b), nil }})
	if err != nil {
		t.Fatal(err)
	}
	if want := digest(large); !bytes.Equal(r.Output, want[:]) {
		t.Errorf("the id is %x, want %x", r.Output, want)
	}
	refusal := func(err error) func([]byte) ([32]byte, error) {
		return func([]byte) ([32]byte, error) { return [32]byte{}, err }
	}
	_, err = blob.Call(t.Context(), &plugins.Call{PutBlob: refusal(os.ErrClosed)})
	if failure(t, err, hook.ErrFailed, "blob@1"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, which is not that of the host", err)
	}
	_, err = blob.Call(t.Context(), &plugins.Call{PutBlob: refusal(hook.ErrLimit)})
	failure(t, err, hook.ErrFailed, "over a plugin limit of the host") // the plugin got an error code and returned this
	spec.Name = "redact@1"
	redact := load(t, h, spec)
	r, err = redact.Call(t.Context(), &plugins.Call{Payload: []byte("data"), Redact: func(_ context.Context, set string, b []byte) ([]byte, error) {
		return []byte(set + " " + string(b)), nil
	}})
	if err != nil || string(r.Output) != "strict data" {
		t.Errorf("got %+v, %v", r, err)
	}
	// It ends at the call's deadline.
	spec.Limits = plugins.Limits{Call: 50 * time.Millisecond}
	brief := load(t, h, spec)
	_, err = brief.Call(t.Context(), &plugins.Call{Redact: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, &hook.Error{Kind: hook.ErrTimeout, Plugin: "redact"}
	}})
	failure(t, err, hook.ErrTimeout, "it reached its time limit")
	spec.Limits = plugins.Limits{}
	// A worker that continues after a refusal still fails.
	spec.Name = "stubborn@1"
	stubborn := load(t, h, spec)
	policy := &hook.Error{Kind: hook.ErrRejected, Plugin: "redact"}
	_, err = stubborn.Call(t.Context(), &plugins.Call{Redact: func(context.Context, string, []byte) ([]byte, error) { return nil, policy }})
	if failure(t, err, hook.ErrRejected) != policy {
		t.Errorf("got %v", err)
	}
	thief := load(t, h, plugins.Spec{Name: "steals@1"})
	_, err = thief.Call(t.Context(), &plugins.Call{PutBlob: func([]byte) ([32]byte, error) {
		t.Error("a blob was stored for a plugin without the capability")
		return [32]byte{}, nil
	}})
	failure(t, err, hook.ErrUnavailable, "broke the protocol")
}

// A dying worker fails its own call and nothing else, whatever the cause.
func TestDeath(t *testing.T) {
	h, replaced := open(t, Options{Processes: 1, Memory: 64 << 20, Grace: 200 * time.Millisecond})
	dies := load(t, h, plugins.Spec{Name: "dies@1"})
	other := load(t, h, plugins.Spec{Name: "echo@1"})
	for i := range 2 {
		_, err := dies.Call(t.Context(), &plugins.Call{Payload: []byte("die")})
		failure(t, err, hook.ErrUnavailable, "its worker died")
		echo(t, dies, "next call")
		echo(t, other, "of another")
		if got := len(replaced()); got != i+1 {
			t.Errorf("%d workers were replaced after %d deaths", got, i+1)
		}
	}
	bomb := load(t, h, plugins.Spec{Name: "bomb@1", Limits: plugins.Limits{Call: 20 * time.Second}})
	_, err := bomb.Call(t.Context(), &plugins.Call{})
	failure(t, err, hook.ErrUnavailable, "its worker died")
	echo(t, other, "after running out of memory")
}

func TestDeadline(t *testing.T) {
	h, _ := open(t, Options{Processes: 1, Grace: 100 * time.Millisecond})
	deaf := load(t, h, plugins.Spec{Name: "deaf@1", Limits: plugins.Limits{Call: 100 * time.Millisecond}})
	begin := time.Now()
	_, err := deaf.Call(t.Context(), &plugins.Call{Stage: hook.PreSave})
	failure(t, err, hook.ErrTimeout, "deaf@1", "was killed")
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("it was killed after %v", took)
	}
	// The time to answer a question does not count as the worker's.
	blob := load(t, h, plugins.Spec{Name: "blob@1", Capabilities: plugins.Capabilities{PutBlob: true}, Limits: plugins.Limits{Call: 100 * time.Millisecond}})
	_, err = blob.Call(t.Context(), &plugins.Call{PutBlob: func(b []byte) ([32]byte, error) {
		time.Sleep(400 * time.Millisecond)
		return [32]byte{}, nil
	}})
	if err != nil {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	h, replaced := open(t, Options{Processes: 1})
	waits := load(t, h, plugins.Spec{Name: "waits@1"})
	call := func(pl *Plugin) error {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err := pl.Call(ctx, &plugins.Call{})
		return err
	}
	if err := call(waits); !errors.Is(err, hook.ErrTimeout) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if reasons := replaced(); len(reasons) > 0 {
		t.Errorf("a worker that gave up was replaced: %q", reasons)
	}
	deaf := load(t, h, plugins.Spec{Name: "deaf@1"})
	for range freeStrikes + 1 { // callers that give up do not count
		failure(t, call(deaf), hook.ErrTimeout, "caller gave up")
	}
	echo(t, load(t, h, plugins.Spec{Name: "echo@1"}), "next call")
}

// A plugin that keeps killing workers is refused for a while, and the others keep their workers.
func TestStrikes(t *testing.T) {
	h, replaced := open(t, Options{Processes: 1})
	dies, other := load(t, h, plugins.Spec{Name: "dies@1"}), load(t, h, plugins.Spec{Name: "echo@1"})
	for range freeStrikes {
		_, err := dies.Call(t.Context(), &plugins.Call{Payload: []byte("die")})
		failure(t, err, hook.ErrUnavailable, "died")
	}
	_, err := dies.Call(t.Context(), &plugins.Call{Payload: []byte("die")})
	failure(t, err, hook.ErrUnavailable, "3 workers in a row")
	echo(t, other, "x")
	if got := len(replaced()); got != freeStrikes {
		t.Errorf("%d workers were replaced", got)
	}
	_, err = h.Load(t.Context(), plugins.Spec{Name: "deadly-load@1"})
	failure(t, err, hook.ErrUnavailable, "deadly-load@1", "died")
	echo(t, other, "x")
}

func TestBusy(t *testing.T) {
	h, _ := open(t, Options{Processes: 1})
	waits := load(t, h, plugins.Spec{Name: "waits@1"})
	quick := load(t, h, plugins.Spec{Name: "echo@1", Limits: plugins.Limits{Call: 50 * time.Millisecond}})
	ctx, cancel := context.WithCancel(t.Context())
	entered := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		close(entered)
		waits.Call(ctx, &plugins.Call{})
	}()
	<-entered
	for len(h.idle) > 0 {
		time.Sleep(time.Millisecond)
	}
	_, err := quick.Call(t.Context(), &plugins.Call{})
	failure(t, err, hook.ErrUnavailable, "busy")
	cancel()
	<-done
	echo(t, quick, "x")
}

func TestParallel(t *testing.T) {
	h, replaced := open(t, Options{Processes: 3})
	var wg sync.WaitGroup
	for i := range 8 {
		pl := load(t, h, plugins.Spec{Name: fmt.Sprintf("echo@%d", i)})
		wg.Go(func() {
			for j := range 50 {
				payload := fmt.Sprintf("%d of %d", j, i)
				r, err := pl.Call(t.Context(), &plugins.Call{Payload: []byte(payload)})
				if err != nil || string(r.Output) != payload {
					t.Errorf("%s: %v", payload, err)
				}
			}
			pl.Close()
		})
	}
	wg.Wait()
	if reasons := replaced(); len(reasons) > 0 {
		t.Errorf("workers were replaced: %q", reasons)
	}
}

// A worker cannot escape.
func TestConfined(t *testing.T) {
	h, _ := open(t, Options{Processes: 1})
	if !strings.Contains(h.Walls(), "seccomp") {
		t.Skipf("this machine has only %s", h.Walls())
	}
	r, err := load(t, h, plugins.Spec{Name: "escape@1"}).Call(t.Context(), &plugins.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Output) > 0 {
		t.Errorf("a worker could %s", r.Output)
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		return
	}
	p := <-h.idle
	defer h.release(p)
	for what, want := range map[string]string{"status": "NoNewPrivs:\t1", "limits": "Max core file size        0                    0"} {
		b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.pid), what))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s of the worker: %v, not %q in\n%s", what, err, want, b)
		}
	}
}

// Close ends all processes.
func TestClose(t *testing.T) {
	h, _ := open(t, Options{Processes: 2})
	waits := load(t, h, plugins.Spec{Name: "waits@1"})
	failed := make(chan error)
	go func() {
		_, err := waits.Call(t.Context(), &plugins.Call{})
		failed <- err
	}()
	for len(h.idle) > 1 {
		time.Sleep(time.Millisecond)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	failure(t, <-failed, hook.ErrUnavailable)
	_, err := waits.Call(t.Context(), &plugins.Call{})
	failure(t, err, hook.ErrUnavailable, "closed")
	_, err = h.Load(t.Context(), plugins.Spec{Name: "echo@1"})
	failure(t, err, hook.ErrUnavailable, "closed")
}

func TestNoProgram(t *testing.T) {
	for _, command := range [][]string{{"/nonexistent"}, {"/proc/self/exe", "rogue", "exits"}, {"/proc/self/exe", "rogue", "other-version"}} {
		if h, err := New(Options{Command: command}); err == nil {
			h.Close()
			t.Errorf("%q is a worker", command)
		} else if !strings.HasPrefix(err.Error(), "starting a plugin worker: ") {
			t.Error(err)
		}
	}
}
