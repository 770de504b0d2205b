package badger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ckptd/ckptd/backend"
)

// unsynced is how many pages of the segment that the store writes to are not on the device, and the
// segment's name.
func unsynced(t *testing.T, s *Store) (pages uint64, segment string) {
	t.Helper()
	stat, _ := pagesOf(t, s.dir, filepath.Join(logDir, s.logs.Segment()))
	return stat.Dirty + stat.Writeback, s.logs.Segment()
}

// pagesOf is what the kernel has in memory of the files in a store's directory that match a
// pattern, and their names.
func pagesOf(t *testing.T, dir, pattern string) (sum unix.Cachestat_t, names []string) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	switch fs.Type { // what is in memory, or laid over another file system, tells nothing of a device
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
	default:
		t.Skipf("%s SKIPPED: %s is not on ext4, XFS or btrfs", t.Name(), dir)
	}
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) { // a log that was flushed meanwhile
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var stat unix.Cachestat_t
		err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0)
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			t.Skipf("%s SKIPPED: the kernel has no cachestat, which came with Linux 6.5", t.Name())
		}
		if err != nil {
			t.Fatal(err)
		}
		sum.Cache += stat.Cache
		sum.Dirty += stat.Dirty
		sum.Writeback += stat.Writeback
	}
	return sum, names
}

// A kill does not show what a power loss would, so the kernel is asked: when a commit returns,
// nothing of the log is left to be written, and so also after segments were exchanged.
func TestCommitsAreOnTheDevice(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time on a store that is there
		s, err := Open(dir, Options{MemTableSize: leastMemTable})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		value := bytes.Repeat([]byte("x"), 200<<10)
		for i := range 40 { // of which some 5 fill a segment
			if err := s.Commit(t.Context(), single(fmt.Sprintf("key-%d", i), string(value))); err != nil {
				t.Fatal(err)
			}
			pages, segment := unsynced(t, s)
			if pages != 0 {
				t.Fatalf("commit %d: %d pages of %s are not on the device", i, pages, segment)
			}
			seen[segment] = true
		}
		if len(seen) < 3 {
			t.Errorf("there were %d segments, the test means to see at least 3", len(seen))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCommitsAreOnTheDevice can fail: what nobody synced is not on the device yet.
func TestUnsyncedIsSeen(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	writeUnsynced(t, s, "b", "1")
	if pages, _ := unsynced(t, s); pages == 0 {
		t.Error("a frame that nobody synced is on the device")
	}
}

// Memory files and segments are found wherever the store is.
func TestOddFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name]* of a folder")
	s, err := Open(dir, Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "a", "1")
	left := filepath.Join(t.TempDir(), "[a]*")
	if err := errors.Join(os.CopyFS(left, os.DirFS(dir)), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, left} {
		s, err := Open(dir, Options{MemTableSize: leastMemTable})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), []byte("a")); err != nil || string(got[0].Value) != "1" {
			t.Errorf("%q, %v", got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A process that has used up its file handles, as by connections, goes on committing.
func TestCommitsTakeNoFileHandle(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, opened := os.Open(s.dir)
	err := s.Commit(t.Context(), single("b", "1"))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if opened == nil {
		t.Error("there was a file handle left, so the test shows nothing")
	}
	if err != nil {
		t.Errorf("a commit without a file handle left: %v", err)
	}
}

// Who reads while a transaction is visible to Badger but not durable waits for it.
func TestReadsWaitForTheSync(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	s.commit.Lock() // as the leader has it until the sync is done
	read := make(chan error)
	var started sync.WaitGroup
	started.Add(2)
	go func() {
		started.Done()
		_, err := s.Get(t.Context(), []byte("a"))
		read <- err
	}()
	go func() {
		started.Done()
		_, _, err := s.Scan(t.Context(), backend.Range{})
		read <- err
	}()
	started.Wait()
	select {
	case err := <-read:
		t.Errorf("a read did not wait: %v", err)
	default:
	}
	s.stop(errors.New("the sync failed"))
	s.commit.Unlock()
	for range 2 {
		if err := <-read; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a read that waited for a failed sync: %v, want ErrUnavailable", err)
		}
	}
}

// What is written to a segment that was removed is gone when the process is.
func TestSegmentIsRemoved(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	if err := os.Remove(filepath.Join(s.dir, logDir, s.logs.Segment())); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), single("b", "1")); !errors.Is(err, backend.ErrAmbiguous) {
		t.Errorf("a commit to it: %v, want ErrAmbiguous", err)
	}
}
