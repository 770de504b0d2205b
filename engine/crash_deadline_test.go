package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/ckptd/ckptd/engine/upkeep"
)

const (
	hotWriters = 6
	hotHurried = 2 // of them have large states and little time
	hotState   = 150 << 10
	hotTime    = 6 * time.Millisecond
	hotKills   = 4 // of a store, before the next begins with an empty thread
)

// saveHotUntilKilled saves to one thread from all writers, some of which give up all the time, and
// reports each acknowledged checkpoint on a line of standard output.
func saveHotUntilKilled(dir, cycle string) error {
	s, err := disk(dir).open(nil)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for w := range hotWriters {
		go func() {
			r := rand.New(rand.NewPCG(uint64(w), sha256Seed(cycle)))
			for n := 0; ; n++ {
				if err := saveHot(s, r, w < hotHurried, fmt.Sprintf("%s-%d-%d", cycle, w, n)); err != nil {
					failed <- fmt.Errorf("writer %d: %w", w, err)
				}
			}
		}()
	}
	return <-failed
}

// saveHot saves a state of its own. A writer in a hurry may run out of time, and no writer may fail
// otherwise.
func saveHot(s *Store, r *rand.Rand, hurried bool, name string) error {
	ctx, cancel := context.Background(), func() {}
	state := map[string][]byte{"messages": []byte(name)}
	if hurried {
		state["messages"] = append([]byte(name), noise(r, hotState)...)
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(hotTime))))
	}
	defer cancel()
	cp, err := s.Thread(crashRef(0)).Save(ctx, Draft{Channels: changesOf(state)})
	if hurried && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Printf("0 %s %x\n", cp.ID, stateSum(state)) // one write to the pipe
	return err
}

// anotherRound reports whether to continue: for three rounds, or for the time in CKPTD_CRASH_TIME,
// in campaigns.
func anotherRound(t *testing.T) func() bool {
	v := os.Getenv("CKPTD_CRASH_TIME")
	if v == "" {
		rounds := 3
		if testing.Short() {
			rounds = 1
		}
		return func() bool { rounds--; return rounds >= 0 }
	}
	limit, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("CKPTD_CRASH_TIME: %v", err)
	}
	until := time.Now().Add(limit)
	return func() bool { return time.Now().Before(until) }
}

// TestCrashUnderDeadlines kills a process whose writers share a thread, and of whom some run out of
// time at any point of a save. After each kill every checkpoint that was acknowledged is there,
// byte for byte, and the store is sound.
func TestCrashUnderDeadlines(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	total, kills := 0, 0
	for more := anotherRound(t); more(); {
		dir := disk(t.TempDir())
		var acked []ack
		for range hotKills {
			acked = append(acked, crash(t, "save hot", dir, kills, time.Duration(r.IntN(400_000))*time.Microsecond)...)
			kills++
			s, err := dir.open(nil)
			if err != nil {
				t.Fatalf("kill %d: opening again: %v", kills, err)
			}
			problems := lost(s, acked)
			for _, p := range problems[:min(len(problems), 5)] {
				t.Errorf("kill %d: %s", kills, p)
			}
			mustBeClean(t, s, upkeep.VerifyOptions{Deep: true})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				t.Fatalf("kill %d: %d of %d acknowledged checkpoints are lost or changed", kills, len(problems), len(acked))
			}
		}
		total += len(acked)
		if err := os.RemoveAll(string(dir)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d checkpoints acknowledged", kills, total)
}
