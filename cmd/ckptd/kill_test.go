//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// The daemon is killed again and again while 64 clients save and one watches. All of them go on by
// themselves: each save is there once, each event comes once.
func TestKilledDaemon(t *testing.T) {
	const agents, kills = 64, 5
	t.Parallel()
	dir, err := os.MkdirTemp("", "ckptd") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	d := &victim{t: t, args: []string{"serve", "--data", data, "--listen", "none", "--socket", socket}}
	d.start()
	defer d.end(syscall.SIGKILL)
	c, err := client.Dial("unix:"+socket, client.Options{Attempts: 1000, MaxBackoff: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var total atomic.Int64 // once it is known
	var watching sync.WaitGroup
	began := make(chan bool, 1)
	watching.Go(func() { watchAll(ctx, t, c, began, &total) })
	if !<-began {
		t.FailNow()
	}
	acknowledged := make([][]*engine.Checkpoint, agents)
	var saving sync.WaitGroup
	enough := make(chan bool)
	for i := range agents {
		saving.Go(func() { acknowledged[i] = saveSteps(ctx, t, c.Thread(agentRef(i)), enough) })
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range kills {
		time.Sleep(100*time.Millisecond + time.Duration(rng.Int64N(int64(200*time.Millisecond))))
		d.end(syscall.SIGKILL)
		d.start()
	}
	close(enough)
	saving.Wait()
	n := 1
	for _, cps := range acknowledged {
		n += len(cps)
	}
	total.Store(int64(n))
	if _, err := c.Thread(agentRef(agents)).Save(ctx, engine.Draft{}); err != nil { // whoever watches sees it last
		t.Error(err)
	}
	watching.Wait()
	d.end(syscall.SIGTERM)
	if t.Failed() {
		return
	}

	s := openStore(t, data)
	defer s.Close()
	for i, cps := range acknowledged {
		left := len(cps)
		for cp, err := range s.Thread(agentRef(i)).History(ctx, engine.HistoryOptions{}) {
			if left--; err != nil || left < 0 || cp.ID != cps[left].ID || cp.Hash != cps[left].Hash {
				t.Fatalf("agent %d: %v, %+v is not what was acknowledged", i, err, cp)
			}
		}
		if left != 0 {
			t.Errorf("agent %d: %d checkpoints are missing", i, left)
		}
	}
	report, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: true})
	if err != nil || !report.Clean() || report.Checkpoints != n {
		t.Errorf("verify: %+v, %v", report, err)
	}
}

func agentRef(i int) engine.Ref {
	return engine.Ref{Tenant: "acme", User: fmt.Sprint("u", i%4), Thread: fmt.Sprint("t", i)}
}

// saveSteps is an agent whose state grows with each step, until it is enough. It returns what was
// acknowledged.
func saveSteps(ctx context.Context, t *testing.T, th *client.Thread, enough <-chan bool) (cps []*engine.Checkpoint) {
	session := th.Session()
	state := []byte("start")
	for step := uint64(0); ; step++ {
		select {
		case <-enough:
			got, err := th.Load(ctx, engine.Latest)
			if err != nil || !bytes.Equal(got.Channels[0].Data, state) {
				t.Errorf("%s: %v, loaded %+v", th.Ref().Thread, err, got)
			}
			return cps
		default:
		}
		state = fmt.Appendf(state[:min(len(state), 5000)], ", step %d of %s", step, th.Ref().Thread)
		cp, err := session.Save(ctx, engine.Draft{Step: int64(step), Expect: engine.ExpectHead(step), Channels: []engine.Change{{Name: "state", Data: state}}})
		if err != nil {
			t.Errorf("%s, step %d: %v", th.Ref().Thread, step, err)
			return cps
		}
		cps = append(cps, cp)
	}
}

// watchAll says when it has begun, and wants as many events as there are in total, those of each
// thread in order.
func watchAll(ctx context.Context, t *testing.T, c *client.Store, began chan<- bool, total *atomic.Int64) {
	last, n := map[string]uint64{}, int64(0)
	for e, err := range c.Watch(ctx, engine.WatchScope{Tenant: "acme", Began: true}, "") {
		switch {
		case err != nil:
			t.Errorf("after %d events: %v", n, err)
			began <- false
			return
		case e.Seq == 0:
			began <- true
			continue
		case e.Seq != last[e.Ref.Thread]+1:
			t.Errorf("seq %d of %s after %d", e.Seq, e.Ref.Thread, last[e.Ref.Thread])
		}
		last[e.Ref.Thread] = e.Seq
		if n++; n == total.Load() {
			return
		}
	}
}

// victim is a ckptd serve that can be started again.
type victim struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
}

func (d *victim) start() {
	d.t.Helper()
	d.cmd = exec.Command(commandPath(d.t), d.args...)
	d.cmd.Stdout, d.cmd.Stderr = io.Discard, io.Discard
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *victim) end(how syscall.Signal) {
	if d.cmd.ProcessState == nil {
		d.cmd.Process.Signal(how)
		d.cmd.Wait()
	}
}
