package plugins_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	. "github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
)

// hoarder is a plugin that keeps as much of a payload as it can, wherever state could survive, and
// outputs its previous contents: a global, the memory it started with and the memory it grew by.
// "trap" makes it trap afterwards.
func hoarder() []byte {
	p := NewPlugin(-1)
	g := p.Global(I64, true, I64Const(0))
	const length, grown = 0, 1
	const kept, far = 512, 65536
	p.Hook("on_pre_save", I32+I32,
		MemorySize+LocalSet(grown),
		// The previous contents: the global, the size of the memory, 8 bytes each of the old memory
		// and the new.
		I32Const(0)+GlobalGet(g)+I64Store,
		I32Const(8)+LocalGet(grown)+I32Store,
		I32Const(1)+MemoryGrow+Drop,
		I32Const(16)+I32Const(kept)+I64Load+I64Store,
		I32Const(24)+I32Const(far)+I64Load+I64Store,
		p.ReadAll(length),
		GlobalGet(g)+I32Const(Buffer)+I64Load+I64Add+GlobalSet(g),
		I32Const(kept)+I32Const(Buffer)+I64Load+I64Store,
		I32Const(far)+I32Const(Buffer)+I64Load+I64Store,
		I32Const(Buffer)+I32Load8U+I32Const('t')+I32Eq+If(Void, Unreachable),
		I32Const(0)+I32Const(32)+Call(p.OutputWrite))
	return p.Bytes()
}

func TestNothingStays(t *testing.T) {
	p := load(t, newHost(t, plugins.Options{Concurrency: 1}), plugins.Spec{Binary: hoarder()})
	clean := append(append(make([]byte, 8), 1, 0, 0, 0, 0, 0, 0, 0), make([]byte, 16)...)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		in := fmt.Sprintf("secret of user %d%s", i, strings.Repeat("!", rng.IntN(300_000)))
		if i%7 == 3 {
			in = "trap"
		}
		r, err := p.Call(context.Background(), preSave(in))
		if in == "trap" {
			wantError(t, err, hook.ErrTrap)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.Output, clean) {
			t.Fatalf("call %d found %q", i, r.Output)
		}
	}
}

// An instance is not reused after a failed call, or if it grew a lot.
func TestInstancesThatAreThrownAway(t *testing.T) {
	h := newHost(t, plugins.Options{})
	for name, test := range map[string]struct {
		bin  []byte
		size int
		want int
	}{
		"unchanged":  {Returns(1), 0, 1},
		"rejected":   {Reject(), 0, 1},
		"failed":     {Fail(16), 0, 1},
		"grew":       {Echo(), 1 << 20, 1},
		"grew a lot": {Echo(), 8 << 20, 0},
		"trapped":    {Trap(), 0, 0},
		"full stack": {Recurse(), 0, 0},
		"no fuel":    {Spin(), 0, 0},
	} {
		p := load(t, h, plugins.Spec{Binary: test.bin, Limits: plugins.Limits{Fuel: 1e7}})
		if p.Idle() != 1 {
			t.Errorf("%s: %d instances to begin with", name, p.Idle())
		}
		_, _ = p.Call(context.Background(), preSave(strings.Repeat("x", test.size)))
		if p.Idle() != test.want {
			t.Errorf("%s: %d instances left, want %d", name, p.Idle(), test.want)
		}
	}
}

// A guest that grew to its module's maximum cannot be shrunk and is not reused.
func TestNothingStaysAtTheMaximum(t *testing.T) {
	p := NewPlugin(3)
	p.Hook("on_pre_save", "", I32Const(0)+MemorySize+I32Store8+I32Const(2)+MemoryGrow+Drop+
		I32Const(1)+I32Const(3*65536-1)+I32Load8U+I32Store8+I32Const(3*65536-1)+I32Const(7)+I32Store8+
		I32Const(0)+I32Const(2)+Call(p.OutputWrite))
	plugin := load(t, newHost(t, plugins.Options{}), plugins.Spec{Binary: p.Bytes()})
	for range 3 {
		r, err := plugin.Call(context.Background(), preSave("x"))
		if err != nil || string(r.Output) != "\x01\x00" {
			t.Fatalf("found %q, %v", r.Output, err)
		}
	}
}

