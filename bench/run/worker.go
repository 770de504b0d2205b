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

// Worker runs one rival with one workload in its own process, so that its resource usage can be
// separated from that of others. The process that runs the bench calls its methods, one at a time.
type Worker struct {
	mu      sync.Mutex // held by every method, because an interrupted run closes a busy worker
	args    OpenArgs
	rival   rival.Rival
	work    workload.Workload
	driver  rival.Driver
	ack     *acknowledger // for a pipeline, otherwise nil
	players []*workload.Player
	steps   []*workload.Step // the latest of each player, nil before the first
	dry     Usage            // cost of making a step
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

// WorkerVariable is the environment variable that turns a program into a worker: it calls Work and
// exits.
const WorkerVariable = "CKPTD_BENCH_WORKER"

// Work serves a Worker until in ends.
func Work(in io.ReadCloser, out io.WriteCloser) error {
	w := &Worker{}
	server := rpc.NewServer()
	if err := server.Register(w); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(pipes{in, out}))
	w.mu.Lock() // let current work end first
	defer w.mu.Unlock()
	return w.close()
}

// pipes is a connection over two pipes.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// OpenArgs are the arguments of Open.
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
	// Settles announces a later call of Settle, so Open measures the disk usage of the empty store.
	Settles bool
	// Small asks for a small process.
	Small bool
	// Pipeline makes ckptd's backend acknowledge every batch without storing it, once the threads
	// have begun.
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

// Opened is the reply of Open.
type Opened struct{ Size int } // bytes of the workload's own states

// Open opens the rival in an empty folder and creates the players.
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

// measureDry makes steps without saving them, to measure the cost of that.
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

// mine returns the number of threads of a writer.
func (w *Worker) mine(writer int) int {
	return (len(w.players) - writer + w.args.Writers - 1) / w.args.Writers
}

// Close closes the rival.
func (w *Worker) Close(struct{}, *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

// Settled is the disk usage, and the cost of settling, after all deferred work was done.
type Settled struct {
	Disk    int64   // bytes, minus those of the empty store
	Written float64 // bytes that settling wrote
}

// Settle makes the rival do its deferred work and opens it again. Memory counts from then on.
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
	debug.FreeOSMemory() // memory of the closed store does not count for the next
	if err := w.open(); err != nil {
		return err
	}
	w.memory.reset()
	return nil
}

// Cool closes the rival, evicts its files from the page cache, and opens it again.
func (w *Worker) Cool(_ struct{}, _ *struct{}) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	if err := dropCache(w.args.Dir); err != nil {
		return fmt.Errorf("emptying the page cache: %w", err)
	}
	runtime.GC() // so that the garbage of the closed store isn't collected while loads are measured
	return w.open()
}

// Memory returns the memory usage since Open or Settle.
func (w *Worker) Memory(_ struct{}, reply *Memory) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	*reply = w.memory.taken(w.driver.Process())
	return nil
}

// acknowledger is a backend that stores the first steps of threads, and from then on acknowledges
// every batch without storing it.
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

// Main must be called first by a program that can be a worker. If it was started as one, Main does
// the work and exits.
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
