package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/plugins"
)

// Main implements a worker process: it confines itself, runs plugins for its parent, and returns
// the exit code when its input ends. Call it early, in a program or command of its own. It takes
// over standard input and output; nothing else may use them. It prints nothing, because the parent
// notices failures by itself.
func Main(in, out *os.File) int {
	in = pollable(in)
	k, body, err := readFrame(in, expect(kindStart))
	if err != nil || k != kindStart {
		return 2
	}
	s, err := parseStart(body)
	if err != nil {
		return 2
	}
	debug.SetTraceback("none")
	debug.SetMemoryLimit(s.memory + overhead/2)
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2)) // one for the guest, one for the garbage collector
	walls, err := confine(s.memory + overhead)
	if err != nil {
		return 2
	}
	host, err := plugins.New(plugins.Options{Memory: s.memory, Concurrency: 1})
	if err != nil {
		return 2
	}
	load := func(ctx context.Context, s plugins.Spec) (plugin, error) { return host.Load(ctx, s) }
	// The end of the input is the end of the parent: any work still running is pointless.
	if err := serve(endOfParent{in}, out, walls, load); err != nil {
		return 1
	}
	return 0
}

// endOfParent ends the process when its input ends.
type endOfParent struct{ in io.Reader }

func (e endOfParent) Read(p []byte) (int, error) {
	n, err := e.in.Read(p)
	if err != nil {
		os.Exit(0)
	}
	return n, err
}

// plugin is implemented by *plugins.Plugin.
type plugin interface {
	Stages() []hook.Stage
	Digest() [32]byte
	Call(context.Context, *plugins.Call) (*plugins.Result, error)
	Close() error
}

// child serves one parent: one operation at a time, in the order of the frames.
type child struct {
	out     io.Writer // only the goroutine of serve writes
	load    func(context.Context, plugins.Spec) (plugin, error)
	plugins map[uint64]plugin
	answers chan answer

	mu        sync.Mutex
	number    uint64 // of the current operation, 0 between operations
	cancel    context.CancelFunc
	cancelled uint64 // the last cancelled operation
}

type order struct {
	kind kind
	body []byte
}

// serve runs until the input ends or is malformed. It begins by sending ready.
func serve(in io.Reader, out io.Writer, walls []string, load func(context.Context, plugins.Spec) (plugin, error)) error {
	c := &child{out: out, load: load, plugins: map[uint64]plugin{}, answers: make(chan answer, 1)}
	if err := writeFrame(out, kindReady, buildReady(walls), nil); err != nil {
		return err
	}
	orders := make(chan order)
	done := make(chan struct{})
	defer close(done)
	var failed error
	go func() {
		defer close(orders)
		defer panics.To(func(err error) { failed = err })
		failed = c.read(in, orders, done)
	}()
	for o := range orders {
		if err := c.obey(o); err != nil {
			return err
		}
	}
	if errors.Is(failed, io.EOF) {
		return nil
	}
	return failed
}

// read passes on orders. It handles frames about the current operation at once.
func (c *child) read(in io.Reader, orders chan<- order, done <-chan struct{}) error {
	defer close(c.answers)
	var room []byte // buffer reused for the bodies of calls
	for {
		k, size, err := readHeader(in, expect(kindLoad, kindUnload, kindCall, kindCancel, kindAnswer))
		var body []byte
		if err == nil && k == kindCall {
			body, err = readBody(in, size, room)
			if cap(body) <= chunk {
				room = body
			}
		} else if err == nil {
			body, err = readBody(in, size, nil)
		}
		if err != nil {
			c.giveUp(math.MaxUint64)
			return err
		}
		switch k {
		case kindCancel:
			p := parser{left: body}
			number := p.uint()
			if err := p.end(); err != nil {
				return err
			}
			c.giveUp(number)
		case kindAnswer:
			a, err := parseAnswer(body)
			if err != nil {
				return err
			}
			select {
			case c.answers <- a:
			default:
				return fmt.Errorf("%w: an answer without a question", errFrame)
			}
		default:
			select {
			case orders <- order{k, body}:
			case <-done:
				return nil
			}
		}
	}
}

