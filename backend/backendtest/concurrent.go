package backendtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ckptd/ckptd/backend"
)

// testCounter increments one key from many goroutines, each increment conditioned on the version
// that it read.
func testCounter(s *store) {
	const workers, each = 16, 25
	s.commit(muts(put("counter", "0", "0")))
	var conflicts atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done := 0; done < each; {
				e, err := s.Get(s.Context(), []byte("counter"))
				if err != nil {
					s.Error(err)
					return
				}
				n, err := strconv.Atoi(string(e[0].Value))
				if err != nil {
					s.Error(err)
					return
				}
				next := strconv.Itoa(n + 1)
				err = s.Commit(s.Context(), backend.Batch{
					Conds: []backend.Cond{match("counter", e[0].Version)},
					Muts:  []backend.Mut{put("counter", next, next), put("seen-"+next, next, next)},
				})
				switch {
				case err == nil:
					done++
				case errors.Is(err, backend.ErrConflict):
					conflicts.Add(1)
				default:
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	total := strconv.Itoa(workers * each)
	s.holds("counter", total, total)
	if got := len(s.all(backend.Range{Start: []byte("seen-"), KeysOnly: true})); got != workers*each {
		s.Errorf("%d increments left %d records", workers*each, got)
	}
	s.Logf("%d conflicts", conflicts.Load())
}

// testOneCreatorWins lets many create the same keys at once under an absent condition.
func testOneCreatorWins(s *store) {
	const workers, keys = 16, 20
	var won [keys]atomic.Int64
	var winner [keys]atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for k := range keys {
				key := fmt.Sprint("key-", k)
				err := s.Commit(s.Context(), backend.Batch{
					Conds: []backend.Cond{absent(key)},
					Muts:  []backend.Mut{put(key, strconv.Itoa(w), "v")},
				})
				if err == nil {
					won[k].Add(1)
					winner[k].Store(int64(w))
				} else if !errors.Is(err, backend.ErrConflict) {
					s.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		if n := won[k].Load(); n != 1 {
			s.Errorf("key %d was created %d times", k, n)
		}
		s.holds(fmt.Sprint("key-", k), strconv.FormatInt(winner[k].Load(), 10), "v")
	}
}

// testSnapshots reads, while pairs of keys are written, and must never see half of a batch.
func testSnapshots(s *store) {
	const pairs = 300
	s.commit(muts(put("left", "0", "v"), put("right", "0", "v")))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := s.Get(s.Context(), []byte("left"), []byte("right"))
				if err != nil || string(got[0].Value) != string(got[1].Value) {
					s.Errorf("get saw half a batch: %+v, %v", got, err)
					return
				}
				page, _, err := s.Scan(s.Context(), backend.Range{})
				if err != nil || len(page) != 2 || string(page[0].Value) != string(page[1].Value) {
					s.Errorf("scan saw half a batch: %+v, %v", page, err)
					return
				}
			}
		})
	}
	for i := range pairs {
		n := strconv.Itoa(i)
		s.commit(muts(put("left", n, "v"), put("right", n, "v")))
		s.holds("right", n, "v") // what was acknowledged is what is read
	}
	close(done)
	wg.Wait()
}

// testCompact runs compactions between commits and reads, for drivers that have them.
func testCompact(s *store) {
	c, ok := s.Backend.(backend.Compactor)
	if !ok {
		s.Skip("the driver is not a Compactor")
	}
	const writers, each = 4, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%d-%d", w, i%10)
				if err := s.Commit(s.Context(), muts(put(key, strings.Repeat("x", i), strconv.Itoa(i+1)))); err != nil {
					s.Errorf("commit during a compaction: %v", err)
				}
				got, err := s.Get(s.Context(), []byte(key))
				if err != nil || got[0].Version != strconv.Itoa(i+1) {
					s.Errorf("get during a compaction: %+v, %v", got, err)
				}
				if _, _, err := s.Scan(s.Context(), backend.Range{}); err != nil {
					s.Errorf("scan during a compaction: %v", err)
				}
			}
		})
	}
	for range 3 {
		if err := c.Compact(s.Context()); err != nil {
			s.Fatalf("compact: %v", err)
		}
	}
	wg.Wait()
	if err := c.Compact(s.Context()); err != nil {
		s.Fatalf("compact: %v", err)
	}
	entries := s.all(backend.Range{})
	if len(entries) != writers*10 {
		s.Errorf("after compactions the store holds %d keys, want %d", len(entries), writers*10)
	}
	for _, e := range entries {
		if want := strconv.Itoa(len(e.Value) + 1); e.Version != want || len(e.Value) < each-10 {
			s.Errorf("%q holds %d bytes at version %s", e.Key, len(e.Value), e.Version)
		}
	}
}

// testCloseWaits closes in the middle of commits and reads: each gets its outcome or ErrClosed.
func testCloseWaits(s *store) {
	acked := s.closeWhileWriting()
	if acked == 0 {
		s.Error("no commit was acknowledged before Close")
	}
}

// closeWhileWriting commits key "w-i" for rising i from each writer w, closes the store in the
// middle, and returns how many of all were acknowledged.
func (s *store) closeWhileWriting() int64 {
	var acked atomic.Int64
	started := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				err := s.Commit(s.Context(), muts(put(fmt.Sprintf("%d-%06d", w, i), "x", "v")))
				if err == nil {
					if acked.Add(1) == 100 {
						once.Do(func() { close(started) })
					}
					_, err = s.Get(s.Context(), []byte("0-000000"))
				}
				if errors.Is(err, backend.ErrClosed) {
					return
				}
				if err != nil {
					s.Errorf("while closing: %v", err)
					once.Do(func() { close(started) })
					return
				}
			}
		})
	}
	<-started
	if err := s.Close(); err != nil {
		s.Errorf("closing: %v", err)
	}
	wg.Wait()
	return acked.Load()
}
