package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/wasmtest"
	"github.com/ckptd/ckptd/plugins"
	"github.com/ckptd/ckptd/plugins/worker"
)

// Modes in which every row runs.
const (
	inProcess = "in-process"
	inWorkers = "process"
)

// memory is the limit for all guests together.
const memory = 256 << 20

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "plugin-worker":
		os.Exit(worker.Main(os.Stdin, os.Stdout))
	case len(os.Args) == 4 && os.Args[1] == "row":
		runRow(os.Args[2], os.Args[3])
	default:
		os.Exit(m.Run())
	}
}

// report is printed by the process of a row at its end.
type report struct {
	Failures []string
	Took     time.Duration // until the guest was stopped, in rows that measure it
	Pause    time.Duration // longest pause of the garbage collector
	Summary  string        // must be the same in every process
}

// plugin is implemented by *plugins.Plugin and *worker.Plugin.
type plugin interface {
	Call(context.Context, *plugins.Call) (*plugins.Result, error)
	Close() error
}

// bed is the environment of a row.
type bed struct {
	report
	mode  string
	dir   string // an empty folder for the row
	loads func(context.Context, plugins.Spec) (plugin, error)
	mu    sync.Mutex // guards Failures
}

// runRow runs a single row, writes its report to standard output, and waits for the end of standard
// input so that it can be inspected.
func runRow(mode, name string) {
	at := slices.IndexFunc(rows(), func(r row) bool { return r.name == name })
	b := &bed{mode: mode}
	if err := b.open(); err != nil {
		b.errorf("opening the host: %v", err)
	} else {
		echo := b.load(plugins.Spec{Name: "echo@1", Binary: wasmtest.Echo()})
		collector := watchCollector()
		rows()[at].run(b)
		b.Pause = collector()
		b.works(echo, "an old plugin")
		b.works(b.load(plugins.Spec{Name: "echo@2", Binary: wasmtest.Echo()}), "a new plugin")
	}
	json.NewEncoder(os.Stdout).Encode(b.report)
	os.Stdout.Close()
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func (b *bed) open() error {
	dir, err := os.MkdirTemp("", "ckptd-hostile")
	if err != nil {
		return err
	}
	b.dir = dir
	if b.mode == inProcess {
		h, err := plugins.New(plugins.Options{Memory: memory, Concurrency: 2})
		b.loads = func(ctx context.Context, s plugins.Spec) (plugin, error) { return h.Load(ctx, s) }
		return err
	}
	h, err := worker.New(worker.Options{Processes: 2, Memory: memory, Replaced: func(reason string) {
		b.errorf("a worker was replaced: %s", reason) // the first line of defense should have held
	}})
	b.loads = func(ctx context.Context, s plugins.Spec) (plugin, error) { return h.Load(ctx, s) }
	return err
}

func (b *bed) errorf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Failures = append(b.Failures, fmt.Sprintf(format, args...))
}

// spec is for a plugin that has all capabilities and enough time to hit its other limits.
func spec(bin []byte) plugins.Spec {
	return plugins.Spec{Name: "hostile@1", Binary: bin, Limits: plugins.Limits{Call: 20 * time.Second, Memory: 64 << 20},
		Capabilities: plugins.Capabilities{RedactBuiltin: true, Pseudonym: true, PutBlob: true}}
}

// secret is in every payload and must not be in any error.
const secret = "s3cr3t-sk-live-4242"

// call is a call of a hook with everything that it may ask for.
func (b *bed) call() *plugins.Call {
	c := &plugins.Call{Stage: hook.PreSave, Item: "channel messages", Payload: []byte(`{"key":"` + secret + `"}`), Meta: []byte(`{"abi":1}`),
		PutBlob: func([]byte) ([32]byte, error) { return [32]byte{7}, nil },
		Redact:  func(_ context.Context, _ string, data []byte) ([]byte, error) { return bytes.Clone(data), nil }}
	c.PseudonymKey[0], c.Seed[0] = 1, 1
	return c
}

