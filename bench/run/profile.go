package run

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// ProfileArgs are the arguments of Profile.
type ProfileArgs struct {
	Rival, Workload string
	Input           Input
	Size, Writers   int
	Seconds         float64
	Loads           bool // profile sequential loads of the newest states instead of saves
	Seed            uint64
	Cache           int64
	Dir             string
}

// Profiled is the result of profiling.
type Profiled struct {
	Operations  int
	Seconds     float64
	CPU, Allocs float64 // per operation
	Profiles    []ProfileData
}

// ProfileData is a profile in pprof format.
type ProfileData struct {
	Name string // cpu, allocs, block, mutex
	Data []byte
}

// Profile profiles a rival in this process, which must be otherwise idle. It does not see the work
// of a server.
func Profile(a ProfileArgs) (found *Profiled, err error) {
	dir, err := os.MkdirTemp(a.Dir, "ckptd-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the store: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	w := &Worker{}
	if err := w.Open(OpenArgs{Rival: a.Rival, Dir: dir, Durable: true, Workload: a.Workload, Input: a.Input, Size: a.Size, Filled: true,
		Writers: a.Writers, Threads: max(a.Writers, 16), Seed: a.Seed, Cache: a.Cache}, &Opened{}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.Begin(struct{}{}, &Turn{}); err != nil {
		return nil, err
	}
	if err := w.Turn(TurnArgs{Seconds: a.Seconds / 10}, &Turn{}); err != nil { // warm
		return nil, err
	}
	return w.profile(a)
}

// profile records the requested profiles. It sets the profiling rates only for a moment, because
// they apply to the entire process.
func (w *Worker) profile(a ProfileArgs) (*Profiled, error) {
	runtime.SetBlockProfileRate(10_000) // ns
	runtime.SetMutexProfileFraction(10)
	defer runtime.SetBlockProfileRate(0)
	defer runtime.SetMutexProfileFraction(0)
	found := &Profiled{}
	var cpu bytes.Buffer
	if err := pprof.StartCPUProfile(&cpu); err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	err := w.operate(a, found)
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	found.Profiles = []ProfileData{{"cpu", cpu.Bytes()}}
	runtime.GC() // allocation profiles are up to date only after a collection
	for _, name := range []string{"allocs", "block", "mutex"} {
		var data bytes.Buffer
		if err := pprof.Lookup(name).WriteTo(&data, 0); err != nil {
			return nil, fmt.Errorf("writing the profile %s: %w", name, err)
		}
		found.Profiles = append(found.Profiles, ProfileData{name, data.Bytes()})
	}
	return found, nil
}

// operate saves, or loads, for the given seconds.
func (w *Worker) operate(a ProfileArgs, found *Profiled) error {
	if !a.Loads {
		var t Turn
		if err := w.Turn(TurnArgs{Seconds: a.Seconds}, &t); err != nil {
			return err
		}
		n := float64(max(t.Saves, 1))
		*found = Profiled{Operations: t.Saves, Seconds: t.Seconds, CPU: t.Usage.CPU / n, Allocs: t.Usage.Allocs / n}
		return nil
	}
	var sum Profiled
	m := meterOf(w.driver.Process())
	for began := time.Now(); sum.Seconds < a.Seconds; sum.Seconds = since(began) {
		var l Loaded
		if err := w.Load(LoadArgs{Loads: len(w.players)}, &l); err != nil {
			return err
		}
		sum.Operations += l.Loads
	}
	u, n := m.taken(), float64(max(sum.Operations, 1))
	sum.CPU, sum.Allocs = u.CPU/n, u.Allocs/n
	*found = sum
	return nil
}
