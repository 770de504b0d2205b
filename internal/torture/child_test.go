package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// childEnv holds the job of this binary, in JSON, when a test starts it again.
const childEnv = "TORTURE_CHILD"

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.run()
	}
	if err != nil {
		tell(line{Failed: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// job is the work of a child.
type job struct {
	Kind    string // "write", "fill", "commit", "probe"
	Place   place
	Seed    uint64
	Cycle   int
	Writers int
	Ops     int  // of each writer; 0 means without end
	Deep    bool // verify deeply
	Close   bool // in the end, and not wait to be killed
	Calm    bool // no compaction, no erasure
}

func (j *job) run() error {
	switch j.Kind {
	case "write":
		return j.write()
	case "fill":
		return j.fill()
	case "commit":
		return j.commit()
	case "probe":
		return probe(os.Stdin)
	}
	return fmt.Errorf("unknown job %q", j.Kind)
}

// line is a message of a child, one to a line.
type line struct {
	Found    map[string]thread `json:",omitempty"` // at the start
	Problems []string          `json:",omitempty"` // of Verify then
	Begin    *op               `json:",omitempty"`
	Acked    string            `json:",omitempty"` // the thread whose operation was
	Ready    bool              `json:",omitempty"`
	Stopped  string            `json:",omitempty"` // the error that a writer stopped with
	Failed   string            `json:",omitempty"`
	Verdict  *verdict          `json:",omitempty"`
	Batch    *batch            `json:",omitempty"` // begins
	Done     *batch            `json:",omitempty"` // was acknowledged
	NoSpace  *batch            `json:",omitempty"` // was refused for want of space
	Refused  *batch            `json:",omitempty"` // was not applied, for another reason
	Broken   string            `json:",omitempty"` // the error of a batch with an unknown outcome
	WentOn   bool              `json:",omitempty"` // something was acknowledged after that
}

var out sync.Mutex

// tell writes a line in one call, so that a kill cuts off the last one at most.
func tell(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	out.Lock()
	defer out.Unlock()
	_, err = os.Stdout.Write(append(b, '\n'))
	return err
}

// write opens the store, tells what it finds, and works until it is killed, or all writers are
// done.
func (j *job) write() error {
	ctx := context.Background()
	s, _, err := j.Place.open()
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	found, err := contents(ctx, s)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	problems, err := verify(ctx, s, j.Deep)
	if err != nil {
		return err
	}
	if err := tell(line{Ready: true, Found: found, Problems: problems}); err != nil {
		return err
	}
	j.work(ctx, s, found)
	if !j.Close {
		tell(line{Ready: true})
		bufio.NewReader(os.Stdin).ReadString('\n') // to be killed
	}
	if err := s.Close(); err != nil {
		tell(line{Stopped: "closing: " + err.Error()})
	}
	return nil
}

// work runs the writers until they are done, or each has stopped with an error, which it tells.
func (j *job) work(ctx context.Context, s *engine.Store, found map[string]thread) {
	t := &team{s: s, cycle: j.Cycle, tell: tell, rare: j.Calm}
	var wg sync.WaitGroup
	for i := range j.Writers {
		wg.Go(func() {
			w := t.writer(j.Seed, i, found)
			for n := 0; j.Ops == 0 || n < j.Ops; n++ {
				if err := w.step(ctx); err != nil {
					tell(line{Stopped: err.Error()})
					return
				}
			}
		})
	}
	wg.Wait()
}

func verify(ctx context.Context, s *engine.Store, deep bool) (problems []string, err error) {
	rep, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{Deep: deep})
	if err != nil {
		return nil, fmt.Errorf("verifying: %w", err)
	}
	for _, p := range rep.Problems {
		problems = append(problems, fmt.Sprintf("%s/%s/%s: %v", p.User, p.Thread, p.Namespace, p.Err))
	}
	return problems, nil
}

// child is one that runs.
type child struct {
	*exec.Cmd
	in     io.Writer
	lines  *bufio.Reader
	stderr strings.Builder
}

// start starts this binary again with a job; wrap are words to put before its name.
func start(j job, wrap ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	words := append(wrap, self)
	c := &child{Cmd: exec.Command(words[0], words[1:]...)}
	c.Env = append(os.Environ(), childEnv+"="+string(text))
	c.Stderr = &c.stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, err = c.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewReader(out)
	return c, c.Start()
}

// next reads a line; it fails after the end of the child.
func (c *child) next() (l line, err error) {
	text, err := c.lines.ReadBytes('\n')
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(text, &l)
}

// kill ends the child at once and waits for it.
func (c *child) kill() {
	c.Process.Kill()
	c.Wait()
}

// complaint is the error of a child that nobody killed, "" for none.
func (c *child) complaint() string {
	err := c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == -1 && exit.String() == "signal: killed" {
		err = nil
	}
	text := strings.TrimSpace(c.stderr.String())
	if len(text) > 4000 {
		text = text[:4000]
	}
	if err != nil || text != "" {
		return fmt.Sprintf("%v %s", err, text)
	}
	return ""
}
