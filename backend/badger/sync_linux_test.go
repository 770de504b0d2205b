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

// unsynced is how many pages of the store's logs are not on the device, and the names of the logs.
func unsynced(t *testing.T, s *Store) (pages uint64, logs []string) {
	t.Helper()
	stat, logs := pagesOf(t, s.dir, "*"+walSuffix)
	return stat.Dirty + stat.Writeback, logs
}

// pagesOf is what the kernel has in memory of the files in a store's directory that match a pattern, and their names.
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

// A kill does not show what a power loss would, so the kernel is asked: when a commit returns, nothing of the logs is left
// to be written, and so also after logs were exchanged.
func TestCommitsAreOnTheDevice(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time on a store that is there
		s, err := Open(dir, Options{MemTableSize: leastMemTable})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		value := bytes.Repeat([]byte("x"), 200<<10)
		for i := range 120 { // of which some 40 fill a table
			if err := s.Commit(t.Context(), single(fmt.Sprintf("key-%d", i), string(value))); err != nil {
				t.Fatal(err)
			}
			pages, logs := unsynced(t, s)
			if pages != 0 {
				t.Fatalf("commit %d: %d pages of %d logs are not on the device", i, pages, len(logs))
			}
			for _, name := range logs {
				seen[name] = true
			}
		}
		if len(seen) < 3 {
			t.Errorf("there were %d logs, the test means to see at least 3", len(seen))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing is read ahead of what is written, or each sync would write whole folios of it. A log that is new, and one that
// came after it.
func TestNothingIsReadAhead(t *testing.T) {
	s := openSmall(t)
	value := bytes.Repeat([]byte("x"), 100<<10)
	var first string
	for n, written := 1, 0; n <= 2; {
		if err := s.Commit(t.Context(), single("key", string(value))); err != nil {
			t.Fatal(err)
		}
		written += len(value)
		stat, logs := pagesOf(t, s.dir, "*"+walSuffix)
		if first == "" {
			first = logs[0]
		}
		if last := logs[len(logs)-1]; last != first && n == 1 {
			n, written = 2, len(value)
			continue
		}
		if len(logs) > 1 || written < 3<<20 { // the old log is not flushed yet, or there is not enough to see
			continue
		}
		const before, page = 1 << 20, 4096 // what the kernel did before it was told
		if got, most := int(stat.Cache)*page, written+written/10+before; got > most {
			t.Errorf("log %d: %d bytes in memory of %d that were written", n, got, written)
		}
		n += 2
	}
}

// TestCommitsAreOnTheDevice can fail: what Badger alone writes is not on the device yet.
func TestUnsyncedIsSeen(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	if err := errors.Join(txn.Set([]byte("b"), []byte("1")), txn.Commit()); err != nil {
		t.Fatal(err)
	}
	if pages, _ := unsynced(t, s); pages == 0 {
		t.Error("a transaction that nobody synced is on the device")
	}
}

// The log is found wherever the store is, and Badger is stopped where it is not.
func TestLogIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name]* of a folder")
	s, err := Open(dir, Options{MemTableSize: leastMemTable})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var w wal
	if err := w.open(t.TempDir()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a folder without a log: %v, want ErrUnavailable", err)
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

func TestMapOf(t *testing.T) {
	const path = "/data/with space/00001.mem"
	for line, want := range map[string][2]uintptr{
		"7f00001000-7f00002000 rw-s 00000000 fe:00 1234    " + path:                {0x7f00001000, 0x7f00002000},
		"7f00001000-7f00002000 rw-s 00000000 fe:00 1234    /other" + path:          {},
		"7f00001000-7f00002000 rw-s 00000000 fe:00 1234    " + path + " (deleted)": {},
		"7f00002000-7f00001000 rw-s 00000000 fe:00 1234    " + path:                {},
		"x-7f00001000 rw-s 00000000 fe:00 1234    " + path:                         {},
		"7f00001000 rw-s 00000000 fe:00 1234    " + path:                           {},
		"": {},
	} {
		from, to, ok := mapOf(line, path)
		if ok != (want != [2]uintptr{}) || ok && (from != want[0] || to != want[1]) {
			t.Errorf("%q: %x to %x, %v", line, from, to, ok)
		}
	}
}

// A sync that fails leaves its commit unknown, shows it to nobody, and stops the store.
func TestSyncFails(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	s.commits.wal.file.Close()
	err := s.Commit(t.Context(), single("b", "1"))
	if !errors.Is(err, backend.ErrAmbiguous) || !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("the commit: %v, want ErrAmbiguous and ErrUnavailable", err)
	}
	if _, err := s.Get(t.Context(), []byte("b")); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a get after it: %v", err)
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

// What is written to a log that was removed is gone when the process is.
func TestLogIsRemoved(t *testing.T) {
	s := openSmall(t)
	write(t, s, "a", "1")
	if err := os.Remove(s.commits.wal.path(s.commits.wal.number)); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), single("b", "1")); !errors.Is(err, backend.ErrAmbiguous) {
		t.Errorf("a commit to it: %v, want ErrAmbiguous", err)
	}
}
