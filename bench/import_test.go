package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"strings"
	"sync"

	"testing"
	"time"

	"github.com/ckptd/ckptd/engine"
)

// run is one agent run of the data set: its messages as written in the file, compacted.
type run struct {
	name     string
	messages [][]byte
	reward   float64
}

// runsFile returns the path of the 200 real runs. It skips the benchmark if they are absent.
func runsFile(b *testing.B) string {
	b.Helper()
	path := os.Getenv("CKPTD_BENCH_RUNS")
	if path == "" {
		path = filepath.Join("..", "..", "shared", "data", "tau-bench", "gpt-4o-airline.json")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		b.Skipf("no agent runs at %s; set CKPTD_BENCH_RUNS", path)
	}
	path, err := filepath.Abs(path)
	check(b, err)
	return path
}

func readRuns(b *testing.B) (runs []run, checkpoints int) {
	b.Helper()
	text, err := os.ReadFile(runsFile(b))
	check(b, err)
	var list []struct {
		Reward float64           `json:"reward"`
		Traj   []json.RawMessage `json:"traj"`
	}
	check(b, json.Unmarshal(text, &list))
	for i, item := range list {
		r := run{name: fmt.Sprintf("run-%d", i), reward: item.Reward}
		for _, raw := range item.Traj {
			r.messages = append(r.messages, raw)
		}
		runs = append(runs, r)
		checkpoints += len(r.messages)
	}
	return runs, checkpoints
}

// BenchmarkImport200 saves 200 real agent runs, with a checkpoint for each of their 5,308 messages,
// every save durable.
//
// via=engine: 16 writers, each with its own run, pass whole states to the embedded engine and, in
// turns, to the SQLite saver. The time is that of the saves. via=ckptd: the command imports them,
// as users would; the time is its total, from start to exit, and memory is the peak resident size
// of the process. Disk space is that of allocated blocks after close, including key file and
// keystore.
func BenchmarkImport200(b *testing.B) {
	b.Run("via=engine", func(b *testing.B) {
		runs, checkpoints := readRuns(b)
		var ckptd, sqlite []float64
		var bytes, sqliteBytes int64
		for b.Loop() {
			dir := benchDir(b)
			st := newStore(b, dir, 64<<20)
			took := timed(b, func() error { return importRuns(st, runs) })
			ckptd = append(ckptd, float64(checkpoints)/took.Seconds())
			check(b, st.Close())
			bytes = allocated(b, dir)

			dir = benchDir(b)
			saver := openSQLiteSaver(b, dir, "")
			took = timed(b, func() error { return saver.importRuns(runs) })
			sqlite = append(sqlite, float64(checkpoints)/took.Seconds())
			check(b, saver.close())
			sqliteBytes = allocated(b, dir)
		}
		report(b, map[string]float64{
			"saves/s":        p50(ckptd),
			"disk-MB":        float64(bytes) / 1e6,
			"sqlite-saves/s": p50(sqlite),
			"sqlite-disk-MB": float64(sqliteBytes) / 1e6,
		})
	})
	b.Run("via=ckptd", func(b *testing.B) {
		file := runsFile(b)
		_, checkpoints := readRuns(b)
		bin := buildCommand(b)
		var rates, rss []float64
		var onDisk int64
		for b.Loop() {
			dir := benchDir(b)
			cmd := exec.Command(bin, "import", "--data", filepath.Join(dir, "data"), "--cache", "64MiB", file)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			start := time.Now()
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			peak := watchRSS(cmd.Process.Pid)
			if err := cmd.Wait(); err != nil {
				b.Fatalf("%s: %v\n%s", cmd, err, &out)
			}
			rates = append(rates, float64(checkpoints)/time.Since(start).Seconds())
			rss = append(rss, peak()/1e6)
			onDisk = allocated(b, dir)
		}
		report(b, map[string]float64{
			"saves/s":      p50(rates),
			"rss-MB":       p50(rss),
			"disk-MB":      float64(onDisk) / 1e6,
			"B/checkpoint": float64(onDisk) / float64(checkpoints),
		})
	})
}

// importRuns saves all runs, 16 at once.
func importRuns(st *engine.Store, runs []run) error {
	queue := make(chan run, len(runs))
	for _, r := range runs {
		queue <- r
	}
	close(queue)
	const writers = 16
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range queue {
				if err := importRun(st, r); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func importRun(st *engine.Store, r run) error {
	thread := st.Thread(engine.Ref{Tenant: "bench", User: "user", Thread: r.name})
	var state []byte
	for i, message := range r.messages {
		state = grow(state, message)
		_, err := thread.Save(context.Background(), engine.Draft{
			Step: int64(i), Status: r.status(i),
			Channels: []engine.Change{{Name: channel, Type: "json", Data: state}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r run) status(i int) string {
	switch {
	case i < len(r.messages)-1:
		return engine.StatusRunning
	case r.reward > 0:
		return engine.StatusSucceeded
	}
	return engine.StatusFailed
}

// importRuns saves all runs in sequence: SQLite has one writer at a time.
func (s *sqliteSaver) importRuns(runs []run) error {
	for _, r := range runs {
		s.thread, s.last = r.name, ""
		var state []byte
		for _, message := range r.messages {
			state = grow(state, message)
			if err := s.save(state); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildCommand builds cmd/ckptd like make does.
func buildCommand(b *testing.B) string {
	b.Helper()
	bin := filepath.Join(benchDir(b), "ckptd")
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin, "./cmd/ckptd")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("building ckptd: %v\n%s", err, out)
	}
	return bin
}

// watchRSS tracks the peak memory of a process in bytes until the returned function is called. The
// system's figure for an ended process is useless, because it includes the program that started it.
func watchRSS(pid int) (peak func() float64) {
	var most float64
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
				if _, after, ok := strings.Cut(string(text), "VmHWM:"); ok {
					var kib float64
					fmt.Sscan(after, &kib)
					most = max(most, kib*1024)
				}
			}
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return func() float64 {
		close(ended)
		<-watched
		return most
	}
}
