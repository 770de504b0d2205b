package plugins_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// saver returns a plugin with the given pre-save hook.
func saver(locals Code, body func(p *Plugin) Code) []byte {
	p := NewPlugin(-1)
	p.Hook("on_pre_save", locals, body(p))
	return p.Bytes()
}

func preSave(payload string) *plugins.Call {
	return &plugins.Call{Stage: hook.PreSave, Item: "channel messages", Payload: []byte(payload)}
}

// wantError fails unless err is a *hook.Error of the kind whose text contains all the words.
func wantError(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	var he *hook.Error
	if !errors.As(err, &he) || he.Kind != kind {
		t.Fatalf("got the error %v, want one of the kind %q", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("the error %q has several lines", err)
	}
}

func TestResults(t *testing.T) {
	h := newHost(t, plugins.Options{})
	write := func(p *Plugin, n int32) Code { return I32Const(0) + I32Const(n) + Call(p.OutputWrite) + Drop }
	for name, test := range map[string]struct {
		bin   []byte
		kind  error
		code  int32
		words []string
	}{
		"unchanged":       {bin: Returns(1)},
		"empty output":    {bin: saver("", func(p *Plugin) Code { return write(p, 0) + I32Const(0) })},
		"no output":       {bin: Returns(0), kind: hook.ErrFailed, words: []string{"wrote no output"}},
		"rejected":        {bin: Reject(), kind: hook.ErrRejected, words: []string{"p@1.0.0", "pre_save", "channel messages"}},
		"failed":          {bin: Fail(16), kind: hook.ErrFailed, code: 16, words: []string{"returned 16"}},
		"output, error":   {bin: saver("", func(p *Plugin) Code { return write(p, 9) + I32Const(99) }), kind: hook.ErrFailed, code: 99},
		"unknown 3":       {bin: Returns(3), kind: hook.ErrFailed, code: 3, words: []string{"no meaning"}},
		"unknown 15":      {bin: Returns(15), kind: hook.ErrFailed, code: 15},
		"unknown -1":      {bin: Returns(-1), kind: hook.ErrFailed, code: -1},
		"unreachable":     {bin: Trap(), kind: hook.ErrTrap, words: []string{"unreachable"}},
		"division":        {bin: Arith(), kind: hook.ErrTrap, words: []string{"divide by zero"}},
		"memory":          {bin: saver("", func(*Plugin) Code { return I32Const(-1) + I32Load }), kind: hook.ErrTrap, words: []string{"out of bounds"}},
		"stack":           {bin: Recurse(), kind: hook.ErrTrap, words: []string{"stack overflow"}},
		"too much output": {bin: saver("", func(p *Plugin) Code { return Repeat(3, write(p, 65536)) + I32Const(0) }), kind: hook.ErrLimit, words: []string{"of output"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, h, plugins.Spec{Binary: test.bin})
			for range 3 { // no matter what happened before
				r, err := p.Call(context.Background(), preSave("secret"))
				if r == nil {
					t.Fatal("no result")
				}
				if test.kind == nil {
					if err != nil {
						t.Fatal(err)
					}
					if r.Unchanged == (r.Output != nil) {
						t.Errorf("unchanged %v, output %q", r.Unchanged, r.Output)
					}
					continue
				}
				wantError(t, err, test.kind, test.words...)
				if r.Output != nil {
					t.Errorf("the output %q besides an error", r.Output)
				}
				var he *hook.Error
				if errors.As(err, &he); he.Code != test.code {
					t.Errorf("the code %d, want %d", he.Code, test.code)
				}
			}
		})
	}
}

// Arith is a plugin that divides by zero.
func Arith() []byte {
	return saver("", func(*Plugin) Code { return I32Const(1) + I32Const(0) + I32Div })
}

func TestWhatTheGuestSaysIsNotInTheError(t *testing.T) {
	h := newHost(t, plugins.Options{})
	r, err := load(t, h, plugins.Spec{Binary: Fail(20)}).Call(context.Background(), preSave("x"))
	wantError(t, err, hook.ErrFailed)
	if strings.Contains(err.Error(), "sorry") {
		t.Errorf("the error %q quotes the guest", err)
	}
	if r.Error != "sorry" {
		t.Errorf("the result says %q", r.Error)
	}
}