// load loads a plugin that must load.
func (b *bed) load(s plugins.Spec) plugin {
	pl, err := b.loads(context.Background(), s)
	if err != nil {
		b.errorf("loading %s: %v", s.Name, err)
		return nil
	}
	return pl
}

// works asserts that an echo plugin echoes.
func (b *bed) works(pl plugin, what string) {
	if pl == nil {
		return
	}
	payload := bytes.Repeat([]byte("echo"), 1000)
	r, err := pl.Call(context.Background(), &plugins.Call{Stage: hook.PreSave, Payload: payload})
	if err != nil || !bytes.Equal(r.Output, payload) {
		b.errorf("the next call, of %s: %v", what, err)
	}
}

// refused asserts that a binary does not load, with an error of one of these kinds that contains
// these words.
func (b *bed) refused(s plugins.Spec, because string, kinds ...error) {
	begin := time.Now()
	pl, err := b.loads(context.Background(), s)
	b.Took = time.Since(begin)
	if err == nil {
		b.errorf("it was loaded")
		pl.Close()
		return
	}
	b.typed(err, kinds)
	if !strings.Contains(err.Error(), because) {
		b.errorf("the error is %v, and says nothing of %q", err, because)
	}
}

// fails asserts that a plugin loads and that its call fails with one of these kinds, twice in the
// same way.
func (b *bed) fails(s plugins.Spec, kinds ...error) {
	pl := b.load(s)
	if pl == nil {
		return
	}
	first := b.failing(pl, kinds)
	if second := b.failing(pl, kinds); first != nil && second != nil && !errors.Is(first, hook.ErrTimeout) && first.Fuel != second.Fuel {
		b.errorf("it used %d of fuel, and the next time %d", first.Fuel, second.Fuel)
	}
}

// failure describes a failed call.
type failure struct {
	error
	Fuel uint64
}

func (b *bed) failing(pl plugin, kinds []error) *failure {
	begin := time.Now()
	r, err := pl.Call(context.Background(), b.call())
	b.Took = max(b.Took, time.Since(begin))
	if err == nil {
		b.errorf("the call succeeded: unchanged %t, %d bytes", r.Unchanged, len(r.Output))
		return nil
	}
	b.typed(err, kinds)
	if r.Output != nil || r.Unchanged {
		b.errorf("besides its error, the call has an output")
	}
	return &failure{err, r.Fuel}
}

// gives asserts that a plugin loads and that its call gives the wanted output.
func (b *bed) gives(pl plugin, want string) {
	if pl == nil {
		return
	}
	r, err := pl.Call(context.Background(), b.call())
	if err != nil || string(r.Output) != want {
		b.errorf("want %q, got %+.200v, %v", want, r, err)
	}
}

// typed asserts that an error is a *hook.Error of one of these kinds, on a single line without the
// payload.
func (b *bed) typed(err error, kinds []error) {
	var e *hook.Error
	switch {
	case !errors.As(err, &e):
		b.errorf("the error has no type: %v", err)
	case !slices.Contains(kinds, e.Kind):
		b.errorf("the error is %v, want one of %v", err, kinds)
	}
	if text := err.Error(); len(text) > 1000 || bytes.ContainsAny([]byte(text), "\n\x1b") || bytes.Contains([]byte(text), []byte(secret)) {
		b.errorf("the error is not a line that may be logged: %q", text)
	}
}

// watchCollector collects garbage continuously and reports the longest pause.
func watchCollector() (stop func() time.Duration) {
	pauses := func() []uint64 {
		s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
		metrics.Read(s)
		return slices.Clone(s[0].Value.Float64Histogram().Counts)
	}
	before, end, ended := pauses(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			runtime.GC()
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration {
		close(end)
		<-ended
		s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
		metrics.Read(s)
		h := s[0].Value.Float64Histogram()
		for i := len(h.Counts) - 1; i >= 0; i-- {
			if h.Counts[i] > before[i] {
				longest := h.Buckets[i] // its lower bound, as the upper one may be infinite
				if math.IsInf(longest, 0) {
					longest = 0
				}
				return time.Duration(longest * float64(time.Second))
			}
		}
		return 0
	}
}
