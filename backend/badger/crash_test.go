package badger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

const crashWriters = 64

// writeUntilKilled commits from many goroutines and reports each acknowledged batch on a line of
// standard output. A batch is a pair of keys. Arguments: the directory, a number that is new in
// each cycle, and whether to compact meanwhile.
func writeUntilKilled(args []string) error {
	s, err := badger.Open(args[0], small)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for w := range crashWriters {
		wg.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("%s-%02d-%06d", args[1], w, n)
				left, right := crashPair(name)
				err := s.Commit(context.Background(), backend.Batch{
					Muts:  []backend.Mut{left, right},
					Conds: []backend.Cond{{Key: left.Key}},
				})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(name) // one write to the pipe
			}
		})
	}
	for args[2] == "true" {
		if err := s.Compact(context.Background()); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
	return nil
}

// crashPair is the batch of a name. Its values fill the memory table in a cycle or two, so that
// kills hit flushes too.
func crashPair(name string) (left, right backend.Mut) {
	value := strings.Repeat(name, 30)
	return put("left-"+name, value), put("right-"+name, value)
}

// TestCrash kills a writing process again and again, and some that open the store after it, and
// must find every batch that was acknowledged, each whole. CKPTD_CRASH_CYCLES sets how often, for
// campaigns.
func TestCrash(t *testing.T) {
	cycles := 20
	if v := os.Getenv("CKPTD_CRASH_CYCLES"); v != "" {
		var err error
		if cycles, err = strconv.Atoi(v); err != nil {
			t.Fatalf("CKPTD_CRASH_CYCLES: %v", err)
		}
	}
	if testing.Short() {
		cycles = 3
	}
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(5, 6))
	acked := map[string]bool{}
	unacked := 0
	for cycle := range cycles {
		before := len(acked)
		after := time.Duration(20+rnd.IntN(200)) * time.Millisecond
		crash(t, child(t, "crash", dir, fmt.Sprintf("%05d", cycle), fmt.Sprint(cycle%4 == 3)), after, acked)
		if len(acked) == before {
			t.Fatalf("cycle %d: nothing was acknowledged", cycle)
		}
		for range rnd.IntN(3) {
			interruptOpening(t, dir, time.Duration(10+rnd.IntN(90))*time.Millisecond)
		}
		unacked += checkCrashed(t, dir, acked)
	}
	t.Logf("%d cycles, %d batches acknowledged, %d more were there", cycles, len(acked), unacked)
}

// crash runs a writer, kills it some time after its first acknowledgement, and adds the
// acknowledged batches.
func crash(t *testing.T, cmd *exec.Cmd, after time.Duration, acked map[string]bool) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var kill *time.Timer
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break // a line cut off by the kill was not acknowledged to anyone
		}
		acked[strings.TrimSpace(line)] = true
		if kill == nil {
			kill = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("the writer failed: %s", stderr.String())
	}
}

// interruptOpening kills a process that opens the store, some time after it was started.
func interruptOpening(t *testing.T, dir string, after time.Duration) {
	t.Helper()
	var output strings.Builder
	cmd := child(t, "open", dir)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
	cmd.Wait()
	timer.Stop()
	if output.Len() > 0 {
		t.Fatalf("opening failed: %s", output.String())
	}
}

// checkCrashed opens the store and looks for lost and half batches. It returns how many are there
// that were never acknowledged, and expects them from then on: a batch that was seen once must
// stay.
func checkCrashed(t *testing.T, dir string, acked map[string]bool) (unacked int) {
	t.Helper()
	s, err := badger.Open(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sides := map[string]int{}
	for r := (backend.Range{Limit: 10_000}); ; {
		page, next, err := s.Scan(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			side, name, _ := strings.Cut(string(e.Key), "-")
			left, _ := crashPair(name)
			if string(e.Value) != string(left.Value) {
				t.Errorf("%q has a wrong value", e.Key)
			}
			sides[name] |= map[string]int{"left": 1, "right": 2}[side]
		}
		if r.Start = next; next == nil {
			break
		}
	}
	for name := range acked {
		if sides[name] != 3 {
			t.Errorf("batch %s was acknowledged and is lost", name)
		}
	}
	for name, have := range sides {
		if have != 3 {
			t.Errorf("half of batch %s is there", name)
		}
		if !acked[name] {
			unacked++
			acked[name] = true
		}
	}
	return unacked
}