func TestCallIsRefused(t *testing.T) {
	h := newHost(t, plugins.Options{})
	p := load(t, h, plugins.Spec{Binary: Echo(), Limits: plugins.Limits{Input: 10}})
	_, err := p.Call(context.Background(), &plugins.Call{Stage: hook.Migrate})
	wantError(t, err, hook.ErrInvalid, "no such hook")
	_, err = p.Call(context.Background(), preSave("01234567890"))
	wantError(t, err, hook.ErrLimit, "11 bytes")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = p.Call(context.Background(), preSave("x"))
	wantError(t, err, hook.ErrUnavailable, "closed")
}

// Runaways get so much fuel that only the clock stops them.
func runaways() map[string][]byte {
	return map[string][]byte{
		"loop":    Spin(),
		"no loop": Explode(60),
		"fill": saver("", func(*Plugin) Code {
			return I32Const(1000) + MemoryGrow + Drop + Loop(Void, fill64MB, Br(0)) + I32Const(1)
		}),
		"long line":    Fill(1024, 5000),
		"page by page": saver("", func(*Plugin) Code { return Loop(Void, I32Const(1)+MemoryGrow+Drop+Br(0)) + I32Const(1) }),
		"host calls":   saver("", func(p *Plugin) Code { return Loop(Void, I32Const(0)+Call(p.InputLen)+Drop+Br(0)) + I32Const(1) }),
		"copies": saver("", func(p *Plugin) Code {
			return I32Const(1000) + MemoryGrow + Drop +
				Loop(Void, I32Const(0)+I64Const(0)+I32Const(0)+I32Const(32<<20)+Call(p.InputRead)+Drop+Br(0)) + I32Const(1)
		}),
		"touches": saver(I32, func(*Plugin) Code {
			return I32Const(2047) + MemoryGrow + Drop +
				Loop(Void, LocalGet(0)+I32Const(1)+I32Store8+
					LocalGet(0)+I32Const(4096)+I32Add+I32Const(0x07ffffff)+I32And+LocalSet(0)+Br(0)) + I32Const(1)
		}),
	}
}

const fill64MB = "\x41\x00\x41\x01\x41\x80\x80\x80\x1f\xfc\x0b\x00" // memory.fill(0, 1, 62 MiB)

func TestTimeLimit(t *testing.T) {
	h := newHost(t, plugins.Options{})
	input := string(make([]byte, 32<<20))
	for name, bin := range runaways() {
		t.Run(name, func(t *testing.T) {
			p := load(t, h, plugins.Spec{Binary: bin, Limits: plugins.Limits{Fuel: 1e12, Call: 100 * time.Millisecond}})
			start := time.Now()
			r, err := p.Call(context.Background(), preSave(input))
			wantError(t, err, hook.ErrTimeout, "time limit")
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error %v blames the caller", err)
			}
			t.Logf("%s: stopped after %v, with %d of fuel", name, time.Since(start), r.Fuel)
		})
	}
}

func TestFuelLimit(t *testing.T) {
	h := newHost(t, plugins.Options{})
	for name, bin := range runaways() {
		t.Run(name, func(t *testing.T) {
			const limit = 1_234_567
			p := load(t, h, plugins.Spec{Binary: bin, Limits: plugins.Limits{Fuel: limit, Call: time.Minute}})
			r, err := p.Call(context.Background(), preSave(strings.Repeat("x", 1000)))
			wantError(t, err, hook.ErrFuel, "1234567")
			if r.Fuel != limit {
				t.Errorf("used %d of %d", r.Fuel, limit)
			}
		})
	}
}

func TestCallerGivesUp(t *testing.T) {
	for _, procs := range []int{1, 2} {
		old := runtime.GOMAXPROCS(procs)
		defer runtime.GOMAXPROCS(old)
		h := newHost(t, plugins.Options{Concurrency: 1})
		p := load(t, h, plugins.Spec{Binary: Spin(), Limits: plugins.Limits{Fuel: 1e12, Call: time.Minute}})

		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err := p.Call(ctx, preSave("x"))
		wantError(t, err, hook.ErrTimeout, "the caller gave up")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap the error of the context", err)
		}
		_, err = p.Call(ctx, preSave("x"))
		if wantError(t, err, hook.ErrTimeout); !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap the error of the context", err)
		}

		ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err = p.Call(ctx, preSave("x"))
		if wantError(t, err, hook.ErrTimeout, "the caller gave up"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not wrap the error of the context", err)
		}
	}
}