func TestNothingStaysInGo(t *testing.T) {
	p := load(t, newHost(t, plugins.Options{Concurrency: 1}), plugins.Spec{Binary: buildGo(t)})
	for i := range 5 {
		r, err := p.Call(context.Background(), onLoad(fmt.Sprintf("stash secret %d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Output) != `1 ""` {
			t.Fatalf("call %d found %s", i, r.Output)
		}
	}
}

func onLoad(payload string) *plugins.Call {
	return &plugins.Call{Stage: hook.Load, Payload: []byte(payload), Time: time.Unix(1_700_000_000, 0), Seed: [32]byte{5}}
}

// The same call gives the same output, fuel and log: 1,000 times, some of them concurrently, in
// separate hosts, in new and in reused instances. The guest's collector runs in the meantime.
func TestSameEveryTime(t *testing.T) {
	bin := buildGo(t)
	inputs := []string{
		"json " + `{"a":[1,2,{"b":"` + strings.Repeat("long ", 100) + `"}]}`,
		"redact " + strings.Repeat("to alice@example.com and bob ", 50),
		"env",
		"say hello",
		"oom",
	}
	want := make([]string, len(inputs))
	check := func(p *plugins.Plugin, i int) error {
		r, err := p.Call(context.Background(), onLoad(inputs[i]))
		got := fmt.Sprintf("%s %v %d %v %v", r.Output, r.Unchanged, r.Fuel, r.Logs, err)
		if want[i] == "" {
			want[i] = got
		}
		if got != want[i] {
			return fmt.Errorf("%.20q gave %.200q, and before %.200q", inputs[i], got, want[i])
		}
		return nil
	}
	o := plugins.Options{CacheDir: filepath.Join(t.TempDir(), "cache"), CacheKey: [32]byte{1}}
	first := load(t, newHost(t, o), plugins.Spec{Binary: bin, Limits: plugins.Limits{Memory: 16 << 20}})
	for i := range inputs {
		if err := check(first, i); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(want[0], "gc=true") {
		t.Errorf("the collector of the guest did not run: %s", want[0])
	}
	for range 2 {
		p := load(t, newHost(t, o), plugins.Spec{Binary: bin, Limits: plugins.Limits{Memory: 16 << 20}})
		var wg sync.WaitGroup
		for worker := range 4 {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			wg.Go(func() {
				for range 125 {
					// The last is slow and ends in an instance that gets discarded.
					i := min(rng.IntN(3*len(inputs)), rng.IntN(3*len(inputs)), rng.IntN(3*len(inputs))) % len(inputs)
					if err := check(p, i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// Another process gives the same result: it runs this test and prints what it got.
func TestSameInAnotherProcess(t *testing.T) {
	dir := os.Getenv("CKPTD_TEST_CACHE")
	child := dir != ""
	if !child {
		dir = filepath.Join(t.TempDir(), "cache")
	}
	p := load(t, newHost(t, plugins.Options{CacheDir: dir, CacheKey: [32]byte{1}}), plugins.Spec{Binary: buildGo(t)})
	got := ""
	for _, in := range []string{`json {"b":1,"a":[2]}`, "redact to eve@example.org", "env", "panic now"} {
		r, err := p.Call(context.Background(), onLoad(in))
		got += fmt.Sprintf("%q %d %v %v;", r.Output, r.Fuel, r.Logs, err)
	}
	if child {
		fmt.Printf("got <%s>\n", got)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSameInAnotherProcess$")
	cmd.Env = append(os.Environ(), "CKPTD_TEST_CACHE="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "got <"+got+">") {
		t.Errorf("another process: %v\n%s\nwant\n%s", err, out, got)
	}
}

func TestWorldOfAGuest(t *testing.T) {
	p := load(t, newHost(t, plugins.Options{}), plugins.Spec{Binary: buildGo(t)})
	call := func(c *plugins.Call) (*plugins.Result, error) { return p.Call(context.Background(), c) }

	c := onLoad("env")
	r, err := call(c)
	if err != nil {
		t.Fatal(err)
	}
	var unix, home, random, args, files string
	if n, _ := fmt.Sscan(strings.Replace(string(r.Output), "  ", " - ", 1), &unix, &home, &random, &args, &files); n != 5 {
		t.Fatalf("got %q", r.Output)
	}
	if unix != "1700000000" || home != "-" || args != "0" || files != "true" {
		t.Errorf("the guest sees %q", r.Output)
	}
	c.Seed = [32]byte{6}
	if r, err = call(c); err != nil || strings.Contains(string(r.Output), random) {
		t.Errorf("another seed gives %q, %v", r.Output, err)
	}

	start := time.Now()
	if r, err = call(onLoad("sleep")); err != nil || string(r.Output) != "true" || r.Fuel < 1e8 {
		t.Errorf("sleeping: %q with %d of fuel, %v", r.Output, r.Fuel, err)
	}
	if d := time.Since(start); d > 90*time.Millisecond {
		t.Logf("the sleep was real: %v", d)
	}
	_, err = call(onLoad("exit"))
	wantError(t, err, hook.ErrTrap, "exited with the code 0")
	_, err = call(onLoad("oom"))
	wantError(t, err, hook.ErrLimit, "bytes of memory")
	r, err = call(onLoad("panic sesame"))
	wantError(t, err, hook.ErrTrap)
	if strings.Contains(err.Error(), "sesame") || !strings.Contains(fmt.Sprint(r.Logs), "sesame") {
		t.Errorf("a panic gives the error %v and the log %v", err, r.Logs)
	}
	r, err = call(onLoad("say it"))
	if got := fmt.Sprint(r.Logs); err != nil || got != "[{1 to stdout: it} {3 to stderr}]" {
		t.Errorf("log %s, %v", got, err)
	}
	_, err = call(onLoad("forever"))
	wantError(t, err, hook.ErrTrap) // the guest's runtime sees that nothing can wake it
}

func TestManyAtATime(t *testing.T) {
	h := newHost(t, plugins.Options{Concurrency: 3})
	echo, trap := load(t, h, plugins.Spec{Binary: Echo()}), load(t, h, plugins.Spec{Binary: Trap()})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				in := fmt.Sprintf("%d %d", i, n)
				if r, err := echo.Call(context.Background(), preSave(in)); err != nil || string(r.Output) != in {
					t.Errorf("%q came back as %q, %v", in, r.Output, err)
					return
				}
				if n%20 == 0 {
					if _, err := trap.Call(context.Background(), preSave(in)); err == nil {
						t.Error("no trap")
					}
				}
			}
		})
	}
	wg.Wait()
}

// Two plugins of the same module share its code but not its lifetime.
func TestSameModuleTwice(t *testing.T) {
	h := newHost(t, plugins.Options{})
	one, two := load(t, h, plugins.Spec{Binary: Echo()}), load(t, h, plugins.Spec{Binary: Echo()})
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if r, err := two.Call(context.Background(), preSave("x")); err != nil || string(r.Output) != "x" {
			t.Fatalf("got %q, %v", r.Output, err)
		}
	}
}

// Close waits for running calls; later calls fail.
func TestCloseWhileInUse(t *testing.T) {
	h := newHost(t, plugins.Options{Concurrency: 4})
	p := load(t, h, plugins.Spec{Binary: Echo()})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				in := strings.Repeat("x", 100_000)
				r, err := p.Call(context.Background(), preSave(in))
				if err != nil {
					if !errors.Is(err, hook.ErrUnavailable) {
						t.Error(err)
					}
					return
				}
				if len(r.Output) != len(in) {
					t.Errorf("%d bytes", len(r.Output))
				}
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
