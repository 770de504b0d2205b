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
	patience   = 250 * time.Millisecond // with a worker that was told to give up
)

// process is one worker. It does one operation at a time, for whoever holds it.
type process struct {
	in     io.WriteCloser
	out    io.ReadCloser
	end    func()        // kills it
	dead   chan struct{} // closed when it has ended
	pid    int
	walls  string
	grace  time.Duration
	loaded map[uint64]bool // handles
	last   uint64          // number of an operation

	writing sync.Mutex // of frames

	mu      sync.Mutex
	current uint64      // number of the operation under way, 0 between two
	fault   *hook.Error // why it was killed
}

// operation is one exchange.
type operation struct {
	number uint64
	limit  time.Duration
	kind   kind
	fields builder
	data   []byte
	want   kind                                                        // what comes back if it goes well,
	size   int64                                                       // of at most so many bytes,
	parse  func(body []byte) error                                     // and what it says, errFrame if no sound worker says it
	asks   func(kind) int64                                            // what the worker may ask, of at most so many bytes, noAnswer if it may not
	answer func(k kind, body []byte) (data []byte, refused, err error) // an err is of the question
}

// expect returns how large a frame may be, noAnswer if there may be none.
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
	cmd.Stdin, cmd.Stdout = childIn, childOut // and nothing as standard error
	cmd.SysProcAttr = attributes()
	p := &process{in: in, out: out, dead: make(chan struct{}), grace: o.Grace, loaded: map[uint64]bool{}}
	p.end = func() { cmd.Process.Kill() } // it may have ended by itself
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
			cmd.Wait() // how it ended says nothing that can be trusted
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

// greet tells the worker what it is for.
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

// operate does an operation. Every error is a *hook.Error; the worker may be dead then, as alive tells.
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

// talk returns what the worker said of its failure, or an error if it cannot be talked with. The time in which it waits for
// an answer does not count.
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

// cancel asks the worker to give up, and does not wait for long.
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

// broken ends the worker, of which nothing is known any more.
func (p *process) broken(error) { p.end() }

// kill ends the worker, if that operation is still under way. The first reason counts.
func (p *process) kill(number uint64, kind error, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != number || p.fault != nil {
		return
	}
	p.fault = &hook.Error{Kind: kind, Reason: reason}
	p.end()
}

// alive tells whether it can do another operation, as far as is known.
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

// close kills the worker and waits for its end.
func (p *process) close() {
	p.end()
	p.in.Close()
	p.out.Close()
	<-p.dead
}

// unload makes the worker forget a plugin.
func (p *process) unload(handle uint64) error {
	var b builder
	b.uint(handle)
	delete(p.loaded, handle)
	return p.send(kindUnload, b, nil)
}

// reason is why it is dead.
func (p *process) reason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		return "a plugin worker died"
	}
	return "a plugin: " + p.fault.Reason
}
