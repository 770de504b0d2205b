package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/ckptd/ckptd/bench/rival"
)

// contender is a worker from the run's point of view: a process with one rival.
type contender struct {
	rival.Rival
	dir    string
	cmd    *exec.Cmd
	client *rpc.Client
	said   bytes.Buffer
	size   int  // bytes of the workload's own states
	opened bool // and not closed yet
}

// closeTime is the time that a rival has to close before it is killed, for example for Badger to
// flush and compact.
const closeTime = 2 * time.Minute

// enter starts a worker for a rival in a new folder below base.
func enter(ctx context.Context, base string, r rival.Rival, a OpenArgs) (*contender, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	c := &contender{Rival: r}
	if c.dir, err = os.MkdirTemp(base, r.Name+"-"); err != nil {
		return nil, fmt.Errorf("making a folder for %s: %w", r.Name, err)
	}
	c.cmd = exec.Command(program)
	c.cmd.Env = append(os.Environ(), WorkerVariable+"=1")
	c.cmd.Stderr = &c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to the run, which then ends its workers
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		os.RemoveAll(c.dir)
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	c.client = rpc.NewClientWithCodec(jsonrpc.NewClientCodec(pipes{io.NopCloser(out), in}))
	a.Rival, a.Dir = r.Name, c.dir
	var opened Opened
	if err := c.call(ctx, "Open", a, &opened); err != nil {
		c.leave()
		return nil, err
	}
	c.size, c.opened = opened.Size, true
	return c, nil
}

// call calls a method of the worker. If ctx ends, the worker is left in an unknown state: only
// leave may follow.
func (c *contender) call(ctx context.Context, method string, args, reply any) error {
	call := c.client.Go("Worker."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if call.Error != nil {
		return fmt.Errorf("%s: %w", c.Name, call.Error)
	}
	return nil
}

// leave ends the worker and removes its folder.
func (c *contender) leave() error {
	if c.opened {
		c.opened = false
		done := c.client.Go("Worker.Close", struct{}{}, &struct{}{}, make(chan *rpc.Call, 1)).Done
		select {
		case <-done:
		case <-time.After(closeTime):
		}
	}
	c.client.Close() // the worker ends at the end of its input
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(closeTime):
		c.cmd.Process.Kill()
		err = <-ended
	}
	if removed := os.RemoveAll(c.dir); err == nil {
		err = removed
	}
	if err != nil {
		return fmt.Errorf("ending the worker of %s: %w: %s", c.Name, err, strings.TrimSpace(c.said.String()))
	}
	return nil
}

func (c *contender) turn(ctx context.Context, a TurnArgs) (t Turn, err error) {
	err = c.call(ctx, "Turn", a, &t)
	return t, err
}

func (c *contender) load(ctx context.Context, a LoadArgs) (l Loaded, err error) {
	err = c.call(ctx, "Load", a, &l)
	return l, err
}
