//go:build linux

package badger_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/badger"
)

// tmpfs mounts a small file system in memory.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("ckptd-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small file system is not permitted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting: %v", err)
		}
	})
	return dir
}

// eat fills the device until so many bytes are free.
func eat(t *testing.T, device, name string, leave int64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(device, &st); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(device, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if size := int64(st.Bavail)*st.Bsize - leave; size > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
}

var tight = badger.Options{MemTableSize: 8 << 20, MinFree: 4 << 20}

// TestDiskFull fills a device through the store. It must be told ErrNoSpace, never be killed by a
// fault in a memory map, keep what it has, and go on when there is room.
func TestDiskFull(t *testing.T) {
	device := tmpfs(t, "128m")
	dir := filepath.Join(device, "store")
	s, err := badger.Open(dir, tight)
	if err != nil {
		t.Fatal(err)
	}
	eat(t, device, "other", 90<<20)
	for round := range 3 {
		total := fillDevice(t, s, round)
		if total == 0 && round == 0 {
			t.Fatal("not one commit was accepted")
		}
		// Nor does a device that others fill up entirely kill it once it is idle: it just stays
		// closed to writes.
		settle(t, dir)
		eat(t, device, "rest", 0)
		for range 100 {
			err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{put("late", "value")}})
			if !errors.Is(err, backend.ErrNoSpace) || !errors.Is(err, backend.ErrUnavailable) {
				t.Fatalf("a commit on a full device: %v", err)
			}
		}
		if err := s.Compact(t.Context()); !errors.Is(err, backend.ErrNoSpace) {
			t.Fatalf("compacting on a full device: %v", err)
		}
		checkFilled(t, s, round, total)
		if err := os.Remove(filepath.Join(device, "rest")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil { // and a restart changes nothing
			t.Fatal(err)
		}
		if s, err = badger.Open(dir, tight); err != nil {
			t.Fatal(err)
		}
		checkFilled(t, s, round, total)
	}
	if err := os.Remove(filepath.Join(device, "other")); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{put("late", "value")}}); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// fillDevice writes 4 kB values from some goroutines until each is refused for lack of space.
func fillDevice(t *testing.T, s *badger.Store, round int) (accepted int) {
	t.Helper()
	var wg sync.WaitGroup
	counts := make([]int, 8)
	for w := range counts {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), uint64(round)))
			for {
				err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{
					put(fmt.Sprintf("%d-%d-%06d", round, w, counts[w]), noise(rnd, 4096)),
				}})
				if errors.Is(err, backend.ErrNoSpace) {
					return
				}
				if err != nil {
					t.Errorf("filling: %v", err)
					return
				}
				counts[w]++
			}
		})
	}
	wg.Wait()
	for _, n := range counts {
		accepted += n
	}
	return accepted
}

// What makes room goes on where there is none, by what the ballast took; other commits do not,
// until there is room for them and for the ballast, which is back then.
func TestBallast(t *testing.T) {
	device := tmpfs(t, "128m")
	dir := filepath.Join(device, "store")
	s, err := badger.Open(dir, tight)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ballast := filepath.Join(dir, "ballast")
	if _, err := os.Stat(ballast); err != nil {
		t.Fatalf("there is no ballast: %v", err)
	}
	total := fillDevice(t, s, 0)
	if _, err := os.Stat(ballast); err != nil {
		t.Fatalf("it was given up for ordinary commits: %v", err)
	}
	if total == 0 {
		t.Fatal("not one commit was accepted")
	}
	settle(t, dir)
	fillDevice(t, s, 1)
	making := backend.MakingRoom(t.Context())
	refused := 0
	for w := range 8 {
		for n := 0; n < total/3; n += 32 { // of eight writers none did as much
			var b backend.Batch
			for i := range 32 {
				b.Muts = append(b.Muts, backend.Mut{Key: fmt.Appendf(nil, "0-%d-%06d", w, n+i), Delete: true})
			}
			if err := s.Commit(making, b); err != nil {
				t.Fatalf("deleting on a full device: %v", err)
			}
			if refused < 3 && errors.Is(s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{put("late", "value")}}), backend.ErrNoSpace) {
				refused++
			}
		}
	}
	if _, err := os.Stat(ballast); !errors.Is(err, os.ErrNotExist) || refused < 3 {
		t.Errorf("it was not given up (%v), or others were admitted: %d were refused", err, refused)
	}
	checkFilled(t, s, 0, 0)
	if err := s.Compact(t.Context()); err != nil {
		t.Fatalf("compacting: %v", err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := s.Commit(t.Context(), backend.Batch{Muts: []backend.Mut{put("late", "value")}})
		if _, gone := os.Stat(ballast); err == nil && gone == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("with room again: %v, the ballast: %v", err, gone)
		}
	}
}

// settle waits until flushes and compactions are done; Badger starts the latter up to a second
// after opening.
func settle(t *testing.T, dir string) {
	t.Helper()
	last, since := "", time.Now()
	for deadline := since.Add(20 * time.Second); time.Since(since) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the store does not come to rest")
		}
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if now := fmt.Sprint(names); now != last {
			last, since = now, time.Now()
		}
	}
}

func checkFilled(t *testing.T, s *badger.Store, round, want int) {
	t.Helper()
	have := 0
	r := backend.Range{Start: fmt.Appendf(nil, "%d-", round), End: fmt.Appendf(nil, "%d.", round), KeysOnly: true}
	for {
		page, next, err := s.Scan(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		have += len(page)
		if r.Start = next; next == nil {
			break
		}
	}
	if have != want {
		t.Errorf("round %d: %d commits were accepted, %d keys are there", round, want, have)
	}
	t.Logf("round %d: %d commits accepted", round, want)
}

func TestOpenOnAFullDevice(t *testing.T) {
	device := tmpfs(t, "32m")
	eat(t, device, "other", 2<<20)
	dir := filepath.Join(device, "store")
	if _, err := badger.Open(dir, tight); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("%v, want ErrNoSpace", err)
	}
	if err := os.Remove(filepath.Join(device, "other")); err != nil {
		t.Fatal(err)
	}
	open(t, dir).Close()
}

// On a full device Close gives up flushing, and the acknowledged commits are replayed elsewhere.
func TestCloseOnAFullDevice(t *testing.T) {
	device := tmpfs(t, "64m")
	dir := filepath.Join(device, "store")
	cmd := child(t, "close", dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	eat(t, device, "rest", 0)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(device, "rest")); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	defer s.Close()
	entries, _, err := s.Scan(t.Context(), backend.Range{})
	if err != nil || len(entries) != 100 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func TestOpenReadOnlyMount(t *testing.T) {
	device := tmpfs(t, "32m")
	dir := filepath.Join(device, "store")
	open(t, dir).Close()
	if err := syscall.Mount("", device, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("remounting is not permitted here: %v", err)
	}
	for _, d := range []string{dir, filepath.Join(device, "new")} {
		if _, err := badger.Open(d, tight); !errors.Is(err, backend.ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", filepath.Base(d), err)
		}
	}
}
