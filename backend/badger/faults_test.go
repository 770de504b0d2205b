package badger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/backend/commitlog/faultfs"
)

// openOn opens a store in dir whose log is in files.
func openOn(t *testing.T, dir string, files *faultfs.FS) *Store {
	t.Helper()
	s, err := Open(dir, Options{MemTableSize: leastMemTable, LogFiles: func(commitlog.FS) commitlog.FS { return files }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// image is the directory that a crash leaves of a store, with this log.
func image(t *testing.T, dir string, files *faultfs.FS) string {
	t.Helper()
	left := killed(t, dir)
	if err := files.Save(filepath.Join(left, logDir)); err != nil {
		t.Fatal(err)
	}
	return left
}

// After a write or a sync of the log that failed nothing is acknowledged or read, and closing the
// store leaves the directory as it is. Earlier acknowledged commits are there when it is opened
// again. Other failures stop nothing.
func TestLogFails(t *testing.T) {
	value := strings.Repeat("value", 40_000) // five fill a segment
	for _, op := range []string{"write", "sync", "create", "preallocate", "sync names"} {
		for _, nth := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s %d", op, nth), func(t *testing.T) {
				files := faultfs.New()
				s := openOn(t, t.TempDir(), files)
				want := oracle{}
				want.commit(t, s, "before", value)
				hit := failOnce(files, op, nth)
				fatal := op == "write" || op == "sync"
				refused := ""
				for i := 0; i < 40 && (refused == "" || !fatal); i++ {
					key := fmt.Sprint("key-", i)
					err := s.Commit(t.Context(), single(key, value))
					if err == nil {
						if fatal && hit.Load() {
							t.Fatalf("%s was acknowledged although the %s failed", key, op)
						}
						want[key] = value
						continue
					}
					refused = key
					if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrAmbiguous) && !fatal {
						t.Fatalf("%s: %v", key, err)
					}
				}
				if fatal {
					checkStopped(t, s, refused)
				}
				dir := image(t, s.dir, files.Killed())
				if err := s.Close(); (err != nil) != fatal {
					t.Errorf("closing: %v", err)
				}
				if !fatal {
					dir = image(t, s.dir, files.Killed())
				}
				want.reopen(t, dir, refused)
			})
		}
	}
}

// failOnce has the n-th operation of a kind fail, and tells when that was on a segment. (The
// anchor's are no commit's.)
func failOnce(files *faultfs.FS, op string, nth int) (hit *atomic.Bool) {
	hit = &atomic.Bool{}
	files.FailWith(func(o, name string) error {
		if o != op {
			return nil
		}
		if nth--; nth != -1 {
			return nil
		}
		hit.Store(strings.HasSuffix(name, ".seg"))
		return syscall.EIO
	})
	return hit
}

func checkStopped(t *testing.T, s *Store, refused string) {
	t.Helper()
	if refused == "" {
		t.Fatal("nothing failed")
	}
	if err := s.Commit(t.Context(), single("later", "value")); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrAmbiguous) {
		t.Errorf("a commit after it: %v", err)
	}
	if _, err := s.Get(t.Context(), []byte("before")); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a get after it: %v", err)
	}
	before := contents(t, s.dir)
	if err := s.Close(); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("closing: %v", err)
	}
	for path, text := range contents(t, s.dir) {
		if filepath.Ext(path) == ".sst" && before[path] != text {
			t.Errorf("closing wrote %s", filepath.Base(path))
		}
	}
	s.closed = false // for the caller to close it again
}

// A full device refuses the group that needs a new segment, and the store goes on when there is
// room.
func TestSegmentWithoutRoom(t *testing.T) {
	files := faultfs.New()
	s := openOn(t, t.TempDir(), files)
	full := true
	files.FailWith(func(op, _ string) error {
		if full && op == "preallocate" {
			return syscall.ENOSPC
		}
		return nil
	})
	value := strings.Repeat("value", 40_000)
	want := oracle{}
	refused := 0
	for i := range 40 {
		key := fmt.Sprint("key-", i)
		err := s.Commit(t.Context(), single(key, value))
		switch {
		case err == nil:
			want[key] = value
		case !errors.Is(err, backend.ErrNoSpace) || errors.Is(err, backend.ErrAmbiguous):
			t.Fatalf("%s: %v", key, err)
		default:
			refused++
			if _, err := s.Get(t.Context(), []byte(key)); err != nil {
				t.Fatalf("reading meanwhile: %v", err)
			}
			if refused > 5 {
				files.FailWith(nil)
			}
		}
	}
	if refused != 6 {
		t.Errorf("%d commits were refused, the test means 6", refused)
	}
	if diff := want.differs(s); diff != "" {
		t.Error(diff)
	}
}

