package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/bench/rival"
	"github.com/ckptd/ckptd/bench/workload"
)

// Worker holds one rival with one workload, in a process of its own, so that what it takes of the machine can be told
// from what others take. Its methods are called by the process that runs the bench, one at a time.
type Worker struct {
	mu      sync.Mutex // held by every method: the run closes a worker that is at work when it is interrupted
	args    OpenArgs
	rival   rival.Rival
	work    workload.Workload
	driver  rival.Driver
	ack     *acknowledger // of a pipeline, else nil
	players []*workload.Player
	steps   []*workload.Step // the last that each player made, nil before the first
	dry     Usage            // what it takes to make a step
	empty   int64            // bytes on disk before the first save
	kept    []kept
	extra   map[int]*workload.Player // threads of Populate that were saved again
	rng     *rand.Rand
	memory  memory
}

// kept is a copy of an earlier state.
type kept struct {
	thread, step int
	state        []byte
}

const mostKept = 8

// WorkerVariable is the environment variable that makes a program a worker: it then calls Work and ends.
const WorkerVariable = "CKPTD_BENCH_WORKER"

// Work serves a Worker until in ends.
func Work(in io.ReadCloser, out io.WriteCloser) error {
	w := &Worker{}
	server := rpc.NewServer()
	if err := server.Register(w); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(pipes{in, out}))
	w.mu.Lock() // what is still under way ends first
	defer w.mu.Unlock()
	return w.close()
}

// pipes is a connection of two pipes.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// OpenArgs say what a worker measures.
type OpenArgs struct {
	Rival    string
	Dir      string
	Durable  bool
	Workload string
	Input    Input
	Size     int
	Filled   bool
	Writers  int
	Threads  int
	Seed     uint64
	Cache    int64
	// Settles says that Settle will be called, and takes what an empty store needs on the disk beforehand.
	Settles bool
	// Small wants a process that stays small.
	Small bool
	// Pipeline lets ckptd's backend acknowledge every batch after the threads have begun, and keep nothing.
	Pipeline bool
}

// Input is a workload of real runs.
type Input struct{ Name, Path string }

func (i Input) lookup(name string) (workload.Workload, error) {
	if i.Path != "" && i.Name == name {
		return workload.Input(i.Name, i.Path)
	}
	return workload.Lookup(name)
}

// Opened is what a worker says when it has opened its rival.
type Opened struct{ Size int } // bytes of the workload's own states

// Open opens the rival on an empty folder, and makes the players.
func (w *Worker) Open(a OpenArgs, reply *Opened) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.args = a
	if w.rival, err = rival.Lookup(a.Rival); err != nil {
		return err
	}
	if w.work, err = a.Input.lookup(a.Workload); err != nil {
		return err
	}
	w.rng = rand.New(rand.NewPCG(a.Seed, 77))
	w.extra = map[int]*workload.Player{}
	w.dry = w.measureDry()
	if err := w.open(); err != nil {
		return err
	}
	for i := range a.Threads {
		w.players = append(w.players, w.player(i))
	}
	w.steps = make([]*workload.Step, a.Threads)
	reply.Size = w.work.Size
	if a.Settles {
		var empty Settled
		if err := w.settle(&empty); err != nil {
			return err
		}
		w.empty = empty.Disk
	}
	w.memory.reset()
	return nil
}

func (w *Worker) player(thread int) *workload.Player {
	return w.work.Player(workload.Options{Seed: w.args.Seed, Thread: thread, Threads: w.args.Threads, Size: w.args.Size, Filled: w.args.Filled})
}

func (w *Worker) open() (err error) {
	a := w.args
	o := rival.Options{Dir: a.Dir, Durable: a.Durable, Writers: a.Writers, Cache: a.Cache, Small: a.Small}
	if a.Pipeline {
		w.driver, err = rival.Pipeline(context.Background(), o, func(b backend.Backend) backend.Backend {
			w.ack = &acknowledger{Backend: b}
			return w.ack
		})
	} else {
		w.driver, err = w.rival.Open(context.Background(), o)
	}
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	return nil
}

func (w *Worker) close() error {
	if w.driver == nil {
		return nil
	}
	d := w.driver
	w.driver = nil
	return d.Close()
}

// measureDry makes steps that are not saved, to know what that costs.
func (w *Worker) measureDry() Usage {
	const (
		enough = 0.03 // seconds
		least  = 100
		most   = 2000 // an endless chat would fill the memory
	)
	p := w.player(0)
	p.Next()
	runtime.GC()
	m, began, n := meterOf(0), time.Now(), 0
	for ; n < least || n < most && since(began) < enough; n++ {
		p.Next()
	}
	u := m.taken()
	u.Written = 0
	return u.times(1 / float64(n))
}

// Begin saves the first step of every thread.
func (w *Worker) Begin(_ struct{}, reply *Turn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.turn(reply, func(writer int) *pace { return &pace{steps: w.mine(writer)} })
	if w.ack != nil {
		w.ack.begun.Store(true)
	}
	return err
}

// mine is how many threads a writer has.
func (w *Worker) mine(writer int) int {
	return (len(w.players) - writer + w.args.Writers - 1) / w.args.Writers
}

// Close ends the rival.
func (w *Worker) Close(struct{}, *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

// Settled is what is on the disk and what it took, once everything that is done in time was done.
type Settled struct {
	Disk    int64   // bytes, less those of the empty store
	Written float64 // bytes that settling wrote
}

// Settle lets the rival do what it would in time, and opens it again. Memory counts from then on.
func (w *Worker) Settle(_ struct{}, reply *Settled) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settle(reply)
}

func (w *Worker) settle(reply *Settled) error {
	m := meterOf(w.driver.Process())
	if err := w.driver.Settle(context.Background()); err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	reply.Written = m.taken().Written
	m = meterOf(0)
	if err := w.close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	reply.Written += m.taken().Written
	disk, err := diskBytes(w.args.Dir)
	if err != nil {
		return err
	}
	reply.Disk = max(0, disk-w.empty)
	debug.FreeOSMemory() // what the closed store had is not the next one's
	if err := w.open(); err != nil {
		return err
	}
	w.memory.reset()
	return nil
}

// Cool closes the rival, lets the system forget its files, and opens it again.
func (w *Worker) Cool(_ struct{}, _ *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	if err := dropCache(w.args.Dir); err != nil {
		return fmt.Errorf("emptying the page cache: %w", err)
	}
	runtime.GC() // or the garbage of the closed store is collected while the loads are measured
	return w.open()
}

// Memory returns what memory was taken since Open or Settle.
func (w *Worker) Memory(_ struct{}, reply *Memory) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	*reply = w.memory.taken(w.driver.Process())
	return nil
}

// acknowledger is a backend that keeps what threads begin with, and then acknowledges every batch and keeps none.
type acknowledger struct {
	backend.Backend
	begun atomic.Bool
}

func (a *acknowledger) Commit(ctx context.Context, batch backend.Batch) error {
	if a.begun.Load() {
		return nil
	}
	return a.Backend.Commit(ctx, batch)
}

// Main is what a program that can be a worker does first: if it was started as one, it works and ends.
func Main() {
	if os.Getenv(WorkerVariable) == "" {
		return
	}
	if err := Work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