func TestNoPlace(t *testing.T) {
	h := newHost(t, plugins.Options{Concurrency: 1})
	spin := load(t, h, plugins.Spec{Binary: Spin(), Limits: plugins.Limits{Fuel: 1e12, Call: time.Minute}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := spin.Call(ctx, preSave("x"))
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	impatient := load(t, h, plugins.Spec{Binary: Echo(), Limits: plugins.Limits{Call: 10 * time.Millisecond}})
	_, err := impatient.Call(context.Background(), preSave("x"))
	wantError(t, err, hook.ErrUnavailable, "too many calls in progress")
	gone, cancelGone := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancelGone()
	_, err = spin.Call(gone, preSave("x"))
	if wantError(t, err, hook.ErrUnavailable, "too many calls in progress"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not wrap the error of the context", err)
	}
	cancel()
	wantError(t, <-done, hook.ErrTimeout)
	if _, err := impatient.Call(context.Background(), preSave("x")); err != nil {
		t.Error(err)
	}
}

// The collector must not wait for a guest: without the checks it would wait for the entire call.
// The bound is wide, because tests share the machine; the figure is logged.
func TestCollectorDoesNotWait(t *testing.T) {
	h := newHost(t, plugins.Options{})
	input := string(make([]byte, 32<<20))
	for name, bin := range runaways() {
		t.Run(name, func(t *testing.T) {
			p := load(t, h, plugins.Spec{Binary: bin, Limits: plugins.Limits{Fuel: 1e12, Call: 300 * time.Millisecond}})
			var worst time.Duration
			for range 3 { // a busy machine may delay one of them
				before := pauses()
				done := make(chan error)
				go func() {
					_, err := p.Call(context.Background(), preSave(input))
					done <- err
				}()
				for running := true; running; {
					runtime.GC()
					select {
					case err := <-done:
						wantError(t, err, hook.ErrTimeout)
						running = false
					default:
					}
				}
				if worst = longest(before, pauses()); worst <= 150*time.Millisecond {
					break
				}
			}
			if worst > 150*time.Millisecond {
				t.Errorf("the collector stopped the world for %v", worst)
			}
			t.Logf("longest pause: less than %v", worst)
		})
	}
}

// pauses returns the distribution of the collector's stop-the-world pauses, including the time to
// stop.
func pauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

// longest returns a bound of the longest pause in between.
func longest(before, after *metrics.Float64Histogram) (d time.Duration) {
	for i := range after.Counts {
		if after.Counts[i] > before.Counts[i] {
			d = time.Duration(after.Buckets[i+1] * float64(time.Second))
		}
	}
	return d
}

func TestMemoryLimit(t *testing.T) {
	h := newHost(t, plugins.Options{})
	limits := plugins.Limits{Memory: 1 << 20}
	// memory.grow fails, and the guest can handle that.
	p := load(t, h, plugins.Spec{Limits: limits, Binary: saver("", func(*Plugin) Code {
		return I32Const(16) + MemoryGrow + I32Const(-1) + I32Ne + If(Void, Unreachable) +
			I32Const(15) + MemoryGrow + I32Const(1) + I32Ne + If(Void, Unreachable) + MemorySize + I32Const(16) + I32Ne + If(Void, Unreachable) + I32Const(1)
	})})
	for range 3 {
		if _, err := p.Call(context.Background(), preSave("x")); err != nil {
			t.Fatal(err)
		}
	}
	// A guest that cannot handle it fails because of its limit, however it fails.
	p = load(t, h, plugins.Spec{Limits: limits, Binary: Echo()})
	for range 3 {
		_, err := p.Call(context.Background(), preSave(strings.Repeat("x", 2<<20)))
		wantError(t, err, hook.ErrLimit, "1048576 bytes")
		if _, err := p.Call(context.Background(), preSave("x")); err != nil {
			t.Fatal(err)
		}
	}
	_, err := h.Load(context.Background(), plugins.Spec{Name: "p", Binary: Echo(), Limits: plugins.Limits{Memory: 65535}})
	wantError(t, err, hook.ErrLimit, "starts with 65536 bytes")
}

func TestMemoryBudget(t *testing.T) {
	h := newHost(t, plugins.Options{Memory: 4 << 20, Concurrency: 2})
	echo, other := load(t, h, plugins.Spec{Binary: Echo()}), load(t, h, plugins.Spec{Binary: Upper()})
	for range 3 {
		// The other plugin's idle instance is evicted for this one.
		for _, p := range []*plugins.Plugin{echo, other} {
			in := strings.Repeat("X", 3<<20)
			r, err := p.Call(context.Background(), preSave(in))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.Output, []byte(in)) {
				t.Error("wrong output")
			}
		}
		_, err := echo.Call(context.Background(), preSave(strings.Repeat("x", 5<<20)))
		wantError(t, err, hook.ErrUnavailable, "raise the budget")
	}
}