// Power is lost again and again, with a group on its way. Of the log's pages that were not synced
// any subset stays, and of Badger's memory file, which nobody syncs, all, nothing, or any subset.
// Nothing that was acknowledged is lost.
func TestPowerLoss(t *testing.T) {
	runs := 6
	if testing.Short() {
		runs = 3
	}
	for seed := range uint64(runs) {
		rnd := rand.New(rand.NewPCG(seed, 21))
		dir, files, want := t.TempDir(), faultfs.New(), oracle{}
		for range 3 {
			s := openOn(t, dir, files)
			if diff := want.differs(s); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
			commitAll(t, s, rnd, want, seed%3 == 0)
			unacked := fmt.Sprint("unacked-", rnd.IntN(1000))
			writeUnsynced(t, s, unacked, "value")
			dir = image(t, s.dir, files)
			files = files.PowerLoss(rnd)
			if err := files.Save(filepath.Join(dir, logDir)); err != nil {
				t.Fatal(err)
			}
			loseMemory(t, dir, rnd)
			again := openOn(t, dir, files) // which may have the group that was on its way
			if got, err := again.Get(t.Context(), []byte(unacked)); err == nil && got[0].Version != "" {
				want[unacked] = "value"
			}
			want.commit(t, again, "counter", fmt.Sprint(rnd.IntN(1000)))
			if diff := want.differs(again); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
			dir = image(t, again.dir, files.Killed())
			files = files.PowerLoss(rnd) // and once more right after
			loseMemory(t, dir, rnd)
		}
	}
}

// commitAll commits some values from several goroutines, with so much of them that a table is
// flushed, or not.
func commitAll(t *testing.T, s *Store, rnd *rand.Rand, want oracle, much bool) {
	t.Helper()
	size, count := 1+rnd.IntN(5_000), 1+rnd.IntN(60)
	if much {
		size, count = 60_000, 220
	}
	tag := rnd.IntN(1_000_000)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < count; i += 4 {
				key := fmt.Sprintf("key-%d-%d", tag, i)
				if err := s.Commit(t.Context(), single(key, strings.Repeat(key, size/len(key)+1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range count {
		key := fmt.Sprintf("key-%d-%d", tag, i)
		want[key] = strings.Repeat(key, size/len(key)+1)
	}
	for range 3 {
		want.commit(t, s, "counter", fmt.Sprint(rnd.IntN(1000)))
	}
	awaitFlush(t, s)
}

// awaitFlush waits until Badger writes nothing in the background.
func awaitFlush(t *testing.T, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		n, err := s.flushes.waiting()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d memory files, %v", n, err)
		}
		if n == 1 {
			return
		}
	}
}

// loseMemory damages memory files as a power loss does.
func loseMemory(t *testing.T, dir string, rnd *rand.Rand) {
	t.Helper()
	paths, err := filesIn(dir, memorySuffix)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		switch rnd.IntN(4) {
		case 0:
			clear(b)
		case 1:
			clear(b[rnd.IntN(len(b)+1):])
		case 2:
			for at := 0; at < len(b); at += 4096 {
				if rnd.IntN(3) == 0 {
					clear(b[at:min(at+4096, len(b))])
				}
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Segments are used again once Badger has flushed what they hold: the log is about as large as
// memory, and does not grow for ever.
func TestLogStaysSmall(t *testing.T) {
	s := openSmall(t)
	value := strings.Repeat("value", 40_000)
	most, numbers := int64(0), map[string]bool{}
	for i := range 300 {
		write(t, s, fmt.Sprint("key-", i%50), value)
		most = max(most, s.logs.Bytes())
		numbers[s.logs.Segment()] = true
		if i%10 == 9 && len(numbers) > 20 { // by then there is something to use again
			awaitFlush(t, s)
		}
	}
	if most > 4*leastMemTable || len(numbers) < 50 {
		t.Errorf("the log took %d MiB for %d MiB in %d segments", most>>20, 300*len(value)>>20, len(numbers))
	}
}

// Badger cannot flush, tries for ever, and only logs it. The store stops before Badger lets a
// commit wait for ever, and nothing is lost.
func TestBadgerCannotFlush(t *testing.T) {
	s := openSmall(t)
	takeNames(t, s.dir)
	want := oracle{}
	value := strings.Repeat("value", 100_000)
	for i := 0; ; i++ {
		key := fmt.Sprint("key-", i)
		err := s.Commit(t.Context(), single(key, value))
		if errors.Is(err, backend.ErrUnavailable) {
			break
		}
		if err != nil || i > 200 {
			t.Fatalf("commit %d: %v", i, err)
		}
		want[key] = value
		if i > 10 {
			time.Sleep(20 * time.Millisecond) // for the flush to fail
		}
	}
	if s.logs.Bytes() < int64(len(want)*len(value)) {
		t.Errorf("the log has %d bytes of %d that are in no table", s.logs.Bytes(), len(want)*len(value))
	}
	dir := killed(t, s.dir)
	giveNames(t, dir)
	giveNames(t, s.dir)
	want.reopen(t, dir)
}
