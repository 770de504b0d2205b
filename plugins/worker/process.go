package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/internal/panics"
)

const (
	startLimit = 10 * time.Second
	patience   = 250 * time.Millisecond // how long to wait for a worker to cancel
)

// process is one worker. It does one operation at a time, for its current holder.
type process struct {
	in     io.WriteCloser
	out    io.ReadCloser
	end    func()        // kills it
	dead   chan struct{} // closed when the process has ended
	pid    int
	walls  string
	grace  time.Duration
	loaded map[uint64]bool // handles
	last   uint64          // number of the latest operation

	writing sync.Mutex // serializes frames

	mu      sync.Mutex
	current uint64      // number of the current operation, 0 between operations
	fault   *hook.Error // why it was killed
}

// operation is one exchange.
type operation struct {
	number uint64
	limit  time.Duration
	kind   kind
	fields builder
	data   []byte
	want   kind                                                        // kind of a successful answer,
	size   int64                                                       // its maximum size,
	parse  func(body []byte) error                                     // and its parser, which returns errFrame for a malformed answer
	asks   func(kind) int64                                            // maximum size of each kind of question, noAnswer if not allowed
	answer func(k kind, body []byte) (data []byte, refused, err error) // err means that the question is invalid
}

// expect returns the maximum size of a frame, noAnswer if its kind is unexpected.
func (o *operation) expect(k kind) int64 {
	switch {
	case k == o.want:
		return o.size
	case k == kindFailed && o.kind == kindLoad:
		return 4 * maxText
	case o.asks != nil:
		return o.asks(k)
	default:
		return noAnswer
	}
}

// launch starts a worker and waits until it is ready.
func launch(o Options) (*process, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close())
	}
	widen(in)
	widen(out)
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout = childIn, childOut // standard error is not connected
	cmd.SysProcAttr = attributes()
	p := &process{in: in, out: out, dead: make(chan struct{}), grace: o.Grace, loaded: map[uint64]bool{}}
	p.end = func() { cmd.Process.Kill() } // it may have ended already
	started := make(chan error, 1)
	go func() {
		defer close(p.dead)
		defer panics.To(func(err error) { started <- err })
		// On Linux a worker dies with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // the exit status cannot be trusted
		}
	}()
	err = <-started
	childIn.Close()
	childOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	p.pid = cmd.Process.Pid
	if err := p.greet(o.Memory); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// greet sends the worker its start message.
func (p *process) greet(memory int64) error {
	return p.operate(context.Background(), operation{
		number: p.next(), limit: startLimit, kind: kindStart, fields: start{memory}.build(),
		want: kindReady, size: 4 * maxText, parse: func(body []byte) (err error) {
			p.walls, err = parseReady(body)
			return err
		},
	})
}

// next returns the number of a new operation.
func (p *process) next() uint64 {
	p.last++
	return p.last
}

// operate performs an operation. Every error is a *hook.Error. The worker may be dead afterwards;
// alive tells.
func (p *process) operate(ctx context.Context, o operation) error {
	p.mu.Lock()
	p.current = o.number
	p.mu.Unlock()
	watch := time.AfterFunc(o.limit+p.grace, func() {
		defer panics.To(p.broken)
		p.kill(o.number, hook.ErrTimeout, "its worker did not stop it and was killed")
	})
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer panics.To(p.broken)
		p.cancel(o.number, over)
	})
	failed, err := p.talk(o, watch)
	switch {
	case err == nil:
	case errors.Is(err, errFrame):
		p.kill(o.number, hook.ErrUnavailable, "its worker broke the protocol and was killed")
	default:
		p.kill(o.number, hook.ErrUnavailable, "its worker died")
	}
	close(over)
	stop()
	watch.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = 0
	switch {
	case p.fault != nil:
		return p.fault
	case failed != nil:
		return failed
	default:
		return nil
	}
}

// talk returns the failure that the worker reported, or an error if communication failed. The time
// it spends answering questions does not count.
func (p *process) talk(o operation, watch *time.Timer) (*hook.Error, error) {
	left, since := o.limit+p.grace, time.Now()
	if err := p.send(o.kind, o.fields, o.data); err != nil {
		return nil, err
	}
	for {
		k, body, err := readFrame(p.out, o.expect)
		switch {
		case err != nil:
			return nil, err
		case k == o.want:
			return nil, o.parse(body)
		case k == kindFailed:
			return parseFailed(body, o.number)
		}
		watch.Stop()
		left -= time.Since(since)
		data, refused, err := o.answer(k, body)
		if err != nil {
			return nil, err
		}
		since = time.Now()
		watch.Reset(max(left, 0))
		if err := p.send(kindAnswer, buildAnswer(o.number, refused), data); err != nil {
			return nil, err
		}
	}
}

func (p *process) send(k kind, fields builder, data []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	return writeFrame(p.in, k, fields, data)
}

// cancel asks the worker to cancel, and waits only briefly.
func (p *process) cancel(number uint64, over <-chan struct{}) {
	late := time.AfterFunc(patience, func() {
		defer panics.To(p.broken)
		p.kill(number, hook.ErrTimeout, "the caller gave up; its worker did not stop and was killed")
	})
	defer late.Stop()
	var b builder
	b.uint(number)
	if p.send(kindCancel, b, nil) == nil {
		<-over
	}
}

// broken kills a worker whose state is unknown.
func (p *process) broken(error) { p.end() }

// kill kills the worker if that operation is still running. The first reason counts.
func (p *process) kill(number uint64, kind error, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != number || p.fault != nil {
		return
	}
	p.fault = &hook.Error{Kind: kind, Reason: reason}
	p.end()
}

// alive reports whether the worker can do another operation, as far as is known.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.dead:
		return false
	default:
		return p.fault == nil
	}
}

// close kills the worker and waits until it has ended.
func (p *process) close() {
	p.end()
	p.in.Close()
	p.out.Close()
	<-p.dead
}

// unload unloads a plugin from the worker.
func (p *process) unload(handle uint64) error {
	var b builder
	b.uint(handle)
	delete(p.loaded, handle)
	return p.send(kindUnload, b, nil)
}

// reason returns the reason why the worker is dead.
func (p *process) reason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		return "a plugin worker died"
	}
	return "a plugin: " + p.fault.Reason
}