// giveUp cancels the operations up to a number, even one that has not begun.
func (c *child) giveUp(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled = max(c.cancelled, number)
	if c.number != 0 && c.number <= number {
		c.cancel()
	}
}

// begin returns the context of an operation and a function that ends it.
func (c *child) begin(number uint64) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number, c.cancel = number, cancel
	if number <= c.cancelled {
		cancel()
	}
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.number = 0
		cancel()
	}
}

func (c *child) obey(o order) error {
	switch o.kind {
	case kindLoad:
		number, handle, spec, err := parseLoad(o.body)
		if err != nil {
			return err
		}
		return c.doLoad(number, handle, spec)
	case kindCall:
		call, err := parseCall(o.body)
		if err != nil {
			return err
		}
		return c.doCall(&call)
	default: // unload
		p := parser{left: o.body}
		handle := p.uint()
		if err := p.end(); err != nil {
			return err
		}
		if pl := c.plugins[handle]; pl != nil {
			delete(c.plugins, handle)
			return pl.Close()
		}
		return nil
	}
}

func (c *child) doLoad(number, handle uint64, spec plugins.Spec) error {
	ctx, end := c.begin(number)
	defer end()
	pl, err := c.load(ctx, spec)
	if err != nil {
		return writeFrame(c.out, kindFailed, buildFailed(number, reported(err)), nil)
	}
	c.plugins[handle] = pl
	return writeFrame(c.out, kindLoaded, buildLoaded(number, pl.Digest(), pl.Stages()), nil)
}

func (c *child) doCall(call *call) error {
	pl := c.plugins[call.handle]
	if pl == nil {
		e := &hook.Error{Kind: hook.ErrUnavailable, Reason: "it is not loaded"}
		return writeFrame(c.out, kindDone, buildDone(call.number, &plugins.Result{}, e), nil)
	}
	ctx, end := c.begin(call.number)
	defer end()
	if call.putBlob {
		call.PutBlob = func(data []byte) (id [32]byte, err error) {
			reply, err := c.ask(ctx, kindPutBlob, call.number, "", data)
			if err == nil && copy(id[:], reply) != len(id) {
				err = errFrame
			}
			return id, err
		}
	}
	if call.redact {
		call.Redact = func(_ context.Context, set string, data []byte) ([]byte, error) {
			return c.ask(ctx, kindRedact, call.number, set, data)
		}
	}
	r, err := pl.Call(ctx, &call.Call)
	if err != nil {
		r.Unchanged, r.Output = false, nil
	}
	return writeFrame(c.out, kindDone, buildDone(call.number, r, reported(err)), r.Output)
}

// ask asks the parent a question during a call. A call has one goroutine, so there is only one
// question at a time.
func (c *child) ask(ctx context.Context, k kind, number uint64, set string, data []byte) ([]byte, error) {
	if err := writeFrame(c.out, k, buildAsk(number, set), data); err != nil {
		return nil, err
	}
	select {
	case a := <-c.answers:
		switch {
		case a.number != number:
			return nil, errFrame
		case a.status == answerLimit:
			return nil, fmt.Errorf("%w of the host", hook.ErrLimit)
		case a.status == answerFailed:
			return nil, errors.New("the host refused")
		}
		return a.data, nil
	case <-ctx.Done():
		// The answer still arrives, before any other frame.
		<-c.answers
		return nil, ctx.Err()
	}
}

// reported returns the form of an error that is sent to the parent.
func reported(err error) *hook.Error {
	var e *hook.Error
	if err != nil && !errors.As(err, &e) {
		// Its text could contain anything.
		e = &hook.Error{Kind: hook.ErrUnavailable, Reason: "the host failed"}
	}
	return e
}

// expect allows frames of these kinds, of any size.
func expect(kinds ...kind) func(kind) int64 {
	return func(k kind) int64 {
		for _, want := range kinds {
			if k == want {
				return math.MaxUint32
			}
		}
		return -1
	}
}
