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

// Main is the whole of a worker process: it confines itself, runs plugins as its parent says, and returns the exit code
// when its input ends. Call it early in a program of its own or in a command of its own, with standard input and output,
// which nothing else may touch. It prints nothing: what goes wrong, the parent notices.
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
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2)) // one guest, and the garbage collector beside it
	walls, err := confine(s.memory + overhead)
	if err != nil {
		return 2
	}
	host, err := plugins.New(plugins.Options{Memory: s.memory, Concurrency: 1})
	if err != nil {
		return 2
	}
	load := func(ctx context.Context, s plugins.Spec) (plugin, error) { return host.Load(ctx, s) }
	// The end of the input is the end of the parent: nothing that is still running matters.
	if err := serve(endOfParent{in}, out, walls, load); err != nil {
		return 1
	}
	return 0
}

// endOfParent ends the process with its input.
type endOfParent struct{ in io.Reader }

func (e endOfParent) Read(p []byte) (int, error) {
	n, err := e.in.Read(p)
	if err != nil {
		os.Exit(0)
	}
	return n, err
}

// plugin is a plugins.Plugin.
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

	mu     sync.Mutex
	number uint64 // of the operation under way, 0 between two
	cancel context.CancelFunc
	given  uint64 // the last operation that was given up
}

type order struct {
	kind kind
	body []byte
}

// serve runs until the input ends or is malformed. It says ready first.
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

// read hands on orders; what concerns the operation under way does not wait for its end.
func (c *child) read(in io.Reader, orders chan<- order, done <-chan struct{}) error {
	defer close(c.answers)
	var room []byte // for the body of one call after the other
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

// giveUp cancels the operations up to a number, also one that has not begun.
func (c *child) giveUp(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = max(c.given, number)
	if c.number != 0 && c.number <= number {
		c.cancel()
	}
}

// begin returns the context of an operation. The function ends it.
func (c *child) begin(number uint64) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number, c.cancel = number, cancel
	if number <= c.given {
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
		return writeFrame(c.out, kindFailed, buildFailed(number, told(err)), nil)
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
	return writeFrame(c.out, kindDone, buildDone(call.number, r, told(err)), r.Output)
}

// ask asks the parent during a call. A call has one goroutine, so there is one question at a time.
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
		// The answer still comes, before anything else does.
		<-c.answers
		return nil, ctx.Err()
	}
}

// told is what the parent is told of an error.
func told(err error) *hook.Error {
	var e *hook.Error
	if err != nil && !errors.As(err, &e) {
		// Its text may have anything in it.
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
